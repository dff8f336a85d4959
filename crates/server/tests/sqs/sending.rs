//! Cases 17 to 30 and 67: sending, and what comes back of it.

use std::time::Instant;

use serde_json::{Value, json};

use crate::cases;
use crate::client::{Says, Sqs, between};

cases! {
    case_17_a_send_answers_a_sum_and_an_id(s) {
        s.create("q");
        let sent = s.send("q", "hello");
        let names: Vec<&String> = sent.as_object().expect("members").keys().collect();
        assert_eq!(names, ["MD5OfMessageBody", "MessageId"]);
        assert_eq!(sent["MD5OfMessageBody"], "5d41402abc4b2a76b9719d911017c592");
        assert_eq!(sent["MessageId"].as_str().expect("an id").len(), 36);
        let got = s.receive("q", json!({}));
        assert_eq!(got[0]["MessageId"], sent["MessageId"]);
        assert_eq!(got[0]["MD5OfBody"], sent["MD5OfMessageBody"]);
    }

    case_18_19_attributes(s) {
        s.create("q");
        let sent = s.jq("SendMessage", "q", json!({"MessageBody": "x", "MessageAttributes": {
            "Name": {"DataType": "String", "StringValue": "hé"},
            "bin": {"DataType": "Binary", "BinaryValue": "AP8="},
            "n": {"DataType": "Number.int", "StringValue": "42"},
        }})).yes();
        let sum = "80fa93021d530b96009893fafddaf3b5";
        assert_eq!(sent["MD5OfMessageAttributes"], sum);
        let got = s.receive("q", json!({"MessageAttributeNames": ["All"]}));
        assert_eq!(got[0]["MD5OfMessageAttributes"], sum);
        assert_eq!(got[0]["MessageAttributes"]["bin"], json!({"BinaryValue": "AP8=", "DataType": "Binary"}));
        assert_eq!(got[0]["MessageAttributes"]["n"]["DataType"], "Number.int");

        s.create_with("r", json!({"VisibilityTimeout": "0"}));
        let string = |text: &str| json!({"DataType": "String", "StringValue": text});
        s.jq("SendMessage", "r", json!({"MessageBody": "x", "MessageAttributes": {
            "General": string("Kenobi"), "Hello": string("There"), "Help.Me": string("Me")}})).yes();
        let received = |names: Value| {
            let got = s.receive("r", json!({"MessageAttributeNames": names, "WaitTimeSeconds": 20}));
            let names = got[0]["MessageAttributes"].as_object().map(|of| of.keys().cloned().collect::<Vec<_>>());
            (names.unwrap_or_default(), got[0]["MD5OfMessageAttributes"].clone())
        };
        assert_eq!(received(json!(["Hello"])), (vec!["Hello".to_owned()], json!("a311262e065454b75da111d535b8dacd")));
        let (names, sum) = received(json!(["Hel.*"]));
        assert_eq!(names, ["Hello", "Help.Me"]);
        assert!(sum.as_str().expect("a sum").starts_with("83fee93c"));
        assert_eq!(received(json!(["zz"])), (Vec::new(), Value::Null));
        assert_eq!(received(json!([])), (Vec::new(), Value::Null));
    }

    case_20_query_keeps_text_that_xml_could_spoil(s) {
        s.create("q");
        let form = "Action=SendMessage&MessageBody=a%3C%26%22%0D%0A&MessageAttribute.1.Name=b\
            &MessageAttribute.1.Value.DataType=Binary&MessageAttribute.1.Value.BinaryValue=AP8%3D";
        let sent = s.q_at("/000000000000/q", form);
        assert_eq!(sent.status, 200, "{sent:?}");
        let got = s.q_at("/000000000000/q", "Action=ReceiveMessage&MessageAttributeName.1=All");
        assert!(got.body.contains("<Body>a&lt;&amp;&quot;&#13;\n</Body>"), "{got:?}");
        assert_eq!(between(&got.body, "MD5OfBody"), between(&sent.body, "MD5OfMessageBody"));
        assert_eq!(
            between(&got.body, "MD5OfMessageAttributes"),
            between(&sent.body, "MD5OfMessageAttributes")
        );
    }

    case_21_the_trace_header(s) {
        s.create("q");
        let trace = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1";
        let sent = s.jq("SendMessage", "q", json!({"MessageBody": "x", "MessageSystemAttributes":
            {"AWSTraceHeader": {"DataType": "String", "StringValue": trace}}})).yes();
        assert_eq!(sent["MD5OfMessageSystemAttributes"], "5ae4d5d7636402d80f4eb6d213245a88");
        let got = s.receive("q", json!({"AttributeNames": ["All"]}));
        assert_eq!(got[0]["Attributes"]["AWSTraceHeader"], trace);
    }

    case_22_characters_of_bodies(s) {
        s.create("q");
        let empty = s.jq("SendMessage", "q", json!({"MessageBody": ""}));
        empty.no(400, "MissingRequiredParameterException");
        assert_eq!(empty.header("x-amzn-query-error"), Some("MissingParameter;Sender"));
        for odd in ["\0", "\u{fffe}"] {
            s.jq("SendMessage", "q", json!({"MessageBody": odd})).no(400, "InvalidMessageContents");
        }
        s.send("q", "\u{1f600}");
    }

    case_23_sizes(s) {
        s.create("q");
        s.create_with("small", json!({"MaximumMessageSize": "1024"}));
        let send = |queue: &str, bytes: usize, attributes: Value| {
            s.jq("SendMessage", queue, json!({"MessageBody": "a".repeat(bytes), "MessageAttributes": attributes}))
        };
        send("q", 1 << 20, json!({})).yes();
        let attribute = json!({"a": {"DataType": "String", "StringValue": "b"}});
        let long = "One or more parameters are invalid. Reason: Message must be shorter than";
        for (queue, bytes, attributes, most) in [
            ("q", (1 << 20) + 1, json!({}), "1048576"),
            ("q", 1 << 20, attribute.clone(), "1048576"),
            ("small", 1025, json!({}), "1024"),
            ("small", 1024, attribute, "1024"),
        ] {
            let text = send(queue, bytes, attributes).no(400, "InvalidParameterValueException");
            assert_eq!(text, format!("{long} {most} bytes."));
        }
        send("small", 1024, json!({})).yes();
        // From the log, where long bodies are.
        let got = s.receive("q", json!({}));
        assert_eq!(got[0]["Body"].as_str().map(str::len), Some(1 << 20));
    }

    case_24_attributes_that_cannot_be(s) {
        s.create("q");
        let send = |attributes: Value| s.jq("SendMessage", "q", json!({"MessageBody": "x", "MessageAttributes": attributes}));
        let string = |text: &str| json!({"DataType": "String", "StringValue": text});
        let invalid = "InvalidParameterValueException";
        assert_eq!(
            send(json!({"x": string("")})).no(400, invalid),
            "Message (user) attribute 'x' must contain a non-empty value of type 'String'."
        );
        send(json!({"x": {"DataType": "Foo", "StringValue": "v"}})).no(400, invalid);
        send(json!({"aws.x": string("v")})).no(400, invalid);
        send(json!({".x": string("v")})).no(400, invalid);
        let many: serde_json::Map<String, Value> = (0..11).map(|n| (n.to_string(), string("v"))).collect();
        send(Value::Object(many)).no(400, invalid);
        let list = json!({"x": {"DataType": "String", "StringListValues": ["a"]}});
        send(list).no(400, "UnsupportedOperation");
    }

    case_25_delays(s) {
        s.create("q");
        s.create_with("late", json!({"DelaySeconds": "60"}));
        let began = Instant::now();
        s.jq("SendMessage", "q", json!({"MessageBody": "x", "DelaySeconds": 1})).yes();
        let counts = s.counts("q");
        // Unless the machine was so slow that it was over.
        if began.elapsed().as_millis() < 1000 {
            assert_eq!(counts, ["0", "0", "1"]);
        }
        let got = s.bodies("q", json!({"WaitTimeSeconds": 20}));
        assert_eq!(got, ["x"]);
        assert!(began.elapsed().as_millis() >= 1000);
        s.jq("SendMessage", "late", json!({"MessageBody": "now", "DelaySeconds": 0})).yes();
        s.jq("SendMessage", "late", json!({"MessageBody": "later"})).yes();
        assert_eq!(s.bodies("late", json!({"MaxNumberOfMessages": 10})), ["now"]);
        assert_eq!(s.counts("late"), ["0", "1", "1"]);
        for seconds in [901, -1] {
            let input = json!({"MessageBody": "x", "DelaySeconds": seconds});
            let text = s.jq("SendMessage", "q", input).no(400, "InvalidParameterValueException");
            assert!(text.ends_with("DelaySeconds must be >= 0 and <= 900."), "{text}");
        }
    }

    case_26_27_29_batches_with_failures(s) {
        s.create_with("small", json!({"MaximumMessageSize": "1024"}));
        let entry = |id: &str, body: &str| json!({"Id": id, "MessageBody": body});
        let send = |entries: Value| s.jq("SendMessageBatch", "small", json!({"Entries": entries}));
        let got = send(json!([entry("1", "a"), entry("2", &"a".repeat(1025))])).yes();
        assert_eq!(got["Successful"][0]["Id"], "1");
        assert_eq!(
            got["Failed"],
            json!([{"Id": "2", "SenderFault": true, "Code": "InvalidParameterValue",
                "Message": "One or more parameters cannot be validated. Reason: Message must be shorter than 1024 bytes."}])
        );
        // Alone in its batch it is refused in the same way.
        let alone = send(json!([entry("2", &"a".repeat(1025))])).yes();
        assert_eq!(alone, json!({"Failed": got["Failed"]}));
        let good = send(json!([entry("1", "a"), entry("2", "b")])).yes();
        assert_eq!(good.as_object().map(serde_json::Map::len), Some(1));
        let form = "Action=SendMessageBatch&SendMessageBatchRequestEntry.1.Id=a\
            &SendMessageBatchRequestEntry.1.MessageBody=x&SendMessageBatchRequestEntry.2.Id=b\
            &SendMessageBatchRequestEntry.2.MessageBody=y";
        let text = s.q_at("/0/small", form).body;
        assert_eq!(text.matches("<SendMessageBatchResultEntry>").count(), 2, "{text}");
        assert_eq!(text.matches("<BatchResultErrorEntry>").count(), 0);
        let late = json!({"Id": "3", "MessageBody": "x", "DelaySeconds": 1800});
        let got = send(json!([entry("1", "a"), late])).yes();
        assert_eq!((&got["Successful"][0]["Id"], &got["Failed"][0]["Id"]), (&json!("1"), &json!("3")));
        assert_eq!(got["Failed"][0]["Code"], "InvalidParameterValue");
    }

    case_28_batches_that_are_refused_as_a_whole(s) {
        s.create("q");
        let of = |ids: &[&str], bytes: usize| {
            let entries: Vec<Value> = ids.iter().map(|id| json!({"Id": id, "MessageBody": "a".repeat(bytes)})).collect();
            s.jq("SendMessageBatch", "q", json!({"Entries": entries}))
        };
        of(&[], 1).no(400, "EmptyBatchRequest");
        let eleven = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "a"];
        assert_eq!(
            of(&eleven, 1).no(400, "TooManyEntriesInBatchRequest"),
            "Maximum number of entries per request are 10. You have sent 11."
        );
        of(&["a b"], 1).no(400, "InvalidBatchEntryId");
        of(&[&"a".repeat(81)], 1).no(400, "InvalidBatchEntryId");
        assert_eq!(of(&["a", "b", "b", "a"], 1).no(400, "BatchEntryIdsNotDistinct"), "Id b repeated.");
        let text = of(&["a", "b", "c"], 350_000).no(400, "BatchRequestTooLong");
        assert!(text.ends_with("You have sent 1050000 bytes."), "{text}");
        assert_eq!(s.counts("q"), ["0", "0", "0"]);
    }

    case_30_order(s) {
        s.create("q");
        let entries: Vec<Value> = (0..10).map(|n| json!({"Id": n.to_string(), "MessageBody": n.to_string()})).collect();
        s.jq("SendMessageBatch", "q", json!({"Entries": entries})).yes();
        let got = s.bodies("q", json!({"MaxNumberOfMessages": 10}));
        assert_eq!(got.concat(), "0123456789");
        assert_eq!(s.jq("ReceiveMessage", "q", json!({"MaxNumberOfMessages": 10})).body, "{}");
    }

    case_67_a_repeated_send_is_stored_once(s) {
        s.create("q");
        let send = |id: &str, body: &str| {
            let input = json!({"QueueUrl": s.url("q"), "MessageBody": body}).to_string();
            let headers = format!("amz-sdk-invocation-id: {id}\r\n");
            s.j_with("SendMessage", &headers, &input).yes()
        };
        let first = send("i", "x");
        assert_eq!(send("i", "x"), first);
        assert_ne!(send("i", "y")["MessageId"], first["MessageId"]);
        assert_ne!(send("j", "x")["MessageId"], first["MessageId"]);
        assert_eq!(s.counts("q")[0], "3");
        // Batches as well.
        let entries = json!([{"Id": "a", "MessageBody": "x"}, {"Id": "b", "MessageBody": "y"}]);
        let input = json!({"QueueUrl": s.url("q"), "Entries": entries}).to_string();
        let batch = || s.j_with("SendMessageBatch", "amz-sdk-invocation-id: k\r\n", &input).yes();
        assert_eq!(batch(), batch());
        assert_eq!(s.counts("q")[0], "5");
    }
}

#[test]
fn retention_without_bound_and_delays_beyond_aws_where_limits_are_open() {
    let s = Sqs::start(1, "limits=open");
    s.create_with("q", json!({"MessageRetentionPeriod": "0"}));
    let input = json!({"MessageBody": "x", "DelaySeconds": 100_000});
    s.jq("SendMessage", "q", input).yes();
    assert_eq!(s.counts("q"), ["0", "0", "1"]);
    let entries: Vec<Value> = (0..1000)
        .map(|n| json!({"Id": n.to_string(), "MessageBody": "x"}))
        .collect();
    s.jq("SendMessageBatch", "q", json!({"Entries": entries}))
        .yes();
    assert_eq!(
        s.receive("q", json!({"MaxNumberOfMessages": 1000})).len(),
        1000
    );
}
