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
use quintet_cluster::{Seq, TailEvent};
use tokio::time::{sleep, timeout};

use crate::{
    api::{self, Names, Part},
    ask::ask,
    connect::ANSWER,
    follow::Follow,
    line::Line,
};

/// After so much silence it is looked whether something was missed: two beats of an owner.
const SILENCE: Duration = Duration::from_secs(1);
/// How long nobody is asked who just could not answer.
const AGAIN: Duration = Duration::from_millis(100);
/// A batch, at most.
const BATCH: &str = "\"batch\":256,\"max_bytes\":8388608";
/// The heads that name the place of an entry.
const PLACE: &str = "Nats-Sequence";

/// What a look for missing entries came to.
enum Look {
    /// Some came; there may be more.
    Some,
    /// There is nothing further.
    Nothing,
    /// The stream begins behind what was asked for.
    Purged,
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
    loop {
        while follow.is_behind() {
            match fetch(&line, &names, &mut follow, &mut each).await {
                Look::Some => {}
                Look::Nothing => follow.found_nothing(false),
                Look::Unknown => sleep(AGAIN).await,
                Look::Purged => {
                    if let Some(first) = purged(&line, &names, follow.next()).await {
                        return each(TailEvent::Purged(first));
                    }
                    // The replica that was asked was behind.
                    sleep(AGAIN).await;
                }
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
) -> Look {
    if !line.is_connected() {
        return Look::Unknown;
    }
    let inbox = line.client.new_inbox();
    let Ok(mut parts) = line.client.subscribe(inbox.clone()).await else {
        return Look::Unknown;
    };
    let from = follow.next();
    let question = format!("{{\"seq\":{from},{BATCH}}}");
    let subject = format!("$JS.API.DIRECT.GET.{}", names.stream);
    let asked = line
        .client
        .publish_with_reply(subject, inbox, Bytes::from(question));
    if asked.await.is_err() {
        return Look::Unknown;
    }
    let mut look = Look::Unknown;
    // Each part in time: a replica that stops half-way is not waited for.
    while let Ok(Some(message)) = timeout(ANSWER, parts.next()).await {
        match part_of(message) {
            Part::Entry(seq, entry) => {
                // A batch begins with what there is, wherever that is.
                if seq > follow.next() {
                    look = Look::Purged;
                    break;
                }
                follow.came(seq, entry, &mut |seq, entry| {
                    each(TailEvent::Entry(seq, entry));
                });
                look = Look::Some;
            }
            Part::End => break,
            Part::Nothing => {
                look = confirm_nothing(line, names, follow.next()).await;
                break;
            }
            Part::Failed => break,
        }
    }
    look
}

/// A replica has nothing from `next` on: so the leader is asked.
async fn confirm_nothing(line: &Line, names: &Names, next: Seq) -> Look {
    match ends(line, names).await {
        None => Look::Unknown,
        Some(ends) if ends.first > next => Look::Purged,
        Some(ends) if ends.last < next => Look::Nothing,
        // It is there, and comes with the next look.
        Some(_) => Look::Unknown,
    }
}

/// Where the stream begins, if that is behind `next`.
async fn purged(line: &Line, names: &Names, next: Seq) -> Option<Seq> {
    let first = ends(line, names).await?.first;
    (first > next).then_some(first)
}

async fn ends(line: &Line, names: &Names) -> Option<quintet_cluster::Ends> {
    let reply = ask(line, names.api("STREAM.INFO"), Bytes::new(), None, ANSWER).await?;
    let info = api::info(&reply)?.ok()?;
    info.is_led().then(|| info.ends())
}
