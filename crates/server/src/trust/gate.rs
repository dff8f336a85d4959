//! HTTP's way to the users: one gate for each listener.

use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use quintet_door::{Did, Share};
use quintet_http::{Answer, Counted, Full, Gate, Pace, Shown, Tell, User};
use quintet_types::{Name, Principal, Verb};
use quintet_wire::LoginRefused;

use super::login::{Begun, Comes, Told};
use crate::quotas::{self, Limited, Of};
use crate::server::Server;

/// After this a request whose body did not fit may come again.
const HOLD_AGAIN: Duration = Duration::ZERO;

/// What a listener of HTTP asks.
pub(crate) struct HttpGate {
    server: Weak<Server>,
    /// Whoever shows nothing is this one; empty: nobody in particular.
    user: String,
    /// The listener's own, who are users too.
    users: Vec<User>,
    /// The account of this machine that commands the server here, as the audit names it.
    account: Option<Arc<str>>,
}

impl HttpGate {
    pub(crate) fn of_listener(
        server: &Arc<Server>,
        user: String,
        users: Vec<User>,
    ) -> Arc<dyn Gate> {
        Arc::new(Self {
            server: Arc::downgrade(server),
            user,
            users,
            account: None,
        })
    }

    /// One of the control socket, for a client of this account.
    pub(crate) fn of_account(server: &Arc<Server>, account: Option<u32>) -> Arc<dyn Gate> {
        Arc::new(Self {
            server: Arc::downgrade(server),
            user: String::new(),
            users: Vec::new(),
            account: account.map(|uid| format!("uid {uid}").into()),
        })
    }

    /// Who comes without a word.
    fn silent(&self, server: &Server) -> Answer {
        match self.user.as_str() {
            "" if self.users.is_empty() && server.trust.table().lets_anonymous() => {
                Answer::In(Principal::ANONYMOUS, 0)
            }
            "" => Answer::No,
            user => Answer::In(server.trust.user(user), 0),
        }
    }
}

impl Gate for HttpGate {
    fn is_used(&self) -> bool {
        let server = self.server.upgrade();
        server.is_some_and(|server| server.trust.is_used())
    }

    fn log_in(&self, peer: Option<IpAddr>, shown: Shown<'_>, tell: Tell) {
        let Some(server) = self.server.upgrade() else {
            return tell(Answer::NotNow("the server is stopping"));
        };
        let (name, secret) = match shown {
            Shown::Nothing => return tell(self.silent(&server)),
            Shown::Certificate(name) => {
                // A name that nobody here has says no more than none.
                return tell(match server.trust.user(name) {
                    Principal::ANONYMOUS => self.silent(&server),
                    user => Answer::In(user, 0),
                });
            }
            Shown::Bearer(token) => return tell(answer(server.bear(token, peer))),
            Shown::Basic(name, secret) => (name, secret),
        };
        // One of the listener's own, unless a [[user]] has the name.
        let own = std::str::from_utf8(name).ok();
        let own = own.filter(|name| !server.trust.table().has_user(name));
        let own = own.is_some_and(|_| quintet_http::is_one_of(&self.users, name, secret));
        // Called in one way or the other, and once.
        let tell = Arc::new(std::sync::Mutex::new(Some(tell)));
        let later = Arc::clone(&tell);
        let once = |tell: &std::sync::Mutex<Option<Tell>>, told: Told| {
            if let Some(tell) = quintet_host::locked(tell).take() {
                tell(answer(told));
            }
        };
        let comes = Comes {
            name,
            secret,
            address: peer,
            own,
            with_each_request: true,
        };
        let begun = server.begin_login(&comes, move |told| once(&later, told));
        if let Begun::Now(told) = begun {
            once(&tell, told);
        }
    }

    fn arrive(&self, peer: Option<IpAddr>) -> Result<Counted, &'static str> {
        let Some(server) = self.server.upgrade() else {
            return Ok(None);
        };
        match server.quotas.stay(peer) {
            Ok(stay) => Ok(stay.map(|stay| Box::new(stay) as Box<dyn Send + Sync>)),
            Err(limited) => Err(limited.text(Of::Address)),
        }
    }

    fn failed(&self, peer: Option<IpAddr>) {
        if let Some(server) = self.server.upgrade() {
            server.quotas.failed(peer);
        }
    }

    fn pace(&self, peer: Option<IpAddr>, principal: Option<Principal>) -> Pace {
        let Some(server) = self.server.upgrade() else {
            return Pace::In(Duration::ZERO);
        };
        let now = Instant::now();
        let paced = match principal {
            None => server.quotas.pace_address(peer, now),
            Some(user) => {
                let name = server.trust.table().name_of(user);
                server.quotas.pace_user(user, name, now)
            }
        };
        match paced {
            quotas::Pace::In(wait) => Pace::In(wait),
            quotas::Pace::Not(wait, of) => Pace::Not(Limited::Requests.text(of), wait),
        }
    }

    fn hold(
        &self,
        peer: Option<IpAddr>,
        principal: Option<Principal>,
        bytes: u64,
    ) -> Result<Vec<Share>, Full> {
        let Some(server) = self.server.upgrade() else {
            return Ok(Vec::new());
        };
        let user = principal.map(|user| (user, server.trust.table().name_of(user)));
        let held = server.quotas.hold(peer, user, bytes);
        held.map_err(|of| Full(Limited::BytesInFlight.text(of), HOLD_AGAIN))
    }

    fn may(&self, principal: Principal, verb: Verb, queue: &Name) -> bool {
        let server = self.server.upgrade();
        server.is_some_and(|server| server.trust.may(principal, verb, queue))
    }

    fn may_server(&self, principal: Principal) -> bool {
        let server = self.server.upgrade();
        server.is_some_and(|server| server.trust.may_server(principal))
    }

    fn may_read_metrics(&self, principal: Principal) -> bool {
        let server = self.server.upgrade();
        server.is_some_and(|server| server.trust.may_read_metrics(principal))
    }

    fn name_of(&self, principal: Principal) -> Option<Arc<str>> {
        if principal == Principal::SERVER {
            return self.account.clone();
        }
        let server = self.server.upgrade();
        server.and_then(|server| server.trust.table().name_of(principal))
    }

    fn counts(&self, principal: Principal, proof: u64) -> bool {
        let server = self.server.upgrade();
        server.is_some_and(|server| server.trust.counts(principal, proof))
    }

    fn note(&self, principal: Principal, peer: Option<IpAddr>, act: &str, status: u16, did: Did) {
        if let Some(server) = self.server.upgrade() {
            let who = self.name_of(principal);
            let who = who.as_deref().unwrap_or_default();
            // Names of queues have their own escapes already.
            let act = act.escape_debug().to_string().replace("\\\\", "\\");
            server
                .audit
                .note_did(who, peer, "http", &act, &status.to_string(), did);
        }
    }
}

fn answer(told: Told) -> Answer {
    match told {
        Ok(logged_in) => Answer::In(logged_in.principal, logged_in.proof),
        Err(LoginRefused::Wrong) => Answer::No,
        Err(refused @ (LoginRefused::Throttled | LoginRefused::Busy | LoginRefused::TooMany)) => {
            Answer::NotNow(refused.text())
        }
    }
}
