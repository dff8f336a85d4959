"""The PyPI client pystalk, unmodified: its whole API, against the real binary."""

import pytest
from pystalk import BeanstalkClient, BeanstalkConnectionError, BeanstalkError, ProductionPool


@pytest.fixture
def beanstalk(start):
    return start("--listen", "beanstalk=127.0.0.1:0")


@pytest.fixture
def uri(beanstalk):
    return f"beanstalk://127.0.0.1:{beanstalk.ports['beanstalk']}"


@pytest.fixture
def connect(uri):
    clients = []

    def connector(**options):
        clients.append(BeanstalkClient.from_uri(uri, socket_timeout=130, **options))
        return clients[-1]

    yield connector
    for client in clients:
        client.close()


def test_put_reserve_delete(connect):
    client = connect()
    assert client.ping()
    _, job_id = client.put_job("first")
    client.put_job(b"second\x00\xff\r\n")
    client.put_job("x" * 60000)
    job = client.reserve_job()
    assert (job.job_id, job.job_data) == (job_id, b"first")
    client.delete_job(job)
    assert [len(job.job_data) for job in client.reserve_iter()] == [10, 60000]
    with pytest.raises(BeanstalkError, match="NOT_FOUND"):
        client.delete_job(job_id)
    with pytest.raises(BeanstalkError, match="TIMED_OUT"):
        client.reserve_job(timeout=1)
    with pytest.raises(BeanstalkError, match="JOB_TOO_BIG"):
        client.put_job("x" * 70000)


def test_text(connect):
    client = connect(auto_decode=True)
    client.put_job("\u00e7a va")
    assert client.reserve_job().job_data == "\u00e7a va"


def test_tubes(connect):
    client = connect()
    client.watch("work")
    assert client.watchlist == {"work"}
    client.watchlist = ["work", "more"]
    client.use("work")
    client.put_job("1")
    client.put_job_into("more", "2", pri=1)
    with client.using("aside") as tube:
        tube.put_job("3")
    client.put_job("4")
    assert [job.job_data for job in client.reserve_iter()] == [b"2", b"1", b"4"]
    assert sorted(client.list_tubes()) == ["aside", "default", "more", "work"]
    assert client.stats_tube("aside")["current-jobs-ready"] == 1
    client.ignore("more")
    assert client.watchlist == {"work"}


def test_release_bury_and_kick(connect):
    client = connect()
    jobs = [client.put_job(str(number))[1] for number in range(3)]
    for job in list(client.reserve_iter()):
        client.bury_job(job)
    assert client.peek_buried().job_id == jobs[0]
    client.kick_job(jobs[0])
    assert client.kick_jobs(10)[1] == 2
    job = client.reserve_job()
    client.release_job(job, pri=0, delay=3600)
    assert client.peek_delayed().job_id == job.job_id
    assert client.stats_job(job)["state"] == "delayed"
    assert client.peek_ready().job_id == jobs[1]
    for job in client.peek_ready_iter():
        client.delete_job(job)
    for job in client.peek_delayed_iter():
        client.delete_job(job)
    for job in client.peek_buried_iter():
        client.delete_job(job)
    stats = client.stats()
    assert [stats[f"current-jobs-{kind}"] for kind in ["ready", "delayed", "buried"]] == [0, 0, 0]


def test_pause(connect):
    client = connect()
    client.put_job("a")
    client.pause_tube("default", 3600)
    assert client.stats_tube("default")["pause"] == 3600
    with pytest.raises(BeanstalkError, match="TIMED_OUT"):
        client.reserve_job(timeout=0)
    client.unpause_tube("default")
    assert client.reserve_job(timeout=0).job_data == b"a"


def test_statistics_are_yaml(connect):
    client = connect()
    _, job_id = client.put_job("a", pri=5, delay=0, ttr=90)
    stats = client.stats_job(job_id)
    assert (stats["id"], stats["tube"], stats["pri"], stats["ttr"]) == (job_id, "default", 5, 90)
    stats = client.stats()
    assert stats["draining"] is False
    assert isinstance(stats["hostname"], str) and isinstance(stats["version"], str)


def test_a_client_comes_again(connect):
    client = connect()
    client.use("work")
    client.watch("work")
    client.put_job("a")
    client.reserve_job()
    client.close()
    assert client.reserve_job(timeout=120).job_data == b"a"


def test_pool(start, uri):
    elsewhere = BeanstalkClient("127.0.0.1", 1, socket_timeout=5)
    with pytest.raises(BeanstalkConnectionError):
        elsewhere.ping()
    pool = ProductionPool([elsewhere, BeanstalkClient.from_uri(uri, socket_timeout=130)])
    pool.use("pool")
    pool.put_job("a")
    pool.put_job_into("pool", "b")
    client = BeanstalkClient.from_uri(uri)
    client.watch("pool")
    assert [job.job_data for job in client.reserve_iter()] == [b"a", b"b"]
    client.close()
