"""AWS's command line, unmodified, against the real binary."""

import json
import os
import subprocess

import pytest

from sqs_session import until_waiters


@pytest.fixture
def serve(start):
    return lambda port=0: start("--listen", f"sqs=127.0.0.1:{port}")


class Aws:
    """`aws sqs` for one server; answers what it prints."""

    def __init__(self, server, home):
        self.program = os.environ.get("QUINTET_AWS")
        if not self.program:
            pytest.skip("no `aws`: cargo xtask test python installs it")
        self.endpoint = f"http://127.0.0.1:{server.ports['sqs']}"
        keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
        self.env = {"PATH": os.environ["PATH"], "HOME": str(home), **keys}

    def command(self, act, **options):
        # Not by its first line, which cannot name a path with a blank.
        python = os.path.join(os.path.dirname(self.program), "python")
        command = [python, self.program, "--output", "json", "--endpoint-url", self.endpoint, "sqs", act]
        for name, value in options.items():
            value = value if isinstance(value, str) else json.dumps(value)
            command += ["--" + name.replace("_", "-"), value]
        return command

    def run(self, act, **options):
        command = self.command(act, **options)
        return subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=300)

    def __call__(self, act, **options):
        ended = self.run(act, **options)
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout) if ended.stdout.strip() else {}

    def create(self, name, **attributes):
        return self("create-queue", queue_name=name, attributes=attributes or {})["QueueUrl"]

    def receive(self, url, **options):
        got = self("receive-message", queue_url=url, max_number_of_messages="10", **options)
        return got.get("Messages", [])

    def bodies(self, url, **options):
        return [message["Body"] for message in self.receive(url, **options)]


def test_messages_batches_and_what_is_wrong(serve, tmp_path):
    server = serve()
    aws = Aws(server, tmp_path)
    url = aws.create("orders")
    command = aws.command("receive-message", queue_url=url, wait_time_seconds="20", visibility_timeout="0")
    poll = subprocess.Popen(command, env=aws.env, stdout=subprocess.PIPE)
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
    failed = aws.run("get-queue-url", queue_name="none")
    assert failed.returncode != 0 and "NonExistentQueue" in failed.stderr, failed.stderr


def test_order_and_dead_letters_over_a_kill(serve, tmp_path):
    before = serve()
    aws = Aws(before, tmp_path)
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
