"""The PyPI clients pyfaktory and faktory, unmodified, against the real binary."""

import os
import subprocess
import threading
import time

import faktory
import pytest
from conftest import until
from pyfaktory import Client, Job, JobFilter, MutateOperation, Producer
from pyfaktory.util.enums import State

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


def operator(tmp_path, *words):
    """What an operator does to workers."""
    binary = os.environ.get("QUINTET", "quintet")
    subprocess.run([binary, "workers", *words, "--data", str(tmp_path / "data")], check=True)


def sets(client):
    return client.info()["faktory"]["sets"]


def mutate(client, cmd, target, **which):
    filter = JobFilter(**{"jids": None, "regexp": None, "jobtype": None, **which})
    assert client.mutate(MutateOperation(cmd=cmd, target=target, filter=filter))


def test_pyfaktory_schedules_jobs_and_changes_what_waits(server):
    with Client(faktory_url=url(server()), role="both") as client:
        producer = Producer(client=client)
        far = "2100-01-01T00:00:00Z"
        jobs = [Job(jobtype=kind, args=(kind,), queue="later", at=far) for kind in "abcd"]
        assert producer.push_bulk(jobs) == {}
        assert sets(client)["scheduled"] == 4
        assert client._fetch(["later"]) is None
        mutate(client, "requeue", "scheduled", jids=[jobs[0].jid])
        assert client._fetch(["later"])["args"] == ["a"]
        client._ack(jobs[0].jid)
        mutate(client, "kill", "scheduled", jobtype="b")
        assert (sets(client)["scheduled"], sets(client)["dead"]) == (2, 1)
        mutate(client, "discard", "scheduled", regexp='*"args":\\["c"\\]*')
        assert sets(client)["scheduled"] == 1
        mutate(client, "clear", "scheduled")
        assert (sets(client)["scheduled"], sets(client)["dead"]) == (0, 1)
        mutate(client, "requeue", "dead")
        assert client.info()["faktory"]["queues"] == {"later": 1}


def test_pyfaktory_pauses_and_removes_queues(server):
    with Client(faktory_url=url(server()), role="both") as client:
        producer = Producer(client=client)
        for name in ["one", "two", "three"]:
            producer.push(Job(jobtype="adds", args=(name,), queue=name))
        client.queue_pause(queues=["one", "two"])
        job = client._fetch(["one", "two", "three"])
        assert job["args"] == ["three"]
        client.queue_unpause(queues=["two"])
        assert client._fetch(["one", "two", "three"])["args"] == ["two"]
        client.queue_pause(all_queues=True)
        client.queue_unpause(all_queues=True)
        client.queue_remove(queues=["one", "absent"])
        assert client._fetch(["one"]) is None
        assert "one" not in client.info()["faktory"]["queues"]


def test_pyfaktory_is_asked_to_be_quiet_and_to_end(server, tmp_path):
    with Client(faktory_url=url(server()), role="both", worker_id="worker-1") as client:
        client._push({"jid": "job00001", "jobtype": "adds", "args": [1]})
        job = client._fetch(["default"])
        operator(tmp_path, "quiet", "worker-1")
        # Its own thread may have said so already.
        client._beat()
        assert client.state == State.QUIET
        client._ack(job["jid"])
        operator(tmp_path, "terminate", "worker-1")
        client._beat()
        assert client.state == State.TERMINATING


def test_a_worker_of_faktory_runs_what_is_due_is_quiet_and_ends(server, tmp_path):
    address = url(server())
    with faktory.connection(faktory=address) as client:
        assert client.queue("adds", args=(1,), queue="numbers")
        assert client.queue("adds", args=(2,), queue="numbers", at="2000-01-01T00:00:00Z")
        assert client.queue("adds", args=(3,), queue="numbers", at="2100-01-01T00:00:00Z")
    worker = faktory.Worker(
        faktory=address, queues=["numbers"], concurrency=1, use_threads=True, worker_id="worker-1"
    )
    worker.send_heartbeat_every = 0
    ran = []

    def adds(number):
        ran.append(number)
        if number == 2:
            # The next beat says so, and no job comes after it.
            operator(tmp_path, "quiet", "worker-1")
            with faktory.connection(faktory=address) as client:
                assert client.queue("adds", args=(4,), queue="numbers")

    def ends():
        until(lambda: worker.is_quiet)
        operator(tmp_path, "terminate", "worker-1")

    worker.register("adds", adds)
    ending = threading.Thread(target=ends)
    ending.start()
    with pytest.raises(SystemExit):
        worker.run()
    ending.join()
    assert ran == [1, 2]
    with Client(faktory_url=address, role="consumer") as client:
        told = client.info()["faktory"]
        assert (told["queues"], told["sets"]["scheduled"]) == ({"numbers": 1}, 1)
        assert (told["sets"]["working"], told["total_processed"]) == (0, 2)
