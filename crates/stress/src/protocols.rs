//! A client's side of each protocol, for the load.

use std::io;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

pub(crate) use quintet_testkit::{Addresses, TakenMessage};
use quintet_testkit::{Protocol, Put, QueueClient};

use crate::ledger::Wishes;

pub(crate) const MEMCACHE: usize = Protocol::Memcache as usize;
pub(crate) const LINEUP: usize = Protocol::Lineup as usize;
pub(crate) const JOBQUEUE: usize = Protocol::Jobqueue as usize;
pub(crate) const PINPRIQ: usize = Protocol::Pinpriq as usize;
pub(crate) const BEANSTALK: usize = Protocol::Beanstalk as usize;
pub(crate) const CONTROL: usize = Protocol::CommandLine as usize;
pub(crate) const HTTP: usize = Protocol::Http as usize;
pub(crate) const SQS: usize = Protocol::Sqs as usize;
pub(crate) const FAKTORY: usize = Protocol::Faktory as usize;
pub(crate) const API: usize = Protocol::Api as usize;

/// The queue of lineup's listener.
pub(crate) const LINEUP_QUEUE: &str = "default";
/// Time to run of leases that have one, seconds.
pub(crate) const LEASE_S: u64 = 2;
/// The longest wait for a reply.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection.
pub(crate) struct Client(QueueClient, Option<u64>);

fn argument(body: &[u8]) -> Option<Vec<u8>> {
    let job: serde_json::Value = serde_json::from_slice(body).ok()?;
    Some(job["args"][0].as_str()?.as_bytes().to_vec())
}

impl Deref for Client {
    type Target = QueueClient;

    fn deref(&self) -> &QueueClient {
        &self.0
    }
}

impl DerefMut for Client {
    fn deref_mut(&mut self) -> &mut QueueClient {
        &mut self.0
    }
}

impl Client {
    pub(crate) fn open(addresses: &Addresses, protocol: usize) -> io::Result<Self> {
        QueueClient::open(addresses, Protocol::ALL[protocol], PATIENCE)
            .map(|client| Self(client, None))
    }

    /// Puts; false: refused.
    pub(crate) fn put(
        &mut self,
        queue: &str,
        body: &[u8],
        priority: u32,
        wishes: Wishes,
    ) -> io::Result<bool> {
        // The head of a body names its message: alone it is a key, so that groups are of one, and
        // the parameter of a script.
        let key = &body[..17];
        let protocol = self.0.protocol();
        let (priority, body) = match protocol {
            Protocol::Pinpriq => (Some(1 + priority % 200), body),
            Protocol::CommandLine => (None, body),
            Protocol::Http => (None, key),
            _ => (Some(priority), body),
        };
        let put = Put {
            priority,
            delay_s: wishes.delay_s,
            lease_s: LEASE_S as u32,
            ttl: match protocol {
                Protocol::Memcache => wishes.ttl_s,
                _ => 0,
            },
            key,
        };
        let id = self.0.put(queue, body, put)?;
        self.1 = id.filter(|id| *id > 0);
        Ok(id.is_some())
    }

    /// The id of the message that was put last, where the protocol tells it.
    pub(crate) fn id(&self) -> Option<u64> {
        self.1
    }

    /// As [`QueueClient::take`]; of a job of Faktory the message is its argument, for every client.
    pub(crate) fn take(&mut self, queue: &str, removes: bool) -> io::Result<Option<TakenMessage>> {
        let taken = self.0.take(queue, removes)?;
        Ok(taken.map(|taken| TakenMessage {
            body: argument(&taken.body).unwrap_or(taken.body),
            ..taken
        }))
    }
}
