//! Case 66: keys and signatures.

use serde_json::json;

use crate::client::{Says, Sqs};

/// The worked example of the specification is of the past: its signature is right, and late.
#[test]
fn case_66_signatures() {
    let s = Sqs::start(1, "users=AKIDEXAMPLE:secret");
    let body = "{\"QueueName\": \"q\"}";
    let signed = |key: &str, body: &str| {
        let headers = format!(
            "Host: 127.0.0.1:9324\r\nX-Amz-Date: 20261122T012604Z\r\nx-amzn-query-mode: true\r\n\
             Authorization: AWS4-HMAC-SHA256 Credential={key}/20261122/us-east-1/sqs/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date;x-amz-target;x-amzn-query-mode, \
             Signature=521952736f0a12ad7349d7be86d9391b550e61a773926521fdb6ff95fc5df203\r\n"
        );
        s.j_with("CreateQueue", &headers, body)
    };
    let late = signed("AKIDEXAMPLE", body).no(403, "SignatureDoesNotMatch");
    assert!(
        late.starts_with("Signature expired: 20261122T012604Z is now earlier than"),
        "{late}"
    );
    let other = signed("AKIDEXAMPLE", "{\"QueueName\": \"r\"}").no(403, "SignatureDoesNotMatch");
    assert!(
        other.starts_with("The request signature we calculated does not match"),
        "{other}"
    );
    signed("OTHER", body).no(403, "InvalidClientTokenId");
    s.j("ListQueues", json!({}))
        .no(403, "MissingAuthenticationToken");
    let open = Sqs::start(1, "");
    open.j_with("ListQueues", "Authorization: x\r\n", "{}")
        .yes();
}

/// A signature made now passes, and its key is shown as the sender.
#[test]
fn a_request_signed_now_is_served() {
    let s = Sqs::start(1, "users=AKIDEXAMPLE:secret");
    let ask = |action: &str, body: &serde_json::Value| {
        let body = body.to_string();
        let now = chrono::Utc::now();
        let (date, target) = (
            quintet_sqs::sign::moment(now),
            format!("AmazonSQS.{action}"),
        );
        let headers = [
            ("content-type", "application/x-amz-json-1.0".to_owned()),
            ("host", s.address.clone()),
            ("x-amz-date", date.clone()),
            ("x-amz-target", target),
        ];
        let signed = quintet_sqs::sign::Signed {
            method: "POST",
            path: "/",
            query: "",
            headers: &headers,
            body: &quintet_sqs::sign::sha256(body.as_bytes()),
        };
        let scope = quintet_sqs::sign::Scope {
            now,
            region: "eu-west-1",
            service: "sqs",
        };
        let authorization = signed.authorization(&scope, "AKIDEXAMPLE", "secret");
        let headers = format!("X-Amz-Date: {date}\r\nAuthorization: {authorization}\r\n");
        s.j_with(action, &headers, &body).yes()
    };
    ask("CreateQueue", &json!({"QueueName": "q"}));
    ask("SendMessage", &json!({"QueueUrl": "q", "MessageBody": "x"}));
    let got = ask(
        "ReceiveMessage",
        &json!({"QueueUrl": "q", "AttributeNames": ["SenderId"]}),
    );
    assert_eq!(got["Messages"][0]["Attributes"]["SenderId"], "AKIDEXAMPLE");
}

/// Case 66: a GET that is signed in its URL, and one that says something else.
#[test]
fn case_66_a_request_signed_in_its_url_is_served() {
    let s = Sqs::start(1, "users=AKIDEXAMPLE:secret");
    let now = chrono::Utc::now();
    let query = format!(
        "Action=ListQueues&X-Amz-Algorithm=AWS4-HMAC-SHA256\
         &X-Amz-Credential=AKIDEXAMPLE%2F{}%2Feu-west-1%2Fsqs%2Faws4_request\
         &X-Amz-Date={}&X-Amz-Expires=3600&X-Amz-SignedHeaders=host",
        now.format("%Y%m%d"),
        quintet_sqs::sign::moment(now)
    );
    let signed = quintet_sqs::sign::Signed {
        method: "GET",
        path: "/",
        query: &query,
        headers: &[("host", s.address.clone())],
        body: &quintet_sqs::sign::sha256(b""),
    };
    let scope = quintet_sqs::sign::Scope {
        now,
        region: "eu-west-1",
        service: "sqs",
    };
    let authorization = signed.authorization(&scope, "AKIDEXAMPLE", "secret");
    let (_, signature) = authorization
        .rsplit_once("Signature=")
        .expect("a signature");
    let get = |query: &str| {
        let line = format!("GET /?{query}&X-Amz-Signature={signature}");
        s.request(&line, "", "")
    };
    let listed = get(&query);
    assert_eq!(listed.status, 200, "{}", listed.body);
    assert!(
        listed.body.contains("<ListQueuesResponse"),
        "{}",
        listed.body
    );
    let other = get(&query.replace("ListQueues", "PurgeQueue"));
    assert_eq!(other.status, 403);
    assert!(
        other.body.contains("<Code>SignatureDoesNotMatch</Code>"),
        "{}",
        other.body
    );
}
