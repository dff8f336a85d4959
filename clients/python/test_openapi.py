"""The served OpenAPI document is held against the server by schemathesis."""

import os
import pathlib
import re
import subprocess
import sys

from conftest import PATIENCE_S

# All that is asked of answers but that what fits the document is accepted: ids, tokens and cursors
# cannot be made up.
CHECKS = ["--checks", "all", "--exclude-checks", "positive_data_acceptance"]

# For each operation; `cargo xtask test --long` says more, and leaves out nothing.
EXAMPLES = os.environ.get("QUINTET_EXAMPLES")
FEWER = {"SCHEMATHESIS_HOOKS": str(pathlib.Path(__file__).with_name("openapi_fewer.py"))}


def test_the_server_answers_as_its_document_says(start, tmp_path):
    server = start("--listen", "http=127.0.0.1:0")
    command = [
        *[sys.executable, "-m", "schemathesis.cli", "run"],
        f"http://127.0.0.1:{server.ports['http']}/api/v1/openapi.json",
        # A stream has no end, and the server is to go on.
        *["--exclude-path-regex", "/events|/server/"],
        *["--phases", "coverage,fuzzing", *CHECKS, "--continue-on-failure"],
        # The same cases each time, however fast the machine is.
        *["--seed", "1", "--generation-database", "none", "--max-examples", EXAMPLES or "2"],
        *["--suppress-health-check", "too_slow"],
        # Polls wait for 60 s at most.
        *["--request-timeout", str(PATIENCE_S), "--warnings", "off", "--no-color"],
    ]
    # Nothing else of the environment, which it would look through for proxies with each request.
    environment = {} if EXAMPLES else FEWER
    told = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr
    (cases,) = re.findall(r"(\d+) generated, ", told.stdout)
    assert int(cases) > 1000, told.stdout
    assert server.process.poll() is None
