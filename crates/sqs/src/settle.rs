//! DeleteMessage, ChangeMessageVisibility, and their batches.

use quintet_types::{
    By, Command, CommandError, How, LeaseRef, MessageId, Name, Outcome, Verb, When,
};

use crate::ask::{PendingOutcome, accepted};
use crate::batch;
use crate::fault::{Fault, Shape};
use crate::input::{ChangeMessageVisibility, DeleteMessage, OfHandles};
use crate::listener::{RequestContext, Sqs};
use crate::names;
use crate::receive::{OPEN_VISIBILITY_MAX_S, VISIBILITY_MAX_S};
use crate::reply::{Answer, Failed, Reply};
use crate::request::{self, required};
use crate::whole::{Whole, within};

/// A request to the shards, and how its answer is read.
struct Begun<'a> {
    coming: PendingOutcome,
    handle: &'a str,
    /// False: it deletes.
    changes: bool,
    /// Of a FIFO queue, where a handle counts no more when its time is over.
    fifo: bool,
}

impl Sqs {
    /// Deletes a message, or changes for how long it is leased, where a time is to be `given`.
    fn begin<'a>(
        &self,
        context: &RequestContext,
        queue: &str,
        handle: &'a Option<String>,
        given: Option<&Option<Whole>>,
    ) -> Result<Begun<'a>, Fault> {
        let handle = required(handle, "ReceiptHandle")?;
        let fifo = names::is_fifo(queue);
        let seconds = given.map(|timeout| self.seconds(timeout)).transpose()?;
        let lease = self.secrets.lease(handle, queue);
        let lease = lease.ok_or_else(|| match given {
            None => Fault::handle(handle),
            Some(_) => Fault::new(
                Shape::ReceiptHandleIsInvalid,
                "The input receipt handle is invalid.",
            ),
        })?;
        let id = MessageId(lease.id);
        let by = By::Lease(LeaseRef {
            position: lease.place,
            number: lease.number,
            epoch: lease.epoch,
            // A message of a FIFO queue is the next one's once the lease is over.
            over: !fifo,
        });
        let how = match seconds {
            None => How::Finish,
            Some(_) => How::release(When::Now),
        };
        let command = match seconds {
            None | Some(0) => Command::Settle { id, by, how },
            Some(seconds) => Command::Extend {
                id,
                ms: Some(seconds.saturating_mul(1000)),
                by,
            },
        };
        Ok(Begun {
            coming: context.shards.begin(command),
            handle,
            changes: given.is_some(),
            fifo,
        })
    }

    fn seconds(&self, timeout: &Option<Whole>) -> Result<u64, Fault> {
        let most = self.limits.of(VISIBILITY_MAX_S, OPEN_VISIBILITY_MAX_S);
        let reason = "VisibilityTimeout must be an integer between 0 and 43200.";
        let seconds = within(timeout, "VisibilityTimeout", (0, most), reason)?;
        seconds.ok_or_else(|| Fault::missing("VisibilityTimeout"))
    }

    pub(crate) async fn delete(&self, context: &RequestContext, input: DeleteMessage) -> Answer {
        let queue = request::queue(&input.queue_url)?;
        let begun = self.begin(context, queue, &input.receipt_handle, None);
        self.one(context, queue, begun).await
    }

    pub(crate) async fn change(
        &self,
        context: &RequestContext,
        input: ChangeMessageVisibility,
    ) -> Answer {
        let queue = request::queue(&input.queue_url)?;
        let timeout = Some(&input.visibility_timeout);
        let begun = self.begin(context, queue, &input.receipt_handle, timeout);
        self.one(context, queue, begun).await
    }

    pub(crate) async fn delete_batch(&self, context: &RequestContext, input: OfHandles) -> Answer {
        let kind = "DeleteMessageBatchRequestEntry";
        let element = "DeleteMessageBatchResultEntry";
        self.several(context, &input, [kind, element], false).await
    }

    pub(crate) async fn change_batch(&self, context: &RequestContext, input: OfHandles) -> Answer {
        let kind = "ChangeMessageVisibilityBatchRequestEntry";
        let element = "ChangeMessageVisibilityBatchResultEntry";
        self.several(context, &input, [kind, element], true).await
    }

    /// # Errors
    /// There is no such queue.
    async fn must_be(&self, context: &RequestContext, queue: &str) -> Result<(), Fault> {
        let name = Name::new(queue.as_bytes());
        self.must_have(context, Verb::Settle, &name)?;
        context.shards.as_server().numbers(&name).await.map(drop)
    }

    /// The reply for one message. Where nothing was done, it checks that there is such a queue.
    async fn one(
        &self,
        context: &RequestContext,
        queue: &str,
        begun: Result<Begun<'_>, Fault>,
    ) -> Answer {
        let ended = end(begun).await;
        if !matches!(ended, Ended::Done) {
            self.must_be(context, queue).await?;
        }
        match ended {
            Ended::Done | Ended::Gone => Ok(Reply::Done),
            Ended::Not(fault) => Err(fault),
        }
    }

    /// The same of the entries of a batch.
    async fn several(
        &self,
        context: &RequestContext,
        OfHandles { queue_url, entries }: &OfHandles,
        [kind, element]: [&'static str; 2],
        changes: bool,
    ) -> Answer {
        let queue = request::queue(queue_url)?;
        batch::check(entries, kind, self.limits.open, |entry| &entry.id)?;
        let entries = &entries.kept;
        let begun: Vec<Result<Begun<'_>, Fault>> = entries
            .iter()
            .map(|entry| {
                let given = changes.then_some(&entry.visibility_timeout);
                self.begin(context, queue, &entry.receipt_handle, given)
            })
            .collect();
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        let mut all = true;
        for (entry, begun) in entries.iter().zip(begun) {
            let id = entry.id.clone().unwrap_or_default();
            let ended = end(begun).await;
            all &= matches!(ended, Ended::Done);
            match ended {
                Ended::Done | Ended::Gone => done.push(id),
                Ended::Not(fault) => failed.push(Failed { id, fault }),
            }
        }
        if !all {
            self.must_be(context, queue).await?;
        }
        Ok(Reply::Batch(element, done, failed))
    }
}

/// The end of one message.
enum Ended {
    Done,
    /// There was nothing to do any more.
    Gone,
    Not(Fault),
}

async fn end(begun: Result<Begun<'_>, Fault>) -> Ended {
    let Begun {
        mut coming,
        handle,
        changes,
        fifo,
    } = match begun {
        Ok(begun) => begun,
        Err(fault) => return Ended::Not(fault),
    };
    let refused = |reason| Ended::Not(Fault::value(handle, "ReceiptHandle", reason));
    match coming.outcome().await {
        // To be seen at once, as it is.
        Outcome::Refused(CommandError::LeaseOver) if !fifo => Ended::Done,
        Outcome::Refused(CommandError::LeaseOver) => refused("The receipt handle has expired."),
        // Deleted, purged or moved before: so it may be repeated.
        Outcome::Refused(CommandError::NotFound) if !changes => Ended::Gone,
        // What is cancelled may still be deleted, until the grace is over.
        Outcome::Refused(CommandError::NotFound) | Outcome::Cancelled => {
            refused("Message does not exist or is not available for visibility timeout change.")
        }
        outcome => match accepted(outcome) {
            Ok(_) => Ended::Done,
            Err(fault) => Ended::Not(fault),
        },
    }
}
