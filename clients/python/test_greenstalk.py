"""The PyPI client greenstalk, unmodified: its whole API, against the real binary."""

import signal
import socket

import greenstalk
import pytest
from conftest import until


@pytest.fixture
def beanstalk(start):
    return start("--listen", "beanstalk=127.0.0.1:0")


@pytest.fixture
def connect(beanstalk):
    clients = []

    def connector(**options):
        clients.append(greenstalk.Client(("127.0.0.1", beanstalk.ports["beanstalk"]), **options))
        return clients[-1]

    yield connector
    for client in clients:
        client.close()


def test_a_job_from_put_to_delete(connect):
    client = connect()
    job_id = client.put("bonjour, \u00e7a va")
    job = client.reserve()
    assert (job.id, job.body) == (job_id, "bonjour, \u00e7a va")
    client.delete(job)
    with pytest.raises(greenstalk.NotFoundError):
        client.delete(job_id)


def test_the_first_job_of_a_fresh_server_is_1(connect):
    assert connect().put("a") == 1


def test_bytes_and_sizes(connect):
    client = connect(encoding=None)
    for body in [b"", bytes(range(256)), b"\r\n", b"x" * 65535]:
        client.put(body)
        job = client.reserve()
        assert job.body == body
        client.delete(job)
    with pytest.raises(greenstalk.JobTooBigError):
        client.put(b"x" * 65536)
    assert client.using() == "default"


def test_a_job_without_its_end(connect):
    client = connect()
    client._sock.sendall(b"put 0 0 60 1\r\nabc")
    with pytest.raises(greenstalk.ExpectedCrlfError):
        client._send_cmd(b"", b"")


def test_tubes(connect):
    client = connect(use="hi", watch=["there", "everywhere"])
    assert client.using() == "hi"
    assert client.watching() == ["everywhere", "there"] or client.watching() == ["there", "everywhere"]
    assert sorted(client.tubes()) == ["default", "everywhere", "hi", "there"]
    assert client.watch("default") == 3
    assert client.ignore("there") == 2
    assert client.ignore("there") == 2
    assert client.ignore("everywhere") == 1
    with pytest.raises(greenstalk.NotIgnoredError):
        client.ignore("default")
    client.use("default")
    assert client.tubes() == ["default"]
    for bad in ["", "-a", "a b", "x" * 201]:
        with pytest.raises((greenstalk.BadFormatError, greenstalk.UnknownCommandError)):
            client.watch(bad)


def test_order_over_tubes(connect):
    client = connect(watch=["one", "two"])
    for tube, body, priority in [("one", "c", 9), ("two", "a", 1), ("one", "b", 1), ("two", "d", 9)]:
        client.use(tube)
        client.put(body, priority=priority)
    assert [client.reserve(timeout=0).body for _ in range(4)] == ["a", "b", "c", "d"]
    with pytest.raises(greenstalk.TimedOutError):
        client.reserve(timeout=0)


def test_waiting(connect):
    worker, producer = connect(), connect()
    worker._sock.sendall(b"reserve\r\n")
    until(lambda: producer.stats()["current-waiting"] == 1)
    job_id = producer.put("late")
    assert worker._reader.readline() == b"RESERVED %d 4\r\n" % job_id
    assert worker._read_chunk(4) == b"late"
    with pytest.raises(greenstalk.TimedOutError):
        producer.reserve(timeout=1)


def test_release_and_delay(connect):
    client = connect()
    client.put("a", priority=5)
    job = client.reserve()
    client.release(job, priority=1)
    assert client.stats_job(job)["pri"] == 1
    job = client.reserve_job(job.id)
    client.release(job, delay=60)
    assert client.stats_job(job)["state"] == "delayed"
    assert client.peek_delayed().id == job.id
    with pytest.raises(greenstalk.NotFoundError):
        client.release(job)
    client.kick_job(job)
    assert client.peek_ready().id == job.id
    delayed = client.put("b", delay=1)
    client.delete(job)
    assert client.reserve(timeout=120).id == delayed


def test_bury_and_kick(connect):
    client = connect()
    jobs = [client.put(body) for body in "abc"]
    client.put("later", delay=60)
    for _ in jobs:
        client.bury(client.reserve(), priority=3)
    assert client.peek_buried().id == jobs[0]
    assert client.kick(2) == 2
    assert client.peek_buried().id == jobs[2]
    client.kick_job(jobs[2])
    with pytest.raises(greenstalk.NotFoundError):
        client.peek_buried()
    with pytest.raises(greenstalk.NotFoundError):
        client.kick_job(jobs[2])
    assert client.kick(10) == 1
    assert [client.reserve(timeout=0).body for _ in range(4)] == ["a", "b", "c", "later"]


def test_touch_and_deadline(connect):
    client = connect()
    job_id = client.put("a", ttr=2)
    job = client.reserve()

    def warned():
        """If it was late, the job had come back, and it holds it anew."""
        try:
            client.reserve(timeout=120)
        except greenstalk.DeadlineSoonError:
            return True
        return False

    def touched():
        """In the last second, which may be over before it."""
        until(warned)
        try:
            client.touch(job)
        except greenstalk.NotFoundError:
            return False
        return True

    until(touched)
    until(warned)
    other = connect()
    assert other.reserve(timeout=120).id == job_id
    with pytest.raises(greenstalk.NotFoundError):
        client.touch(job)
    assert other.stats_job(job_id)["timeouts"] >= 1


def test_what_one_held_goes_back(connect):
    holder, other = connect(), connect()
    job_id = holder.put("a")
    job = holder.reserve()
    for act in [other.delete, other.touch, other.release, other.bury]:
        with pytest.raises(greenstalk.NotFoundError):
            act(job)
    with pytest.raises(greenstalk.NotFoundError):
        other.reserve_job(job_id)
    assert other.peek(job_id).body == "a"
    holder.close()
    assert other.reserve(timeout=120).id == job_id


def test_pause(connect):
    client = connect()
    client.put("a")
    client.pause_tube("default", 3600)
    stats = client.stats_tube("default")
    assert (stats["pause"], stats["cmd-pause-tube"]) == (3600, 1)
    client.pause_tube("default", 1)
    assert client.reserve(timeout=120).body == "a"
    with pytest.raises(greenstalk.NotFoundError):
        client.pause_tube("nosuch", 1)


def test_statistics(connect):
    client = connect(use="foo")
    job_id = client.put("a", priority=7, ttr=90)
    assert set(client.stats_job(job_id)) == set(greenstalk.StatsJob.__annotations__)
    job = client.stats_job(job_id)
    assert (job["id"], job["tube"], job["state"]) == (job_id, "foo", "ready")
    assert (job["pri"], job["ttr"]) == (7, 90)
    tube = client.stats_tube("foo")
    assert set(tube) == set(greenstalk.StatsTube.__annotations__)
    assert (tube["name"], tube["current-jobs-urgent"], tube["current-using"]) == ("foo", 1, 1)
    stats = client.stats()
    assert set(stats) == set(greenstalk.Stats.__annotations__)
    assert (stats["cmd-put"], stats["total-jobs"], stats["current-producers"]) == (1, 1, 1)
    assert (stats["draining"], stats["hostname"]) == ("false", socket.gethostname())
    for missing in [lambda: client.stats_job(job_id + 1), lambda: client.stats_tube("nosuch")]:
        with pytest.raises(greenstalk.NotFoundError):
            missing()


def test_drain(beanstalk, connect):
    client = connect()
    client.put("before")
    beanstalk.process.send_signal(signal.SIGUSR1)
    until(lambda: client.stats()["draining"] == "true")
    with pytest.raises(greenstalk.DrainingError):
        client.put("after")
    assert client.reserve(timeout=0).body == "before"


def test_unix_socket(start, tmp_path):
    path = tmp_path / "jobs.sock"
    start("--listen", f"beanstalk=unix:{path}")
    with greenstalk.Client(str(path)) as client:
        client.put("a")
        assert client.reserve().body == "a"


def test_jobs_outlive_the_server(start):
    server = start("--listen", "beanstalk=127.0.0.1:0")
    with greenstalk.Client(("127.0.0.1", server.ports["beanstalk"])) as client:
        ids = [client.put(body, delay=delay) for body, delay in [("a", 0), ("b", 0), ("c", 3600)]]
        client.bury(client.reserve())
        client.reserve()
        server.kill()
    server = start("--listen", "beanstalk=127.0.0.1:0")
    with greenstalk.Client(("127.0.0.1", server.ports["beanstalk"])) as client:
        states = [client.stats_job(job_id)["state"] for job_id in ids]
        assert states == ["buried", "ready", "delayed"]
        assert client.put("d") == ids[-1] + 1
