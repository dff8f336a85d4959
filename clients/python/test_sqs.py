"""Clients of Amazon SQS, unmodified, against the real binary."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading

import aioboto3
import pytest
from botocore.exceptions import ClientError
from conftest import Server, lasting_port, until

import sqs_session


def endpoint(server):
    return f"http://127.0.0.1:{server.ports['sqs']}"


@pytest.fixture
def serve(start):
    """Starts a server, for the second time where it was."""
    return lambda port=None: start("--listen", f"sqs=127.0.0.1:{port or lasting_port()}")


@pytest.mark.parametrize("act", ["standard", "fifo", "dead_letters"])
def test_boto3(serve, act):
    sqs = sqs_session.connect(endpoint(serve()))
    getattr(sqs_session, act)(sqs)


def test_boto3_names_errors_by_their_classes(serve):
    sqs = sqs_session.connect(endpoint(serve()))
    sqs.create_queue(QueueName="orders")
    sqs_session.errors(sqs)


def test_boto3_polls_are_answered_by_sends(serve):
    server = serve()
    sqs_session.long_polls(sqs_session.connect(endpoint(server)), server.data)


def test_boto3_deletes_after_a_kill_what_it_received_before(serve):
    server = serve()
    for _ in sqs_session.over_a_kill(sqs_session.connect(endpoint(server))):
        server.kill()
        serve(server.ports["sqs"])


def test_an_older_botocore_speaks_query(serve):
    python = os.environ.get("QUINTET_QUERY_PYTHON")
    if not python:
        pytest.skip("no Python with an older botocore: cargo xtask test python makes one")
    server = serve()
    session = subprocess.Popen(
        [python, sqs_session.__file__, endpoint(server), str(server.data)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert session.stdout.readline() == "kill\n"
    server.kill()
    serve(server.ports["sqs"])
    session.communicate("\n")
    assert session.returncode == 0


def small_disk(folder):
    """What a command is run under so that `folder` is a disk of 24 MB, which goes with it."""
    script = 'mount -t tmpfs -o size=24m tmpfs "$1" && shift && exec "$@"'
    for options in (["--mount"], ["--map-root-user", "--mount"]):
        under = ["unshare", *options, "sh", "-c", script, "sh", str(folder)]
        if subprocess.run([*under, "true"]).returncode == 0:
            return under
    pytest.fail("no file system can be mounted here: run as root, or set QUINTET_TEST_NO_MOUNT=1")


def test_boto3_waits_until_a_full_disk_has_room(tmp_path):
    if os.environ.get("QUINTET_TEST_NO_MOUNT"):
        pytest.skip("QUINTET_TEST_NO_MOUNT is set")
    disk, config = tmp_path / "disk", tmp_path / "small.toml"
    disk.mkdir()
    config.write_text("segment_bytes = '4MiB'\nspare_segments = 1\nlog_bytes = '8MiB'\n")
    options = ["--listen", "sqs=127.0.0.1:0", "--config", str(config)]
    server = Server(disk / "data", *options, under=small_disk(disk))
    try:
        sqs = sqs_session.connect(endpoint(server), retries=0)
        message = {"QueueUrl": sqs.create_queue(QueueName="orders")["QueueUrl"], "MessageBody": "x" * 200_000}

        def fill():
            """Sends until there is no room; answers how many there was room for."""
            with pytest.raises(ClientError) as refused:
                for sent in range(500):
                    sqs.send_message(**message)
            assert refused.value.response["Error"]["Code"] == "RequestThrottled"
            assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
            return sent

        sent, answers = fill(), []
        patient, attempts = sqs_session.connect(endpoint(server), retries=50), []
        patient.meta.events.register("before-send.sqs.SendMessage", lambda **_: attempts.append(1))
        while True:
            attempts.clear()
            call = threading.Thread(target=lambda: answers.append(patient.send_message(**message)))
            call.start()
            until(lambda: len(attempts) >= 2 or answers)
            if len(attempts) >= 2:
                break
            # The server had found room by itself, by writing anew what it keeps: there is less now.
            call.join()
            answers.clear()
            sent += 1 + fill()
        # Room is made by deleting, which a full disk does not keep from being done.
        while sent:
            some = {"MaxNumberOfMessages": min(sent, 10), "WaitTimeSeconds": 20}
            got = sqs.receive_message(QueueUrl=message["QueueUrl"], **some)["Messages"]
            for one in got:
                sqs.delete_message(QueueUrl=message["QueueUrl"], ReceiptHandle=one["ReceiptHandle"])
            sent -= len(got)
        call.join()
        got = sqs.receive_message(QueueUrl=message["QueueUrl"], WaitTimeSeconds=20)["Messages"]
        assert [m["MessageId"] for m in got] == [answers[0]["MessageId"]]
    finally:
        server.kill()


class Awaited:
    """A client of aioboto3 as the acts of the session call boto3's."""

    def __init__(self, loop, client):
        self.loop, self.client, self.exceptions = loop, client, client.exceptions

    def __getattr__(self, name):
        act = getattr(self.client, name)
        return lambda **options: self.loop.run_until_complete(act(**options))


@pytest.fixture
def aio():
    """Makes a client of aioboto3 and the loop that it lives in."""
    loop = asyncio.new_event_loop()
    stack = contextlib.AsyncExitStack()

    def make(server):
        options = {
            "endpoint_url": endpoint(server),
            "region_name": "us-east-1",
            "aws_access_key_id": "x",
            "aws_secret_access_key": "x",
        }
        client = aioboto3.Session().client("sqs", **options)
        return loop, loop.run_until_complete(stack.enter_async_context(client))

    yield make
    loop.run_until_complete(stack.aclose())
    loop.close()


@pytest.mark.parametrize("act", ["standard", "fifo", "dead_letters"])
def test_aioboto3(serve, aio, act):
    getattr(sqs_session, act)(Awaited(*aio(serve())))


def test_aioboto3_names_errors_by_their_classes(serve, aio):
    sqs = Awaited(*aio(serve()))
    sqs.create_queue(QueueName="orders")
    sqs_session.errors(sqs)


def test_aioboto3_deletes_after_a_kill_what_it_received_before(serve, aio):
    server = serve()
    for _ in sqs_session.over_a_kill(Awaited(*aio(server))):
        server.kill()
        serve(server.ports["sqs"])


def test_aioboto3_polls_are_answered_by_sends(serve, aio):
    server = serve()
    loop, sqs = aio(server)

    async def session():
        url = (await sqs.create_queue(QueueName="polled"))["QueueUrl"]

        async def poll():
            # Again after 20 s, which may not be enough until all five wait.
            while not (got := (await sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)).get("Messages")):
                pass
            return got[0]["Body"]

        polls = [asyncio.create_task(poll()) for _ in range(5)]
        await asyncio.to_thread(sqs_session.until_waiters, server.data, "polled", 5)
        for number in range(5):
            await sqs.send_message(QueueUrl=url, MessageBody=str(number))
        assert sorted(await asyncio.gather(*polls)) == ["0", "1", "2", "3", "4"]

    loop.run_until_complete(session())


TASKS = """
import os
import pathlib
import time
import celery

app = celery.Celery("tasks", broker="sqs://x:x@127.0.0.1:%(port)d//")
app.conf.broker_transport_options = {
    "is_secure": False, "region": "us-east-1", "wait_time_seconds": 1, "visibility_timeout": 2,
}
app.conf.task_acks_late = True
app.conf.task_default_queue = "%(queue)s"
app.conf.worker_prefetch_multiplier = %(prefetch)d
folder = pathlib.Path(__file__).parent


@app.task
def note(number):
    with open(folder / "notes", "a") as notes:
        notes.write(f"{number}\\n")


@app.task
def holds():
    (folder / "held").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)
    note(-1)


@app.task
def rejects():
    raise celery.exceptions.Reject("not today", requeue=True)
"""


class Celery:
    """An application of celery in a folder, and its workers."""

    def __init__(self, folder, server, queue="celery", prefetch=4):
        pytest.importorskip("pycurl")
        self.folder, self.worker = folder, None
        options = {"port": server.ports["sqs"], "queue": queue, "prefetch": prefetch}
        (folder / "tasks.py").write_text(TASKS % options)
        (folder / "notes").touch()

    def send(self, *lines):
        script = "\n".join(["import tasks", *lines])
        subprocess.run([sys.executable, "-c", script], check=True, cwd=self.folder)

    def start(self):
        command = ["celery", "-A", "tasks", "worker", "-P", "solo", "-l", "warning"]
        self.worker = subprocess.Popen([sys.executable, "-m", *command], cwd=self.folder)

    def kill(self):
        self.worker.kill()
        self.worker.wait()

    def notes(self):
        return [int(line) for line in (self.folder / "notes").read_text().split()]


def test_celery_loses_nothing_when_its_worker_is_killed(serve, tmp_path):
    celery = Celery(tmp_path, serve())
    celery.send("for n in range(40): tasks.note.delay(n)")
    celery.start()
    try:
        until(lambda: len(set(celery.notes())) >= 3)
        celery.kill()
        celery.start()
        until(lambda: len(set(celery.notes())) == 40)
    finally:
        celery.kill()


def test_celery_keeps_order_over_a_kill_of_the_server(serve, tmp_path):
    server = serve()
    sqs = sqs_session.connect(endpoint(server))
    dead = sqs.create_queue(QueueName="dead.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    shown = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]
    policy = {"deadLetterTargetArn": shown["QueueArn"], "maxReceiveCount": 1}
    attributes = {
        "FifoQueue": "true",
        "VisibilityTimeout": "600",
        "RedrivePolicy": json.dumps(policy),
    }
    url = sqs.create_queue(QueueName="tasks.fifo", Attributes=attributes)["QueueUrl"]
    # One at a time, so that it polls again for each.
    celery = Celery(tmp_path, server, queue="tasks.fifo", prefetch=1)
    celery.start()
    try:
        sqs_session.until_waiters(server.data, "tasks.fifo", 1)
        celery.send(
            "for n in range(3): tasks.note.delay(n)",
            "tasks.holds.delay()",
            "tasks.note.delay(3)",
            "tasks.rejects.delay()",
            "for n in range(4, 6): tasks.note.delay(n)",
        )
        until((tmp_path / "held").exists)
        server.kill()
        server = serve(server.ports["sqs"])
        (tmp_path / "go").touch()
        until(lambda: celery.notes() == [0, 1, 2, -1, 3, 4, 5])
        got = sqs.receive_message(QueueUrl=dead, WaitTimeSeconds=20)["Messages"]
        assert len(got) == 1

        def left():
            names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
            shown = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
            return [shown[name] for name in names]

        until(lambda: left() == ["0", "0"])
    finally:
        celery.kill()
