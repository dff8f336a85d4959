"""A server for each test: the real binary on a fresh directory and a free port."""

import contextlib
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import time

import pytest

# Longer than anything takes on a busy machine.
PATIENCE_S = 120

# Small files: a server under test writes little.
SMALL = 'segment_bytes = "4MiB"\nspare_segments = 1\n'

# What ann may, and nobody else.
USERS = """
[[grant]]
user = "ann"
queues = ["work", "none"]
rights = ["put", "take", "settle", "peek", "admin"]

[[listen]]
protocol = "memcache"
address = "127.0.0.1:0"
"""


def until(condition):
    """Asks again and again, until it is so; in between the processor is for others."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)


def lasting_port():
    """A port for a server that is to start there again: the system gives it to nobody meanwhile, as
    those that it gives are higher."""
    while True:
        port = random.randrange(23_000, 32_000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


class Server:
    """A running `quintet serve`."""

    def __init__(self, data, *arguments, under=()):
        binary = os.environ.get("QUINTET", "quintet")
        self.data = data
        if "--config" in arguments:
            config = pathlib.Path(arguments[arguments.index("--config") + 1])
        else:
            config = data.with_suffix(".small.toml")
            config.touch()
            arguments = (*arguments, "--config", str(config))
        if "segment_bytes" not in config.read_text():
            config.write_text(SMALL + config.read_text())
        self.process = subprocess.Popen(
            [*under, binary, "serve", "--data", str(data), "--sync", "50ms", *arguments],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ports = {}
        for line in self.process.stdout:
            words = line.split()
            if words[:1] == ["listening"] and not words[2].startswith("unix:"):
                self.ports[words[1]] = int(words[2].rpartition(":")[2])
            if line.strip() == "quintet ready":
                break
        else:
            raise RuntimeError(f"the server ended: {self.process.wait()}")

    @property
    def address(self):
        return ("127.0.0.1", self.ports["memcache"])

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=PATIENCE_S) == 0

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def start(tmp_path):
    """Starts servers on one directory, and stops those still running."""
    servers = []

    def starter(*arguments):
        arguments = arguments or ("--listen", "memcache=127.0.0.1:0")
        servers.append(Server(tmp_path / "data", *arguments))
        return servers[-1]

    yield starter
    for server in servers:
        if server.process.poll() is None:
            server.stop()


def configuration(page, folder):
    """Writes a page's configuration of the server to a file; returns its path."""
    (text,) = re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.M | re.S)
    path = folder / "quintet.toml"
    path.write_text(text)
    return str(path)


@pytest.fixture
def server(start):
    return start()


@pytest.fixture
def guarded(start, tmp_path):
    """One over memcache, where ann may use the queue "work" with the password "hush"."""
    binary = os.environ.get("QUINTET", "quintet")
    table = subprocess.run(
        [binary, "passwd", "ann"], input="hush\n", check=True, capture_output=True, text=True
    ).stdout
    config = tmp_path / "quintet.toml"
    config.write_text(f"{table}\n{USERS}")
    config.chmod(0o600)
    return start("--config", str(config))
