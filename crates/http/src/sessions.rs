//! Sessions of browsers.
//!
//! A session is kept here, in memory alone, under the random token in its cookie; a start of the
//! server ends all. It ends by itself when its time is over, when its user goes, and when the
//! password, secret or token it began with does.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use hyper::HeaderMap;
use hyper::header::HeaderValue;
use quintet_types::{Principal, locked};

use crate::cookie::{HOST_NAME, NAME, Session, Token};
use crate::gate::{Answer, Gate, LoginCredentials};
use crate::reply::channel;
use crate::requester::Requester;

/// Sessions of browsers at one listener. They are in memory: a restart ends them.
pub struct Sessions {
    kept: Mutex<HashMap<Token, Arc<Session>>>,
    /// At once; the oldest ends for a new one beyond.
    most: usize,
    /// How long one lasts.
    time: Duration,
    /// Path of the cookie.
    root: String,
    /// Browsers are to show it over TLS alone.
    secure: bool,
}

impl Sessions {
    pub(crate) fn new(most: usize, time: Duration, root: &str, secure: bool) -> Self {
        Self {
            kept: Mutex::default(),
            most,
            time,
            root: root.to_owned(),
            secure,
        }
    }

    /// A session of `who`, and the cookie that leads to it.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn begin(
        &self,
        who: Principal,
        proof: u64,
        now: Instant,
    ) -> Result<HeaderValue, rustix::io::Errno> {
        let token = Token::new()?;
        let session = Session {
            who,
            proof,
            began: now,
            time: self.time,
        };
        let mut kept = self.kept();
        kept.retain(|_, session| session.lasts(now));
        while kept.len() >= self.most.max(1) {
            let oldest = kept.iter().min_by_key(|(_, session)| session.began);
            let Some(oldest) = oldest.map(|(token, _)| *token) else {
                break;
            };
            kept.remove(&oldest);
        }
        kept.insert(token, Arc::new(session));
        Ok(self.cookie(&token.show(), self.time.as_secs()))
    }

    /// The session of a token, if it still exists.
    pub(crate) fn find(
        &self,
        gate: &dyn Gate,
        token: Token,
        now: Instant,
    ) -> Option<(Principal, u64)> {
        let mut kept = self.kept();
        let session = kept.get(&token)?;
        let (who, proof) = (session.who, session.proof);
        if session.lasts(now) && gate.counts(who, proof) {
            return Some((who, proof));
        }
        kept.remove(&token);
        None
    }

    /// A token's session, for those who watch for its end.
    pub fn of(&self, token: Token) -> Weak<Session> {
        self.kept()
            .get(&token)
            .map(Arc::downgrade)
            .unwrap_or_default()
    }

    /// Ends this session, or with `everywhere` all of the same user; answers the cookie that
    /// takes the browser's away.
    pub fn end(&self, token: Token, everywhere: bool) -> HeaderValue {
        let mut kept = self.kept();
        if let Some(ended) = kept.remove(&token)
            && everywhere
        {
            kept.retain(|_, session| session.who != ended.who);
        }
        self.cookie("", 0)
    }

    fn cookie(&self, value: &str, seconds: u64) -> HeaderValue {
        let secure = if self.secure { "; Secure" } else { "" };
        let name = match self.secure && self.root == "/" {
            true => HOST_NAME,
            false => NAME,
        };
        let text = format!(
            "{name}={value}; Path={}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}",
            self.root
        );
        HeaderValue::try_from(text).expect("relative_root takes no control characters")
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<Token, Arc<Session>>> {
        locked(&self.kept)
    }
}

/// The requester of a request that shows a session and no other login.
pub fn requester(
    sessions: &Sessions,
    gate: &Arc<dyn Gate>,
    headers: &HeaderMap,
) -> Option<Requester> {
    if headers.contains_key(hyper::header::AUTHORIZATION) {
        return None;
    }
    let token = Token::of(headers)?;
    let (who, proof) = sessions.find(&**gate, token, Instant::now())?;
    Some(Requester {
        known: Some((who, Arc::clone(gate))),
        proof,
        session: Some(token),
        client: None,
    })
}

/// Logs in with a form's `name` and `secret`; without a name the secret is a token.
pub async fn log_in(gate: &dyn Gate, peer: Option<IpAddr>, name: &str, secret: &str) -> Answer {
    let (sender, receiver) = channel();
    let shown = match name {
        "" => LoginCredentials::Bearer(secret.as_bytes()),
        name => LoginCredentials::Basic(name.as_bytes(), secret.as_bytes()),
    };
    gate.log_in(peer, shown, sender);
    receiver
        .await
        .unwrap_or(Answer::NotNow("the server is stopping"))
}

#[cfg(test)]
#[path = "sessions_tests.rs"]
mod tests;
