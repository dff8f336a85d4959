//! DeleteMessage, ChangeMessageVisibility, and their batches.

use quintet_types::{
    By, Command, CommandError, How, LeaseRef, MessageId, Name, Outcome, Verb, When,
};

use crate::ask::{PendingOutcome, accepted};
use crate::batch;
use crate::fault::{Fault, Shape};
use crate::handle::Lease;
use crate::input::{
    ChangeMessageVisibility, ChangeMessageVisibilityBatch, DeleteMessage, DeleteMessageBatch,
    HandleEntry,
};
use crate::listener::{RequestContext, Sqs};
use crate::names;
use crate::receive::{OPEN_VISIBILITY_MAX_S, VISIBILITY_MAX_S};
use crate::reply::{Answer, Failed, Reply};
use crate::request;
use crate::whole::Whole;

/// A request to the shards, and how its answer is read.
struct Begun {
    coming: PendingOutcome,
    /// False: it deletes.
    changes: bool,
    /// Of a FIFO queue, where a handle counts no more when its time is over.
    fifo: bool,
}

impl Sqs {
    fn lease(&self, handle: &str, queue: &str) -> Option<Lease> {
        self.secrets.lease(handle, queue)
    }

    fn by(lease: &Lease, queue: &str) -> By {
        By::Lease(LeaseRef {
            position: lease.place,
            number: lease.number,
            epoch: lease.epoch,
            // A message of a FIFO queue is the next one's once the lease is over.
            over: !names::is_fifo(queue),
        })
    }

    fn begin_delete(
        &self,
        context: &RequestContext,
        queue: &str,
        handle: &Option<String>,
    ) -> Result<Begun, Fault> {
        let handle = required_handle(handle)?;
        let lease = self
            .lease(handle, queue)
            .ok_or_else(|| Fault::handle(handle))?;
        let command = Command::Settle {
            id: MessageId(lease.id),
            by: Self::by(&lease, queue),
            how: How::Finish,
        };
        Ok(Begun {
            coming: context.shards.begin(command),
            changes: false,
            fifo: names::is_fifo(queue),
        })
    }

    fn begin_change(
        &self,
        context: &RequestContext,
        queue: &str,
        handle: &Option<String>,
        timeout: &Option<Whole>,
    ) -> Result<Begun, Fault> {
        let handle = required_handle(handle)?;
        let timeout = timeout
            .as_ref()
            .ok_or_else(|| Fault::missing("VisibilityTimeout"))?;
        let most = if self.limits.open {
            OPEN_VISIBILITY_MAX_S
        } else {
            VISIBILITY_MAX_S
        };
        let seconds = timeout.within(0, most).and_then(|n| u64::try_from(n).ok());
        let seconds = seconds.ok_or_else(|| {
            Fault::value(
                timeout,
                "VisibilityTimeout",
                "VisibilityTimeout must be an integer between 0 and 43200.",
            )
        })?;
        let lease = self.lease(handle, queue).ok_or_else(|| {
            Fault::new(
                Shape::ReceiptHandleIsInvalid,
                "The input receipt handle is invalid.",
            )
        })?;
        let (id, by) = (MessageId(lease.id), Self::by(&lease, queue));
        let command = match seconds {
            0 => Command::Settle {
                id,
                by,
                how: How::release(When::Now),
            },
            seconds => Command::Extend {
                id,
                ms: Some(seconds.saturating_mul(1000)),
                by,
            },
        };
        Ok(Begun {
            coming: context.shards.begin(command),
            changes: true,
            fifo: names::is_fifo(queue),
        })
    }

    pub(crate) async fn delete(&self, context: &RequestContext, input: DeleteMessage) -> Answer {
        let queue = request::queue(&input.queue_url)?;
        let handle = input.receipt_handle.as_deref().unwrap_or_default();
        let ended = match self.begin_delete(context, queue, &input.receipt_handle) {
            Ok(begun) => begun.end(handle).await,
            Err(fault) => Ended::Not(fault),
        };
        self.one(context, queue, ended).await
    }

    pub(crate) async fn change(
        &self,
        context: &RequestContext,
        input: ChangeMessageVisibility,
    ) -> Answer {
        let queue = request::queue(&input.queue_url)?;
        let handle = input.receipt_handle.as_deref().unwrap_or_default();
        let timeout = &input.visibility_timeout;
        let ended = match self.begin_change(context, queue, &input.receipt_handle, timeout) {
            Ok(begun) => begun.end(handle).await,
            Err(fault) => Ended::Not(fault),
        };
        self.one(context, queue, ended).await
    }

    pub(crate) async fn delete_batch(
        &self,
        context: &RequestContext,
        input: DeleteMessageBatch,
    ) -> Answer {
        let queue = request::queue(&input.queue_url)?;
        let kind = "DeleteMessageBatchRequestEntry";
        batch::check(&input.entries, kind, self.limits.open, |entry| &entry.id)?;
        let entries = &input.entries.kept;
        let begun = |entry: &HandleEntry| self.begin_delete(context, queue, &entry.receipt_handle);
        let begun = entries.iter().map(begun).collect();
        let element = "DeleteMessageBatchResultEntry";
        self.several(context, queue, element, entries, begun).await
    }

    pub(crate) async fn change_batch(
        &self,
        context: &RequestContext,
        input: ChangeMessageVisibilityBatch,
    ) -> Answer {
        let queue = request::queue(&input.queue_url)?;
        let kind = "ChangeMessageVisibilityBatchRequestEntry";
        batch::check(&input.entries, kind, self.limits.open, |entry| &entry.id)?;
        let entries = &input.entries.kept;
        let begun = |entry: &HandleEntry| {
            let (handle, timeout) = (&entry.receipt_handle, &entry.visibility_timeout);
            self.begin_change(context, queue, handle, timeout)
        };
        let begun = entries.iter().map(begun).collect();
        let element = "ChangeMessageVisibilityBatchResultEntry";
        self.several(context, queue, element, entries, begun).await
    }

    /// # Errors
    /// There is no such queue.
    async fn must_be(&self, context: &RequestContext, queue: &str) -> Result<(), Fault> {
        let name = Name::new(queue.as_bytes());
        self.must_have(context, Verb::Settle, &name)?;
        context.shards.as_server().numbers(&name).await.map(drop)
    }

    /// The reply for one message. Where nothing was done, it checks that there is such a queue.
    async fn one(&self, context: &RequestContext, queue: &str, ended: Ended) -> Answer {
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
        queue: &str,
        element: &'static str,
        entries: &[HandleEntry],
        begun: Vec<Result<Begun, Fault>>,
    ) -> Answer {
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        let mut all = true;
        for (entry, begun) in entries.iter().zip(begun) {
            let id = entry.id.clone().unwrap_or_default();
            let handle = entry.receipt_handle.as_deref().unwrap_or_default();
            let ended = match begun {
                Ok(begun) => begun.end(handle).await,
                Err(fault) => Ended::Not(fault),
            };
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

fn required_handle(handle: &Option<String>) -> Result<&str, Fault> {
    match handle.as_deref() {
        None | Some("") => Err(Fault::missing("ReceiptHandle")),
        Some(handle) => Ok(handle),
    }
}

/// The end of one message.
enum Ended {
    Done,
    /// There was nothing to do any more.
    Gone,
    Not(Fault),
}

impl Begun {
    async fn end(mut self, handle: &str) -> Ended {
        match self.coming.outcome().await {
            // To be seen at once, as it is.
            Outcome::Refused(CommandError::LeaseOver) if !self.fifo => Ended::Done,
            Outcome::Refused(CommandError::LeaseOver) => Ended::Not(Fault::value(
                handle,
                "ReceiptHandle",
                "The receipt handle has expired.",
            )),
            // Deleted, purged or moved before: so it may be repeated.
            Outcome::Refused(CommandError::NotFound) if !self.changes => Ended::Gone,
            // What is cancelled may still be deleted, until the grace is over.
            Outcome::Refused(CommandError::NotFound) | Outcome::Cancelled => {
                Ended::Not(Fault::value(
                    handle,
                    "ReceiptHandle",
                    "Message does not exist or is not available for visibility timeout change.",
                ))
            }
            outcome => match accepted(outcome) {
                Ok(_) => Ended::Done,
                Err(fault) => Ended::Not(fault),
            },
        }
    }
}
