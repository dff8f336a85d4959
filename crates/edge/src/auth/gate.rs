//! HTTP's way to the users: one gate for each listener.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quintet_client::shown::plain;
use quintet_client::{Did, Entry, Share};
use quintet_http::{Answer, Counted, Full, Gate, LoginCredentials, Pace, Tell, User};
use quintet_types::{Name, Operation, Principal, Verb};
use quintet_wire::LoginRefused;

use super::Security;
use super::login::{Begun, Comes, LoginResult};
use crate::quotas::{self, Limited, Of};

/// After this a request whose body did not fit may come again.
const HOLD_AGAIN: Duration = Duration::ZERO;

/// Checks logins and rights of the requests of one HTTP listener.
pub struct HttpGate {
    security: Arc<Security>,
    /// The user of a client without credentials; empty: nobody in particular.
    user: String,
    /// The listener's own, who are users too.
    users: Vec<User>,
    /// The account of this machine that commands the server here, as the audit names it.
    account: Option<Arc<str>>,
}

impl HttpGate {
    /// One of a listener of HTTP, with the listener's user and its own users.
    pub fn of_listener(security: &Arc<Security>, user: String, users: Vec<User>) -> Arc<dyn Gate> {
        Arc::new(Self {
            security: Arc::clone(security),
            user,
            users,
            account: None,
        })
    }

    /// One of the control socket, for a client of this account.
    pub fn of_account(security: &Arc<Security>, account: Option<u32>) -> Arc<dyn Gate> {
        Arc::new(Self {
            security: Arc::clone(security),
            user: String::new(),
            users: Vec::new(),
            account: account.map(|uid| format!("uid {uid}").into()),
        })
    }

    /// The answer for a client without credentials.
    fn silent(&self) -> Answer {
        match self.user.as_str() {
            "" if self.users.is_empty() && self.security.auth.table().lets_anonymous() => {
                Answer::In(Principal::ANONYMOUS, 0)
            }
            "" => Answer::No,
            user => Answer::In(self.security.auth.user(user), 0),
        }
    }
}

impl Gate for HttpGate {
    fn is_used(&self) -> bool {
        self.security.auth.is_used()
    }

    fn log_in(&self, peer: Option<IpAddr>, shown: LoginCredentials<'_>, notify: Tell) {
        let (name, secret) = match shown {
            LoginCredentials::Nothing => return notify(self.silent()),
            LoginCredentials::Certificate(name) => {
                // A name that nobody here has says no more than none.
                return notify(match self.security.auth.user(name) {
                    Principal::ANONYMOUS => self.silent(),
                    user => Answer::In(user, 0),
                });
            }
            LoginCredentials::Bearer(token) => {
                return notify(answer(self.security.bear(token, peer)));
            }
            LoginCredentials::Basic(name, secret) => (name, secret),
        };
        // One of the listener's own, unless a [[user]] has the name.
        let own = std::str::from_utf8(name).ok();
        let own = own.filter(|name| !self.security.auth.table().has_user(name));
        let own = own.is_some_and(|_| quintet_http::is_one_of(&self.users, name, secret));
        // Called in one way or the other, and once.
        let notify = Arc::new(std::sync::Mutex::new(Some(notify)));
        let later = Arc::clone(&notify);
        let once = |notify: &std::sync::Mutex<Option<Tell>>, result: LoginResult| {
            if let Some(notify) = quintet_host::locked(notify).take() {
                notify(answer(result));
            }
        };
        let comes = Comes {
            name,
            secret,
            address: peer,
            own,
            with_each_request: true,
        };
        let begun = self
            .security
            .begin_login(&comes, move |result| once(&later, result));
        if let Begun::Now(result) = begun {
            once(&notify, result);
        }
    }

    fn arrive(&self, peer: Option<IpAddr>) -> Result<Counted, &'static str> {
        match self.security.quotas.stay(peer) {
            Ok(stay) => Ok(stay.map(|stay| Box::new(stay) as Box<dyn Send + Sync>)),
            Err(limited) => Err(limited.text(Of::Address)),
        }
    }

    fn failed(&self, peer: Option<IpAddr>) {
        self.security.quotas.failed(peer);
    }

    fn pace(&self, peer: Option<IpAddr>, principal: Option<Principal>) -> Pace {
        let now = Instant::now();
        let paced = match principal {
            None => self.security.quotas.pace_address(peer, now),
            Some(user) => {
                let name = self.security.auth.table().name_of(user);
                self.security.quotas.pace_user(user, name, now)
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
        let user = principal.map(|user| (user, self.security.auth.table().name_of(user)));
        let held = self.security.quotas.hold(peer, user, bytes);
        held.map_err(|of| Full(Limited::BytesInFlight.text(of), HOLD_AGAIN))
    }

    fn may(&self, principal: Principal, verb: Verb, queue: &Name) -> bool {
        self.security.auth.may(principal, verb, queue)
    }

    fn may_server(&self, principal: Principal) -> bool {
        self.security.auth.may_server(principal)
    }

    fn may_read_metrics(&self, principal: Principal) -> bool {
        self.security.auth.may_read_metrics(principal)
    }

    fn name_of(&self, principal: Principal) -> Option<Arc<str>> {
        if principal == Principal::SERVER {
            return self.account.clone();
        }
        self.security.auth.table().name_of(principal)
    }

    fn counts(&self, principal: Principal, proof: u64) -> bool {
        self.security.auth.counts(principal, proof)
    }

    fn note(&self, who: Principal, peer: Option<IpAddr>, act: (Operation, &str), came: (u16, Did)) {
        let who = self.name_of(who);
        // Names of queues have their own escapes already.
        let request = plain(act.1.as_bytes()).replace("\\\\", "\\");
        self.security.audit.write(&Entry {
            who: who.as_deref().unwrap_or_default(),
            from: peer,
            said: Some("http"),
            what: &request,
            result: &came.0.to_string(),
            did: came.1,
            ..Entry::of(act.0)
        });
    }
}

fn answer(result: LoginResult) -> Answer {
    match result {
        Ok(logged_in) => Answer::In(logged_in.principal, logged_in.proof),
        Err(LoginRefused::Wrong) => Answer::No,
        Err(refused @ (LoginRefused::Throttled | LoginRefused::Busy | LoginRefused::TooMany)) => {
            Answer::NotNow(refused.text())
        }
    }
}
