//! A reserve that waits until there are enough messages for one reply.

use std::time::{Duration, Instant};

use quintet_http::{Attempt, Client, Undo};
use quintet_types::{
    AT_ONCE_MS, AwaitLease, Caller, Command, Keys, LeaseState, Message, MessageVersion, Outcome,
    Take, Wait,
};
use serde::Deserialize;
use utoipa::ToSchema;

use super::problem::Problem;
use super::read::WAIT_MAX_MS;
use super::{Api, read};

/// Messages to reserve: how many, for how long, and how long to wait.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Reserve {
    /// Wait so long for a message, ms, 60000 at most; 0: not at all.
    #[serde(default)]
    pub(super) wait_ms: u64,
    /// Messages at most, 1 to 100; left out: 1.
    pub(super) max: Option<u32>,
    /// Messages that are enough for a reply, 1 to `max`; left out: `max`. Needs `linger_ms`.
    pub(super) min: Option<u32>,
    /// Once there is a message, wait so long for `min` of them, ms, 60000 at most, but no longer
    /// than half of the shortest of their leases; 0: not at all. Messages are reserved as they come.
    #[serde(default)]
    pub(super) linger_ms: u64,
    /// The lease ends by itself after so many ms, 1 to a week; left out: as
    /// the message or its queue says.
    pub(super) lease_ms: Option<u64>,
    /// The worker's name, 1 to 255 bytes, for lists of leases; left out: its
    /// `User-Agent`.
    pub(super) worker: Option<String>,
    /// Only messages of one key: that of the first, which comes alone if it has none. Others of its
    /// key are as far in the reply as no message of the queue's files stands before them. In a
    /// queue with ordered keys the reply does not wait for more.
    #[serde(default)]
    pub(super) one_key: bool,
}

/// Conditions of a reserve that gathers.
pub(super) struct Gather {
    /// So many messages are enough.
    pub(super) min: u32,
    /// How long to wait for them after the first.
    pub(super) linger: Duration,
    /// Length of each lease, ms, if the request gives one.
    pub(super) lease_ms: Option<u64>,
}

/// The client of a reserve request.
pub(super) struct ReserveClient<'a> {
    pub(super) caller: Caller,
    pub(super) client: Option<&'a Client>,
    /// The same, if its end ends the wait.
    pub(super) waits: Option<&'a Client>,
    /// The take under its token, if it has one. Its end ends the wait, too.
    pub(super) attempt: Option<&'a Attempt>,
}

impl Reserve {
    /// Conditions of its reply beside a first message, if it has some.
    pub(super) fn gather(&self, max: u32) -> Result<Option<Gather>, Problem> {
        if self.linger_ms > WAIT_MAX_MS {
            return Err(read::wait_too_long("linger_ms", self.linger_ms));
        }
        match self.min {
            Some(min) if !(1..=max).contains(&min) => {
                let detail = format!("takes a number from 1 to max, which is {max}; not {min}");
                return Err(Problem::field("min", detail));
            }
            Some(_) if self.linger_ms == 0 => {
                let why =
                    "min needs linger_ms of at least 1 ms: the time to wait for more messages";
                return Err(Problem::field("linger_ms", why));
            }
            Some(_) | None => {}
        }
        let min = self.min.unwrap_or(max);
        Ok((self.linger_ms > 0 && min > 1).then(|| Gather {
            min,
            linger: Duration::from_millis(self.linger_ms),
            lease_ms: self.lease_ms,
        }))
    }
}

impl Gather {
    /// Half of this message's lease. A wait that lasted longer would leave its worker too little
    /// time.
    fn half_of(&self, message: &Message) -> Duration {
        let lease_ms = self.lease_ms.or(message.ttr_ms);
        let lease_ms = lease_ms.filter(|ms| *ms > 0);
        lease_ms.map_or(Duration::MAX, |ms| Duration::from_millis(ms / 2))
    }
}

impl Api {
    /// Adds to the messages of a reply until there are enough or the time is over. Those whose
    /// leases end meanwhile are not among them. If the request ends, all of them go back.
    pub(super) async fn gather(
        &self,
        gather: Gather,
        reserve_client: &ReserveClient<'_>,
        mut take: Take,
        undo: &mut Undo,
    ) {
        let (max, token) = (take.messages_max as usize, take.token.take());
        if take.keys.is_some() {
            let key = undo.messages().first().and_then(Message::key).cloned();
            let Some(key) = key else { return };
            take.keys = Some(Box::new(Keys::Of(key)));
        }
        let mut left = gather.linger;
        let first = undo.messages().len();
        let mut handed = first;
        loop {
            let began = Instant::now();
            let shortest = undo.messages().iter();
            let shortest = shortest.map(|message| gather.half_of(message)).min();
            left = left.min(shortest.unwrap_or(left));
            // What came at once needs no second look.
            let waited = handed > first;
            if waited && undo.messages().len() >= gather.min as usize {
                self.recheck(reserve_client.caller, undo).await;
            }
            let counted = undo.messages().len();
            let ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            if counted >= gather.min as usize {
                return;
            }
            if ms == 0 {
                break;
            }
            let missing = max.saturating_sub(counted);
            let mut part = take.clone();
            part.wait = Wait::For(ms);
            part.messages_max = u32::try_from(missing).unwrap_or(1);
            // Each part is repeated by a token of its own, so all parts are at most `max`.
            part.token = token.as_deref().map(|token| {
                let lost = handed - counted;
                let part = match lost {
                    0 => format!("\0{missing}"),
                    _ => format!("\0{missing} {lost}"),
                };
                [token, part.as_bytes()].concat().into_boxed_slice()
            });
            match self.take_once(reserve_client, part).await {
                Ok((more, _)) if !more.is_empty() => {
                    handed += more.len();
                    undo.add(more);
                }
                // The messages that are there are the reply, also if it may take no more.
                Ok(_) | Err(_) => break,
            }
            left = left.saturating_sub(began.elapsed());
        }
        self.recheck(reserve_client.caller, undo).await;
    }

    /// Takes out messages whose leases ended during the wait, and marks those that were cancelled.
    async fn recheck(&self, caller: Caller, undo: &mut Undo) {
        let asks: Vec<AwaitLease> = undo
            .messages()
            .iter()
            // A lease that ends at once is over before its reply.
            .filter(|message| message.ttr_ms != Some(AT_ONCE_MS))
            .map(|message| AwaitLease {
                id: message.id,
                seen: MessageVersion::of(message),
                known: None,
                wait_ms: 0,
            })
            .collect();
        for ask in asks {
            match self.ask_as(caller, Command::AwaitLease(ask)).await {
                Ok(Outcome::Lease(news)) if news.state != LeaseState::Held => undo.remove(ask.id),
                Ok(Outcome::Lease(news)) => {
                    if let Some(cancelled) = news.cancelled {
                        undo.mark(ask.id, cancelled);
                    }
                }
                Err(problem) if problem.code == "not_found" => undo.remove(ask.id),
                // Nobody knows: its lease counts.
                Ok(_) | Err(_) => {}
            }
        }
    }
}
