"""quintet_pinpriq, used as by a stranger, against the real binary."""

import socket
import threading

import pytest

from conftest import PATIENCE_S, until
from quintet_pinpriq import (
    Client,
    ConnectionLost,
    Packet,
    PinpriqError,
    ReplyTimeout,
    Subscriber,
)


@pytest.fixture(params=[1, 4])
def port(request, start, tmp_path):
    """A server's port, with one shard and with several."""
    config = tmp_path / "quintet.toml"
    config.write_text(f"shards = {request.param}\n[[queue]]\nname = 'full'\nmessages_max = 1\n")
    server = start("--config", str(config), "--listen", "pinpriq=127.0.0.1:0")
    return server.ports["pinpriq"]


@pytest.fixture
def client(port):
    with Client(port=port, timeout=PATIENCE_S) as client:
        yield client


def payloads(packets):
    return [packet.payload for packet in packets]


class TestPushAndPop:
    def test_a_packet_comes_back_once(self, client):
        client.push("q", b"hi", key=b"k")
        assert client.pop("q") == [Packet(b"k", b"hi")]
        assert client.pop("q") == []

    def test_the_most_urgent_first_and_the_newest_of_those(self, client):
        for priority, payload in [(2, b"a"), (1, b"b"), (1, b"c"), (255, b"d")]:
            client.push("q", payload, key=payload, priority=priority)
        taken = [payloads(client.pop("q")) for _ in range(5)]
        assert taken == [[b"c"], [b"b"], [b"a"], [b"d"], []]

    def test_packets_of_one_key_leave_together(self, client):
        client.push("q", b"held back", key=b"k", priority=0)
        assert client.pop("q") == []
        client.push("q", b"later", key=b"k", priority=9)
        client.push("q", b"other", key=b"x", priority=5)
        client.push("q", b"first", key=b"k", priority=3)
        assert payloads(client.pop("q")) == [b"first", b"later", b"held back"]
        assert payloads(client.pop("q")) == [b"other"]

    def test_a_packet_expires(self, client):
        client.push("q", b"short", key=b"a", ttl_ms=1)
        client.push("q", b"long", key=b"b", ttl_ms=65535, priority=2)
        until(lambda: self.expired(client))
        assert payloads(client.pop("q")) == [b"long"]

    @staticmethod
    def expired(client):
        """A packet of the same age as the short one is gone."""
        client.push("probe", b"", ttl_ms=1)
        client.flush()
        return client.pop("probe") == []

    def test_any_bytes_go_through(self, client):
        everything = bytes(range(256)) * 255 + b"x" * 255
        assert len(everything) == 65535
        name = b"\x00\xff\r\n" * 100
        client.push(name, everything, key=everything[::-1])
        assert client.pop(name) == [Packet(everything[::-1], everything)]
        client.push("grün", b"", key=b"")
        assert client.pop("grün".encode()) == [Packet(b"", b"")]

    def test_many_at_once(self, client):
        for number in range(3000):
            client.push("q", b"%d" % number, key=b"one")
        packets = client.pop("q")
        assert payloads(packets) == [b"%d" % number for number in reversed(range(3000))]

    def test_a_group_larger_than_its_count_comes_in_parts(self, client):
        for _ in range(65_540):
            client.push("q", b"", key=b"one")
        assert [len(client.pop("q")) for _ in range(3)] == [65_535, 5, 0]

    def test_a_refused_push_is_dropped_and_nothing_else(self, client):
        client.push("full", b"1", key=b"a")
        client.push("full", b"2", key=b"b")
        client.flush()
        assert payloads(client.pop("full")) == [b"1"]
        assert client.pop("full") == []


class TestSubscribe:
    def test_a_group_for_each_credit(self, port, client):
        with Subscriber("q", port=port) as groups:
            assert groups.receive(timeout=0) is None
            client.push("q", b"1", key=b"a")
            assert payloads(groups.receive(PATIENCE_S)) == [b"1"]
            client.push("q", b"2", key=b"b")
            client.flush()
            # No credit is out, so it is there for others.
            assert payloads(client.pop("q")) == [b"2"]

    def test_the_best_of_several_queues(self, port, client):
        for queue, priority in [("a", 5), ("b", 2), ("c", 7)]:
            client.push(queue, queue.encode(), priority=priority)
        client.flush()
        with Subscriber("a", "b", "c", port=port) as groups:
            order = [payloads(groups.receive(PATIENCE_S)) for _ in range(3)]
        assert order == [[b"b"], [b"a"], [b"c"]]

    def test_companions_come_along(self, port, client):
        with Subscriber("q", port=port) as groups:
            groups.ready()
            client.push("q", b"behind", key=b"k", priority=0)
            client.push("q", b"selected", key=b"k", priority=9)
            assert payloads(groups.receive(PATIENCE_S)) == [b"selected", b"behind"]

    def test_queues_come_and_go(self, port, client):
        with Subscriber("a", port=port) as groups:
            groups.ready()
            groups.subscribe("b")
            groups.unsubscribe("a")
            # Their order on the way is that of the connection.
            client.push("b", b"from b")
            assert payloads(groups.receive(PATIENCE_S)) == [b"from b"]
            assert groups.receive(timeout=0) is None
            client.push("a", b"from a")
            client.flush()
            assert payloads(client.pop("a")) == [b"from a"]

    def test_iteration_until_it_is_closed(self, port, client):
        for number in range(10):
            client.push("q", b"%d" % number, key=b"%d" % number)
        client.flush()
        got = []
        with Subscriber("q", port=port, prefetch=True) as groups:
            for group in groups:
                got.extend(payloads(group))
                if len(got) == 10:
                    groups.close()
        assert sorted(got) == [b"%d" % number for number in range(10)]

    def test_each_packet_reaches_one_of_many_subscribers(self, port, client):
        queues = [f"q{number}" for number in range(6)]
        lock, got = threading.Lock(), []

        def work():
            with Subscriber("stop", *queues, port=port) as groups:
                for group in groups:
                    if group[0].payload == b"stop":
                        return
                    with lock:
                        got.extend(payloads(group))

        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        for number in range(600):
            client.push(queues[number % 6], b"%d" % number, key=b"%d" % number)
        until(lambda: len(got) >= 600)
        for number in range(4):
            client.push("stop", b"stop", key=b"%d" % number)
        for worker in workers:
            worker.join(PATIENCE_S)
            assert not worker.is_alive()
        assert sorted(got, key=int) == [b"%d" % number for number in range(600)]


class TestTrouble:
    @pytest.mark.parametrize(
        "wrong",
        [
            {"priority": 256},
            {"priority": -1},
            {"ttl_ms": 65536},
            {"key": b"k" * 65536},
            {"payload": b"p" * 65536},
            {"queue": ""},
            {"queue": "q" * 65536},
        ],
    )
    def test_what_cannot_be_said_is_not_sent(self, client, wrong):
        arguments = {"queue": "q", "payload": b"", **wrong}
        with pytest.raises(ValueError):
            client.push(arguments.pop("queue"), arguments.pop("payload"), **arguments)
        assert client.pop("q") == []

    def test_nobody_listens(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            with pytest.raises(ConnectionLost):
                Client(port=unused.getsockname()[1])

    def test_the_server_goes_away(self, start):
        server = start("--listen", "pinpriq=127.0.0.1:0")
        client = Client(port=server.ports["pinpriq"])
        groups = Subscriber("q", port=server.ports["pinpriq"])
        server.stop()
        with pytest.raises(ConnectionLost):
            groups.receive(PATIENCE_S)
        with pytest.raises(PinpriqError):
            client.pop("q")
        with pytest.raises(ConnectionLost, match="closed"):
            client.pop("q")

    def test_a_server_that_says_nothing(self):
        with socket.create_server(("127.0.0.1", 0)) as mute:
            client = Client(port=mute.getsockname()[1], timeout=0.05)
            with pytest.raises(ReplyTimeout):
                client.pop("q")
            with pytest.raises(ConnectionLost):
                client.flush()

    def test_stored_packets_outlive_the_server(self, start):
        server = start("--listen", "pinpriq=127.0.0.1:0")
        with Client(port=server.ports["pinpriq"]) as client:
            client.push("q", b"companion", key=b"k", priority=0)
            client.push("q", b"selected", key=b"k")
            client.flush()
        server.kill()
        server = start("--listen", "pinpriq=127.0.0.1:0")
        with Client(port=server.ports["pinpriq"]) as client:
            assert payloads(client.pop("q")) == [b"selected", b"companion"]

    def test_a_unix_socket(self, start, tmp_path):
        path = str(tmp_path / "pinpriq.sock")
        start("--listen", f"pinpriq=unix:{path}")
        with Client(path=path) as client, Subscriber("q", path=path) as groups:
            client.push("q", b"hi")
            assert groups.receive(PATIENCE_S) == [Packet(b"", b"hi")]
