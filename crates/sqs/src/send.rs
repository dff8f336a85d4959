//! SendMessage and SendMessageBatch.

use std::sync::Arc;

use quintet_types::{
    Command, CommandError, Dedupe, Expiry, Name, OnRepeat, Outcome, Put, PutMore, QueueSetup,
    Scope, Tags, Verb, When, hex,
};
use ring::digest;

use crate::ask::{SMALL, ShardClient, accepted, if_there, unexpected};
use crate::batch;
use crate::digest::of_body;
use crate::fault::{Fault, Shape};
use crate::input::{SendEntry, SendMessage, SendMessageBatch};
use crate::listener::{RequestContext, Sqs};
use crate::message::{self, CheckedMessage, SENDER, Way};
use crate::names;
use crate::once::Stored;
use crate::queue;
use crate::reply::{self, Answer, Failed, Reply};
use crate::request;

/// How SDKs call an entry.
const ENTRY: &str = "SendMessageBatchRequestEntry";
/// For so long a FIFO queue knows a message that is sent again, ms.
const DEDUPE_MS: u64 = 300_000;

/// The number of a message in its queue, as FIFO queues tell it.
pub(crate) fn sequence(place: i64) -> String {
    format!("1{:019}", place.max(0))
}

/// Properties of a message that a FIFO queue asks for.
struct Fifo {
    by_content: bool,
    by_group: bool,
}

impl Fifo {
    fn of(tags: &Tags) -> Self {
        Self {
            by_content: queue::text(tags, "ContentBasedDeduplication") == Some("true"),
            by_group: queue::text(tags, "DeduplicationScope") == Some("messageGroup"),
        }
    }

    /// By what a message is known again.
    fn dedupe(&self, sent: &CheckedMessage) -> Result<Dedupe, Fault> {
        let id = match (&sent.dedup, self.by_content) {
            (Some(id), _) => id.clone(),
            (None, true) => {
                let sum = digest::digest(&digest::SHA256, sent.body.as_bytes());
                hex(sum.as_ref())
            }
            (None, false) => {
                let why = "The queue should either have ContentBasedDeduplication enabled or \
                     MessageDeduplicationId provided explicitly";
                return Err(Fault::parameter(why));
            }
        };
        let group = sent.group.as_deref().unwrap_or_default();
        let id = match self.by_group {
            true => {
                let len = u8::try_from(group.len()).unwrap_or(u8::MAX);
                [&[len], group.as_bytes(), id.as_bytes()].concat()
            }
            false => id.into_bytes(),
        };
        Ok(Dedupe {
            id: id.into(),
            window_ms: Some(DEDUPE_MS),
            scope: Some(Scope::Window),
            on_repeat: Some(OnRepeat::First),
        })
    }
}

impl Sqs {
    pub(crate) async fn send(
        self: &Arc<Self>,
        context: &RequestContext,
        input: SendMessage,
    ) -> Answer {
        let name = request::queue(&input.queue_url)?.to_owned();
        let fifo = names::is_fifo(&name);
        let way = Way {
            fifo,
            in_batch: false,
            trace: context.trace.as_deref(),
        };
        let sent = message::check(input, way, self.limits)?;
        if fifo && sent.group.is_none() {
            return Err(Fault::missing("MessageGroupId"));
        }
        let setup = self.setup_if_needed(context, &name, fifo, [&sent]).await?;
        let (put, result) = self.going(context, &name, sent, setup.as_deref(), false)??;
        let stored = self.put(context, &name, vec![put], false).await?;
        let [came] = &*stored else {
            return Err(unexpected());
        };
        let id = came.clone()?;
        Ok(Reply::Sent(Box::new(self.complete(result, id, fifo))))
    }

    pub(crate) async fn send_batch(
        self: &Arc<Self>,
        context: &RequestContext,
        input: SendMessageBatch,
    ) -> Answer {
        let name = request::queue(&input.queue_url)?.to_owned();
        batch::check(&input.entries, ENTRY, self.limits.open, |entry| &entry.id)?;
        let fifo = names::is_fifo(&name);
        let way = Way {
            fifo,
            in_batch: true,
            trace: context.trace.as_deref(),
        };
        let mut failed = Vec::new();
        let mut good: Vec<(String, CheckedMessage)> = Vec::new();
        let mut bytes = 0;
        for entry in input.entries.kept {
            let id = entry.id.clone().unwrap_or_default();
            bytes += given_bytes(&entry);
            match message::check(entry, way, self.limits) {
                Ok(sent) => good.push((id, sent)),
                Err(fault) => failed.push(Failed { id, fault }),
            }
        }
        batch::check_bytes(bytes, self.limits.message_bytes_max)?;
        if fifo && good.iter().any(|(_, sent)| sent.group.is_none()) {
            let why = "The request must contain the parameter MessageGroupId.";
            return Err(Fault::parameter(why));
        }
        let sents = good.iter().map(|(_, sent)| sent);
        let setup = self.setup_if_needed(context, &name, fifo, sents).await?;
        let (mut ids, mut puts, mut results) = (Vec::new(), Vec::new(), Vec::new());
        for (id, sent) in good {
            match self.going(context, &name, sent, setup.as_deref(), true)? {
                Ok((put, result)) => {
                    ids.push(id);
                    puts.push(put);
                    results.push(result);
                }
                Err(fault) => failed.push(Failed { id, fault }),
            }
        }
        let mut sent = Vec::new();
        if !puts.is_empty() {
            let stored = self.put(context, &name, puts, true).await?;
            for ((id, result), came) in ids.into_iter().zip(results).zip(stored.iter()) {
                match came {
                    Ok(number) => sent.push((id, Box::new(self.complete(result, *number, fifo)))),
                    Err(fault) => failed.push(Failed {
                        id,
                        fault: fault.clone(),
                    }),
                }
            }
        }
        Ok(Reply::SentBatch(sent, failed))
    }

    /// How the queue is set up, if a message has to be measured by it, or its rules be known.
    async fn setup_if_needed<'a>(
        &self,
        context: &RequestContext,
        name: &str,
        fifo: bool,
        sents: impl IntoIterator<Item = &'a CheckedMessage>,
    ) -> Result<Option<Box<QueueSetup>>, Fault> {
        // A body alone is measured by the shard.
        let measured = |sent: &CheckedMessage| sent.bytes > sent.body.len() as u64;
        if !fifo && !sents.into_iter().any(measured) {
            return Ok(None);
        }
        let queue = Name::new(name.as_bytes());
        self.must_have(context, Verb::Put, &queue)?;
        let setup = context.shards.as_server().setup(&queue).await;
        match self.options.auto_create {
            true => if_there(setup),
            false => setup.map(Some),
        }
    }

    /// A put of a message, and its reply once it is put; the inner error is its own, the outer one
    /// of the whole request.
    fn going(
        &self,
        context: &RequestContext,
        name: &str,
        mut sent: CheckedMessage,
        setup: Option<&QueueSetup>,
        in_batch: bool,
    ) -> Result<Result<(Put, reply::Sent), Fault>, Fault> {
        if let Some(setup) = setup
            && sent.bytes > setup.settings.message_bytes_max
        {
            let most = setup.settings.message_bytes_max;
            return Ok(Err(message::too_long(most, in_batch)));
        }
        let mut result = std::mem::take(&mut sent.told);
        result.md5 = of_body(sent.body.as_bytes());
        let dedupe = match names::is_fifo(name) {
            true => {
                let none = Tags::default();
                let tags = setup.map_or(&none, |setup| &setup.settings.tags);
                Some(Fifo::of(tags).dedupe(&sent)?)
            }
            false => None,
        };
        let mut attrs = std::mem::take(&mut sent.attributes);
        if let Some(key) = &context.key {
            attrs.push((SENDER.into(), key.as_bytes().into()));
        }
        let plain = sent.group.is_none() && dedupe.is_none() && attrs.is_empty();
        let more = (!plain).then(|| {
            Box::new(PutMore {
                key: sent.group.as_deref().map(|group| group.as_bytes().into()),
                attrs,
                dedupe,
                ..PutMore::default()
            })
        });
        let put = Put {
            must_exist: !self.options.auto_create,
            due: match sent.delay_s {
                None => When::Default,
                Some(0) => When::Now,
                Some(seconds) => When::In(seconds.saturating_mul(1000)),
            },
            expires: Expiry::Default,
            more,
            ..Put::new(
                Name::new(name.as_bytes()),
                quintet_types::Body::new(sent.body.as_bytes()),
            )
        };
        Ok(Ok((put, result)))
    }

    /// Puts messages, or tells what came of that before.
    async fn put(
        self: &Arc<Self>,
        context: &RequestContext,
        name: &str,
        puts: Vec<Put>,
        in_batch: bool,
    ) -> Result<Stored, Fault> {
        let shards = context.shards.clone();
        let make = (self.options.auto_create && names::is_ours(name, self.options.open))
            .then(|| Arc::clone(self));
        let (queue, messages) = (name.to_owned(), puts.len());
        let put = async move {
            if let Some(own) = make {
                own.make_if_absent(&shards, &queue).await?;
            }
            put_all(&shards, puts, in_batch).await
        };
        match context.call {
            Some(call) => self.once.run(call, messages, put).await,
            None => put.await,
        }
    }

    fn complete(&self, mut result: reply::Sent, id: u64, fifo: bool) -> reply::Sent {
        result.id = self.secrets.message_id(id);
        result.sequence = fifo.then(|| sequence(i64::try_from(id).unwrap_or(i64::MAX)));
        result
    }
}

/// Bytes of a message that may be refused for other reasons.
fn given_bytes(entry: &SendEntry) -> u64 {
    let body = entry.message_body.as_ref().map_or(0, String::len);
    let attributes = entry.message_attributes.kept.iter().map(|(name, value)| {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let blob = value.binary_value.as_ref().map_or(0, |blob| blob.0.len());
        name.len() + text(&value.data_type) + text(&value.string_value) + blob
    });
    (body + attributes.sum::<usize>()) as u64
}

async fn put_all(
    shards: &ShardClient,
    mut puts: Vec<Put>,
    in_batch: bool,
) -> Result<Stored, Fault> {
    for put in &mut puts {
        if let Some(bytes) = put.body.as_small().filter(|bytes| bytes.len() > SMALL) {
            put.body = shards.store(&put.queue, bytes.to_vec()).await?;
        }
    }
    let queue = puts
        .first()
        .map(|put| put.queue.clone())
        .unwrap_or_default();
    if puts.len() > 1 {
        // All at once, unless one of them is refused.
        let all = shards.begin(Command::PutMany(puts.clone())).outcome().await;
        if let Outcome::PutMany(ids) = all {
            return Ok(ids.into_iter().map(|id| Ok(id.0)).collect());
        }
        if let Outcome::Refused(CommandError::Unknown) = all {
            // They may be there: put one by one they would be there twice.
            return Err(CommandError::Unknown.into());
        }
    }
    let mut coming: Vec<_> = puts
        .into_iter()
        .map(|put| shards.begin(Command::Put(put)))
        .collect();
    let mut stored = Vec::with_capacity(coming.len());
    for came in &mut coming {
        let came = match accepted(came.outcome().await) {
            Ok(Outcome::Put { id, .. }) => Ok(id.0),
            Ok(_) => Err(unexpected()),
            Err(fault) => Err(of_queue(shards, &queue, fault, in_batch).await),
        };
        stored.push(came);
    }
    // A queue that is not there, or that is forbidden, is no matter of one message.
    let of_all = |came: &Result<u64, Fault>| {
        came.as_ref().is_err_and(|fault| {
            fault.shape == Shape::QueueDoesNotExist
                || fault.text == CommandError::NotPermitted.text()
        })
    };
    if (stored.iter().all(of_all) || !in_batch)
        && let Some(Err(fault)) = stored.first()
    {
        return Err(fault.clone());
    }
    Ok(stored.into())
}

/// An error in the words of the queue: how long a message may be there.
async fn of_queue(shards: &ShardClient, queue: &Name, fault: Fault, in_batch: bool) -> Fault {
    if fault.text != CommandError::MessageTooLarge.text() {
        return fault;
    }
    match shards.as_server().setup(queue).await {
        Ok(setup) => message::too_long(setup.settings.message_bytes_max, in_batch),
        Err(fault) => fault,
    }
}
