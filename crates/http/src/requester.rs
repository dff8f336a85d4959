//! The author of a request.

use std::fmt;
use std::sync::Arc;

use quintet_types::{Name, Needed, Operation, Principal, Verb};

use crate::clients::Client;
use crate::cookie::Token;
use crate::gate::{Gate, not_permitted};
use crate::pace::pace;
use crate::reply::Problem;
/// The author of a request: among its extensions.
#[derive(Clone, Default)]
pub struct Requester {
    /// `None`: any client may do everything.
    pub known: Option<(Principal, Arc<dyn Gate>)>,
    /// The number of its login, for [`Gate::counts`].
    pub proof: u64,
    /// The session it came with.
    pub session: Option<Token>,
    /// The connection it came by.
    pub client: Option<Arc<Client>>,
}

impl fmt::Debug for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let principal = self.known.as_ref().map(|(principal, _)| principal);
        write!(f, "Requester({principal:?})")
    }
}

impl Requester {
    /// Waits until a request of this one's may be answered.
    ///
    /// # Errors
    /// 429; or the server stops.
    pub async fn pace(&self) -> Result<(), Problem> {
        match &self.known {
            Some((principal, gate)) => {
                pace(Some(gate), None, Some(*principal), self.client.as_deref()).await
            }
            None => Ok(()),
        }
    }

    /// True if its login still counts.
    pub fn counts(&self) -> bool {
        let known = self.known.as_ref();
        known.is_none_or(|(who, gate)| gate.counts(*who, self.proof))
    }

    /// Its name, if it is somebody's in particular.
    pub fn name(&self) -> Option<Arc<str>> {
        let (who, gate) = self.known.as_ref()?;
        gate.name_of(*who)
    }

    /// The name of who came with a session; empty: it is of no session.
    pub fn of_session(&self) -> String {
        match (&self.known, self.session) {
            (Some((who, gate)), Some(_)) => {
                let name = gate.name_of(*who);
                name.map_or_else(|| "logged in".to_owned(), |name| name.to_string())
            }
            _ => String::new(),
        }
    }

    /// On whose behalf its commands are. Who is let in where nobody is known may do everything.
    pub fn principal(&self) -> Principal {
        let known = self.known.as_ref();
        known.map_or(Principal::SERVER, |(principal, _)| *principal)
    }

    /// True if it may do this to a queue.
    pub fn may(&self, verb: Verb, queue: &str) -> bool {
        self.may_to(verb, &Name::from(queue))
    }

    /// True if it may do this to a queue.
    pub fn may_to(&self, verb: Verb, queue: &Name) -> bool {
        let known = self.known.as_ref();
        known.is_none_or(|(who, gate)| gate.may(*who, verb, queue))
    }

    /// True if it may do what concerns all queues.
    pub fn may_server(&self) -> bool {
        let known = self.known.as_ref();
        known.is_none_or(|(who, gate)| gate.may_server(*who))
    }

    /// True if it may ask for this operation, on this queue if it is on one.
    pub fn may_ask(&self, operation: Operation, queue: &Name) -> bool {
        match operation.needs() {
            Needed::Queue(verbs) => verbs.iter().all(|verb| self.may_to(*verb, queue)),
            Needed::Server => self.may_server(),
            Needed::Metrics => {
                let known = self.known.as_ref();
                known.is_none_or(|(who, gate)| gate.may_read_metrics(*who))
            }
        }
    }

    /// Refuses what it may not ask for.
    ///
    /// # Errors
    /// 403.
    pub fn must(&self, operation: Operation, queue: &str) -> Result<(), Problem> {
        match self.may_ask(operation, &Name::from(queue)) {
            true => Ok(()),
            false => Err(not_permitted()),
        }
    }
}
