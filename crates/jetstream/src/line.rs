//! A connection to the servers, led to another of them when its own answers nothing and that one
//! does.
//!
//! A server that its peers cannot reach keeps its clients' connections and answers none of their
//! questions, or as the leader that it was, for ten seconds more, what others have long overruled.
//! Were the owner's appends, or the questions by which a standby knows the owner's silence, bound
//! to it for as long as it lives, nobody would own a log whose servers have long had another
//! leader. Nor may a server be left on suspicion: while servers elect, for up to ten seconds, none
//! answers, and who goes from one to the next is with the one they cannot reach when they have
//! elected.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use async_nats::{Client, connection::State};
use bytes::Bytes;
use futures_util::future::select_ok;
use tokio::time::{sleep, timeout};

use crate::{
    api,
    connect::{ANSWER, Servers, connect},
};

/// When a question has been unanswered for so long it is looked whether another server answers.
const UNANSWERED: Duration = Duration::from_millis(1500);
/// The same of appends: a slow disk may take as long, and those on their way are lost with the
/// connection.
const UNSTORED: Duration = Duration::from_secs(4);
/// A client with appends that nobody stores sends them again well within this time; a deposed one
/// has none.
const APPENDING: Duration = Duration::from_secs(3);
/// The first server is the one to come back to, once another has answered for so long.
const HOME: Duration = Duration::from_secs(60);
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(500);

/// The thread of connections goes on as long as one of these is there.
pub(crate) type Alive = Arc<tokio::sync::oneshot::Sender<()>>;

/// A connection, and whether its server answers.
pub(crate) struct Line {
    pub(crate) client: Client,
    /// In the order they are tried.
    servers: Servers,
    /// For the stream: its answer tells whether somebody leads.
    pub(crate) question: String,
    silence: Mutex<Silence>,
}

/// The next step with a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    Stay,
    /// To one of the others, if it answers.
    Switch,
    /// When it ends by itself, the first server is tried first again.
    Home,
}

/// How long a server has been asked in vain. Pure; time comes from outside.
#[derive(Default, Debug)]
pub(crate) struct Silence {
    /// Since when a question is unanswered, with none answered since.
    since: Option<Instant>,
    /// The same of appends, by themselves: a leader that its peers cannot reach answers questions
    /// for ten seconds, and acknowledges nothing.
    unstored: Option<Instant>,
    /// When the last append was sent.
    appended: Option<Instant>,
    /// Since when it is the server it is, if it is not to be the first.
    left: Option<Instant>,
}

impl Silence {
    /// Something was asked of the server.
    pub(crate) fn note_request(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// An append was sent.
    pub(crate) fn appended(&mut self, now: Instant) {
        self.unstored.get_or_insert(now);
        self.appended = Some(now);
    }

    pub(crate) fn stored(&mut self) {
        self.unstored = None;
        self.answered();
    }

    /// Nothing is asked of a connection that is not there; or it was seen that all is well.
    fn clear(&mut self) {
        (self.since, self.unstored) = (None, None);
    }

    /// It has answered so that somebody leads.
    pub(crate) fn answered(&mut self) {
        self.since = None;
    }

    /// It was left for another, and what was asked is lost with the connection.
    fn left(&mut self, now: Instant) {
        self.clear();
        self.left = Some(now);
    }

    fn turn(&mut self, now: Instant) -> Turn {
        let over = |since: Option<Instant>, time| {
            since.is_some_and(|since| now.saturating_duration_since(since) >= time)
        };
        if over(self.appended, APPENDING) {
            (self.unstored, self.appended) = (None, None);
        }
        if over(self.since, UNANSWERED) || over(self.unstored, UNSTORED) {
            return Turn::Switch;
        }
        if self.since.is_none() && self.unstored.is_none() && over(self.left, HOME) {
            self.left = None;
            return Turn::Home;
        }
        Turn::Stay
    }
}

impl Line {
    /// `servers` in the order they are to be tried; `question` as [`Line::question`].
    pub(crate) fn new(client: Client, servers: Servers, question: String) -> Arc<Self> {
        Arc::new(Self {
            client,
            servers,
            question,
            silence: Mutex::default(),
        })
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    pub(crate) fn silence(&self) -> MutexGuard<'_, Silence> {
        self.silence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leads it to other servers for as long as it lives.
    pub(crate) async fn watch(self: Arc<Self>) {
        if self.servers.addresses.len() < 2 {
            return;
        }
        loop {
            sleep(LOOK).await;
            if !self.is_connected() {
                // The library looks for another by itself.
                self.silence().clear();
                continue;
            }
            let turn = self.silence().turn(Instant::now());
            match turn {
                Turn::Stay => {}
                Turn::Home => self.prefer(0, false).await,
                Turn::Switch => {
                    if self.leads(&self.client).await {
                        // A slow disk, or nothing that would have told was asked.
                        self.silence().clear();
                        continue;
                    }
                    let here = self.name();
                    let Some((first, there)) = self.who_answers(&here).await else {
                        continue;
                    };
                    tracing::warn!(
                        target: "quintet::cluster",
                        "the NATS server {here} does not answer: this node uses {there}"
                    );
                    self.silence().left(Instant::now());
                    self.prefer(first, true).await;
                }
            }
        }
    }

    /// Name of the server.
    pub(crate) fn name(&self) -> String {
        let info = self.client.try_server_info();
        info.map(|info| info.server_name).unwrap_or_default()
    }

    /// The first server to answer that is not called `here`: its number, and its name.
    async fn who_answers(&self, here: &str) -> Option<(usize, String)> {
        let all = 0..self.servers.addresses.len();
        let tries = all.map(|number| Box::pin(self.answers(number, here)));
        Some(select_ok(tries).await.ok()?.0)
    }

    async fn answers(&self, number: usize, here: &str) -> Result<(usize, String), ()> {
        let address = &self.servers.addresses[number..=number];
        let client = connect(&self.servers, address, false).await;
        let client = client.map_err(drop)?;
        let info = client.try_server_info().ok_or(())?;
        if info.server_name == here {
            return Err(());
        }
        match self.leads(&client).await {
            true => Ok((number, info.server_name)),
            false => Err(()),
        }
    }

    /// Whether its server knows of one that leads.
    async fn leads(&self, client: &Client) -> bool {
        let response = client.request(self.question.clone(), Bytes::new());
        let reply = timeout(ANSWER, response).await;
        reply.is_ok_and(|reply| reply.is_ok_and(|reply| api::is_led(&reply.payload)))
    }

    /// Has this server tried first, at once or when the connection ends.
    async fn prefer(&self, first: usize, at_once: bool) {
        let mut order = self.servers.addresses.clone();
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
    fn without_an_answer_another_server_is_used_until_the_first_is_back() {
        let (start, mut silence) = (Instant::now(), Silence::default());
        let at = |ms: u64| start + Duration::from_millis(ms);
        silence.note_request(at(0));
        silence.note_request(at(1_000));
        assert_eq!(silence.turn(at(1_499)), Turn::Stay);
        assert_eq!(silence.turn(at(1_500)), Turn::Switch);
        // Nobody else answers either, which is no reason to go.
        assert_eq!(silence.turn(at(9_000)), Turn::Switch);
        silence.left(at(10_000));
        // Nothing is asked: it is not known to be silent.
        assert_eq!(silence.turn(at(20_000)), Turn::Stay);
        silence.note_request(at(20_000));
        silence.answered();
        assert_eq!(silence.turn(at(69_999)), Turn::Stay);
        assert_eq!(silence.turn(at(70_000)), Turn::Home);
        assert_eq!(silence.turn(at(200_000)), Turn::Stay);
        silence.note_request(at(200_000));
        assert_eq!(silence.turn(at(201_500)), Turn::Switch);
    }

    #[test]
    fn a_server_that_answers_and_stores_nothing_is_left() {
        let (start, mut silence) = (Instant::now(), Silence::default());
        let at = |ms: u64| start + Duration::from_millis(ms);
        for ms in (0..4_000).step_by(500) {
            silence.note_request(at(ms));
            // Also those to which a leader says no.
            silence.appended(at(ms));
            silence.answered();
            assert_eq!(silence.turn(at(ms)), Turn::Stay);
        }
        assert_eq!(silence.turn(at(4_000)), Turn::Switch);
        silence.left(at(4_000));
        // It does, if seldom.
        for ms in (5_000..60_000).step_by(3_000) {
            silence.appended(at(ms));
            assert_eq!(silence.turn(at(ms + 2_900)), Turn::Stay);
            silence.stored();
        }
    }

    #[test]
    fn a_line_without_appends_waits_for_nothing() {
        let (start, mut silence) = (Instant::now(), Silence::default());
        let at = |ms: u64| start + Duration::from_millis(ms);
        silence.appended(at(0));
        silence.answered();
        for ms in (500..10_000).step_by(500) {
            assert_eq!(silence.turn(at(ms)), Turn::Stay);
        }
    }

    #[test]
    fn a_server_that_answers_now_and_then_is_kept() {
        let (start, mut silence) = (Instant::now(), Silence::default());
        for second in 0..100 {
            let now = start + Duration::from_secs(second);
            silence.note_request(now);
            if second % 2 == 0 {
                silence.answered();
            }
            assert_eq!(silence.turn(now), Turn::Stay);
        }
    }
}
