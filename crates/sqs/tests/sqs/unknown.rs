//! A put that was decided and that nobody acknowledges.

use serde_json::json;

use crate::world::{Served, sim};

#[test]
fn a_send_without_acknowledgement_does_not_count_as_refused() {
    let client_api = sim();
    let served = Served::new(client_api.clone());
    let queue = served.yes("CreateQueue", &json!({"QueueName": "q"}));
    let url = &queue["QueueUrl"];
    let one = json!({"QueueUrl": url, "MessageBody": "one"});
    client_api.set_silent(true);
    let (status, fault) = served.ask("SendMessage", &one);
    assert_eq!(status, 500, "{fault}");
    let message = fault.to_string();
    assert!(
        message.contains("InternalFailure") && message.contains("not known"),
        "{message}"
    );
    let batch = json!({"QueueUrl": url, "Entries": [{"Id": "a", "MessageBody": "two"}]});
    let (status, reply) = served.ask("SendMessageBatch", &batch);
    let failed = &reply["Failed"][0];
    let unknown = status == 500 || failed["Code"] == "InternalFailure";
    assert!(
        unknown && failed["SenderFault"] != true,
        "{status}: {reply}"
    );
    // Of several none is put a second time.
    let entry = |id: &str| json!({"Id": id, "MessageBody": id});
    let batch = json!({"QueueUrl": url, "Entries": [entry("three"), entry("four")]});
    let (status, reply) = served.ask("SendMessageBatch", &batch);
    assert_eq!(status, 500, "{reply}");
    client_api.set_silent(false);
    let most = json!({"QueueUrl": url, "MaxNumberOfMessages": 10});
    let got = served.yes("ReceiveMessage", &most);
    assert_eq!(got["Messages"].as_array().map(Vec::len), Some(4), "{got}");
}
