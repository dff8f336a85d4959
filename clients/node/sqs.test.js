"use strict";
// npm's @aws-sdk/client-sqs and sqs-consumer, unmodified, against the real binary.

const assert = require("node:assert/strict");
const child_process = require("node:child_process");
const { after, before, test } = require("node:test");
const { promisify } = require("node:util");
const { SQS } = require("@aws-sdk/client-sqs");
const { pause, start } = require("./server.js");

const execFile = promisify(child_process.execFile);

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

/** How many are visible, and how many are not. */
async function counts(QueueUrl) {
  const names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"];
  const { Attributes } = await sqs.getQueueAttributes({ QueueUrl, AttributeNames: names });
  return names.map((name) => Number(Attributes[name]));
}

/** Resolves when `so` does. */
async function until(so) {
  const end = Date.now() + 120_000;
  while (!(await so())) {
    assert.ok(Date.now() < end, "it did not come to pass");
    await pause();
  }
}

/** Resolves when so many wait for a message of this queue, as an operator is told. */
function untilWaiters(queue, count) {
  const args = ["stats", queue, "--json", "--data", server.data];
  return until(async () => {
    const told = await execFile(process.env.QUINTET || "quintet", args);
    return JSON.parse(told.stdout).waiters >= count;
  });
}

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
  const [a] = await receive(QueueUrl, { VisibilityTimeout: 600 });
  assert.equal(a.Body, "a");
  assert.deepEqual(await bodies(QueueUrl, { MaxNumberOfMessages: 10, VisibilityTimeout: 600 }), ["c"], "b waits for a");
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
  await untilWaiters("polled", 1);
  await sqs.sendMessage({ QueueUrl, MessageBody: "now" });
  assert.deepEqual(await poll, ["now"]);
});

test("a handle is good over a crash between receive and delete", async () => {
  const QueueUrl = await create("crash");
  for (const MessageBody of ["a", "b"]) await sqs.sendMessage({ QueueUrl, MessageBody });
  const [got] = await receive(QueueUrl, { VisibilityTimeout: 600 });
  await server.crash();
  await sqs.deleteMessage({ QueueUrl, ReceiptHandle: got.ReceiptHandle });
  assert.deepEqual(await bodies(QueueUrl, { VisibilityTimeout: 600 }), ["b"]);
  assert.deepEqual(await counts(QueueUrl), [0, 1]);
});

/** A consumer of npm's sqs-consumer that runs until its test ends. */
async function consume(t, queueUrl, options) {
  const { Consumer } = await import("sqs-consumer");
  const common = { queueUrl, sqs, waitTimeSeconds: 20, pollingCompleteWaitTimeMs: 0 };
  const consumer = Consumer.create({ ...common, ...options });
  // A poll that a crash cuts off is tried again.
  consumer.on("error", () => {});
  consumer.start();
  t.after(() => consumer.stop({ abort: true }));
}

const sendMany = (QueueUrl, from, more = {}) =>
  sqs.sendMessageBatch({
    QueueUrl,
    Entries: Array.from({ length: 10 }, (_, n) => ({ Id: `${n}`, MessageBody: `${from + n}`, ...more })),
  });

test("sqs-consumer handles each message once, over a crash before it deletes too", async (t) => {
  const queueUrl = await create("consumed", { VisibilityTimeout: "600" });
  const handled = [];
  let sent;
  await consume(t, queueUrl, {
    batchSize: 5,
    handleMessage: async (message) => {
      handled.push(Number(message.Body));
      // All five of a poll are deleted after it. A put without an answer would be sent again.
      if (message.Body === "10") {
        await sent;
        await server.crash();
      }
      return message;
    },
  });
  await untilWaiters("consumed", 1);
  await sendMany(queueUrl, 0);
  await until(async () => handled.length === 10 && (await counts(queueUrl)).join() === "0,0");
  sent = sendMany(queueUrl, 10);
  await sent;
  await until(async () => handled.length >= 20 && (await counts(queueUrl)).join() === "0,0");
  assert.deepEqual(handled.sort((a, b) => a - b), Array.from({ length: 20 }, (_, n) => n));
});

test("sqs-consumer takes batches in the order of a group; what fails goes to the dead letters", async (t) => {
  const fifo = { FifoQueue: "true", ContentBasedDeduplication: "true" };
  const dead = await create("consumed-dead.fifo", fifo);
  const { Attributes } = await sqs.getQueueAttributes({ QueueUrl: dead, AttributeNames: ["QueueArn"] });
  const RedrivePolicy = JSON.stringify({ deadLetterTargetArn: Attributes.QueueArn, maxReceiveCount: 2 });
  const queueUrl = await create("consumed.fifo", { ...fifo, VisibilityTimeout: "600", RedrivePolicy });
  await sendMany(queueUrl, 0, { MessageGroupId: "g" });
  await sqs.sendMessage({ QueueUrl: queueUrl, MessageGroupId: "g", MessageBody: "bad" });
  await sqs.sendMessage({ QueueUrl: queueUrl, MessageGroupId: "g", MessageBody: "last" });
  const handled = [];
  await consume(t, queueUrl, {
    batchSize: 5,
    suppressFifoWarning: true,
    terminateVisibilityTimeout: true,
    handleMessageBatch: async (messages) => {
      const bodies = messages.map((message) => message.Body);
      handled.push(...bodies);
      if (bodies.includes("bad")) throw new Error("boom");
      return messages;
    },
  });
  await until(async () => (await counts(queueUrl)).join() === "0,0");
  const first = handled.slice(0, 10);
  assert.deepEqual(first, Array.from({ length: 10 }, (_, n) => `${n}`));
  // The last one comes with the bad one, and fails with it.
  assert.deepEqual(handled.slice(10), ["bad", "last", "bad", "last"]);
  assert.deepEqual(await bodies(dead, { MaxNumberOfMessages: 10, WaitTimeSeconds: 20 }), ["bad", "last"]);
});
