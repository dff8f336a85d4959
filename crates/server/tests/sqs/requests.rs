//! Cases 1 to 11 and 68 to 73: requests, names, lists, limits.

use serde_json::json;

use crate::cases;
use crate::client::{Says, Sqs, between};

fn is_uuid(text: &str) -> bool {
    let shape: Vec<usize> = text.split('-').map(str::len).collect();
    shape == [8, 4, 4, 4, 12] && text.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit())
}

cases! {
    case_01_create_answers_a_url_and_an_id_of_the_request(s) {
        for _ in 0..2 {
            let made = s.j("CreateQueue", json!({"QueueName": "q"}));
            assert_eq!(made.body, format!("{{\"QueueUrl\":\"{}\"}}", s.url("q")));
            assert_eq!(made.header("content-type"), Some("application/x-amz-json-1.0"));
            assert!(is_uuid(made.header("x-amzn-requestid").expect("an id")));
            assert!(made.header("date").is_some());
        }
    }

    case_02_query_answers_in_xml(s) {
        let made = s.q("Action=CreateQueue&Version=2012-11-05&QueueName=q");
        let id = made.header("x-amzn-requestid").expect("an id");
        assert_eq!(made.header("content-type"), Some("text/xml"));
        let wanted = format!(
            "<?xml version=\"1.0\"?><CreateQueueResponse \
             xmlns=\"http://queue.amazonaws.com/doc/2012-11-05/\"><CreateQueueResult>\
             <QueueUrl>{}</QueueUrl></CreateQueueResult><ResponseMetadata>\
             <RequestId>{id}</RequestId></ResponseMetadata></CreateQueueResponse>",
            s.url("q")
        );
        assert_eq!((made.status, made.body.as_str()), (200, wanted.as_str()));
    }

    case_03_04_a_queue_that_does_not_exist(s) {
        let none = s.j("GetQueueUrl", json!({"QueueName": "no"}));
        assert_eq!(none.status, 400);
        assert_eq!(
            none.header("x-amzn-query-error"),
            Some("AWS.SimpleQueueService.NonExistentQueue;Sender")
        );
        assert_eq!(
            none.body,
            "{\"__type\":\"com.amazonaws.sqs#QueueDoesNotExist\",\
             \"message\":\"The specified queue does not exist.\"}"
        );
        let none = s.q("Action=GetQueueUrl&QueueName=no");
        assert_eq!(none.status, 400);
        assert_eq!(between(&none.body, "Code"), "AWS.SimpleQueueService.NonExistentQueue");
        assert_eq!(
            between(&none.body, "Message"),
            "The specified queue does not exist for this wsdl version."
        );
        assert_eq!(between(&none.body, "Type"), "Sender");
        for action in ["SendMessage", "ReceiveMessage", "PurgeQueue", "DeleteQueue", "ListQueueTags"] {
            s.jq(action, "no", json!({"MessageBody": "x"})).no(400, "QueueDoesNotExist");
        }
        // Nothing of it made the queue.
        assert_eq!(s.j("ListQueues", json!({})).body, "{}");
    }

    case_05_unreadable_requests(s) {
        let json = "Content-Type: application/x-amz-json-1.0\r\n";
        s.request("POST /", json, "{}").no(404, "UnknownOperationException");
        s.j("Nope", json!({})).no(400, "UnknownOperationException");
        let nope = s.q("Action=Nope");
        assert_eq!((nope.status, between(&nope.body, "Code")), (400, "InvalidAction"));
        let body = s.j_with("SendMessage", "", "{");
        body.no(400, "SerializationException");
        assert!(body.body.contains("com.amazon.coral.service#"), "{}", body.body);
        s.j("SendMessage", json!({"QueueUrl": 5, "MessageBody": "x"})).no(400, "SerializationException");
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        for member in ["MaxResults", "QueueNamePrefix"] {
            let bomb = format!("{{\"{member}\":{deep}}}");
            s.j_with("ListQueues", "", &bomb).no(400, "SerializationException");
        }
        // What nobody knows is skipped, however deep it is.
        s.j_with("ListQueues", "", &format!("{{\"x\":{deep}}}")).yes();
    }

    case_06_paths_and_methods(s) {
        s.create("q");
        let bare = s.request("GET /000000000000/q", "", "");
        assert_eq!((bare.status, bare.body.as_str()), (404, "<UnknownOperationException/>"));
        let sent = s.request("GET /000000000000/q?Action=SendMessage&MessageBody=x", "", "");
        assert_eq!(sent.status, 200);
        assert_eq!(between(&sent.body, "MD5OfMessageBody"), "9dd4e461268c8034f5c8564e155c67a6");
        assert_eq!(s.request("POST /?Action=ListQueues", "", "").status, 200);
        let lists = s.q_at("/000000000000/q", "Action=ListQueues");
        assert_eq!((lists.status, between(&lists.body, "Code")), (400, "InvalidAction"));
        let well = s.request("GET /healthz", "", "");
        assert_eq!((well.status, well.body.as_str()), (200, "ok"));
        assert_eq!(s.request("GET /a/b/c", "", "").status, 404);
    }

    case_07_created_again_with_other_attributes(s) {
        s.create_with("q", json!({"DelaySeconds": "1"}));
        let other = json!({"QueueName": "q", "Attributes": {"DelaySeconds": "2"}});
        let refused = s.j("CreateQueue", other);
        assert_eq!(
            refused.no(400, "QueueNameExists"),
            "A queue already exists with the same name and a different value for attribute DelaySeconds"
        );
        assert_eq!(refused.header("x-amzn-query-error"), Some("QueueAlreadyExists;Sender"));
        s.create_with("q", json!({"DelaySeconds": "01"}));
        s.create("q");
    }

    case_08_names_of_queues(s) {
        for name in ["a b", "a.b", &"a".repeat(81), "x.fifo"] {
            s.j("CreateQueue", json!({"QueueName": name})).no(400, "InvalidParameterValueException");
        }
        s.j("CreateQueue", json!({"QueueName": ""})).no(400, "MissingRequiredParameterException");
        let fifo = json!({"QueueName": "x", "Attributes": {"FifoQueue": "true"}});
        s.j("CreateQueue", fifo).no(400, "InvalidParameterValueException");
        s.create_with(&format!("{}.fifo", "a".repeat(75)), json!({"FifoQueue": "true"}));
    }

    case_10_lists_come_in_pages(s) {
        assert_eq!(s.j("ListQueues", json!({})).body, "{}");
        for name in ["a2", "b", "a1"] {
            s.create(name);
        }
        // Those of other protocols whose names SQS does not have are not listed.
        s.server.client_of("memcache").send(b"set odd.name 0 0 1\r\nx\r\n");
        let list = |input| s.j("ListQueues", input).yes();
        let of_a = list(json!({"QueueNamePrefix": "a"}));
        assert_eq!(of_a, json!({"QueueUrls": [s.url("a1"), s.url("a2")]}));
        let first = list(json!({"MaxResults": 2}));
        assert_eq!(first["QueueUrls"], json!([s.url("a1"), s.url("a2")]));
        let rest = list(json!({"MaxResults": 2, "NextToken": first["NextToken"]}));
        assert_eq!(rest, json!({"QueueUrls": [s.url("b")]}));
        for max in [0, 1001] {
            s.j("ListQueues", json!({"MaxResults": max})).no(400, "InvalidParameterValueException");
        }
        let odd = json!({"MaxResults": 2, "NextToken": "!"});
        s.j("ListQueues", odd).no(400, "InvalidParameterValueException");
    }

    case_11_deleted_and_made_again_at_once(s) {
        s.create("q");
        s.send("q", "x");
        assert_eq!(s.jq("DeleteQueue", "q", json!({})).body, "{}");
        s.jq("DeleteQueue", "q", json!({})).no(400, "QueueDoesNotExist");
        s.create("q");
        assert_eq!(s.bodies("q", json!({})), [""; 0]);
    }

    case_68_ways_to_name_a_queue(s) {
        s.create("q");
        for url in ["q", "http://other:1/999/q", &format!("{}/", s.url("q")),
            "https://sqs.us-east-1.amazonaws.com/000000000000/q"] {
            s.j("SendMessage", json!({"QueueUrl": url, "MessageBody": "x"})).yes();
        }
        let headers = "Content-Type: application/x-amz-json-1.0\r\nX-Amz-Target: AmazonSQS.SendMessage\r\n";
        s.request("POST /000000000000/q", headers, "{\"MessageBody\":\"x\"}").yes();
        assert_eq!(s.counts("q")[0], "5");
        let host = json!({"QueueUrl": format!("http://{}/", s.address), "MessageBody": "x"});
        s.j("SendMessage", host).no(400, "QueueDoesNotExist");
    }

    case_71_browsers_and_names_of_the_server(s) {
        s.create("q");
        let form = "Content-Type: application/x-www-form-urlencoded\r\n";
        let body = "Action=PurgeQueue";
        for odd in [
            "Sec-Fetch-Site: cross-site\r\n",
            "Origin: http://evil.example\r\n",
            "Host: evil.example\r\n",
        ] {
            let refused = s.request("POST /000000000000/q", &format!("{form}{odd}"), body);
            assert_eq!(refused.status, 403, "{odd}");
            let refused = s.request("GET /0/q?Action=PurgeQueue", odd, "");
            assert_eq!(refused.status, 403, "{odd}");
        }
        let named = s.request("POST /000000000000/q", &format!("{form}Host: quintet\r\n"), body);
        assert_eq!(named.status, 200);
    }
}

#[test]
fn case_73_requests_that_are_too_long() {
    let s = Sqs::start(1, "max_request=64KiB");
    s.create("q");
    let body = json!({"QueueUrl": s.url("q"), "MessageBody": "x".repeat(70_000)}).to_string();
    let refused = s.j_with("SendMessage", "", &body);
    assert_eq!(refused.status, 413);
    assert_eq!(refused.header("connection"), Some("close"));
    let mut socket = s.connect();
    let head = format!(
        "POST / HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n",
        "x".repeat(80_000)
    );
    socket.send(head.as_bytes()).expect("sent");
    assert_eq!(crate::client::answer(&mut socket).status, 431);
    // A head that is whole is answered in the words of its protocol, as what else is wrong in it.
    let long = format!("X-Long: {}\r\n", "x".repeat(66_000));
    let hosts = "Host: x\r\nHost: y\r\n";
    for (odd, status) in [(long.as_str(), 431), (hosts, 400)] {
        let refused = s.j_with("ListQueues", odd, "{}");
        refused.no(status, "InvalidParameterValueException");
        assert!(refused.header("x-amzn-requestid").is_some());
        let form = "Content-Type: application/x-www-form-urlencoded\r\n";
        let refused = s.request("POST /", &format!("{form}{odd}"), "Action=ListQueues");
        assert_eq!(refused.status, status);
        assert_eq!(refused.header("content-type"), Some("text/xml"));
    }
}
