"""What a client of SQS does, whichever protocol its boto3 speaks.

Run with the endpoint and the server's data directory, also by a Python of its own that
has an older boto3: botocore 1.29 speaks the Query protocol. Who runs it kills the server
and starts it again when it says so, and then answers with a line.
"""

import json
import os
import subprocess
import sys
import threading
import time

import boto3
from botocore.config import Config


def connect(endpoint, retries=10):
    return boto3.client(
        "sqs",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="x",
        config=Config(retries={"max_attempts": retries, "mode": "standard"}),
    )


def standard(sqs):
    url = sqs.create_queue(QueueName="orders", tags={"team": "a"})["QueueUrl"]
    assert sqs.get_queue_url(QueueName="orders")["QueueUrl"] == url
    assert sqs.list_queues(QueueNamePrefix="ord")["QueueUrls"] == [url]
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "a"}
    attributes = {
        "text": {"DataType": "String", "StringValue": "h\u00e9 <&>\r\n"},
        "number": {"DataType": "Number.int", "StringValue": "42"},
        "bytes": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    body = "a <&> \"b\"\r\n\U0001f600"
    sent = sqs.send_message(QueueUrl=url, MessageBody=body, MessageAttributes=attributes)
    got = sqs.receive_message(
        QueueUrl=url,
        MessageAttributeNames=["All"],
        AttributeNames=["All"],
        WaitTimeSeconds=20,
        VisibilityTimeout=600,
    )["Messages"][0]
    assert (got["MessageId"], got["Body"]) == (sent["MessageId"], body)
    assert got["MD5OfBody"] == sent["MD5OfMessageBody"]
    assert got["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert got["MessageAttributes"]["bytes"]["BinaryValue"] == b"\x00\xff"
    assert got["MessageAttributes"]["text"]["StringValue"] == attributes["text"]["StringValue"]
    assert got["Attributes"]["ApproximateReceiveCount"] == "1"
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"], VisibilityTimeout=0)
    again = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"][0]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=again["ReceiptHandle"])
    entries = [{"Id": str(n), "MessageBody": str(n)} for n in range(10)]
    assert len(sqs.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]) == 10
    got = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=600)["Messages"]
    assert [m["Body"] for m in got] == [str(n) for n in range(10)]
    entries = [{"Id": m["Body"], "ReceiptHandle": m["ReceiptHandle"]} for m in got]
    entries.append({"Id": "bad", "ReceiptHandle": "x"})
    done = sqs.delete_message_batch(QueueUrl=url, Entries=entries[1:])
    assert len(done["Successful"]) == 9
    assert done["Failed"][0]["Code"] == "ReceiptHandleIsInvalid"
    sqs.purge_queue(QueueUrl=url)
    shown = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert shown["ApproximateNumberOfMessagesNotVisible"] == "0"


def errors(sqs):
    for name, act in [
        ("QueueDoesNotExist", lambda: sqs.get_queue_url(QueueName="none")),
        ("InvalidMessageContents", lambda: sqs.send_message(QueueUrl="orders", MessageBody="\0")),
        ("ReceiptHandleIsInvalid", lambda: sqs.delete_message(QueueUrl="orders", ReceiptHandle="x")),
        ("EmptyBatchRequest", lambda: sqs.send_message_batch(QueueUrl="orders", Entries=[])),
    ]:
        try:
            act()
        except getattr(sqs.exceptions, name) as error:
            if name == "QueueDoesNotExist":
                code = error.response["Error"]["Code"]
                assert code == "AWS.SimpleQueueService.NonExistentQueue", code
        except sqs.exceptions.ClientError as error:
            # The older model knows no classes for some.
            assert name in error.response["Error"]["Code"], error.response
        else:
            raise AssertionError(f"{name} was not raised")


def fifo(sqs):
    made = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    url = sqs.create_queue(QueueName="orders.fifo", Attributes=made)["QueueUrl"]
    sent = [
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=group)
        for group, body in [("a", "1"), ("a", "2"), ("b", "3"), ("a", "1")]
    ]
    assert sent[3]["MessageId"] == sent[0]["MessageId"]
    first = sqs.receive_message(QueueUrl=url, VisibilityTimeout=600)["Messages"]
    assert [m["Body"] for m in first] == ["1"]
    other = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=600)["Messages"]
    assert [m["Body"] for m in other] == ["3"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=first[0]["ReceiptHandle"])
    next_one = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"])
    assert [m["Body"] for m in next_one["Messages"]] == ["2"]
    told = next_one["Messages"][0]["Attributes"]
    assert told["SequenceNumber"] == sent[1]["SequenceNumber"]


def dead_letters(sqs):
    dead = sqs.create_queue(QueueName="dead")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = '{"deadLetterTargetArn": "%s", "maxReceiveCount": "1"}' % arn
    url = sqs.create_queue(QueueName="fails", Attributes={"RedrivePolicy": policy})["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="x")
    sqs.receive_message(QueueUrl=url, VisibilityTimeout=0)
    got = sqs.receive_message(QueueUrl=dead, WaitTimeSeconds=20, VisibilityTimeout=0)["Messages"]
    assert [m["Body"] for m in got] == ["x"]
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [url]
    if hasattr(sqs, "start_message_move_task"):
        sqs.start_message_move_task(SourceArn=arn)
        got = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]
        assert [m["Body"] for m in got] == ["x"]


def waiters(data, queue):
    """How many wait for a message of this queue, as an operator is told."""
    binary = os.environ.get("QUINTET", "quintet")
    told = subprocess.run(
        [binary, "stats", queue, "--json", "--data", str(data)], check=True, capture_output=True
    )
    return json.loads(told.stdout)["waiters"]


def until_waiters(data, queue, count):
    end = time.monotonic() + 120
    while waiters(data, queue) < count:
        assert time.monotonic() < end, "nobody waits"
        time.sleep(0.1)


def long_polls(sqs, data):
    url = sqs.create_queue(QueueName="polled")["QueueUrl"]
    got = []

    def poll():
        # Again after 20 s, which may not be enough until all five wait.
        while not (messages := sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20).get("Messages")):
            pass
        got.extend(message["Body"] for message in messages)

    polls = [threading.Thread(target=poll) for _ in range(5)]
    for thread in polls:
        thread.start()
    until_waiters(data, "polled", 5)
    for number in range(5):
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
    for thread in polls:
        thread.join()
    assert sorted(got) == ["0", "1", "2", "3", "4"]


def over_a_kill(sqs):
    """Yields when the server is to be killed and started again, at the same address."""
    url = sqs.create_queue(QueueName="kept")["QueueUrl"]
    for number in range(20):
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
    got = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=600)["Messages"]
    yield
    # The same client goes on: its connection is closed, and made anew.
    for message in got:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    rest = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=600)["Messages"]
    assert [m["Body"] for m in rest] == [str(n) for n in range(10, 20)]
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    shown = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    assert [shown[name] for name in names] == ["0", "10"]


if __name__ == "__main__":
    client = connect(sys.argv[1])
    for act in (standard, errors, fifo, dead_letters):
        act(client)
    long_polls(client, sys.argv[2])
    for _ in over_a_kill(client):
        print("kill", flush=True)
        sys.stdin.readline()
