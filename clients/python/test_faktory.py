"""The PyPI clients pyfaktory and faktory, unmodified, against the real binary."""

import json
import os
import subprocess
import threading
import time

import faktory
import pytest
from conftest import PATIENCE_S, until
from faktory._proto import Connection
from pyfaktory import Batch, Client, Consumer, Job, JobFilter, MutateOperation, Producer
from pyfaktory.models import TargetJob
from pyfaktory.util.enums import State
from pyfaktory.util.helper import RESP

CONFIG = """
[[listen]]
protocol = "faktory"
address = "127.0.0.1:0"
password = "swordfish"
hash_rounds = 1
fetch_wait_ms = 200
"""


@pytest.fixture
def server(start, tmp_path):
    def starter(options=""):
        config = tmp_path / "quintet.toml"
        config.write_text(CONFIG + options)
        config.chmod(0o600)
        return start("--config", str(config))

    return starter


def url(server, password="swordfish"):
    return f"tcp://:{password}@127.0.0.1:{server.ports['faktory']}"


def test_pyfaktory_pushes_fetches_acknowledges_and_fails(server):
    with Client(faktory_url=url(server()), role="both") as client:
        producer = Producer(client=client)
        producer.push(Job(jobtype="adds", args=(5, 4)))
        assert producer.push_bulk([Job(jobtype="adds", args=(n, 1)) for n in range(3)]) == {}
        nameless = Job(jobtype="", args=())
        assert producer.push_bulk([nameless]) == {
            nameless.jid: "jobs must have a jobtype parameter"
        }
        assert client.info()["faktory"]["queues"] == {"default": 4}
        job = client._fetch(["none", "default"])
        assert (job["jobtype"], job["args"], job["retry"]) == ("adds", [5, 4], 25)
        client._ack(job["jid"])
        assert client.info()["faktory"]["sets"]["working"] == 0
        job = client._fetch(["default"])
        client._fail(job["jid"], "Wrong", "no such number", ["a line"])
        assert sets(client)["retries"] == 1
        mutate(client, "requeue", "retries", jids=[job["jid"]])
        while (again := client._fetch(["default"]))["jid"] != job["jid"]:
            client._ack(again["jid"])
        failure = again["failure"]
        assert (failure["errtype"], failure["message"]) == ("Wrong", "no such number")
        assert (failure["backtrace"], failure["retry_count"]) == (["a line"], 0)
        client._ack(again["jid"])
        told = client.info()["faktory"]
        assert (told["total_processed"], told["total_failures"]) == (5, 1)
        assert set(told["sets"].values()) == {0}


def operator(tmp_path, *words):
    """What an operator does to workers."""
    binary = os.environ.get("QUINTET", "quintet")
    subprocess.run([binary, "workers", *words, "--data", str(tmp_path / "data")], check=True)


def browse(tmp_path, queue, state):
    """The ids of a queue's jobs that an operator sees in this state."""
    binary = os.environ.get("QUINTET", "quintet")
    options = ["--state", state, "--count", "1000", "--json", "--data", str(tmp_path / "data")]
    told = subprocess.run([binary, "browse", queue, *options], check=True, capture_output=True)
    return {json.loads(line)["name"] for line in told.stdout.splitlines()}


def sets(client):
    return client.info()["faktory"]["sets"]


def mutate(client, cmd, target, **which):
    filter = JobFilter(**{"jids": None, "regexp": None, "jobtype": None, **which})
    assert client.mutate(MutateOperation(cmd=cmd, target=target, filter=filter))


def push_by_pyfaktory(address, queue, numbers):
    with Client(faktory_url=address, role="producer") as client:
        for start in range(0, len(numbers), 100):
            some = [
                Job(jid=f"number-{n}", jobtype="adds", args=(n,), queue=queue)
                for n in numbers[start : start + 100]
            ]
            assert Producer(client=client).push_bulk(some) == {}


def push_by_faktory(address, queue, numbers):
    with faktory.connection(faktory=address) as client:
        for n in numbers:
            assert client.queue("adds", args=(n,), queue=queue, jid=f"number-{n}")


def run_by_pyfaktory(address, wid, queue, do):
    """Does what is there until nothing is."""
    client = Client(faktory_url=address, role="consumer", worker_id=wid)
    try:
        with client:
            while job := client._fetch([queue]):
                do(job)
                client._ack(job["jid"])
    finally:
        # Its beats would go on without a connection.
        client.state = State.DISCONNECTED


def run_by_faktory(address, wid, queue, do):
    """The same over the connection of its workers, which are one to a process."""
    connection = Connection(faktory=address, worker_id=wid)
    connection.connect(worker_id=wid)
    while job := connection.fetch([queue]):
        do(job)
        connection.reply("ACK", {"jid": job["jid"]})
        assert next(connection.get_message()) == "OK"
    connection.disconnect()


@pytest.mark.parametrize(
    "push, run", [(push_by_pyfaktory, run_by_pyfaktory), (push_by_faktory, run_by_faktory)]
)
def test_a_thousand_jobs_by_ten_workers_outlive_a_kill(server, tmp_path, push, run):
    """None is lost: what nobody did is reserved."""
    jobs = 1000
    before = server()
    # It listens elsewhere when it starts again.
    running = {"url": url(before)}
    push(url(before), "many", range(jobs))
    done, lock, half, killed = set(), threading.Lock(), threading.Event(), threading.Event()

    def do(job):
        # The last ones wait for the kill, so that it comes in between however fast the others are.
        if job["args"][0] >= jobs - 100:
            assert killed.wait(PATIENCE_S)
        with lock:
            done.add(job["jid"])
            if len(done) >= jobs // 2:
                half.set()

    def work(number):
        while True:
            try:
                return run(running["url"], f"worker-{number}", "many", do)
            except Exception:
                # The server was killed, or does not listen yet.
                time.sleep(0.05)

    workers = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(10)]
    for worker in workers:
        worker.start()
    assert half.wait(PATIENCE_S)
    before.kill()
    running["url"] = url(server())
    killed.set()
    for worker in workers:
        worker.join(PATIENCE_S)
        assert not worker.is_alive()
    with Client(faktory_url=running["url"], role="consumer") as client:
        told = client.info()["faktory"]
    reserved = browse(tmp_path, "many", "reserved")
    assert {f"number-{n}" for n in range(jobs)} - done <= reserved
    # Each worker had one when the server was killed.
    assert len(reserved) <= 10
    assert told["sets"] == {"dead": 0, "retries": 0, "scheduled": 0, "working": len(reserved)}
    assert told["total_enqueued"] == 0


def test_a_wrong_password(server):
    wrong = url(server(), "wrong")
    with pytest.raises(Exception, match="Invalid password"):
        with Client(faktory_url=wrong, role="producer"):
            pass
    with pytest.raises(faktory.exceptions.FaktoryAuthenticationError):
        faktory.get_client(faktory=wrong).connect()


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
        # What failed.
        for kind in "efg":
            producer.push(Job(jobtype=kind, args=(kind,), queue="later"))
        while sets(client)["retries"] < 4:
            client._fail(client._fetch(["later"])["jid"], "Wrong", "not today", [])
        mutate(client, "kill", "retries", jobtype="e")
        mutate(client, "discard", "retries", regexp='*"args":\\["f"\\]*')
        assert (sets(client)["retries"], sets(client)["dead"]) == (2, 1)
        mutate(client, "requeue", "retries", jobtype="g")
        assert client._fetch(["later"])["args"] == ["g"]
        mutate(client, "clear", "retries")
        mutate(client, "discard", "dead", jobtype="f")
        assert (sets(client)["retries"], sets(client)["dead"]) == (0, 1)
        mutate(client, "discard", "dead", jobtype="e")
        assert (sets(client)["retries"], sets(client)["dead"]) == (0, 0)


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


def test_pyfaktory_makes_batches_whose_callbacks_come_when_their_jobs_have_run(server):
    with Client(faktory_url=url(server("ent = true\n")), role="both") as client:
        producer = Producer(client=client)

        def new(name, parent=None):
            tells = {
                event: TargetJob(jobtype=f"{name} {event}", args=[name], queue="told")
                for event in ("complete", "success")
            }
            told = producer.batch_new(Batch(parent_bid=parent, description=name, **tells))
            return RESP.parse_bulk_string(told)[1]

        def status(bid):
            return json.loads(RESP.parse_bulk_string(client._batch_status(bid))[1])

        def push(bid, *numbers):
            jobs = [Job(jobtype="adds", args=(n,), custom={"bid": bid}) for n in numbers]
            assert producer.push_bulk(jobs) == {}

        def told():
            """The callbacks that came, each acknowledged."""
            names = []
            while job := client._fetch(["told"]):
                names.append((job["jobtype"], job["args"], job["custom"]["_bid"]))
                client._ack(job["jid"])
            return names

        outer = new("outer")
        inner = new("inner", outer)
        push(outer, 1)
        push(inner, 2)
        assert producer.batch_commit(inner)
        # It is opened again by one of its jobs, say.
        assert producer.batch_open(inner)
        push(inner, 3)
        assert producer.batch_commit(inner)
        assert producer.batch_commit(outer)
        with pytest.raises(Exception, match="batch is committed"):
            producer.push(Job(jobtype="adds", args=(4,), custom={"bid": outer}))
        waits = status(inner)
        assert (waits["parent_bid"], waits["description"]) == (outer, "inner")
        assert (waits["total"], waits["pending"], waits["failed"]) == (2, 2, 0)
        assert (waits["complete_st"], waits["success_st"]) == ("", "")
        jobs = [client._fetch(["default"]) for _ in range(3)]
        assert [(job["args"], job["custom"]["bid"]) for job in jobs] == [
            ([1], outer),
            ([2], inner),
            ([3], inner),
        ]
        client._ack(jobs[0]["jid"])
        client._ack(jobs[1]["jid"])
        assert told() == []
        client._fail(jobs[2]["jid"], "Wrong", "not today", [])
        assert told() == [("inner complete", ["inner"], inner), ("outer complete", ["outer"], outer)]
        assert (status(inner)["pending"], status(inner)["failed"]) == (1, 1)
        mutate(client, "requeue", "retries", jids=[jobs[2]["jid"]])
        client._ack(client._fetch(["default"])["jid"])
        assert told() == [("inner success", ["inner"], inner), ("outer success", ["outer"], outer)]
        ended = status(outer)
        assert (ended["total"], ended["pending"], ended["success_st"]) == (1, 0, "2")
        with pytest.raises(Exception, match="No such batch"):
            producer.batch_commit("b-00000000000000ff")


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


def note(path, number):
    """A job of another process."""
    if number < 0:
        raise ValueError("below zero")
    with open(path, "a") as notes:
        notes.write(f"{number}\n")


def test_a_consumer_of_pyfaktory_says_how_jobs_went_is_quiet_and_ends(server, tmp_path):
    address, notes = url(server()), tmp_path / "notes"
    steered = []

    def steer():
        try:
            with Client(faktory_url=address, role="producer") as client:
                producer = Producer(client=client)
                for number in (1, 2, -1):
                    producer.push(Job(jobtype="note", args=(str(notes), number), queue="numbers"))
                until(lambda: client.info()["faktory"]["total_processed"] == 3)
                assert sets(client)["retries"] == 1
                operator(tmp_path, "quiet", "worker-1")
                until(lambda: worker.state == State.QUIET)
                producer.push(Job(jobtype="note", args=(str(notes), 3), queue="numbers"))
                steered.append(client.info()["faktory"]["queues"])
        finally:
            operator(tmp_path, "terminate", "worker-1")

    # Its beats are what tells it.
    worker = Client(faktory_url=address, role="consumer", worker_id="worker-1", beat_period=0.1)
    with worker:
        consumer = Consumer(client=worker, queues=["numbers"], concurrency=2)
        consumer.register("note", note)
        steering = threading.Thread(target=steer)
        steering.start()
        with pytest.raises(SystemExit):
            consumer.run()
        steering.join()
        assert worker.state == State.TERMINATING
    assert steered == [{"numbers": 1}]
    assert sorted(notes.read_text().split()) == ["1", "2"]


def test_a_worker_of_faktory_runs_what_is_due_and_what_failed_is_quiet_and_ends(server, tmp_path):
    address = url(server())
    with faktory.connection(faktory=address) as client:
        assert client.queue("fails", queue="numbers")
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
        if number == 1:
            # Put behind the others, instead of in some seconds.
            with Client(faktory_url=address, role="producer") as client:
                assert sets(client)["retries"] == 1
                mutate(client, "requeue", "retries")

    def fails():
        ran.append("fails")
        if ran.count("fails") == 1:
            raise ValueError("not today")
        # The next beat says so, and no job comes after it.
        operator(tmp_path, "quiet", "worker-1")
        with faktory.connection(faktory=address) as client:
            assert client.queue("adds", args=(4,), queue="numbers")

    def ends():
        try:
            until(lambda: worker.is_quiet)
        finally:
            operator(tmp_path, "terminate", "worker-1")

    worker.register("adds", adds)
    worker.register("fails", fails)
    ending = threading.Thread(target=ends)
    ending.start()
    with pytest.raises(SystemExit):
        worker.run()
    ending.join()
    assert ran == ["fails", 1, 2, "fails"]
    with Client(faktory_url=address, role="consumer") as client:
        told = client.info()["faktory"]
        assert (told["queues"], told["sets"]["scheduled"]) == ({"numbers": 1}, 1)
        assert (told["sets"]["working"], told["total_processed"]) == (0, 4)
        assert (told["sets"]["retries"], told["total_failures"]) == (0, 1)
