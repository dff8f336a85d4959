"""quintet_jobqueue against the real binary, as a stranger would use it."""

import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import until
from quintet_jobqueue import (
    Client,
    ConnectionLost,
    Job,
    JobNotFound,
    JobQueueError,
    ProtocolError,
    ServerError,
)

LISTEN = ("--listen", "jobqueue=127.0.0.1:0", "--listen", "memcache=127.0.0.1:0")


@pytest.fixture
def server(start):
    return start(*LISTEN)


@pytest.fixture
def connect(request):
    clients = []

    def connector(server=None):
        server = server or request.getfixturevalue("server")
        clients.append(Client(port=server.ports["jobqueue"], timeout=120))
        return clients[-1]

    yield connector
    for client in clients:
        client.close()


def test_add_reserve_delete(connect):
    queue = connect()
    assert queue.add("mail", b"to: ada", priority=7, ttp=30) == 1
    job = queue.reserve("mail", timeout=5)
    assert job == Job(1, "mail", 7, 30, b"to: ada")
    queue.delete(job)
    with pytest.raises(JobNotFound, match="Job 1 already deleted"):
        queue.delete(job)
    queue.ping()


def test_ids_rise_over_all_queues(connect):
    queue = connect()
    assert [queue.add(name, b"") for name in ["a", "b", "a"]] == [1, 2, 3]
    assert queue.reserve("b", timeout=1).id == 2


def test_urgent_first_then_oldest(connect):
    queue = connect()
    for priority in [2, 1, 4, 1, 2, 3]:
        queue.add("work", b"", priority=priority)
    assert [queue.reserve("work", timeout=1).id for _ in range(6)] == [2, 4, 1, 5, 6, 3]


def test_nothing_in_time(connect):
    queue = connect()
    before = time.monotonic()
    assert queue.reserve("work", timeout=1) is None
    assert time.monotonic() - before >= 1


def test_waiting_without_limit(connect):
    jobs = []
    waiter = connect()
    thread = threading.Thread(target=lambda: jobs.append(waiter.reserve("work")))
    thread.start()
    other = connect()
    for number in range(3):
        other.add("work", b"%d" % number)
    thread.join(120)
    assert [job.data for job in jobs] == [b"0"]
    assert other.reserve("work", timeout=1).data == b"1"


@pytest.mark.parametrize("length", [0, 1, 65_536, 65_537, 3 << 20])
def test_any_bytes(connect, length):
    queue = connect()
    data = (bytes(range(256)) * (length // 256 + 1))[:length]
    queue.add("wörk", data)
    assert queue.reserve("wörk", timeout=1).data == data


def test_a_stranger_may_finish(connect):
    worker, stranger = connect(), connect()
    ready, reserved = worker.add("work", b"a"), worker.add("work", b"b")
    assert worker.reserve("work", timeout=1).id == ready
    stranger.delete(ready)
    stranger.delete(reserved)
    assert stranger.reserve("work", timeout=1) is None


def test_time_to_process(connect):
    worker, other = connect(), connect()
    worker.add("work", b"held", ttp=3600)
    worker.add("work", b"next", ttp=3600)
    assert worker.reserve("work", timeout=1).data == b"held"
    assert other.reserve("work", timeout=1).data == b"next"
    worker.add("work", b"slow", ttp=1)
    before = time.monotonic()
    assert worker.reserve("work", timeout=1).data == b"slow"
    # It comes back by itself, to whoever waits.
    again = other.reserve("work", timeout=120)
    assert again.data == b"slow"
    assert time.monotonic() - before >= 1
    # Whoever has it may finish it; the first worker has to expect that.
    other.delete(again)
    with pytest.raises(JobNotFound):
        worker.delete(again)


def test_a_reservation_outlives_its_connection(connect):
    with connect() as worker:
        worker.add("work", b"a", ttp=3600)
        job = worker.reserve("work", timeout=1)
    other = connect()
    assert other.reserve("work", timeout=1) is None
    other.delete(job)


def test_without_ttp_it_ends_with_the_connection(connect):
    worker, other = connect(), connect()
    worker.add("work", b"a", ttp=0)
    job = worker.reserve("work", timeout=1)
    assert job.ttp == 0
    assert other.reserve("work", timeout=1) is None
    worker.close()
    assert other.reserve("work", timeout=120) == job


@pytest.mark.parametrize("shards", [1, 4])
def test_kill_dash_nine(start, connect, tmp_path, shards):
    """Reservations are kept over a crash, and time goes on while the server is down."""
    config = tmp_path / "quintet.toml"
    config.write_text(f"shards = {shards}\n")
    options = (*LISTEN, "--config", str(config))
    first = start(*options)
    worker = connect(first)
    for name in ["one", "two", "three"]:
        for ttp in [3600, 5, 0]:
            worker.add(name, b"ttp %d" % ttp, priority=3600 - ttp, ttp=ttp)
    before = time.monotonic()
    held = {}
    for name in ["one", "two", "three"]:
        held[name] = [worker.reserve(name, timeout=1) for _ in range(3)]
        assert [job.data for job in held[name]] == [b"ttp 3600", b"ttp 5", b"ttp 0"]
    waited = connect(first)
    waited.add("mark", b"")
    first.kill()
    with pytest.raises(ConnectionLost):
        worker.ping()

    # The short reservations end while nobody is there to notice.
    until(lambda: time.monotonic() - before > 5.5)
    second = start(*options)
    other = connect(second)
    for name, jobs in held.items():
        assert [other.reserve(name, timeout=1) for _ in range(2)] == jobs[1:]
        assert other.reserve(name, timeout=1) is None
        for job in jobs:
            other.delete(job)


def test_other_protocols_see_the_same_jobs(server, connect):
    queue = connect()
    with socket.create_connection(server.address, timeout=120) as other:
        reply = other.makefile("rb")
        other.sendall(b"set work 0 0 5\r\nhello\r\n")
        assert reply.readline() == b"STORED\r\n"
        job = queue.reserve("work", timeout=1)
        # Put without either, it has the defaults of the queue.
        assert (job.priority, job.ttp, job.data) == (1024, 60, b"hello")
        queue.add("work", b"hi")
        other.sendall(b"get work\r\n")
        assert [reply.readline() for _ in range(3)] == [b"VALUE work 0 2\r\n", b"hi\r\n", b"END\r\n"]


def test_refusals(start, connect, tmp_path):
    config = tmp_path / "quintet.toml"
    config.write_text(
        '[[listen]]\nprotocol = "jobqueue"\naddress = "127.0.0.1:0"\nmax_job_size = 1000\nmax_name = 8\n'
        '[[queue]]\nname = "small"\nmessages_max = 1\n'
    )
    queue = connect(start("--config", str(config)))
    queue.add("small", b"a")
    with pytest.raises(ServerError, match="^Queue full$"):
        queue.add("small", b"b")
    queue.ping()
    # The server does not read what is over its limit.
    with pytest.raises(ServerError, match="^Job data too large$"):
        queue.add("work", bytes(1001))
    with pytest.raises(ConnectionLost):
        queue.ping()


def test_arguments_are_checked_before_anything_is_sent(connect):
    queue = connect()
    for call in [
        lambda: queue.add("", b""),
        lambda: queue.add("a\0b", b""),
        lambda: queue.add("a", b"", priority=-1),
        lambda: queue.add("a", b"", ttp=2**32),
        lambda: queue.reserve("a", timeout=0),
        lambda: queue.delete(-1),
    ]:
        with pytest.raises(ValueError):
            call()
    queue.ping()


def test_a_closed_client(connect):
    queue = connect()
    queue.close()
    queue.close()
    with pytest.raises(ConnectionLost, match="closed"):
        queue.add("work", b"")
    assert issubclass(ConnectionLost, JobQueueError) and issubclass(ConnectionLost, OSError)


@pytest.mark.parametrize(
    "reply, error",
    [
        (b"WHAT\0", ProtocolError),
        (b"\xff\0", ProtocolError),
        (b"-ERR no such command\r\n", ConnectionLost),
        (b"", ConnectionLost),
    ],
)
def test_somebody_else_answers(reply, error):
    def answer(listener):
        with listener.accept()[0] as stream:
            stream.recv(100)
            stream.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        with pytest.raises(error):
            Client(port=listener.getsockname()[1], timeout=120)
        thread.join(120)


def test_a_server_that_says_nothing():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(TimeoutError):
            Client(port=silent.getsockname()[1], timeout=0.2)


def test_two_workers_share_the_work(connect):
    """Nothing is lost and nothing is done twice while nobody is too slow."""
    producer = connect()
    expected = {producer.add("work", b"%d" % number) for number in range(300)}
    done = []

    def work(worker):
        while (job := worker.reserve("work", timeout=1)) is not None:
            worker.delete(job)
            done.append(job.id)

    threads = [threading.Thread(target=work, args=(connect(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(done) == 300 and set(done) == expected


def test_it_stands_alone():
    """Imported from its folder alone, as an installed copy would be."""
    folder = Path(__file__).parent
    code = "import quintet_jobqueue as q; print(q.Client.add.__doc__.split()[0])"
    command = [sys.executable, "-I", "-c", f"import sys; sys.path.append({str(folder)!r}); {code}"]
    assert subprocess.check_output(command, text=True).strip() == "Stores"
