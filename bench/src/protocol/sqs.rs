//! SQS: the JSON protocol over HTTP/1.1, as SDKs speak it: `SendMessage`, and
//! `ReceiveMessage` followed by `DeleteMessage`, which count as one request
//! together; or ten messages in each. Signatures are there, as of every SDK,
//! and wrong: servers that ask for keys refuse them. A connection makes its
//! queue, which may be there.

use anyhow::{Result, bail, ensure};
use memchr::memmem;

use super::http::{member, whole};
use super::{ClientRequest, Outcome, Protocol, Reading, ReplyHead, Speaker, fixed, shown, speaker};

pub(super) const ONE: Protocol = Protocol {
    name: "sqs",
    port: 9324,
    open: |queue, body, _| with_queue(queue, sender(queue, body, 1)),
};

/// Ten in a request, which is what SQS allows.
pub(super) const TEN: Protocol = Protocol {
    name: "sqs-ten",
    port: 9324,
    open: |queue, body, _| with_queue(queue, sender(queue, body, 10)),
};

/// Makes the queue first, which may be there.
fn with_queue(queue: &str, speaker: Speaker) -> Speaker {
    speaker.greeted(create(queue), |input| match whole(input)? {
        None => Ok(None),
        Some((200, head, body)) => Ok(Some(head + body.len())),
        Some(_) => bail!("no queue: {}", shown(input)),
    })
}

fn create(queue: &str) -> Vec<u8> {
    request("CreateQueue", &format!(r#"{{"QueueName":"{queue}"}}"#))
}

fn url(queue: &str) -> String {
    format!("http://localhost/000000000000/{queue}")
}

/// Takes and puts `count` messages at once, of a queue that is there.
pub(crate) fn sender(queue: &str, body: &[u8], count: usize) -> Speaker {
    let url = url(queue);
    let body = String::from_utf8_lossy(body);
    let put = match count {
        1 => request(
            "SendMessage",
            &format!(r#"{{"QueueUrl":"{url}","MessageBody":"{body}"}}"#),
        ),
        _ => {
            let entry = |at| format!(r#"{{"Id":"{at}","MessageBody":"{body}"}}"#);
            batch("SendMessageBatch", &url, (0..count).map(entry))
        }
    };
    let take = format!(r#"{{"QueueUrl":"{url}","MaxNumberOfMessages":{count}}}"#);
    of(url, count, put, request("ReceiveMessage", &take))
}

/// A speaker of these requests, whose replies have `count` messages.
fn of(url: String, count: usize, put: Vec<u8>, take: Vec<u8>) -> Speaker {
    let read = move |ask, input: &[u8], out: &mut Vec<u8>| read(&url, count, ask, input, out);
    speaker(fixed(put), take, read)
}

/// Makes a queue, which may be there, where others put; it takes none.
pub(crate) fn maker(queue: &str) -> Speaker {
    of(String::new(), 1, create(queue), Vec::new())
}

/// Takes one message at a time of a queue that is there, for which it waits; it puts none.
pub(crate) fn poller(queue: &str) -> Speaker {
    let url = url(queue);
    let take = format!(r#"{{"QueueUrl":"{url}","WaitTimeSeconds":{POLL_S}}}"#);
    of(url, 1, Vec::new(), request("ReceiveMessage", &take))
}

fn request(action: &str, body: &str) -> Vec<u8> {
    format!(
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-amz-json-1.0\r\n\
         X-Amz-Target: AmazonSQS.{action}\r\nX-Amz-Date: 20260101T000000Z\r\n\
         Authorization: AWS4-HMAC-SHA256 Credential=bench/20260101/us-east-1/sqs/aws4_request, \
         SignedHeaders=content-type;host;x-amz-date;x-amz-target, Signature={:064}\r\n\
         Content-Length: {}\r\n\r\n{body}",
        0,
        body.len()
    )
    .into_bytes()
}

fn batch(action: &str, url: &str, entries: impl Iterator<Item = String>) -> Vec<u8> {
    let entries: Vec<String> = entries.collect();
    let entries = entries.join(",");
    request(
        action,
        &format!(r#"{{"QueueUrl":"{url}","Entries":[{entries}]}}"#),
    )
}

/// Characters of a message at most.
pub(crate) const BODY_MAX: usize = 1 << 20;
/// Seconds that a poll waits: as long as SQS lets one.
const POLL_S: u64 = 20;

/// Settles the messages of a reply, which must be `count`.
fn settle(url: &str, count: usize, reply: &[u8]) -> Result<Vec<u8>> {
    let mut handles = Vec::new();
    let mut from = 0;
    while let Some((at, handle)) = text(&reply[from..], b"\"ReceiptHandle\":") {
        from += at + handle.len();
        handles.push(std::str::from_utf8(handle)?);
    }
    let got = handles.len();
    ensure!(
        got == count,
        "{got} messages came, {count} were put at once"
    );
    Ok(match &handles[..] {
        [handle] => request(
            "DeleteMessage",
            &format!(r#"{{"QueueUrl":"{url}","ReceiptHandle":"{handle}"}}"#),
        ),
        all => {
            let entry = |(at, handle)| format!(r#"{{"Id":"{at}","ReceiptHandle":"{handle}"}}"#);
            batch("DeleteMessageBatch", url, all.iter().enumerate().map(entry))
        }
    })
}

fn read(url: &str, count: usize, ask: ClientRequest, input: &[u8], out: &mut Vec<u8>) -> Reading {
    let Some((status, head, body)) = whole(input)? else {
        return Ok(None);
    };
    let end = head + body.len();
    // Some say that none has failed.
    let failed = memmem::find(body, b"\"Failed\"").is_some()
        && memmem::find(body, b"\"SenderFault\"").is_some();
    let fine = status == 200 && !failed;
    ensure!(fine, "wrong reply: {}", shown(&input[..end]));
    if ask != ClientRequest::Take {
        return Ok(Some(ReplyHead::line(end, Outcome::Done)));
    }
    let Some((at, message)) = text(body, b"\"Body\":") else {
        return Ok(Some(ReplyHead::line(end, Outcome::Empty)));
    };
    out.extend_from_slice(&settle(url, count, body)?);
    Ok(Some(ReplyHead::reserved(head + at, message.len(), end)))
}

/// Where the text of a member begins, and the text; spaces may be before it.
fn text<'a>(json: &'a [u8], name: &[u8]) -> Option<(usize, &'a [u8])> {
    let from = memmem::find(json, name)? + name.len();
    let (at, text) = member(&json[from..], b"\"")?;
    Some((from + at, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(body: &str) -> String {
        format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    #[test]
    fn the_queue_is_made_first_and_what_came_is_deleted() {
        for (protocol, entries) in [(ONE, 1), (TEN, 10)] {
            let mut speaker = (protocol.open)("q", b"abc", None);
            let mut out = Vec::new();
            speaker.ask(ClientRequest::Take, &mut out);
            let request = String::from_utf8(std::mem::take(&mut out)).unwrap();
            let parts: Vec<&str> = request.matches("AmazonSQS.").collect();
            assert_eq!(parts.len(), 2, "{request}");
            let messages: Vec<String> = (0..entries)
                .map(|at| format!(r#"{{"ReceiptHandle": "h{at}","Body": "abc"}}"#))
                .collect();
            let got = reply(&format!(r#"{{"Messages":[{}]}}"#, messages.join(",")));
            let input = reply(r#"{"QueueUrl":"u"}"#) + &got;
            for end in 0..input.len() {
                let part = &input.as_bytes()[..end];
                assert!(
                    speaker
                        .read(ClientRequest::Take, part, &mut out)
                        .unwrap()
                        .is_none()
                );
            }
            let received = speaker.read(ClientRequest::Take, input.as_bytes(), &mut out);
            let received = received.unwrap().expect("a whole reply");
            assert_eq!((received.outcome, received.body), (Outcome::Reserved, 3));
            let len = received.head + received.body + received.tail.len() + received.rest;
            assert_eq!(len, input.len());
            let deletes = String::from_utf8(out).unwrap();
            for at in 0..entries {
                assert!(deletes.contains(&format!("\"h{at}\"")), "{deletes}");
            }
        }
    }

    #[test]
    fn a_queue_is_made_beforehand() {
        let mut speaker = maker("q");
        let mut out = Vec::new();
        speaker.ask(ClientRequest::Put, &mut out);
        let request = String::from_utf8(std::mem::take(&mut out)).unwrap();
        assert!(request.contains("CreateQueue"), "{request}");
        let made = reply(r#"{"QueueUrl":"u"}"#);
        let read = speaker.read(ClientRequest::Put, made.as_bytes(), &mut out);
        let read = read.unwrap().expect("whole");
        assert_eq!((read.outcome, read.head), (Outcome::Done, made.len()));
    }

    #[test]
    fn a_poll_waits_and_deletes_what_came() {
        let mut speaker = poller("q");
        let mut out = Vec::new();
        speaker.ask(ClientRequest::Take, &mut out);
        let request = String::from_utf8(std::mem::take(&mut out)).unwrap();
        assert!(request.contains(r#""WaitTimeSeconds":20"#), "{request}");
        // Its memory is that of a poll alone.
        assert!(!request.contains("CreateQueue"), "{request}");
        let nothing = reply("{}");
        let read = speaker.read(ClientRequest::Take, nothing.as_bytes(), &mut out);
        assert_eq!(read.unwrap().expect("whole").outcome, Outcome::Empty);
        let message = r#"{"Messages":[{"MessageId":"i","ReceiptHandle":"h","Body":"b"}]}"#;
        let read = speaker.read(ClientRequest::Take, reply(message).as_bytes(), &mut out);
        assert_eq!(read.unwrap().expect("whole").outcome, Outcome::Reserved);
        assert!(
            String::from_utf8(out)
                .unwrap()
                .contains(r#""ReceiptHandle":"h""#)
        );
        let refused = nothing.replace("200 OK", "503 no");
        let read = speaker.read(ClientRequest::Settle, refused.as_bytes(), &mut Vec::new());
        assert!(read.is_err());
    }

    #[test]
    fn a_failed_reply_is_an_error_and_an_empty_one_is_none() {
        let read = |ask, body: &str| {
            let mut speaker = (TEN.open)("q", b"abc", None);
            let input = reply("{}") + &reply(body);
            speaker.read(ask, input.as_bytes(), &mut Vec::new())
        };
        let failed = r#"{"Failed":[{"Id":"1","SenderFault":true}],"Successful":[]}"#;
        assert!(read(ClientRequest::Put, failed).is_err());
        assert!(
            read(
                ClientRequest::Take,
                r#"{"Messages":[{"ReceiptHandle":"h","Body":"abc"}]}"#
            )
            .is_err()
        );
        let none = read(ClientRequest::Put, r#"{"Failed":[],"Successful":[]}"#).unwrap();
        assert_eq!(none.expect("whole").outcome, Outcome::Done);
        let empty = read(ClientRequest::Take, "{}").unwrap();
        assert_eq!(empty.expect("whole").outcome, Outcome::Empty);
    }
}
