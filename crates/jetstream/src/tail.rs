//! Following a stream: what the servers republish as it is stored, and batches of direct reads for
//! what that left out.
//!
//! A consumer would do both by itself, and was silent for 18 to 39 s after its leader was killed,
//! with the stream writable after 5; what is republished comes again as soon as there is a leader,
//! and any replica answers a direct read.

use std::{sync::Arc, time::Duration};

use async_nats::Subscriber;
use bytes::Bytes;
use futures_util::StreamExt as _;
use quintet_cluster::{Ends, EntryLookup, Seq, TailEvent};
use tokio::time::{sleep, timeout};

use crate::{
    api::{self, Names, Part},
    ask::ask,
    connect::ANSWER,
    follow::Follow,
    line::Line,
};

/// After so much silence it is looked whether something was missed: two heartbeats of an owner.
const SILENCE: Duration = Duration::from_secs(1);
/// How long nobody is asked who just could not answer.
const AGAIN: Duration = Duration::from_millis(100);
/// A batch, at most.
const BATCH: &str = "\"batch\":256,\"max_bytes\":8388608";
/// Entries that the leader is asked for one by one before the near server is asked again.
const SINGLY: usize = 256;
/// The heads that name the place of an entry.
const PLACE: &str = "Nats-Sequence";

/// The result of a request for missing entries.
enum BatchResult {
    /// Some came; there may be more.
    Some,
    /// The server that was asked does not have the next entry. The stream may end or begin there,
    /// or the server's copy may be behind or damaged.
    Lacks,
    /// Nobody could say.
    Unknown,
}

/// Hands on every entry from `from` on, until it is dropped or what it needs is purged.
pub(crate) async fn follow(
    line: Arc<Line>,
    names: Names,
    from: Seq,
    mut each: Box<dyn FnMut(TailEvent) + Send>,
) {
    let mut follow = Follow::new(from);
    let mut live = subscribe(&line, &names).await;
    // A copy that lacks an entry may just be behind: it has time to catch up, once.
    let (mut waited, mut warned) = (false, false);
    loop {
        while follow.is_behind() {
            match fetch(&line, &names, &mut follow, &mut each).await {
                BatchResult::Some => waited = false,
                // The server may have asked one of a machine that is silent: the leader is asked.
                BatchResult::Unknown => {
                    if !fetch_singly(&line, &names, &mut follow, &mut each).await {
                        sleep(AGAIN).await;
                    }
                }
                BatchResult::Lacks => match ends(&line, &names).await {
                    Some(ends) if ends.first > follow.next() => {
                        return each(TailEvent::Purged(ends.first));
                    }
                    Some(ends) if ends.last < follow.next() => follow.found_nothing(false),
                    Some(_) if waited => {
                        let lacked = follow.next();
                        if !fetch_singly(&line, &names, &mut follow, &mut each).await {
                            sleep(AGAIN).await;
                        } else if !std::mem::replace(&mut warned, true) {
                            tracing::warn!(
                                target: "quintet::cluster",
                                "the NATS server {} lacks entry {lacked} of the log, which the \
                                 stream's leader has: the leader is asked instead",
                                line.name()
                            );
                        }
                    }
                    Some(_) | None => {
                        waited = true;
                        sleep(AGAIN).await;
                    }
                },
            }
        }
        match timeout(SILENCE, live.next()).await {
            Err(_) => follow.doubt(),
            Ok(None) => {
                live = subscribe(&line, &names).await;
                follow.doubt();
            }
            Ok(Some(message)) => {
                if let Part::Entry(seq, entry) = part_of(message) {
                    follow.came(seq, entry, &mut |seq, entry| {
                        each(TailEvent::Entry(seq, entry));
                    });
                }
            }
        }
    }
}

async fn subscribe(line: &Line, names: &Names) -> Subscriber {
    loop {
        match line.client.subscribe(names.tail.clone()).await {
            Ok(live) => return live,
            Err(error) => {
                tracing::warn!(target: "quintet::cluster", "cannot follow the log: {error}");
                sleep(ANSWER).await;
            }
        }
    }
}

fn part_of(message: async_nats::Message) -> Part {
    let status = message.status.map_or(200, |status| status.as_u16());
    let headers = message.headers.as_ref();
    let place = headers.and_then(|headers| headers.get(PLACE));
    api::part(status, place.map(|place| place.as_str()), message.payload)
}

/// Fetches the next batch.
async fn fetch(
    line: &Line,
    names: &Names,
    follow: &mut Follow,
    each: &mut Box<dyn FnMut(TailEvent) + Send>,
) -> BatchResult {
    if !line.is_connected() {
        return BatchResult::Unknown;
    }
    let inbox = line.client.new_inbox();
    let Ok(mut parts) = line.client.subscribe(inbox.clone()).await else {
        return BatchResult::Unknown;
    };
    let from = follow.next();
    let question = format!("{{\"seq\":{from},{BATCH}}}");
    let subject = format!("$JS.API.DIRECT.GET.{}", names.stream);
    let requested = line
        .client
        .publish_with_reply(subject, inbox, Bytes::from(question));
    if requested.await.is_err() {
        return BatchResult::Unknown;
    }
    let mut result = BatchResult::Unknown;
    // Each part in time: a replica that stops half-way is not waited for.
    while let Ok(Some(message)) = timeout(ANSWER, parts.next()).await {
        match part_of(message) {
            Part::Entry(seq, entry) => {
                // A batch begins with what there is, wherever that is.
                if seq > follow.next() {
                    result = BatchResult::Lacks;
                    break;
                }
                follow.came(seq, entry, &mut |seq, entry| {
                    each(TailEvent::Entry(seq, entry));
                });
                result = BatchResult::Some;
            }
            Part::End => break,
            Part::Nothing => {
                result = BatchResult::Lacks;
                break;
            }
            Part::Failed => break,
        }
    }
    result
}

/// Fetches entries from the leader, which sends one at a time; whether some came.
async fn fetch_singly(
    line: &Line,
    names: &Names,
    follow: &mut Follow,
    each: &mut Box<dyn FnMut(TailEvent) + Send>,
) -> bool {
    let from = follow.next();
    for _ in 0..SINGLY {
        let seq = follow.next();
        let question = Bytes::from(format!("{{\"seq\":{seq}}}"));
        let reply = ask(line, names.api("STREAM.MSG.GET"), question, None, ANSWER).await;
        let Some(EntryLookup::Entry(entry)) = reply.map(|reply| api::found(seq, &reply)) else {
            break;
        };
        follow.came(seq, entry, &mut |seq, entry| {
            each(TailEvent::Entry(seq, entry));
        });
    }
    follow.next() > from
}

/// The leader's answer, asked over this connection. `None`: nobody leads, or nobody answers.
pub(crate) async fn ends(line: &Line, names: &Names) -> Option<Ends> {
    let reply = ask(line, names.api("STREAM.INFO"), Bytes::new(), None, ANSWER).await?;
    let info = api::info(&reply)?.ok()?;
    info.is_led().then(|| info.ends())
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader, Read as _, Write as _},
        net::{TcpListener, TcpStream},
        sync::mpsc::channel,
        thread,
    };

    use base64::{Engine as _, prelude::BASE64_STANDARD};

    use super::*;
    use crate::{
        api::Config,
        connect::{Servers, connect},
    };

    /// The leader has the entries 1 to 4, the near server's copy only the third.
    fn reply(subject: &str, question: &str) -> (&'static str, String) {
        let seq = || -> u64 {
            let question: serde_json::Value = serde_json::from_str(question).expect("JSON");
            question["seq"].as_u64().expect("a number")
        };
        if subject.contains("DIRECT.GET") {
            return match seq() {
                ..=3 => ("NATS/1.0\r\nNats-Sequence: 3\r\n\r\n", "3".to_owned()),
                _ => ("NATS/1.0 404 Message Not Found\r\n\r\n", String::new()),
            };
        }
        let json = if subject.contains("MSG.GET") {
            let data = BASE64_STANDARD.encode(seq().to_string());
            serde_json::json!({"message": {"seq": seq(), "data": data}})
        } else {
            serde_json::json!({
                "config": Config::of_log(&Names::of("a", 0), 1, &[], "1"),
                "created": "2026-01-01T00:00:00Z",
                "state": {"first_seq": 1, "last_seq": 4, "messages": 4},
            })
        };
        ("NATS/1.0\r\n\r\n", json.to_string())
    }

    /// Answers a client as a NATS server does.
    fn serve(mut client: TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(client.try_clone()?);
        client.write_all(
            b"INFO {\"server_id\":\"n0\",\"server_name\":\"n0\",\"version\":\"2.15.1\",\
              \"proto\":1,\"headers\":true,\"max_payload\":1048576}\r\n",
        )?;
        let mut subscriptions = Vec::new();
        let mut line = String::new();
        while lines.read_line(&mut line)? > 0 {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["PING"] => client.write_all(b"PONG\r\n")?,
                ["SUB", subject, id] => subscriptions.push((subject.to_owned(), id.to_owned())),
                ["PUB", subject, to, len] => {
                    let len: usize = len.parse().expect("a length");
                    let mut question = vec![0; len + 2];
                    lines.read_exact(&mut question)?;
                    let question = String::from_utf8_lossy(&question[..len]);
                    let (head, body) = reply(subject, &question);
                    let is_for = |(pattern, _): &&(String, String)| {
                        to == pattern
                            || pattern.strip_suffix('*').is_some_and(|p| to.starts_with(p))
                    };
                    let (_, id) = subscriptions.iter().find(is_for).expect("an inbox");
                    let (heads, all) = (head.len(), head.len() + body.len());
                    write!(client, "HMSG {to} {id} {heads} {all}\r\n{head}{body}\r\n")?;
                }
                _ => {}
            }
            line.clear();
        }
        Ok(())
    }

    #[test]
    fn entries_that_the_near_server_lacks_come_from_the_leader() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                thread::spawn(move || serve(client));
            }
        });
        let servers = Servers {
            addresses: vec![format!("nats://{address}")],
            ..Servers::default()
        };
        let names = Names::of("a", 0);
        let (sender, events) = channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let client = runtime.block_on(connect(&servers, &servers.addresses, false));
        let question = names.api("STREAM.INFO");
        let line = Line::new(client.expect("it listens"), servers, question);
        let each = Box::new(move |event| drop(sender.send(event)));
        thread::spawn(move || runtime.block_on(follow(line, names, Seq(1), each)));
        for seq in 1..=4_u64 {
            let entry = TailEvent::Entry(Seq(seq), seq.to_string().into());
            let came = events.recv_timeout(Duration::from_secs(120));
            assert_eq!(came, Ok(entry));
        }
    }
}
