"""The programs of docs/clients/{ruby,php,go}.md, as they stand there, with what runs them."""

import os
import pathlib
import re
import signal
import subprocess

import greenstalk
import pytest

from conftest import PATIENCE_S, configuration, until

PAGES = pathlib.Path(__file__).parents[2] / "docs/clients"
# How a program begins: its first line names it.
HEADS = {"ruby": r"# (\S+)", "php": r"<\?php // (\S+)", "go": r"// (\S+)"}


def write(language, folder):
    """Writes the programs of a page where they are to run."""
    text = (PAGES / f"{language}.md").read_text()
    block = rf"^```{language}\n((?:{HEADS[language]})\n.*?)^```"
    for program, name in re.findall(block, text, re.M | re.S):
        if not name.startswith("config/"):
            (folder / name).write_text(program)


def build(name, folder):
    """A program of Go's: `go run` would take the signal that is the worker's."""
    environment = {**os.environ, "GOCACHE": str(folder / "cache"), "GO111MODULE": "off"}
    command = ["go", "build", "-o", name, f"{name}.go", "beanstalk.go"]
    # The first builds all that it takes of Go's library.
    subprocess.run(command, cwd=folder, env=environment, check=True)
    return [str(folder / name)]


COMMANDS = {
    "ruby": lambda name, folder: ["ruby", f"{name}.rb"],
    "php": lambda name, folder: ["php", f"{name}.php"],
    "go": build,
}


@pytest.fixture(params=COMMANDS)
def run(request, start, tmp_path):
    """Starts a program of a page against a server."""
    config = configuration(PAGES / f"{request.param}.md", tmp_path)
    server = start("--listen", "beanstalk=127.0.0.1:0", "--config", config)
    write(request.param, tmp_path)
    started = []

    def runner(name):
        command = COMMANDS[request.param](name, tmp_path)
        environment = {**os.environ, "QUEUE_PORT": str(server.ports["beanstalk"])}
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    runner.address = ("127.0.0.1", server.ports["beanstalk"])
    yield runner
    for process in started:
        process.kill()
        process.wait()


def test_jobs_are_done_tried_again_and_set_aside(run):
    assert run("producer").wait(timeout=PATIENCE_S) == 0
    worker = run("worker")
    with greenstalk.Client(run.address, use="mail") as queue:
        until(lambda: queue.stats_tube("mail")["current-jobs-buried"] == 1)
        left = queue.peek_buried()
        assert left.body.replace(" ", "") == '{"to":"nobody"}'
        assert queue.stats_job(left.id)["reserves"] == 3
        until(lambda: queue.stats()["current-jobs-reserved"] == 0)
        assert queue.stats_tube("mail")["current-jobs-ready"] == 0
    worker.send_signal(signal.SIGTERM)
    said, _ = worker.communicate(timeout=PATIENCE_S)
    assert worker.returncode == 0, "it ends in good order"
    assert sorted(said.splitlines()) == [
        *["failed: no address: nobody"] * 3,
        "sent to ada@example.org",
        "sent to grace@example.org",
    ]
