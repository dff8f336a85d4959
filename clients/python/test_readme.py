"""The Python of the README, as it stands there."""

import pathlib
import re
import subprocess
import sys

import greenstalk

from conftest import PATIENCE_S

README = pathlib.Path(__file__).parents[2] / "README.md"


def test_the_readmes_job_is_put_taken_and_deleted(start):
    server = start("--listen", "beanstalk=127.0.0.1:0")
    (program,) = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.M | re.S)
    # Another server may have the default port.
    assert program.count("11300") == 1
    port = server.ports["beanstalk"]
    program = program.replace("11300", str(port))
    done = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert done.stdout == '{"to": "ada@example.org"}\n'
    with greenstalk.Client(("127.0.0.1", port)) as queue:
        stats = queue.stats()
    assert stats["total-jobs"] == 1
    for state in ["ready", "delayed", "reserved", "buried"]:
        assert stats[f"current-jobs-{state}"] == 0, state
