//! Connections to the servers and the thread that keeps them.

use std::{
    collections::BTreeMap,
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_nats::{Client, ConnectErrorKind, ConnectOptions, HeaderMap, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt as _;
use quintet_cluster::{Answer, Ends, Found, Seq, Stream, Tail, TailEvent, Told};
use tokio::{runtime::Handle, sync::mpsc, time::timeout};

use crate::{
    api::{self, Config, Info, Names},
    ask::{ANSWER, ask},
    line::Line,
    objects::{self, Objects},
    tail,
};

/// A connection that says nothing for two of these is over. The library's own minute would let an
/// owner stand still for as long beside a server that is frozen, not dead.
const PING: Duration = Duration::from_millis(500);
/// How long connecting may take, for the same reason.
const CONNECT: Duration = Duration::from_millis(500);
/// Messages of a subscription that wait for their turn, at most; what is dropped beyond is fetched
/// again. Entries are of 256 KiB at most, mostly far less.
const UNREAD: usize = 512;
/// Appends whose answers have not come, at most; beyond, the oldest is told that nobody knows. More
/// than any window, and those that are given up stay a while.
const UNANSWERED: usize = 1024;

/// How to reach the servers.
#[derive(Clone, Default)]
pub struct Servers {
    /// Their addresses, as `nats://host:port`; those nearer first.
    pub addresses: Vec<String>,
    /// Name of the server that is tried first, whatever their order; empty: none.
    pub near: String,
    /// A file of credentials.
    pub credentials: Option<PathBuf>,
    /// A user's name and password.
    pub user: Option<(String, String)>,
    /// Certificates of who signs the servers'.
    pub tls_ca: Option<PathBuf>,
    /// A certificate and its key, to show to the servers.
    pub tls_identity: Option<(PathBuf, PathBuf)>,
}

impl fmt::Debug for Servers {
    /// Without what is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers")
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

/// Why there is no stream to work with.
#[derive(Debug)]
pub enum Error {
    /// No server could be reached; in the library's words.
    Unreachable(Vec<String>, String),
    /// Servers could be reached, and do not take this user.
    Denied(Vec<String>),
    /// The credentials cannot be read.
    Credentials(std::io::Error),
    /// Nobody answered in time: the servers may be without a leader.
    Silent,
    /// The servers said no.
    Refused(String, api::Refused),
    /// No thread could be had.
    Thread(std::io::Error),
    /// A bucket can neither be opened nor made; in the library's words.
    Bucket(String, String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unreachable(addresses, why) => {
                write!(f, "cannot reach NATS at {}: {why}", addresses.join(", "))
            }
            Error::Denied(addresses) => write!(
                f,
                "NATS at {} does not take this node's user: see cluster.user and \
                 cluster.password_file, or cluster.credentials",
                addresses.join(", ")
            ),
            Error::Credentials(error) => write!(f, "cannot read the NATS credentials: {error}"),
            Error::Silent => f.write_str(
                "JetStream does not answer: it is not enabled (`jetstream: enabled` in the \
                 servers' configuration), or its servers have no leader",
            ),
            Error::Refused(what, refused) => write!(f, "JetStream refuses {what}: {refused}"),
            Error::Bucket(bucket, why) => {
                write!(f, "cannot open JetStream's bucket {bucket}: {why}")
            }
            Error::Thread(error) => write!(f, "cannot start a thread for NATS: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Credentials(error) | Error::Thread(error) => Some(error),
            Error::Unreachable(..)
            | Error::Denied(..)
            | Error::Silent
            | Error::Refused(..)
            | Error::Bucket(..) => None,
        }
    }
}

/// A server's version and limits, as it tells them.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// Such as `2.12.8`.
    pub version: String,
    /// The longest message it takes, bytes.
    pub max_payload: usize,
}

/// A group's log as JetStream keeps it.
///
/// Calls return at once; answers come on its own thread, which ends with it.
pub struct JetStream {
    names: Names,
    inner: Arc<Inner>,
    appends: mpsc::UnboundedSender<Append>,
    runtime: Handle,
    /// Dropped, the thread ends.
    _alive: tokio::sync::oneshot::Sender<()>,
}

struct Inner {
    names: Names,
    /// What is appended and followed goes over the first, what became of it is asked over the
    /// second, mostly of another server: one that is frozen must not answer for itself.
    near: Arc<Line>,
    far: Arc<Line>,
    waiting: Mutex<Waiting>,
    inbox: String,
}

struct Append {
    expected: Seq,
    entry: Bytes,
    told: Told<Answer>,
}

/// Appends that were sent and not answered, by number.
#[derive(Default)]
struct Waiting {
    next: u64,
    told: BTreeMap<u64, Told<Answer>>,
}

impl JetStream {
    /// Connects, twice. The stream need not be there yet.
    ///
    /// # Errors
    /// See [`Error`]; nothing is tried twice.
    pub fn connect(servers: &Servers, names: Names) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::Thread)?;
        let (near, far, answers) = runtime.block_on(connect_twice(servers))?;
        let (inbox, answers) = answers;
        let inner = Arc::new(Inner {
            names: names.clone(),
            near,
            far,
            waiting: Mutex::default(),
            inbox,
        });
        let (appends, queue) = mpsc::unbounded_channel();
        runtime.spawn(Arc::clone(&inner).send_all(queue));
        runtime.spawn(Arc::clone(&inner).hear_all(answers));
        runtime.spawn(Arc::clone(&inner.near).watch());
        runtime.spawn(Arc::clone(&inner.far).watch());
        let handle = runtime.handle().clone();
        let (alive, ended) = tokio::sync::oneshot::channel::<()>();
        std::thread::Builder::new()
            .name("jetstream".to_owned())
            .spawn(move || {
                // Ended by the other side being dropped.
                runtime.block_on(ended).ok();
                // A question that is on its way is given up.
                runtime.shutdown_background();
            })
            .map_err(Error::Thread)?;
        Ok(Self {
            names,
            inner,
            appends,
            runtime: handle,
            _alive: alive,
        })
    }

    /// What the stream and its subjects are called.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The servers that the connections lead to now.
    pub fn servers(&self) -> Vec<Server> {
        [&self.inner.near, &self.inner.far]
            .into_iter()
            .filter_map(|line| line.client.try_server_info())
            .map(|info| Server {
                name: info.server_name,
                version: info.version,
                max_payload: info.max_payload,
            })
            .collect()
    }

    /// Makes the stream. One that is there with the same settings is left as it is.
    ///
    /// # Errors
    /// [`Error::Refused`], also if there is one with other settings; [`Error::Silent`].
    pub fn create(&self, replicas: usize, placement_tags: &[String]) -> Result<Info, Error> {
        let config = Config::of_log(&self.names, replicas, placement_tags);
        let payload = serde_json::to_vec(&config).expect("a configuration is JSON");
        // A replicated stream is made when its servers have agreed.
        let info = self.wait_info("STREAM.CREATE", payload, 10 * ANSWER)?;
        info.ok_or(Error::Silent)
    }

    /// Deletes the stream, with everything in it. There need be none.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Silent`].
    pub fn delete(&self) -> Result<(), Error> {
        let subject = self.names.api("STREAM.DELETE");
        let reply = self.wait(&subject, Bytes::new(), None, 10 * ANSWER)?;
        match api::done(&reply) {
            None => Err(Error::Silent),
            Some(Err(refused)) if !api::is_absent(&refused) => {
                Err(Error::Refused(subject, refused))
            }
            Some(_) => Ok(()),
        }
    }

    /// The stream as its leader knows it; `None`: there is none.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Silent`].
    pub fn info(&self) -> Result<Option<Info>, Error> {
        self.wait_info("STREAM.INFO", Vec::new(), ANSWER)
    }

    /// The name of the server that leads the stream, if it says so in this time. While there is
    /// none nobody answers.
    pub fn leader(&self, within: Duration) -> Option<String> {
        let info = self.wait_info("STREAM.INFO", Vec::new(), within).ok()??;
        info.cluster?.leader
    }

    /// In what the stream differs from what a log needs, a line each.
    pub fn faults(&self, info: &Info, replicas: usize) -> Vec<String> {
        Config::of_log(&self.names, replicas, &[]).faults(&info.config)
    }

    /// The bucket of the group's runs, made if there is none, kept by so many servers. It works for
    /// as long as this lives.
    ///
    /// # Errors
    /// [`Error::Bucket`].
    pub fn runs(&self, replicas: usize, placement_tags: &[String]) -> Result<Objects, Error> {
        self.objects(self.names.runs.clone(), replicas, placement_tags)
    }

    /// The bucket of the attachments of the group's messages, as [`JetStream::runs`].
    ///
    /// # Errors
    /// [`Error::Bucket`].
    pub fn files(&self, replicas: usize, placement_tags: &[String]) -> Result<Objects, Error> {
        self.objects(self.names.files.clone(), replicas, placement_tags)
    }

    fn objects(
        &self,
        name: String,
        replicas: usize,
        placement_tags: &[String],
    ) -> Result<Objects, Error> {
        // The library starts a task for it.
        let _inside = self.runtime.enter();
        let context = async_nats::jetstream::new(self.inner.near.client.clone());
        let opened = objects::open(context, name.clone(), replicas, placement_tags.to_vec());
        match self.runtime.block_on(opened) {
            Ok(opened) => Ok(Objects::new(self.runtime.clone(), name, opened)),
            Err(why) => Err(Error::Bucket(name, why)),
        }
    }

    /// Asks the stream's leader to let the server of that name lead.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Silent`].
    pub fn step_down_for(&self, server: &str) -> Result<(), Error> {
        let subject = self.names.api("STREAM.LEADER.STEPDOWN");
        let question = serde_json::json!({ "placement": { "preferred": server } });
        let reply = self.wait(&subject, question.to_string().into(), None, ANSWER)?;
        match api::done(&reply) {
            None => Err(Error::Silent),
            Some(Ok(())) => Ok(()),
            Some(Err(refused)) => Err(Error::Refused(subject, refused)),
        }
    }

    fn wait_info(
        &self,
        question: &str,
        payload: Vec<u8>,
        within: Duration,
    ) -> Result<Option<Info>, Error> {
        let subject = self.names.api(question);
        let reply = self.wait(&subject, payload.into(), None, within)?;
        match api::info(&reply) {
            None => Err(Error::Silent),
            Some(Ok(info)) => Ok(Some(info)),
            Some(Err(refused)) if api::is_absent(&refused) => Ok(None),
            Some(Err(refused)) => Err(Error::Refused(subject, refused)),
        }
    }

    /// Asks, and waits so long for the reply.
    pub(crate) fn wait(
        &self,
        subject: &str,
        payload: Bytes,
        header: Option<(&'static str, u64)>,
        within: Duration,
    ) -> Result<Bytes, Error> {
        let (answer, answered) = std::sync::mpsc::channel();
        let inner = Arc::clone(&self.inner);
        let asked = subject.to_owned();
        self.runtime.spawn(async move {
            let reply = ask(&inner.near, asked, payload, header, within).await;
            answer.send(reply).ok();
        });
        answered.recv().ok().flatten().ok_or(Error::Silent)
    }

    /// Asks over the second connection and tells what `read` makes of the reply.
    fn ask_far<T: Send + 'static>(
        &self,
        question: &str,
        payload: Vec<u8>,
        told: Told<T>,
        read: impl FnOnce(Option<Bytes>) -> T + Send + 'static,
    ) {
        let inner = Arc::clone(&self.inner);
        let subject = self.names.api(question);
        self.runtime.spawn(async move {
            let reply = ask(&inner.far, subject, payload.into(), None, ANSWER).await;
            told(read(reply));
        });
    }
}

type Lines = (Arc<Line>, Arc<Line>, (String, Subscriber));

async fn connect_twice(servers: &Servers) -> Result<Lines, Error> {
    let addresses = nearest_first(servers).await;
    let near = connect(servers, &addresses).await?;
    // The other way round, so that it leads to another server where there is one.
    let reversed: Vec<String> = addresses.iter().rev().cloned().collect();
    let far = connect(servers, &reversed).await?;
    let inbox = near.new_inbox();
    let answers = near.subscribe(format!("{inbox}.*")).await;
    let answers = answers
        .map_err(|error| Error::Unreachable(servers.addresses.clone(), error.to_string()))?;
    let (near, far) = (Line::new(near, addresses), Line::new(far, reversed));
    Ok((near, far, (inbox, answers)))
}

/// The addresses with that of the near server first, which each server's greeting tells.
async fn nearest_first(servers: &Servers) -> Vec<String> {
    let mut addresses = servers.addresses.clone();
    if servers.near.is_empty() {
        return addresses;
    }
    for at in 0..addresses.len() {
        let Ok(client) = connect(servers, &addresses[at..=at]).await else {
            continue;
        };
        let name = client.try_server_info().map(|info| info.server_name);
        if name.as_ref() == Some(&servers.near) {
            addresses[..=at].rotate_right(1);
            return addresses;
        }
    }
    tracing::warn!(target: "quintet::cluster", "no NATS server is called {:?}", servers.near);
    addresses
}

async fn connect(servers: &Servers, addresses: &[String]) -> Result<Client, Error> {
    let mut options = ConnectOptions::new()
        .name("quintet")
        .ping_interval(PING)
        .connection_timeout(CONNECT)
        .subscription_capacity(UNREAD)
        .retain_servers_order()
        // Who is nearest is tried first, and soon again.
        .reconnect_delay_callback(|tries| {
            Duration::from_millis(u64::try_from(tries).unwrap_or(u64::MAX).min(10) * 50)
        })
        .event_callback(|event| async move {
            tracing::info!(target: "quintet::cluster", "NATS: {event}");
        });
    if let Some(file) = &servers.credentials {
        let with = options.credentials_file(file).await;
        options = with.map_err(Error::Credentials)?;
    }
    if let Some((user, password)) = &servers.user {
        options = options.user_and_password(user.clone(), password.clone());
    }
    if let Some(ca) = &servers.tls_ca {
        options = options.add_root_certificates(ca.clone()).require_tls(true);
    }
    if let Some((certificate, key)) = &servers.tls_identity {
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    let unreachable = |why: String| Error::Unreachable(addresses.to_vec(), why);
    // A frozen server takes the connection and says nothing.
    match timeout(
        4 * CONNECT * addresses.len().max(1) as u32,
        options.connect(addresses),
    )
    .await
    {
        Ok(Ok(client)) => Ok(client),
        Ok(Err(error)) => match error.kind() {
            ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                Err(Error::Denied(addresses.to_vec()))
            }
            _ => Err(unreachable(error.to_string())),
        },
        Err(_) => Err(unreachable("no answer".to_owned())),
    }
}

impl Inner {
    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends appends, in the order they were asked for.
    async fn send_all(self: Arc<Self>, mut queue: mpsc::UnboundedReceiver<Append>) {
        while let Some(append) = queue.recv().await {
            // The library would keep it until there is a connection, and send it then beside the
            // copies sent since.
            if !self.near.is_connected() {
                (append.told)(Answer::Unknown);
                continue;
            }
            let (number, given_up) = {
                let mut waiting = self.waiting();
                let number = waiting.next;
                waiting.next += 1;
                waiting.told.insert(number, append.told);
                let oldest = (waiting.told.len() > UNANSWERED)
                    .then(|| waiting.told.pop_first())
                    .flatten();
                (number, oldest)
            };
            if let Some((_, told)) = given_up {
                told(Answer::Unknown);
            }
            let mut headers = HeaderMap::new();
            headers.insert("Nats-Expected-Stream", self.names.stream.as_str());
            headers.insert(
                "Nats-Expected-Last-Sequence",
                append.expected.to_string().as_str(),
            );
            let reply = format!("{}.{number}", self.inbox);
            self.near.appended();
            let sent = self.near.client.publish_with_reply_and_headers(
                self.names.log.clone(),
                reply,
                headers,
                append.entry,
            );
            if sent.await.is_err() {
                self.answer(number, Answer::Unknown);
            }
        }
    }

    /// Takes in the answers to appends.
    async fn hear_all(self: Arc<Self>, mut answers: Subscriber) {
        while let Some(message) = answers.next().await {
            let number = message.subject.as_str().rsplit('.').next();
            let Some(number) = number.and_then(|number| number.parse().ok()) else {
                continue;
            };
            let answer = match message.status {
                // Nobody keeps the stream, or nobody leads it now.
                Some(_) => Answer::Unknown,
                None => api::ack(&self.names.stream, &message.payload),
            };
            if answer != Answer::Unknown {
                self.near.stored();
            }
            self.answer(number, answer);
        }
    }

    fn answer(&self, number: u64, answer: Answer) {
        let told = self.waiting().told.remove(&number);
        if let Some(told) = told {
            told(answer);
        }
    }
}

impl Stream for JetStream {
    fn name(&self) -> String {
        format!("JetStream's {}", self.names.stream)
    }

    fn append(&self, expected: Seq, entry: Bytes, told: Told<Answer>) {
        let append = Append {
            expected,
            entry,
            told,
        };
        if let Err(unsent) = self.appends.send(append) {
            (unsent.0.told)(Answer::Unknown);
        }
    }

    fn ends(&self, told: Told<Option<Ends>>) {
        self.ask_far("STREAM.INFO", Vec::new(), told, |reply| {
            let info = api::info(&reply?)?.ok()?;
            Some(info.ends())
        });
    }

    fn get(&self, seq: Seq, told: Told<Found>) {
        let question = format!("{{\"seq\":{seq}}}");
        self.ask_far("STREAM.MSG.GET", question.into(), told, move |reply| {
            reply.map_or(Found::Unknown, |reply| api::found(seq, &reply))
        });
    }

    fn tail(&self, from: Seq, each: Box<dyn FnMut(TailEvent) + Send>) -> Tail {
        let (near, names) = (Arc::clone(&self.inner.near), self.names.clone());
        let task = self.runtime.spawn(tail::follow(near, names, from, each));
        Tail::new(Following(task))
    }

    fn purge_below(&self, seq: Seq, told: Told<bool>) {
        // Asked for less, the servers empty the whole stream.
        assert!(seq >= Seq(2), "a purge below {seq} would take everything");
        let question = format!("{{\"seq\":{seq}}}");
        self.ask_far("STREAM.PURGE", question.into(), told, |reply| {
            reply.is_some_and(|reply| api::purged(&reply))
        });
    }
}

/// A task that ends when this goes.
struct Following(tokio::task::JoinHandle<()>);

impl Drop for Following {
    fn drop(&mut self) {
        self.0.abort();
    }
}
