"""python-memcached, unmodified."""

import threading

import memcache
import pytest
from conftest import until


@pytest.fixture
def connect(server):
    clients = []

    def connector(**options):
        host, port = server.address
        client = memcache.Client([f"{host}:{port}"], socket_timeout=120, dead_retry=0, **options)
        clients.append(client)
        return client

    yield connector
    for client in clients:
        client.disconnect_all()


def test_first_in_first_out(connect):
    queue = connect()
    assert queue.get("work") is None
    for item in ["a", "b", "c"]:
        assert queue.set("work", item)
    assert [queue.get("work") for _ in range(4)] == ["a", "b", "c", None]


def test_types_come_back(connect):
    queue = connect()
    for value in ["text", b"bytes\r\n\x00\xff", 7, {"a": [1, None]}, True, ""]:
        assert queue.set("work", value)
        taken = queue.get("work")
        assert taken == value and type(taken) is type(value)


def test_compressed_values(connect):
    queue = connect()
    value = "long " * 100_000
    assert queue.set("work", value, min_compress_len=100)
    assert queue.get("work") == value
    large = bytes(200_000)
    assert queue.set("work", large)
    assert queue.get("work") == large


def test_waiting(connect):
    waiting, putting = connect(), connect()
    assert waiting.get("work/t=50") is None
    taken = []
    thread = threading.Thread(target=lambda: taken.append(waiting.get("work/t=19000")))
    thread.start()
    until(lambda: putting.get_stats()[0][1].get("queue_work_waiters") == "1")
    putting.set("work", "now")
    thread.join()
    assert taken == ["now"]


def test_open_close_abort(connect):
    queue, other = connect(), connect()
    queue.set("work", 1)
    queue.set("work", 2)
    assert queue.get("work/open") == 1
    assert other.get("work/peek") == 2
    assert queue.get("work/abort") is None
    assert queue.get("work/open/t=100") == 1
    assert queue.get("work/close/open") == 2
    queue.disconnect_all()
    assert other.get("work/t=19000") == 2
    assert other.get("work") is None


def test_errors(connect):
    queue = connect()
    queue.set("work", "a")
    assert queue.get("work/open") == "a"
    # This client takes every error of a get for a miss; the connection ends,
    # and the item is back.
    assert queue.get("work") is None
    assert queue.get("work/t=19000") == "a"
    assert not queue.add("work", "x")
    assert queue.get_multi(["one", "two"]) == {}
    assert queue.set("work", "b")
    assert queue.get("work") == "b"
    with pytest.raises(memcache.Client.MemcachedKeyCharacterError):
        queue.get("no spaces")


def test_queues(connect):
    queue = connect()
    queue.set("work", "a")
    assert queue.delete("work")
    assert queue.delete("work")
    assert queue.get("work") is None
    queue.set("work", "gone", time=-1)
    queue.set("work", "kept", time=3600)
    assert queue.get("work") == "kept"
    queue.set("work", "a")
    queue.flush_all()
    assert queue.get("work") is None
    stats = queue.get_stats()[0][1]
    assert stats["queue_work_items"] == "0"
    assert stats["queue_work_total_items"] == "3"
