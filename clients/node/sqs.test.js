"use strict";
// npm's @aws-sdk/client-sqs and sqs-consumer, unmodified, against the real binary.

const assert = require("node:assert/strict");
const { after, before, test } = require("node:test");
const { SQS } = require("@aws-sdk/client-sqs");
const { start } = require("./server.js");

let server;
let sqs;

before(async () => {
  server = await start("sqs");
  sqs = new SQS({
    endpoint: `http://${server.address}`,
    region: "us-east-1",
    credentials: { accessKeyId: "x", secretAccessKey: "x" },
    maxAttempts: 10,
  });
});

after(async () => {
  sqs.destroy();
  await server.stop();
});

const create = async (QueueName, Attributes) =>
  (await sqs.createQueue({ QueueName, Attributes })).QueueUrl;

const receive = async (QueueUrl, more = {}) =>
  (await sqs.receiveMessage({ QueueUrl, ...more })).Messages ?? [];

const bodies = async (QueueUrl, more) => (await receive(QueueUrl, more)).map((got) => got.Body);

test("a message comes as it was sent, with its attributes", async () => {
  const QueueUrl = await create("plain");
  assert.equal((await sqs.getQueueUrl({ QueueName: "plain" })).QueueUrl, QueueUrl);
  const MessageAttributes = {
    text: { DataType: "String", StringValue: "hé <&>\r\n" },
    bytes: { DataType: "Binary", BinaryValue: Uint8Array.of(0, 255) },
  };
  // The SDK compares the checksums of both.
  const sent = await sqs.sendMessage({ QueueUrl, MessageBody: "a \u{1f600}", MessageAttributes });
  const [got] = await receive(QueueUrl, { MessageAttributeNames: ["All"], MessageSystemAttributeNames: ["All"] });
  assert.deepEqual([got.MessageId, got.Body], [sent.MessageId, "a \u{1f600}"]);
  assert.deepEqual(got.MessageAttributes.bytes.BinaryValue, MessageAttributes.bytes.BinaryValue);
  assert.equal(got.MessageAttributes.text.StringValue, MessageAttributes.text.StringValue);
  assert.equal(got.Attributes.ApproximateReceiveCount, "1");
  await sqs.changeMessageVisibility({ QueueUrl, ReceiptHandle: got.ReceiptHandle, VisibilityTimeout: 0 });
  const [again] = await receive(QueueUrl, { WaitTimeSeconds: 20 });
  await sqs.deleteMessage({ QueueUrl, ReceiptHandle: again.ReceiptHandle });
  await assert.rejects(sqs.getQueueUrl({ QueueName: "none" }), { name: "QueueDoesNotExist" });
});

test("batches, with the one that fails named", async () => {
  const QueueUrl = await create("batches");
  const Entries = [..."0123456789"].map((Id) => ({ Id, MessageBody: Id }));
  assert.equal((await sqs.sendMessageBatch({ QueueUrl, Entries })).Successful.length, 10);
  const got = await receive(QueueUrl, { MaxNumberOfMessages: 10 });
  assert.deepEqual(got.map((message) => message.Body), [..."0123456789"]);
  const handles = got.map(({ Body, ReceiptHandle }) => ({ Id: Body, ReceiptHandle }));
  handles[3].ReceiptHandle = "x";
  const done = await sqs.deleteMessageBatch({ QueueUrl, Entries: handles });
  assert.equal(done.Successful.length, 9);
  assert.deepEqual(done.Failed.map(({ Id, Code }) => [Id, Code]), [["3", "ReceiptHandleIsInvalid"]]);
});

test("a FIFO queue keeps each group's order and stores a repeat once", async () => {
  const QueueUrl = await create("order.fifo", { FifoQueue: "true", ContentBasedDeduplication: "true" });
  const send = (MessageGroupId, MessageBody) => sqs.sendMessage({ QueueUrl, MessageGroupId, MessageBody });
  const first = await send("g", "a");
  assert.equal((await send("g", "a")).SequenceNumber, first.SequenceNumber);
  for (const [group, body] of [["g", "b"], ["h", "c"]]) await send(group, body);
  const [a] = await receive(QueueUrl);
  assert.equal(a.Body, "a");
  assert.deepEqual(await bodies(QueueUrl, { MaxNumberOfMessages: 10 }), ["c"], "b waits for a");
  await sqs.deleteMessage({ QueueUrl, ReceiptHandle: a.ReceiptHandle });
  assert.deepEqual(await bodies(QueueUrl), ["b"]);
});

test("what is received too often goes to the dead letters", async () => {
  const dead = await create("dead");
  const { Attributes } = await sqs.getQueueAttributes({ QueueUrl: dead, AttributeNames: ["QueueArn"] });
  const RedrivePolicy = JSON.stringify({ deadLetterTargetArn: Attributes.QueueArn, maxReceiveCount: 2 });
  const QueueUrl = await create("tried", { RedrivePolicy, VisibilityTimeout: "0" });
  await sqs.sendMessage({ QueueUrl, MessageBody: "x" });
  for (let tries = 0; tries < 2; tries += 1) {
    assert.deepEqual(await bodies(QueueUrl, { WaitTimeSeconds: 20 }), ["x"]);
  }
  assert.deepEqual(await bodies(dead, { WaitTimeSeconds: 20 }), ["x"]);
});

test("a poll is woken by a send", async () => {
  const QueueUrl = await create("polled");
  const poll = bodies(QueueUrl, { WaitTimeSeconds: 20 });
  await sqs.sendMessage({ QueueUrl, MessageBody: "now" });
  assert.deepEqual(await poll, ["now"]);
});

test("a handle is good over a crash between receive and delete", async () => {
  const QueueUrl = await create("crash");
  for (const MessageBody of ["a", "b"]) await sqs.sendMessage({ QueueUrl, MessageBody });
  const [got] = await receive(QueueUrl, { VisibilityTimeout: 600 });
  await server.crash();
  await sqs.deleteMessage({ QueueUrl, ReceiptHandle: got.ReceiptHandle });
  assert.deepEqual(await bodies(QueueUrl), ["b"]);
  const names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"];
  const { Attributes } = await sqs.getQueueAttributes({ QueueUrl, AttributeNames: names });
  assert.deepEqual(names.map((name) => Attributes[name]), ["0", "1"]);
});

test("sqs-consumer handles each message once, over a crash too", async () => {
  const { Consumer } = await import("sqs-consumer");
  const queueUrl = await create("consumed");
  const send = (from) =>
    sqs.sendMessageBatch({
      QueueUrl: queueUrl,
      Entries: Array.from({ length: 10 }, (_, n) => ({ Id: `${n}`, MessageBody: `${from + n}` })),
    });
  const handled = [];
  let told = () => {};
  const until = (count) =>
    new Promise((resolve) => {
      told = () => handled.length >= count && resolve();
      told();
    });
  const consumer = Consumer.create({
    queueUrl,
    sqs,
    batchSize: 5,
    waitTimeSeconds: 20,
    pollingCompleteWaitTimeMs: 0,
    handleMessage: async (message) => {
      handled.push(Number(message.Body));
      return message;
    },
  });
  consumer.on("message_processed", () => told());
  // A poll that the crash cuts off is tried again.
  consumer.on("error", () => {});
  consumer.start();
  await send(0);
  await until(10);
  await server.crash();
  await send(10);
  await until(20);
  consumer.stop({ abort: true });
  assert.deepEqual(handled.sort((a, b) => a - b), Array.from({ length: 20 }, (_, n) => n));
});
