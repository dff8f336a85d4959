"""The PyPI clients pyfaktory and faktory, unmodified, against the real binary."""

import threading
import time

import faktory
import pytest
from pyfaktory import Client, Consumer, Job, Producer

CONFIG = """
[[listen]]
voice = "faktory"
address = "127.0.0.1:0"
password = "swordfish"
hash_rounds = 1
"""


@pytest.fixture
def server(start, tmp_path):
    config = tmp_path / "quintet.toml"
    config.write_text(CONFIG)
    config.chmod(0o600)
    return lambda: start("--config", str(config))


def url(server, password="swordfish"):
    return f"tcp://:{password}@127.0.0.1:{server.ports['faktory']}"


def test_pyfaktory_pushes_fetches_and_acknowledges(server):
    with Client(faktory_url=url(server()), role="both") as client:
        producer = Producer(client=client)
        producer.push(Job(jobtype="adds", args=(5, 4)))
        assert producer.push_bulk([Job(jobtype="adds", args=(n, 1)) for n in range(3)]) == {}
        assert client.info()["faktory"]["queues"] == {"default": 4}
        job = client._fetch(["none", "default"])
        assert (job["jobtype"], job["args"], job["retry"]) == ("adds", [5, 4], 25)
        client._ack(job["jid"])
        assert client.info()["faktory"]["sets"]["working"] == 0
        job = client._fetch(["default"])
        client._fail(job["jid"], "Wrong", "no such number", ["a line"])
        assert client.info()["faktory"]["sets"]["retries"] == 1


def test_jobs_outlive_a_server_that_is_killed(server):
    before = server()
    with faktory.connection(faktory=url(before)) as client:
        for number in range(50):
            assert client.queue("adds", args=(number,), queue="numbers")
    before.kill()
    ran = []
    with Client(faktory_url=url(server()), role="consumer") as client:
        while job := client._fetch(["numbers"]):
            ran += job["args"]
            client._ack(job["jid"])
    assert sorted(ran) == list(range(50))


def test_a_thousand_jobs_by_ten_workers_outlive_a_kill(server):
    """None is lost: whatever was acknowledged was done, all else is done again."""
    jobs = 1000
    running = {"server": server()}
    with Client(faktory_url=url(running["server"]), role="producer") as client:
        producer = Producer(client=client)
        for start in range(0, jobs, 100):
            some = [Job(jobtype="adds", args=(n,), queue="many") for n in range(start, start + 100)]
            assert producer.push_bulk(some) == {}
    done, lock, killed = set(), threading.Lock(), threading.Event()

    def work(number):
        while True:
            try:
                with Client(
                    faktory_url=url(running["server"]), role="consumer", worker_id=f"worker-{number}"
                ) as client:
                    while job := client._fetch(["many"]):
                        client._ack(job["jid"])
                        with lock:
                            done.update(job["args"])
                            half = len(done) >= jobs // 2
                        if half:
                            killed.set()
                    return
            except Exception:
                # The server was killed, or does not listen yet.
                time.sleep(0.05)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(10)]
    for worker in workers:
        worker.start()
    assert killed.wait(300)
    running["server"].kill()
    running["server"] = server()
    for worker in workers:
        worker.join(300)
        assert not worker.is_alive()
    with Client(faktory_url=url(running["server"]), role="consumer") as client:
        working = client.info()["faktory"]["sets"]["working"]
    # What was handed out or acknowledged in the moment of the kill is under its reservation, or was
    # acknowledged without the worker hearing so.
    assert jobs - len(done) <= 10
    assert working <= jobs - len(done)


def test_a_wrong_password(server):
    with pytest.raises(Exception, match="Invalid password"):
        with Client(faktory_url=url(server(), "wrong"), role="producer"):
            pass
