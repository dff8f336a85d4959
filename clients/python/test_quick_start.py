"""The programs of docs/clients/python.md, as they stand there."""

import os
import pathlib
import re
import signal
import subprocess
import sys

import greenstalk
import pytest

from conftest import PATIENCE_S, configuration, until

PAGE = pathlib.Path(__file__).parents[2] / "docs/clients/python.md"


def programs():
    """By name, which is the first line's."""
    blocks = re.findall(r"^```python\n# (\S+)\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    return dict(blocks)


@pytest.fixture
def run(start, tmp_path):
    """Starts a program of the page against a server."""
    server = start("--listen", "beanstalk=127.0.0.1:0", "--config", configuration(PAGE, tmp_path))
    started = []

    def runner(name):
        path = tmp_path / name
        path.write_text(programs()[name])
        environment = {**os.environ, "QUEUE_PORT": str(server.ports["beanstalk"])}
        process = subprocess.Popen(
            [sys.executable, str(path)], env=environment, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    runner.address = ("127.0.0.1", server.ports["beanstalk"])
    yield runner
    for process in started:
        process.kill()
        process.wait()


def test_jobs_are_done_tried_again_and_set_aside(run):
    assert run("producer.py").wait(timeout=PATIENCE_S) == 0
    worker = run("worker.py")
    with greenstalk.Client(run.address, use="mail") as queue:
        until(lambda: queue.stats_tube("mail")["current-jobs-buried"] == 1)
        left = queue.peek_buried()
        assert left.body == '{"to": "nobody"}'
        assert queue.stats_job(left.id)["reserves"] == 3
        until(lambda: queue.stats()["current-jobs-reserved"] == 0)
        assert queue.stats_tube("mail")["current-jobs-ready"] == 0
    worker.send_signal(signal.SIGTERM)
    said, _ = worker.communicate(timeout=PATIENCE_S)
    assert worker.returncode == 0, "it ends in good order"
    lines = said.splitlines()
    assert lines.count("failed: no address: nobody") == 3
    assert lines.count("sent to ada@example.org") == 1
    assert lines.count("sent to grace@example.org") == 1
