"""Clients of Amazon SQS, unmodified, against the real binary."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import aioboto3
import pytest
from botocore.exceptions import ClientError
from conftest import Server, until

import sqs_session


def endpoint(server):
    return f"http://127.0.0.1:{server.ports['sqs']}"


@pytest.fixture
def serve(start):
    return lambda port=0: start("--listen", f"sqs=127.0.0.1:{port}")


@pytest.mark.parametrize("act", ["standard", "fifo", "dead_letters"])
def test_boto3(serve, act):
    sqs = sqs_session.connect(endpoint(serve()))
    getattr(sqs_session, act)(sqs)


def test_boto3_names_errors_by_their_classes(serve):
    sqs = sqs_session.connect(endpoint(serve()))
    sqs.create_queue(QueueName="orders")
    sqs_session.errors(sqs)


def test_an_older_botocore_speaks_query(serve):
    python = os.environ.get("QUINTET_QUERY_PYTHON")
    if not python:
        pytest.skip("no Python with an older botocore: cargo xtask test python makes one")
    script = Path(sqs_session.__file__)
    subprocess.run([python, str(script), endpoint(serve())], check=True)


def test_a_kill_between_receive_and_delete(serve):
    before = serve()
    sqs = sqs_session.connect(endpoint(before))
    url = sqs.create_queue(QueueName="orders")["QueueUrl"]
    for number in range(20):
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
    got = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=600)["Messages"]
    before.kill()
    serve(before.ports["sqs"])
    # The same client goes on: its connection is closed, and made anew.
    for message in got:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    rest = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert [m["Body"] for m in rest] == [str(n) for n in range(10, 20)]


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
        message = {"QueueUrl": sqs.create_queue(QueueName="orders")["QueueUrl"], "MessageBody": "x" * 100_000}

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
        for _ in range(sent):
            got = sqs.receive_message(QueueUrl=message["QueueUrl"], WaitTimeSeconds=20)["Messages"][0]
            sqs.delete_message(QueueUrl=message["QueueUrl"], ReceiptHandle=got["ReceiptHandle"])
        call.join()
        got = sqs.receive_message(QueueUrl=message["QueueUrl"], WaitTimeSeconds=20)["Messages"]
        assert [m["MessageId"] for m in got] == [answers[0]["MessageId"]]
    finally:
        server.kill()


def test_aioboto3_waits_for_a_message(serve):
    server = serve()

    async def session():
        options = {
            "endpoint_url": endpoint(server),
            "region_name": "us-east-1",
            "aws_access_key_id": "x",
            "aws_secret_access_key": "x",
        }
        async with aioboto3.Session().client("sqs", **options) as sqs:
            url = (await sqs.create_queue(QueueName="orders"))["QueueUrl"]
            polls = [
                asyncio.create_task(sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20))
                for _ in range(5)
            ]
            for number in range(5):
                await sqs.send_message(QueueUrl=url, MessageBody=str(number))
            got = [message["Messages"][0]["Body"] for message in await asyncio.gather(*polls)]
            assert sorted(got) == ["0", "1", "2", "3", "4"]

    asyncio.run(session())


TASKS = """
import os
import celery

app = celery.Celery("tasks", broker="sqs://x:x@127.0.0.1:%(port)d//")
app.conf.broker_transport_options = {
    "is_secure": False, "region": "us-east-1", "wait_time_seconds": 1, "visibility_timeout": 2,
}
app.conf.task_acks_late = True
app.conf.task_default_queue = "celery"


@app.task
def note(number):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{number}\\n")
"""


def test_celery_loses_nothing_when_its_worker_is_killed(serve, tmp_path):
    pytest.importorskip("pycurl")
    server = serve()
    (tmp_path / "tasks.py").write_text(TASKS % {"port": server.ports["sqs"]})
    notes = tmp_path / "notes"
    notes.touch()
    environment = {**os.environ, "NOTES": str(notes), "PYTHONPATH": str(tmp_path)}
    send = "import tasks\nfor n in range(40): tasks.note.delay(n)"
    subprocess.run([sys.executable, "-c", send], check=True, env=environment, cwd=tmp_path)
    command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "-P", "solo", "-l", "warning"]

    def noted():
        return set(notes.read_text().split())

    worker = subprocess.Popen(command, env=environment, cwd=tmp_path)
    until(lambda: len(noted()) >= 3)
    worker.kill()
    worker.wait()
    worker = subprocess.Popen(command, env=environment, cwd=tmp_path)
    try:
        until(lambda: len(noted()) == 40)
    finally:
        worker.kill()
        worker.wait()


def test_a_poll_is_answered_by_a_send_from_elsewhere(serve):
    sqs = sqs_session.connect(endpoint(serve()))
    url = sqs.create_queue(QueueName="orders")["QueueUrl"]
    got = []
    poll = threading.Thread(
        target=lambda: got.extend(sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"])
    )
    poll.start()
    sqs.send_message(QueueUrl=url, MessageBody="x")
    poll.join()
    assert [m["Body"] for m in got] == ["x"]
