//! Asking the shards on behalf of a connection.

use std::sync::Arc;

use quintet_client::{ClientApi, StoreError};
use quintet_http::Losses;
use quintet_http::reply::blocking;
use quintet_types::{
    Body, BulkDone, BulkOp, Caller, Command, CommandError, Name, Outcome, Overrides, QueueSetup,
    QueueStats, StatsOf, StatsReply, Tags,
};
use tokio::sync::oneshot;

use crate::fault::{Fault, Shape};

/// The way to the shards for one request.
#[derive(Clone)]
pub(crate) struct ShardClient {
    pub(crate) client_api: Arc<dyn ClientApi>,
    pub(crate) caller: Caller,
    pub(crate) lost: Losses,
}

/// An outcome to come.
pub(crate) struct PendingOutcome(oneshot::Receiver<(Outcome, Name)>);

impl PendingOutcome {
    /// Waits for it.
    pub(crate) async fn outcome(&mut self) -> Outcome {
        // The drop of the reply means: decided, but never acknowledged.
        let received = (&mut self.0).await.map(|(outcome, _)| outcome);
        received
            .unwrap_or(Outcome::Refused(CommandError::Unknown))
            .of_command()
    }
}

impl ShardClient {
    /// The same without the rights of the requester: for what the server looks up.
    pub(crate) fn as_server(&self) -> Self {
        Self {
            caller: Caller::server(self.caller.client_id),
            ..self.clone()
        }
    }

    /// Asks; the answer comes later. What is leased for somebody who does not
    /// listen any more goes back.
    pub(crate) fn begin(&self, command: Command) -> PendingOutcome {
        PendingOutcome(self.lost.submit(self.caller, command))
    }

    /// Asks and waits.
    ///
    /// # Errors
    /// The shards' no, or a hook's.
    pub(crate) async fn ask(&self, command: Command) -> Result<Outcome, Fault> {
        accepted(self.begin(command).outcome().await)
    }

    /// Sets up a queue that is there.
    ///
    /// # Errors
    /// There is none of that name; or as the shards say.
    pub(crate) async fn configure(&self, queue: Name, settings: Overrides) -> Result<(), Fault> {
        let command = Command::Configure {
            queue,
            overrides: Some(Box::new(settings)),
            must_exist: true,
        };
        self.ask(command).await.map(drop)
    }

    /// Changes tags of a queue that is there.
    ///
    /// # Errors
    /// As of [`ShardClient::configure`].
    pub(crate) async fn set_tags(&self, queue: Name, tags: Tags) -> Result<(), Fault> {
        let settings = Overrides {
            tags: Some(tags),
            ..Overrides::default()
        };
        self.configure(queue, settings).await
    }

    /// A step of a bulk operation.
    ///
    /// # Errors
    /// As the shards say.
    pub(crate) async fn bulk(&self, bulk_op: &BulkOp) -> Result<Box<BulkDone>, Fault> {
        let command = Command::BulkOp(Box::new(bulk_op.clone()));
        match self.ask(command).await? {
            Outcome::BulkDone(done) => Ok(done),
            _ => Err(unexpected()),
        }
    }

    /// How a queue is set up.
    ///
    /// # Errors
    /// There is none of that name.
    pub(crate) async fn setup(&self, name: &Name) -> Result<Box<QueueSetup>, Fault> {
        match self.stats(StatsOf::Setup(name.clone())).await? {
            StatsReply::Setup(setup) => Ok(setup),
            _ => Err(unexpected()),
        }
    }

    /// A queue's numbers.
    ///
    /// # Errors
    /// There is none of that name.
    pub(crate) async fn numbers(&self, name: &Name) -> Result<QueueStats, Fault> {
        match self.stats(StatsOf::Queue(name.clone())).await? {
            StatsReply::Queue(stats) => Ok(stats),
            _ => Err(unexpected()),
        }
    }

    /// Numbers of any kind.
    ///
    /// # Errors
    /// As the shards say.
    pub(crate) async fn stats(&self, of: StatsOf) -> Result<StatsReply, Fault> {
        match self.ask(Command::Stats(of)).await? {
            Outcome::Stats(stats) => Ok(*stats),
            _ => Err(unexpected()),
        }
    }

    /// The bytes of a body, from the disk if need be.
    ///
    /// # Errors
    /// They cannot be read.
    pub(crate) async fn bytes(&self, body: &Body) -> Result<Arc<[u8]>, Fault> {
        match body {
            Body::Small(bytes) => Ok(Arc::clone(bytes)),
            Body::Large(large) => {
                // A damaged log may say any length.
                let stored = large.places();
                let stored = stored.iter().map(|position| u64::from(position.len));
                if stored.sum::<u64>() != large.len() {
                    return Err(incomplete());
                }
                let (client_api, body) = (Arc::clone(&self.client_api), Body::Large(large.clone()));
                let len = usize::try_from(body.len()).unwrap_or(usize::MAX);
                let read = blocking(move || {
                    let mut bytes = vec![0; len];
                    client_api.read(&body, 0, &mut bytes).map(|read| {
                        bytes.truncate(read);
                        bytes
                    })
                });
                match read.await {
                    Ok(Ok(bytes)) if bytes.len() == len => Ok(bytes.into()),
                    Ok(Ok(_)) => Err(incomplete()),
                    Ok(Err(error)) => Err(Fault::internal(format!("cannot read a body: {error}"))),
                    Err(_) => Err(unexpected()),
                }
            }
        }
    }

    /// Stores a body that is longer than [`SMALL`] in the log, from a thread that may wait.
    ///
    /// # Errors
    /// There is no room for it.
    pub(crate) async fn store(&self, queue: &Name, body: Vec<u8>) -> Result<Body, Fault> {
        let (client_api, queue) = (Arc::clone(&self.client_api), queue.clone());
        let stored = blocking(move || {
            let len = body.len() as u64;
            client_api.store(&queue, len, &mut body.as_slice())
        });
        let stored = stored.await.map_err(|_| unexpected())?;
        stored.map_err(|error| match error {
            StoreError::Refused(command_error) => Fault::from(command_error),
            StoreError::Source(error) => Fault::internal(error.to_string()),
        })
    }
}

/// A body that is no longer is kept in memory, bytes.
pub(crate) const SMALL: usize = 64 << 10;

/// The answer about a queue; `None`: there is no such queue.
///
/// # Errors
/// Any other.
pub(crate) fn if_there<T>(answer: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(fault) if fault.shape == Shape::QueueDoesNotExist => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// An outcome, unless it is a no.
///
/// # Errors
/// It is one.
pub(crate) fn accepted(outcome: Outcome) -> Result<Outcome, Fault> {
    match outcome {
        Outcome::Refused(command_error) => Err(command_error.into()),
        Outcome::Denied(text) => Err(Fault::new(Shape::AccessDenied, String::from(text))),
        outcome => Ok(outcome),
    }
}

/// The shards answered what nobody has asked for.
pub(crate) fn unexpected() -> Fault {
    Fault::internal("the shards gave an unexpected answer")
}

fn incomplete() -> Fault {
    Fault::internal("a body is incomplete")
}

#[cfg(test)]
mod tests {
    use quintet_sim::client_api::SimApi;
    use quintet_types::{LargeBody, Ms, Settings};

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_body_that_is_not_stored_takes_no_memory() {
        let client_api: Arc<dyn ClientApi> = SimApi::new(Settings::default(), Ms(1));
        let lost = Losses::new("sqs", Arc::clone(&client_api));
        let shards = ShardClient {
            client_api,
            caller: Caller::default(),
            lost,
        };
        let body = Body::Large(LargeBody::new(1, u64::MAX, 0));
        let Err(fault) = shards.bytes(&body).await else {
            panic!("it has no bytes");
        };
        assert_eq!(fault.text, incomplete().text);
    }
}
