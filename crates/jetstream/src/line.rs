//! A connection to the servers, led to another of them when its own answers nothing.
//!
//! A server that its peers cannot reach keeps its clients' connections and answers none of their
//! questions. Were the owner's appends, or the questions by which a standby knows the owner's
//! silence, bound to it for as long as it lives, nobody would own a log whose servers have long had
//! another leader.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use async_nats::{Client, connection::State};
use tokio::time::sleep;

/// A server that answers nothing for so long is left. Longer than most elections, while nobody
/// answers; short of the ten seconds that the longest take.
const PATIENCE: Duration = Duration::from_secs(4);
/// The same of one that was left before and has answered nothing since: while the others elect for
/// longer than it takes to try them all, the one they cannot reach must not cost as much again.
const PATIENCE_AGAIN: Duration = Duration::from_millis(1500);
/// The first server is the one to come back to, once another has answered for so long.
const HOME: Duration = Duration::from_secs(60);
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(500);

/// A connection, and whether its server answers.
pub(crate) struct Line {
    pub(crate) client: Client,
    /// In the order they are tried.
    addresses: Vec<String>,
    silence: Mutex<Silence>,
}

/// What is to be done about a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    Stay,
    /// To the server with this number, for now.
    To(usize),
    /// When it ends by itself, the first server is tried first again.
    Home,
}

/// How long a server has been asked in vain. Pure; time comes from outside.
#[derive(Default, Debug)]
struct Silence {
    /// Since when a question is unanswered, with none answered since.
    since: Option<Instant>,
    /// The same of appends, by themselves: a leader that its peers cannot reach answers questions
    /// for ten seconds, and acknowledges nothing.
    unstored: Option<Instant>,
    /// Since when it is the server it is, if it is not to be the first.
    left: Option<Instant>,
    /// The server that is tried first.
    first: usize,
    /// Servers that were left and have answered nothing since.
    silent: BTreeSet<usize>,
}

impl Silence {
    fn asked(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    fn appended(&mut self, now: Instant) {
        self.unstored.get_or_insert(now);
    }

    fn stored(&mut self) {
        self.unstored = None;
        self.answered();
    }

    /// Nothing is asked of a connection that is not there.
    fn lost(&mut self) {
        (self.since, self.unstored) = (None, None);
    }

    fn answered(&mut self) {
        self.since = None;
        self.silent.remove(&self.first);
    }

    fn patience(&self) -> Duration {
        match self.silent.contains(&self.first) {
            true => PATIENCE_AGAIN,
            false => PATIENCE,
        }
    }

    /// What is to be done, out of so many servers.
    fn turn(&mut self, now: Instant, servers: usize) -> Turn {
        let over = |since: Option<Instant>, time| {
            since.is_some_and(|since| now.saturating_duration_since(since) >= time)
        };
        let patience = self.patience();
        if over(self.since, patience) || over(self.unstored, patience) {
            // What was asked is lost with the connection.
            self.lost();
            self.silent.insert(self.first);
            self.first = (self.first + 1) % servers;
            self.left = Some(now);
            return Turn::To(self.first);
        }
        if self.since.is_none() && self.unstored.is_none() && over(self.left, HOME) {
            (self.left, self.first) = (None, 0);
            self.silent.clear();
            return Turn::Home;
        }
        Turn::Stay
    }
}

impl Line {
    pub(crate) fn new(client: Client, addresses: Vec<String>) -> Arc<Self> {
        Arc::new(Self {
            client,
            addresses,
            silence: Mutex::default(),
        })
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Something was asked of the server.
    pub(crate) fn asked(&self) {
        self.silence().asked(Instant::now());
    }

    /// It has answered something, be it no.
    pub(crate) fn answered(&self) {
        self.silence().answered();
    }

    /// An append was sent.
    pub(crate) fn appended(&self) {
        self.silence().appended(Instant::now());
    }

    /// What became of an append was answered.
    pub(crate) fn stored(&self) {
        self.silence().stored();
    }

    fn silence(&self) -> MutexGuard<'_, Silence> {
        self.silence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leads it to other servers for as long as it lives.
    pub(crate) async fn watch(self: Arc<Self>) {
        if self.addresses.len() < 2 {
            return;
        }
        loop {
            sleep(LOOK).await;
            if !self.is_connected() {
                // The library looks for another by itself.
                self.silence().lost();
                continue;
            }
            let turn = self.silence().turn(Instant::now(), self.addresses.len());
            match turn {
                Turn::Stay => {}
                Turn::Home => self.prefer(0, false).await,
                Turn::To(first) => {
                    let from = self.client.try_server_info().map(|info| info.server_name);
                    tracing::warn!(
                        target: "quintet::cluster",
                        "the NATS server {} answers nothing: another is tried",
                        from.unwrap_or_default()
                    );
                    self.prefer(first, true).await;
                }
            }
        }
    }

    /// Has this server tried first, at once or when the connection ends.
    async fn prefer(&self, first: usize, at_once: bool) {
        let mut order = self.addresses.clone();
        order.rotate_left(first);
        if let Err(error) = self.client.set_server_pool(&order[..]).await {
            tracing::warn!(target: "quintet::cluster", "cannot try another NATS server: {error}");
            return;
        }
        if at_once && let Err(error) = self.client.force_reconnect().await {
            tracing::warn!(target: "quintet::cluster", "cannot leave a NATS server: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_answers_nothing_is_left_for_the_next_and_come_back_to() {
        let (start, mut silence) = (Instant::now(), Silence::default());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        silence.asked(at(0));
        silence.asked(at(3));
        assert_eq!(silence.turn(at(3), 3), Turn::Stay);
        assert_eq!(silence.turn(at(4), 3), Turn::To(1));
        // Nothing is asked: it is not known to be silent.
        assert_eq!(silence.turn(at(20), 3), Turn::Stay);
        silence.asked(at(20));
        assert_eq!(silence.turn(at(24), 3), Turn::To(2));
        silence.asked(at(25));
        silence.answered();
        assert_eq!(silence.turn(at(83), 3), Turn::Stay);
        assert_eq!(silence.turn(at(84), 3), Turn::Home);
        assert_eq!(silence.turn(at(200), 3), Turn::Stay);
        silence.asked(at(200));
        assert_eq!(silence.turn(at(204), 3), Turn::To(1));
    }

    #[test]
    fn one_that_was_left_is_left_sooner_until_it_has_answered() {
        let (start, mut silence) = (Instant::now(), Silence::default());
        let at = |ms: u64| start + Duration::from_millis(ms);
        // All of them, once.
        for (number, next) in [(0, 1), (1, 2), (2, 0)] {
            silence.asked(at(number * 4_000));
            assert_eq!(silence.turn(at(number * 4_000 + 3_999), 3), Turn::Stay);
            assert_eq!(silence.turn(at(number * 4_000 + 4_000), 3), Turn::To(next));
        }
        silence.asked(at(12_000));
        assert_eq!(silence.turn(at(13_499), 3), Turn::Stay);
        assert_eq!(silence.turn(at(13_500), 3), Turn::To(1));
        // This one has a leader now, and is believed again.
        silence.asked(at(13_500));
        silence.answered();
        silence.asked(at(14_000));
        assert_eq!(silence.turn(at(17_999), 3), Turn::Stay);
        assert_eq!(silence.turn(at(18_000), 3), Turn::To(2));
        silence.asked(at(18_000));
        assert_eq!(silence.turn(at(19_500), 3), Turn::To(0));
    }

    #[test]
    fn one_that_answers_questions_and_no_appends_is_left() {
        let (start, mut silence) = (Instant::now(), Silence::default());
        let at = |ms: u64| start + Duration::from_millis(ms);
        silence.appended(at(0));
        for ms in (0..4_000).step_by(500) {
            silence.asked(at(ms));
            silence.answered();
            assert_eq!(silence.turn(at(ms), 3), Turn::Stay);
        }
        assert_eq!(silence.turn(at(4_000), 3), Turn::To(1));
        // It does, if seldom.
        for ms in (5_000..60_000).step_by(3_000) {
            silence.appended(at(ms));
            assert_eq!(silence.turn(at(ms + 2_900), 3), Turn::Stay);
            silence.stored();
        }
    }

    #[test]
    fn one_that_answers_now_and_then_is_kept() {
        let (start, mut silence) = (Instant::now(), Silence::default());
        for second in 0..100 {
            let now = start + Duration::from_secs(second);
            silence.asked(now);
            if second % 3 == 0 {
                silence.answered();
            }
            assert_eq!(silence.turn(now, 3), Turn::Stay);
        }
    }
}
