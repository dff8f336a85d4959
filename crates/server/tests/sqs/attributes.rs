//! Cases 9 and 12 to 16: attributes, tags, permissions.

use serde_json::json;

use crate::cases;
use crate::client::Says;

cases! {
    case_09_attributes_of_a_queue_that_is_made(s) {
        let make = |attributes| s.j("CreateQueue", json!({"QueueName": "q", "Attributes": attributes}));
        let text = make(json!({"Foo": "1"})).no(400, "InvalidAttributeName");
        assert_eq!(text, "Unknown Attribute Foo.");
        make(json!({"FifoQueue": "tru"})).no(400, "InvalidAttributeValue");
        let text = make(json!({"ContentBasedDeduplication": "true"})).no(400, "InvalidAttributeName");
        assert_eq!(text, "Unknown Attribute ContentBasedDeduplication.");
        let text = make(json!({"DeduplicationScope": "queue"})).no(400, "InvalidAttributeName");
        assert_eq!(text, "You can specify the DeduplicationScope only when FifoQueue is set to true.");
        for (name, value) in [
            ("VisibilityTimeout", "43201"),
            ("VisibilityTimeout", "-1"),
            ("VisibilityTimeout", "x"),
            ("MaximumMessageSize", "1023"),
            ("MaximumMessageSize", "1048577"),
        ] {
            make(json!({name: value})).no(400, "InvalidAttributeValue");
        }
        make(json!({"FifoQueue": "false"})).no(400, "InvalidAttributeName");
    }

    case_12_attributes_are_shown(s) {
        s.create("q");
        s.create_with("q.fifo", json!({"FifoQueue": "true"}));
        assert_eq!(s.jq("GetQueueAttributes", "q", json!({})).body, "{}");
        let of = |queue: &str, names: &[&str]| {
            let got = s.jq("GetQueueAttributes", queue, json!({"AttributeNames": names})).yes();
            got["Attributes"].as_object().cloned().unwrap_or_default()
        };
        let all = of("q", &["All"]);
        let names: Vec<&str> = all.keys().map(String::as_str).collect();
        assert_eq!(names, [
            "ApproximateNumberOfMessages",
            "ApproximateNumberOfMessagesDelayed",
            "ApproximateNumberOfMessagesNotVisible",
            "CreatedTimestamp",
            "DelaySeconds",
            "LastModifiedTimestamp",
            "MaximumMessageSize",
            "MessageRetentionPeriod",
            "QueueArn",
            "ReceiveMessageWaitTimeSeconds",
            "SqsManagedSseEnabled",
            "VisibilityTimeout",
        ]);
        for (name, value) in [
            ("MaximumMessageSize", "1048576"),
            ("VisibilityTimeout", "30"),
            ("MessageRetentionPeriod", "345600"),
            ("SqsManagedSseEnabled", "true"),
            ("QueueArn", "arn:aws:sqs:us-east-1:000000000000:q"),
        ] {
            assert_eq!(all[name], value);
        }
        assert_eq!(of("q.fifo", &["All"]).len(), 16);
        assert_eq!(of("q", &["Policy"]).len(), 0);
        let text = s.jq("GetQueueAttributes", "q", json!({"AttributeNames": ["Nope"]}));
        assert_eq!(text.no(400, "InvalidAttributeName"), "Unknown Attribute Nope.");
    }

    case_13_attributes_are_set_all_or_none(s) {
        s.create("q");
        s.create_with("q.fifo", json!({"FifoQueue": "true"}));
        let set = |queue: &str, attributes| s.jq("SetQueueAttributes", queue, json!({"Attributes": attributes}));
        set("q", json!({"DelaySeconds": "420", "VisibilityTimeout": "69"})).yes();
        assert_eq!(s.attribute("q", "VisibilityTimeout").as_deref(), Some("69"));
        let number = |name: &str| s.attribute("q", name).expect("shown").parse::<u64>().expect("a number");
        assert!(number("LastModifiedTimestamp") >= number("CreatedTimestamp"));
        set("q", json!({"DelaySeconds": "1", "Foo": "1"})).no(400, "InvalidAttributeName");
        assert_eq!(s.attribute("q", "DelaySeconds").as_deref(), Some("420"));
        let text = set("q", json!({"FifoQueue": "true"})).no(400, "InvalidAttributeName");
        assert_eq!(text, "Unknown Attribute FifoQueue.");
        set("q.fifo", json!({"FifoQueue": "true"})).yes();
        set("q.fifo", json!({"FifoQueue": "false"})).no(400, "InvalidAttributeValue");
    }

    case_14_kinds_of_encryption(s) {
        s.create("q");
        let set = |attributes| s.jq("SetQueueAttributes", "q", json!({"Attributes": attributes})).yes();
        set(json!({"KmsMasterKeyId": "k"}));
        assert_eq!(s.attribute("q", "KmsMasterKeyId").as_deref(), Some("k"));
        assert_eq!(s.attribute("q", "SqsManagedSseEnabled").as_deref(), Some("false"));
        set(json!({"KmsMasterKeyId": ""}));
        assert_eq!(s.attribute("q", "KmsMasterKeyId"), None);
        assert_eq!(s.attribute("q", "SqsManagedSseEnabled").as_deref(), Some("false"));
    }

    case_15_tags(s) {
        s.create("q");
        s.jq("TagQueue", "q", json!({"Tags": {"a": "1", "b": ""}})).yes();
        assert_eq!(s.jq("ListQueueTags", "q", json!({})).body, "{\"Tags\":{\"a\":\"1\",\"b\":\"\"}}");
        s.jq("UntagQueue", "q", json!({"TagKeys": ["a", "b", "zz"]})).yes();
        assert_eq!(s.jq("ListQueueTags", "q", json!({})).body, "{}");
        s.jq("TagQueue", "q", json!({"Tags": {}})).no(400, "MissingRequiredParameterException");
        s.q("Action=CreateQueue&QueueName=r&Tag.1.Key=a&Tag.1.Value=1");
        let tags = s.q_at("/000000000000/r", "Action=ListQueueTags");
        assert!(tags.body.contains("<Tag><Key>a</Key><Value>1</Value></Tag>"), "{tags:?}");
    }

    case_16_permissions(s) {
        s.create("q");
        let add = |label: &str, actions: serde_json::Value| {
            let input = json!({"Label": label, "AWSAccountIds": ["111111111111"], "Actions": actions});
            s.jq("AddPermission", "q", input)
        };
        add("l", json!(["ReceiveMessage"])).yes();
        assert_eq!(
            s.attribute("q", "Policy").as_deref(),
            Some("{\"Version\":\"2008-10-17\",\
                \"Id\":\"arn:aws:sqs:us-east-1:000000000000:q/SQSDefaultPolicy\",\
                \"Statement\":[{\"Sid\":\"l\",\"Effect\":\"Allow\",\
                \"Principal\":{\"AWS\":\"arn:aws:iam::111111111111:root\"},\
                \"Action\":\"SQS:ReceiveMessage\",\
                \"Resource\":\"arn:aws:sqs:us-east-1:000000000000:q\"}]}")
        );
        let text = add("l", json!(["ReceiveMessage"])).no(400, "InvalidParameterValueException");
        assert!(text.ends_with("Already exists."), "{text}");
        let remove = || s.jq("RemovePermission", "q", json!({"Label": "l"}));
        remove().yes();
        assert_eq!(s.attribute("q", "Policy"), None);
        let text = remove().no(400, "InvalidParameterValueException");
        assert!(text.ends_with("can't find label."), "{text}");
        add("l", json!(vec!["SendMessage"; 8])).no(403, "OverLimit");
        add("l", json!(["CreateQueue"])).no(400, "InvalidParameterValueException");
    }
}
