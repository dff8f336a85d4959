"""The tools of libmemcached: memccp, memccat, memcrm, memcstat and others."""

import subprocess

import pytest
from conftest import PATIENCE_S


@pytest.fixture
def tool(server, tmp_path):
    host, port = server.address

    def run(name, *arguments):
        return subprocess.run(
            [name, f"--servers={host}:{port}", *arguments],
            cwd=tmp_path,
            capture_output=True,
            timeout=PATIENCE_S,
        )

    return run


def put(tool, tmp_path, name, body):
    """memccp names an item after its file."""
    (tmp_path / name).write_bytes(body)
    return tool("memccp", name)


def test_put_and_take(tool, tmp_path):
    for body in [b"first", b"second\x00\xff", b"l" * 200_000]:
        assert put(tool, tmp_path, "work", body).returncode == 0
    assert tool("memccat", "work").stdout.rstrip(b"\n") == b"first"
    assert tool("memccat", "--file=out", "work").returncode == 0
    assert (tmp_path / "out").read_bytes() == b"second\x00\xff"
    assert tool("memccat", "--file=out", "work").returncode == 0
    assert (tmp_path / "out").read_bytes() == b"l" * 200_000
    assert tool("memccat", "work").stdout.strip() == b""


def test_options(tool, tmp_path):
    assert tool("memccat", "work/t=50").stdout.strip() == b""
    put(tool, tmp_path, "work", b"a")
    # Each tool is a connection of its own: an open read comes back with its end.
    assert tool("memccat", "work/open").stdout.strip() == b"a"
    assert tool("memccat", "work/peek/t=20000").stdout.strip() == b"a"
    assert tool("memccat", "work").stdout.strip() == b"a"
    assert tool("memccat", "work").stdout.strip() == b""


def test_flags_and_expiry(tool, tmp_path):
    (tmp_path / "work").write_bytes(b"a")
    assert tool("memccp", "--flag=7", "--expire=3600", "work").returncode == 0
    shown = tool("memccat", "--flags", "work")
    assert b"7" in shown.stdout + shown.stderr


def test_queues(tool, tmp_path):
    put(tool, tmp_path, "work", b"a")
    stats = tool("memcstat").stdout
    assert b"queue_work_items" in stats
    assert tool("memcrm", "work").returncode == 0
    assert tool("memccat", "work").stdout.strip() == b""
    assert tool("memcping").returncode == 0


def test_errors(tool, tmp_path):
    put(tool, tmp_path, "work", b"a")
    # What only a cache can do fails, and does no harm.
    (tmp_path / "work").write_bytes(b"b")
    assert tool("memccp", "--add", "work").returncode != 0
    assert tool("memccat", "work").stdout.strip() == b"a"
    assert tool("memccat", "work").stdout.strip() == b""
