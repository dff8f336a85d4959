//! The crate `aws-sdk-sqs`, unmodified, against the real binary (`QUINTET`).

use std::path::Path;
use std::time::Instant;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::timeout::TimeoutConfig;
use aws_sdk_sqs::config::{BehaviorVersion, Config, Credentials, Region};
use aws_sdk_sqs::error::ProvideErrorMetadata as _;
use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::{
    ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry, Message,
    MessageAttributeValue, MessageSystemAttributeName, QueueAttributeName,
    SendMessageBatchRequestEntry,
};
use aws_smithy_http_client::Builder;
use quintet_clients::{PATIENCE, Server, quintet};

fn start(folder: &Path) -> Server {
    Server::start(folder, "sqs", "127.0.0.1:0", "")
}

/// A client that knows only where the server is, and any credentials.
fn client(server: &Server) -> Client {
    client_as(server, "anybody", "anything")
}

fn client_as(server: &Server, key: &str, secret: &str) -> Client {
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(format!("http://{}", server.address))
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new(key, secret, None, None, "tests"))
        .retry_config(RetryConfig::standard().with_max_attempts(10))
        .timeout_config(TimeoutConfig::builder().connect_timeout(PATIENCE).build())
        .http_client(Builder::new().build_http());
    Client::from_conf(config.build())
}

async fn create(sqs: &Client, name: &str, attributes: &[(QueueAttributeName, &str)]) -> String {
    let mut make = sqs.create_queue().queue_name(name);
    for (name, value) in attributes {
        make = make.attributes(name.clone(), *value);
    }
    let made = make.send().await.expect("made");
    made.queue_url.expect("its URL")
}

async fn receive(sqs: &Client, url: &str, visible_after: i32) -> Vec<Message> {
    let ask = sqs.receive_message().queue_url(url);
    let ask = ask
        .max_number_of_messages(10)
        .visibility_timeout(visible_after)
        .wait_time_seconds(20)
        .message_system_attribute_names(MessageSystemAttributeName::All);
    let got = ask.send().await.expect("received");
    got.messages.unwrap_or_default()
}

/// The same of a queue that is known to have nothing to give now.
async fn receive_at_once(sqs: &Client, url: &str) -> Vec<Message> {
    let ask = sqs.receive_message().queue_url(url);
    let got = ask.max_number_of_messages(10).send().await;
    got.expect("received").messages.unwrap_or_default()
}

fn bodies(messages: &[Message]) -> Vec<&str> {
    let bodies = messages.iter().map(|message| message.body());
    bodies.map(|body| body.expect("a body")).collect()
}

fn handle(message: &Message) -> &str {
    message.receipt_handle().expect("a handle")
}

async fn attribute(sqs: &Client, url: &str, name: QueueAttributeName) -> String {
    let ask = sqs.get_queue_attributes().queue_url(url);
    let got = ask.attribute_names(name.clone()).send().await;
    let got = got.expect("a reply").attributes.expect("attributes");
    got.get(&name).expect("it is among them").clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_comes_as_it_was_sent() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path());
    let sqs = client(&server);
    let url = create(&sqs, "plain", &[]).await;
    let found = sqs.get_queue_url().queue_name("plain").send().await;
    assert_eq!(found.expect("found").queue_url(), Some(url.as_str()));
    create(&sqs, "other", &[]).await;
    let listed = sqs.list_queues().queue_name_prefix("pl").send().await;
    assert_eq!(
        listed.expect("listed").queue_urls(),
        std::slice::from_ref(&url)
    );

    let body = "a <&> \"b\"\r\n\u{1f600}";
    let of = |kind: &str| MessageAttributeValue::builder().data_type(kind);
    let attributes = [
        ("text", of("String").string_value("h\u{e9} <&>\r\n")),
        ("number", of("Number.int").string_value("-42")),
        ("bytes", of("Binary.png").binary_value(Blob::new([0, 255]))),
    ];
    let mut send = sqs.send_message().queue_url(&url).message_body(body);
    for (name, value) in &attributes {
        send = send.message_attributes(*name, value.clone().build().expect("whole"));
    }
    let sent = send.send().await.expect("sent");
    let ask = sqs.receive_message().queue_url(&url);
    let ask = ask.message_attribute_names("All");
    let ask = ask.message_system_attribute_names(MessageSystemAttributeName::All);
    let got = ask.send().await.expect("received");
    let [got] = got.messages() else {
        panic!("{got:?}")
    };
    assert_eq!(got.body(), Some(body));
    assert_eq!(got.message_id(), sent.message_id());
    assert_eq!(got.md5_of_body(), sent.md5_of_message_body());
    assert_eq!(got.md5_of_body(), Some("b19f3b58da955a8d54a5e94ace48e030"));
    assert_eq!(
        got.md5_of_message_attributes(),
        sent.md5_of_message_attributes()
    );
    let back = got.message_attributes().expect("attributes");
    assert_eq!(back.len(), attributes.len());
    for (name, value) in attributes {
        assert_eq!(back[name], value.build().expect("whole"), "{name}");
    }
    let told = got.attributes().expect("a reply");
    let count = MessageSystemAttributeName::ApproximateReceiveCount;
    assert_eq!(told[&count], "1");

    // Given back, it is there at once; deleted, it is gone.
    let change = sqs.change_message_visibility().queue_url(&url);
    let change = change.receipt_handle(handle(got)).visibility_timeout(0);
    change.send().await.expect("changed");
    let again = receive(&sqs, &url, 600).await;
    assert_eq!(again[0].attributes().expect("a reply")[&count], "2");
    let delete = sqs.delete_message().queue_url(&url);
    let deleted = delete.receipt_handle(handle(&again[0])).send().await;
    deleted.expect("deleted");
    let hidden = QueueAttributeName::ApproximateNumberOfMessagesNotVisible;
    assert_eq!(attribute(&sqs, &url, hidden).await, "0");
    let gone = sqs.delete_queue().queue_url(&url).send().await;
    gone.expect("gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_name_the_one_that_fails() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path());
    let sqs = client(&server);
    let most = [(QueueAttributeName::MaximumMessageSize, "1024")];
    let url = create(&sqs, "batches", &most).await;
    let entry = |id: u32, body: &str| {
        let entry = SendMessageBatchRequestEntry::builder().id(id.to_string());
        entry.message_body(body).build().expect("whole")
    };
    let (large, fits) = ("x".repeat(1025), "x".repeat(1024));
    let batch = sqs.send_message_batch().queue_url(&url);
    let batch = batch.entries(entry(0, &fits)).entries(entry(1, &large));
    let done = batch.entries(entry(2, "2")).send().await.expect("answered");
    let ids: Vec<&str> = done.successful().iter().map(|entry| entry.id()).collect();
    assert_eq!(ids, ["0", "2"]);
    let [failed] = done.failed() else {
        panic!("{done:?}")
    };
    assert_eq!((failed.id(), failed.sender_fault()), ("1", true));
    assert_eq!(failed.code(), "InvalidParameterValue");

    let got = receive(&sqs, &url, 600).await;
    assert_eq!(bodies(&got), [fits.as_str(), "2"]);
    let change = |id: &str, handle: &str| {
        let entry = ChangeMessageVisibilityBatchRequestEntry::builder().id(id);
        let entry = entry.receipt_handle(handle).visibility_timeout(900);
        entry.build().expect("whole")
    };
    let changed = sqs.change_message_visibility_batch().queue_url(&url);
    let changed = changed.entries(change("good", handle(&got[0])));
    let changed = changed.entries(change("bad", "x")).send().await;
    let changed = changed.expect("answered");
    assert_eq!(changed.successful()[0].id(), "good");
    assert_eq!(changed.failed()[0].id(), "bad");
    let delete = |id: &str, handle: &str| {
        let entry = DeleteMessageBatchRequestEntry::builder().id(id);
        entry.receipt_handle(handle).build().expect("whole")
    };
    let deleted = sqs.delete_message_batch().queue_url(&url);
    let deleted = deleted.entries(delete("a", handle(&got[0])));
    let deleted = deleted.entries(delete("b", "x"));
    let deleted = deleted.entries(delete("c", handle(&got[1]))).send().await;
    let deleted = deleted.expect("answered");
    let ids: Vec<&str> = deleted.successful().iter().map(|e| e.id()).collect();
    assert_eq!(ids, ["a", "c"]);
    assert_eq!(deleted.failed()[0].code(), "ReceiptHandleIsInvalid");
    let purged = sqs.purge_queue().queue_url(&url).send().await;
    purged.expect("purged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_is_answered_by_a_send() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path());
    let sqs = client(&server);
    let url = create(&sqs, "polled", &[]).await;
    let poll = || {
        let ask = sqs.receive_message().queue_url(&url);
        let ask = ask.max_number_of_messages(1).wait_time_seconds(20);
        tokio::spawn(ask.send())
    };
    let polls: Vec<_> = (0..5).map(|_| poll()).collect();
    let waiters = || {
        let mut ask = quintet();
        ask.args(["stats", "polled", "--json", "--data"]);
        let told = ask
            .arg(folder.path().join("data"))
            .output()
            .expect("it ran");
        String::from_utf8(told.stdout).expect("text")
    };
    let end = Instant::now() + PATIENCE;
    while !waiters().contains("\"waiters\":5") {
        assert!(Instant::now() < end, "not all wait: {}", waiters());
    }
    for number in 0..5 {
        let send = sqs.send_message().queue_url(&url);
        let send = send.message_body(number.to_string()).send();
        send.await.expect("sent");
    }
    let mut all = Vec::new();
    for poll in polls {
        let got = poll.await.expect("it ran").expect("received");
        all.extend(bodies(got.messages()).into_iter().map(str::to_owned));
    }
    all.sort();
    assert_eq!(all, ["0", "1", "2", "3", "4"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_have_their_classes() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path());
    let sqs = client(&server);
    let delay = [(QueueAttributeName::DelaySeconds, "1")];
    let url = create(&sqs, "errors", &delay).await;

    let none = sqs.get_queue_url().queue_name("none").send().await;
    let none = none.expect_err("there is none").into_service_error();
    assert!(none.is_queue_does_not_exist(), "{none:?}");
    assert_eq!(none.code(), Some("AWS.SimpleQueueService.NonExistentQueue"));
    assert_eq!(none.message(), Some("The specified queue does not exist."));

    let other = sqs.create_queue().queue_name("errors");
    let other = other.attributes(QueueAttributeName::DelaySeconds, "2");
    let other = other.send().await.expect_err("it is not equal");
    let other = other.into_service_error();
    assert!(other.is_queue_name_exists(), "{other:?}");
    let what = QueueAttributeName::from("Nope");
    let unknown = sqs.get_queue_attributes().queue_url(&url);
    let unknown = unknown.attribute_names(what).send().await;
    let unknown = unknown.expect_err("unknown").into_service_error();
    assert!(unknown.is_invalid_attribute_name(), "{unknown:?}");

    let send = |body: &str| sqs.send_message().queue_url(&url).message_body(body).send();
    let nul = send("\0").await.expect_err("refused").into_service_error();
    assert!(nul.is_invalid_message_contents(), "{nul:?}");
    let large = send(&"x".repeat(1 << 20 | 1)).await;
    let large = large.expect_err("too large").into_service_error();
    assert_eq!(large.code(), Some("InvalidParameterValue"), "{large:?}");

    let delete = sqs.delete_message().queue_url(&url).receipt_handle("x");
    let delete = delete.send().await.expect_err("no handle");
    let delete = delete.into_service_error();
    assert!(delete.is_receipt_handle_is_invalid(), "{delete:?}");
    let batch = |ids: &[&str]| {
        let entry = |id: &&str| {
            let entry = SendMessageBatchRequestEntry::builder().id(*id);
            entry.message_body("x").build().expect("whole")
        };
        let batch = sqs.send_message_batch().queue_url(&url);
        batch
            .set_entries(Some(ids.iter().map(entry).collect()))
            .send()
    };
    let empty = batch(&[]).await.expect_err("empty").into_service_error();
    assert!(empty.is_empty_batch_request(), "{empty:?}");
    let twice = batch(&["a", "a"]).await.expect_err("twice");
    let twice = twice.into_service_error();
    assert!(twice.is_batch_entry_ids_not_distinct(), "{twice:?}");
    let many = batch(&["x"; 11]).await.expect_err("eleven");
    let many = many.into_service_error();
    assert!(many.is_too_many_entries_in_batch_request(), "{many:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fifo_queue_keeps_each_groups_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path());
    let sqs = client(&server);
    let fifo = [
        (QueueAttributeName::FifoQueue, "true"),
        (QueueAttributeName::ContentBasedDeduplication, "true"),
    ];
    let url = create(&sqs, "order.fifo", &fifo).await;
    let mut sent = Vec::new();
    for (group, body) in [("g", "a"), ("g", "b"), ("h", "c"), ("g", "a")] {
        let send = sqs.send_message().queue_url(&url);
        let send = send.message_group_id(group).message_body(body);
        sent.push(send.send().await.expect("sent"));
    }
    assert_eq!(sent[3].message_id(), sent[0].message_id());
    assert_eq!(sent[3].sequence_number(), sent[0].sequence_number());
    assert!(sent[0].sequence_number() < sent[1].sequence_number());
    let first = sqs.receive_message().queue_url(&url);
    let first = first.visibility_timeout(600).send().await;
    let first = first.expect("received").messages.expect("one");
    assert_eq!(bodies(&first), ["a"]);
    assert_eq!(bodies(&receive(&sqs, &url, 600).await), ["c"], "b waits");
    let delete = sqs.delete_message().queue_url(&url);
    let deleted = delete.receipt_handle(handle(&first[0])).send().await;
    deleted.expect("deleted");
    let last = receive(&sqs, &url, 600).await;
    assert_eq!(bodies(&last), ["b"]);
    let told = last[0].attributes().expect("a reply");
    let number = &told[&MessageSystemAttributeName::SequenceNumber];
    assert_eq!(Some(number.as_str()), sent[1].sequence_number());
    assert!(receive_at_once(&sqs, &url).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_tried_too_often_is_a_dead_letter_and_comes_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path());
    let sqs = client(&server);
    let dead = create(&sqs, "dead", &[]).await;
    let arn = attribute(&sqs, &dead, QueueAttributeName::QueueArn).await;
    let policy = format!("{{\"deadLetterTargetArn\":\"{arn}\",\"maxReceiveCount\":\"1\"}}");
    let policy = [(QueueAttributeName::RedrivePolicy, policy.as_str())];
    let url = create(&sqs, "fails", &policy).await;
    let send = sqs.send_message().queue_url(&url).message_body("x");
    let sent = send.send().await.expect("sent");
    assert_eq!(bodies(&receive(&sqs, &url, 0).await), ["x"]);
    let got = receive(&sqs, &dead, 0).await;
    assert_eq!(got[0].message_id(), sent.message_id());
    let told = got[0].attributes().expect("a reply");
    let source = &told[&MessageSystemAttributeName::DeadLetterQueueSourceArn];
    assert!(source.ends_with(":fails"), "{source}");
    let sources = sqs.list_dead_letter_source_queues().queue_url(&dead);
    let sources = sources.send().await.expect("a reply");
    assert_eq!(sources.queue_urls(), std::slice::from_ref(&url));
    let moves = sqs.start_message_move_task().source_arn(&arn);
    moves.send().await.expect("begun");
    assert_eq!(bodies(&receive(&sqs, &url, 600).await), ["x"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn handles_outlive_the_server_that_gave_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path());
    let sqs = client(&server);
    let url = create(&sqs, "kept", &[]).await;
    for number in 0..20 {
        let send = sqs.send_message().queue_url(&url);
        let send = send.message_body(number.to_string()).send();
        send.await.expect("sent");
    }
    let got = receive(&sqs, &url, 600).await;
    assert_eq!(got.len(), 10);
    let server = server.kill_and_start("sqs", "");
    // The same client goes on: its connections are closed, and made anew.
    for message in &got {
        let delete = sqs.delete_message().queue_url(&url);
        let deleted = delete.receipt_handle(handle(message)).send().await;
        deleted.expect("deleted");
    }
    let rest: Vec<String> = (10..20).map(|number| number.to_string()).collect();
    assert_eq!(bodies(&receive(&sqs, &url, 600).await), rest);
    let hidden = QueueAttributeName::ApproximateNumberOfMessagesNotVisible;
    assert_eq!(attribute(&sqs, &url, hidden).await, "10");
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn its_signatures_are_verified() {
    let folder = tempfile::tempdir().expect("a folder");
    let users = "users = \"KEY:secret\"";
    let server = Server::start(folder.path(), "sqs", "127.0.0.1:0", users);
    let sqs = client_as(&server, "KEY", "secret");
    let url = create(&sqs, "signed", &[]).await;
    let send = sqs.send_message().queue_url(&url).message_body("h\u{e9}");
    send.send().await.expect("sent");
    for (key, secret, code) in [
        ("KEY", "wrong", "SignatureDoesNotMatch"),
        ("OTHER", "secret", "InvalidClientTokenId"),
    ] {
        let sqs = client_as(&server, key, secret);
        let refused = sqs.list_queues().send().await.expect_err("refused");
        assert_eq!(refused.code(), Some(code), "{refused:?}");
    }
}
