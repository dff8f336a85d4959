"""pylibmc, which is libmemcached, in the binary protocol."""

import glob
import os

# The wheel brings its own library of SASL, which looks for its mechanisms elsewhere than Debian
# puts them. Read when the library is loaded.
os.environ.setdefault("SASL_PATH", ":".join(glob.glob("/usr/lib/*/sasl2")))

import pylibmc  # noqa: E402
import pytest  # noqa: E402


def connect(server, **more):
    patience = {"receive_timeout": 120_000_000, "connect_timeout": 120_000, "_poll_timeout": 120_000}
    behaviors = {"tcp_nodelay": True, **patience}
    return pylibmc.Client(["%s:%d" % server.address], binary=True, behaviors=behaviors, **more)


def test_first_in_first_out_with_types(server):
    queue = connect(server)
    assert queue.get("work") is None
    values = ["text", b"bytes\r\n\x00\xff", 7, 2**70, {"a": [1, None]}, "", b""]
    for value in values:
        assert queue.set("work", value)
    for value in values:
        taken = queue.get("work")
        assert taken == value and type(taken) is type(value)
    assert queue.get("work") is None


def test_large_items(server):
    queue = connect(server)
    for length in [65_535, 65_536, 65_537, 1_000_000]:
        body = bytes(range(256)) * (length // 256) + b"x" * (length % 256)
        assert queue.set("work", body)
        assert queue.get("work") == body


def test_open_close_abort(server):
    queue, other = connect(server), connect(server)
    queue.set("work", "a")
    queue.set("work", "b")
    assert queue.get("work/open") == "a"
    assert other.get("work/peek") == "b"
    assert queue.get("work/abort") is None
    assert queue.get("work/open/t=100") == "a"
    assert queue.get("work/close/open") == "b"
    queue.disconnect_all()
    assert other.get("work/t=20000") == "b"
    assert other.get("work") is None


def test_several_at_once(server):
    queue = connect(server)
    assert queue.set_multi({"one": 1, "two": 2}) == []
    assert queue.get_multi(["one", "none", "two"]) == {"one": 1, "two": 2}
    assert queue.get_multi(["one", "two"]) == {}


@pytest.mark.parametrize(
    "fail",
    [
        lambda queue: queue.get("work"),
        lambda queue: queue.get("work/opne"),
        lambda queue: queue.add("work", "x"),
        lambda queue: queue.incr("work", 1),
    ],
)
def test_errors(server, fail):
    queue, other = connect(server), connect(server)
    queue.set("work", "a")
    assert queue.get("work/open") == "a"
    with pytest.raises(pylibmc.Error):
        fail(queue)
    # libmemcached gives its connection up, so the item is back.
    assert other.get("work/t=20000") == "a"
    assert other.get("work") is None


def test_queues_and_numbers(server):
    queue = connect(server)
    queue.set("work", "a")
    [(_, stats)] = queue.get_stats()
    # It shows those that memcached has.
    assert stats["cmd_set"] in ("1", b"1")
    assert queue.delete("work")
    assert queue.get("work") is None
    queue.set("work", "a")
    assert queue.flush_all()
    assert queue.get("work") is None


def test_who_logs_in_may_do_what_it_may(guarded):
    queue = connect(guarded, username="ann", password="hush")
    assert queue.set("work", "a")
    assert queue.get("work") == "a"
    with pytest.raises(pylibmc.Error):
        queue.set("others", "a")


@pytest.mark.parametrize("login", [{}, {"username": "ann", "password": "guess"}])
def test_nobody_else_is_let_in(guarded, login):
    queue = connect(guarded, **login)
    with pytest.raises(pylibmc.Error):
        queue.set("work", "a")
    assert connect(guarded, username="ann", password="hush").get("work") is None
