"""pymemcache, with what `docs/protocols/memcache.md` says it needs."""

import threading

import pytest
from conftest import lasting_port, until
from pymemcache import serde
from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheClientError, MemcacheUnknownCommandError


class QueueClient(Client):
    """A client whose keys are queue names with options: "work/t=500/open".

    The reply names the queue alone, so that is the key to look for.
    """

    def _extract_value(self, expect_cas, line, buf, remapped_keys, prefixed_keys):
        by_queue = {key.partition(b"/")[0]: asked for key, asked in remapped_keys.items()}
        return super()._extract_value(expect_cas, line, buf, by_queue, prefixed_keys)


@pytest.fixture
def connect(request):
    clients = []

    def connector(server=None):
        server = server or request.getfixturevalue("server")
        client = QueueClient(
            server.address, timeout=120, serde=serde.pickle_serde, default_noreply=False
        )
        clients.append(client)
        return client

    yield connector
    for client in clients:
        client.close()


def test_first_in_first_out(connect):
    queue = connect()
    assert queue.get("work") is None
    for item in ["a", "b", "c"]:
        assert queue.set("work", item) is True
    assert [queue.get("work") for _ in range(4)] == ["a", "b", "c", None]


def test_types_come_back(connect):
    queue = connect()
    for value in ["text", b"bytes\r\n\x00\xff", 7, 2**70, {"a": [1, None]}, "", b""]:
        queue.set("work", value)
        taken = queue.get("work")
        assert taken == value and type(taken) is type(value)


def test_large_items(connect):
    queue = connect()
    for length in [65_535, 65_536, 65_537, 8 << 20]:
        body = bytes(range(256)) * (length // 256) + b"x" * (length % 256)
        assert queue.set("work", body) is True
        assert queue.get("work") == body


def test_many_at_once_and_without_reply(connect):
    queue = connect()
    for number in range(100):
        queue.set("work", number, noreply=True)
    assert [queue.get("work") for _ in range(100)] == list(range(100))
    assert queue.set_many({"one": 1, "two": 2}) == []
    assert (queue.get("one"), queue.get("two")) == (1, 2)


def test_waiting(connect):
    waiting, putting = connect(), connect()
    assert waiting.get("work/t=50") is None
    taken = []
    thread = threading.Thread(target=lambda: taken.append(waiting.get("work/t=20000")))
    thread.start()
    until(lambda: putting.stats().get(b"queue_work_waiters") == 1)
    putting.set("work", "now")
    thread.join()
    assert taken == ["now"]


def test_open_close_abort(connect):
    queue, other = connect(), connect()
    queue.set("work", "a")
    queue.set("work", "b")
    assert queue.get("work/open") == "a"
    assert other.get("work/peek") == "b"
    assert queue.get("work/abort") is None
    assert queue.get("work/open/t=100") == "a"
    assert queue.get("work/close/open") == "b"
    queue.close()
    assert other.get("work/t=20000") == "b"
    assert other.get("work") is None


def test_errors(connect):
    queue = connect()
    queue.set("work", "a")
    assert queue.get("work/open") == "a"
    with pytest.raises(MemcacheClientError, match="close current item first"):
        queue.get("work")
    # The error ended the connection, so the item is back.
    assert queue.get("work/t=20000") == "a"
    with pytest.raises(MemcacheClientError, match="bad option"):
        queue.get("work/opne")
    with pytest.raises(MemcacheClientError, match="not supported"):
        queue.add("work", "x")
    with pytest.raises(MemcacheClientError, match="not supported"):
        queue.incr("work", 1)
    with pytest.raises(MemcacheUnknownCommandError):
        queue.get_many(["one", "two"])
    assert queue.get("work") is None


def test_expiry(connect):
    queue = connect()
    queue.set("work", "gone", expire=-1)
    queue.set("work", "kept", expire=3600)
    assert queue.get("work") == "kept"


def test_queues(connect):
    queue = connect()
    queue.set("work", "a")
    assert queue.delete("work") is True
    assert queue.get("work") is None
    queue.set("work", "a")
    queue.flush_all()
    assert queue.get("work") is None
    assert queue.version()
    stats = queue.stats()
    assert stats[b"queue_work_items"] == 0
    assert stats[b"cmd_set"] == 2
    queue.quit()


def test_a_listener_set_up_for_memcached_clients(start, connect, tmp_path):
    config = tmp_path / "quintet.toml"
    config.write_text(
        """
        [[queue]]
        name = "narrow"
        messages_max = 1

        [[listen]]
        protocol = "memcache"
        address = "127.0.0.1:0"
        max_item_size = "1KiB"
        """
    )
    queue = connect(start("--config", str(config)))
    assert queue.set("narrow", "a") is True
    assert queue.set("narrow", "b") is False
    assert queue.set("work", "x" * 2000) is False
    assert queue.set("work", "x" * 1000) is True
    assert queue.flush_all() is True
    assert queue.get("work") is None
    assert queue.get("narrow") is None


def test_messages_outlive_the_server(start, connect):
    listen = f"memcache=127.0.0.1:{lasting_port()}"
    server = start("--listen", listen)
    queue = connect(server)
    for number in range(10):
        queue.set("work", number)
    server.kill()
    start("--listen", listen)
    queue.close()
    assert [queue.get("work") for _ in range(11)] == [*range(10), None]
