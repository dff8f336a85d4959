//! Whose request it is.

use std::fmt;
use std::sync::Arc;

use hyper::Method;
use quintet_types::{Name, Principal, Verb};

use crate::clients::Client;
use crate::cookie::Token;
use crate::gate::{Gate, Needs, needs, not_permitted, pace};
use crate::reply::Problem;
/// Whose request it is: among its extensions.
#[derive(Clone, Default)]
pub(crate) struct Visitor {
    /// `None`: whoever it is may do everything.
    pub(crate) known: Option<(Principal, Arc<dyn Gate>)>,
    /// The number of its login, for [`Gate::counts`].
    pub(crate) proof: u64,
    /// The session it came with.
    pub(crate) session: Option<Token>,
    /// The connection it came by.
    pub(crate) client: Option<Arc<Client>>,
}

impl fmt::Debug for Visitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let principal = self.known.as_ref().map(|(principal, _)| principal);
        write!(f, "Visitor({principal:?})")
    }
}

impl Visitor {
    /// Waits until a request of this one's may be answered.
    ///
    /// # Errors
    /// 429.
    pub(crate) async fn pace(&self) -> Result<(), Problem> {
        match &self.known {
            Some((principal, gate)) => pace(Some(gate), None, Some(*principal)).await,
            None => Ok(()),
        }
    }

    /// True if its login still counts.
    pub(crate) fn counts(&self) -> bool {
        let known = self.known.as_ref();
        known.is_none_or(|(who, gate)| gate.counts(*who, self.proof))
    }

    /// Its name, if it is somebody's in particular.
    pub(crate) fn name(&self) -> Option<Arc<str>> {
        let (who, gate) = self.known.as_ref()?;
        gate.name_of(*who)
    }

    /// The name of who came with a session; empty: it is of no session.
    pub(crate) fn of_session(&self) -> String {
        match (&self.known, self.session) {
            (Some((who, gate)), Some(_)) => {
                let name = gate.name_of(*who);
                name.map_or_else(|| "logged in".to_owned(), |name| name.to_string())
            }
            _ => String::new(),
        }
    }

    /// On whose behalf its commands are. Who is let in where nobody is known may do everything.
    pub(crate) fn principal(&self) -> Principal {
        let known = self.known.as_ref();
        known.map_or(Principal::SERVER, |(principal, _)| *principal)
    }

    /// True if it may do this to a queue.
    pub(crate) fn may(&self, verb: Verb, queue: &str) -> bool {
        self.may_to(verb, &Name::from(queue))
    }

    /// True if it may do this to a queue.
    pub(crate) fn may_to(&self, verb: Verb, queue: &Name) -> bool {
        let known = self.known.as_ref();
        known.is_none_or(|(who, gate)| gate.may(*who, verb, queue))
    }

    /// True if it may do what concerns all queues.
    pub(crate) fn may_server(&self) -> bool {
        let known = self.known.as_ref();
        known.is_none_or(|(who, gate)| gate.may_server(*who))
    }

    fn may_read_metrics(&self) -> bool {
        let known = self.known.as_ref();
        known.is_none_or(|(who, gate)| gate.may_read_metrics(*who))
    }

    /// Refuses what it may not do to a queue.
    ///
    /// # Errors
    /// 403.
    pub(crate) fn must(&self, verb: Verb, queue: &str) -> Result<(), Problem> {
        match self.may(verb, queue) {
            true => Ok(()),
            false => Err(not_permitted()),
        }
    }

    /// Refuses a request that it may not make. What depends on more than the
    /// address is looked at by its handler.
    ///
    /// # Errors
    /// 403.
    pub(crate) fn look_at(&self, method: &Method, path: &str) -> Result<(), Problem> {
        let may = match needs(method, path) {
            Needs::Nothing => true,
            Needs::Server => self.may_server(),
            Needs::Metrics => self.may_read_metrics(),
            Needs::Of(verbs, queue) => {
                let queue = percent_encoding::percent_decode_str(queue).decode_utf8_lossy();
                verbs.iter().all(|verb| self.may(*verb, &queue))
            }
        };
        match may {
            true => Ok(()),
            false => Err(not_permitted()),
        }
    }
}
