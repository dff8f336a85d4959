"""AWS's command line, unmodified, against the real binary."""

import json
import os
import subprocess

import pytest
from conftest import lasting_port

from sqs_session import until_waiters


@pytest.fixture
def serve(start):
    return lambda port=None: start("--listen", f"sqs=127.0.0.1:{port or lasting_port()}")


# Runs command lines of `aws` one after the other: it takes most of its time to start.
SHELL = """
import contextlib, io, json, sys
import awscli.clidriver
for line in sys.stdin:
    said, failed = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(failed):
        code = awscli.clidriver.create_clidriver().main(json.loads(line))
    print(json.dumps([code, said.getvalue(), failed.getvalue()]), flush=True)
"""


class Aws:
    """`aws sqs` for one server; answers what it prints."""

    def __init__(self, server, home):
        self.program = os.environ.get("QUINTET_AWS")
        if not self.program:
            pytest.skip("no `aws`: cargo xtask test python installs it")
        # Not by the program's first line, which cannot name a path with a blank.
        self.python = os.path.join(os.path.dirname(self.program), "python")
        self.endpoint = f"http://127.0.0.1:{server.ports['sqs']}"
        keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
        self.env = {"PATH": os.environ["PATH"], "HOME": str(home), **keys}
        self.shell = self.start("-c", SHELL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.shell.communicate()

    def start(self, *words):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        return subprocess.Popen([self.python, *words], env=self.env, **pipes)

    def words(self, act, options):
        words = ["--output", "json", "--endpoint-url", self.endpoint, "sqs", act]
        # Nobody is hurried on a busy machine.
        words += ["--cli-read-timeout", "120", "--cli-connect-timeout", "120"]
        for name, value in options.items():
            value = value if isinstance(value, str) else json.dumps(value)
            words += ["--" + name.replace("_", "-"), value]
        return words

    def alone(self, act, **options):
        """Starts the program itself."""
        return self.start(self.program, *self.words(act, options))

    def run(self, act, **options):
        """Its exit status, what it printed, and its complaints."""
        print(json.dumps(self.words(act, options)), file=self.shell.stdin, flush=True)
        return json.loads(self.shell.stdout.readline())

    def __call__(self, act, **options):
        status, said, failed = self.run(act, **options)
        assert status == 0, failed
        return json.loads(said) if said.strip() else {}

    def create(self, name, **attributes):
        return self("create-queue", queue_name=name, attributes=attributes or {})["QueueUrl"]

    def receive(self, url, **options):
        got = self("receive-message", queue_url=url, max_number_of_messages="10", **options)
        return got.get("Messages", [])

    def bodies(self, url, **options):
        return [message["Body"] for message in self.receive(url, **options)]


@pytest.fixture
def begun(serve, tmp_path):
    """A server, and an `aws` for it."""
    server = serve()
    with Aws(server, tmp_path) as aws:
        yield server, aws


def test_messages_batches_and_what_is_wrong(begun):
    server, aws = begun
    url = aws.create("orders")
    poll = aws.alone("receive-message", queue_url=url, wait_time_seconds="20", visibility_timeout="0")
    until_waiters(server.data, "orders", 1)
    sent = aws("send-message", queue_url=url, message_body="h\u00e9")
    polled = json.loads(poll.communicate()[0])["Messages"]
    assert [message["MessageId"] for message in polled] == [sent["MessageId"]]
    entries = [{"Id": str(n), "MessageBody": str(n)} for n in range(2)]
    done = aws("send-message-batch", queue_url=url, entries=entries)
    assert [entry["Id"] for entry in done["Successful"]] == ["0", "1"]
    got = aws.receive(url, wait_time_seconds="20")
    assert [message["Body"] for message in got] == ["h\u00e9", "0", "1"]
    assert got[0]["MessageId"] == sent["MessageId"]
    aws("delete-message", queue_url=url, receipt_handle=got[0]["ReceiptHandle"])
    shown = aws("get-queue-attributes", queue_url=url, attribute_names=["All"])["Attributes"]
    assert shown["ApproximateNumberOfMessagesNotVisible"] == "2"
    done = aws(
        "delete-message-batch",
        queue_url=url,
        entries=[
            {"Id": "good", "ReceiptHandle": got[1]["ReceiptHandle"]},
            {"Id": "bad", "ReceiptHandle": "x"},
        ],
    )
    assert [entry["Id"] for entry in done["Successful"]] == ["good"]
    assert [entry["Code"] for entry in done["Failed"]] == ["ReceiptHandleIsInvalid"]
    status, _, failed = aws.run("get-queue-url", queue_name="none")
    assert status != 0 and "NonExistentQueue" in failed, failed


def test_order_and_dead_letters_over_a_kill(begun, serve):
    before, aws = begun
    dead = aws.create("dead.fifo", FifoQueue="true")
    arn = aws("get-queue-attributes", queue_url=dead, attribute_names=["QueueArn"])
    policy = {"deadLetterTargetArn": arn["Attributes"]["QueueArn"], "maxReceiveCount": 1}
    url = aws.create("order.fifo", FifoQueue="true", RedrivePolicy=json.dumps(policy))
    for body in "ab":
        aws(
            "send-message",
            queue_url=url,
            message_body=body,
            message_group_id="g",
            message_deduplication_id=body,
        )
    got = aws("receive-message", queue_url=url, visibility_timeout="600")["Messages"]
    assert [message["Body"] for message in got] == ["a"]
    assert aws.bodies(url) == [], "b waits for a"
    before.kill()
    serve(before.ports["sqs"])
    aws("delete-message", queue_url=url, receipt_handle=got[0]["ReceiptHandle"])
    assert aws.bodies(url, visibility_timeout="0") == ["b"]
    assert aws.bodies(dead, wait_time_seconds="20") == ["b"], "it was tried once"
