//! Connections to the servers and the thread that keeps them.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_nats::{HeaderMap, Subscriber};
use bytes::Bytes;
use futures_util::{
    StreamExt as _,
    future::{Either, select},
};
use quintet_cluster::{
    Answer, Distrusted, Ends, EntryLookup, ReplyFn, Seq, Stream, Tail, TailEvent,
};
use tokio::{
    runtime::{Handle, Runtime},
    sync::mpsc,
    time::timeout,
};

use crate::{
    Result,
    api::{self, Config, Info, Names, Refused},
    ask::ask,
    connect::{ANSWER, Servers, connect, nearest_first},
    error::Error,
    line::{Alive, Line},
    objects::{self, Objects},
    tail::{self, ends},
};

/// Appends whose answers have not come, at most; beyond, the oldest gets the outcome "unknown".
/// More than any window, and those that are given up stay a while.
const UNANSWERED: usize = 1024;
/// Name of the thread that looks names up.
const LOOKUPS: &str = "nats-names";
/// How long the second answer to a question is waited for when the first is there.
const SECOND: Duration = Duration::from_millis(250);

/// A server's version and limits, as it tells them.
#[derive(Clone, Debug)]
pub struct Server {
    pub name: String,
    /// Such as `2.12.8`.
    pub version: String,
    /// The longest message it takes, bytes.
    pub max_payload: usize,
}

/// A group's log as JetStream keeps it.
///
/// Calls return at once; answers come on its own thread, which ends with it and its buckets.
pub struct JetStream {
    names: Names,
    inner: Arc<Inner>,
    appends: mpsc::UnboundedSender<Append>,
    runtime: Handle,
    alive: Alive,
}

struct Inner {
    names: Names,
    /// The first connection appends and follows; the second, mostly of another server, asks for the
    /// fate of appends: a frozen server must not answer for itself. Both ask where the stream ends.
    near: Arc<Line>,
    far: Arc<Line>,
    waiting: Mutex<Waiting>,
    inbox: String,
}

/// A question to the servers.
pub(crate) struct Question {
    pub(crate) subject: String,
    pub(crate) payload: Bytes,
    pub(crate) header: Option<(&'static str, u64)>,
    /// How long its reply is waited for.
    pub(crate) within: Duration,
}

impl Question {
    pub(crate) fn new(subject: String, payload: impl Into<Bytes>, within: Duration) -> Self {
        Self {
            subject,
            payload: payload.into(),
            header: None,
            within,
        }
    }
}

struct Append {
    expected: Seq,
    entry: Bytes,
    callback: ReplyFn<Answer>,
}

/// Appends that were sent and not answered, by number.
#[derive(Default)]
struct Waiting {
    next: u64,
    callback: BTreeMap<u64, ReplyFn<Answer>>,
}

impl JetStream {
    /// Connects, twice. The stream need not be there yet.
    ///
    /// # Errors
    /// See [`Error`]; nothing is tried twice.
    pub fn connect(servers: &Servers, names: Names) -> Result<Self> {
        let runtime = runtime().map_err(Error::Thread)?;
        let (near, far, answers) = runtime.block_on(connect_twice(servers, &names))?;
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
                // Ended by the last of the other side being dropped.
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
            alive: Arc::new(alive),
        })
    }

    /// Names of the stream and its subjects.
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

    /// Makes the stream, with the log's id in its metadata. A stream that is there with the same
    /// settings and id is left as it is.
    ///
    /// # Errors
    /// [`Error::Refused`], also if there is one with other settings; [`Error::Silent`].
    pub fn create(&self, replicas: usize, placement_tags: &[String], id: &str) -> Result<Info> {
        let config = Config::of_log(&self.names, replicas, placement_tags, id);
        let payload = serde_json::to_vec(&config).expect("a configuration is JSON");
        // A replicated stream is made when its servers have agreed.
        let info = self.wait_info("STREAM.CREATE", payload, 10 * ANSWER)?;
        info.ok_or(Error::Silent)
    }

    /// Deletes the stream, with everything in it. There need be none.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Silent`].
    pub fn delete(&self) -> Result<()> {
        let subject = self.names.api("STREAM.DELETE");
        let question = Question::new(subject, Bytes::new(), 10 * ANSWER);
        self.wait(question, api::done, &[api::NO_STREAM]).map(drop)
    }

    /// The stream as its leader knows it; `None`: there is none.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Silent`].
    pub fn info(&self) -> Result<Option<Info>> {
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
        Config::of_log(&self.names, replicas, &[], "").faults(&info.config)
    }

    /// The bucket of the group's runs, made if there is none, kept by so many servers.
    ///
    /// # Errors
    /// [`Error::Bucket`].
    pub fn runs(&self, replicas: usize, placement_tags: &[String]) -> Result<Objects> {
        self.objects(self.names.runs.clone(), replicas, placement_tags)
    }

    /// The bucket of the attachments of the group's messages, as [`JetStream::runs`].
    ///
    /// # Errors
    /// [`Error::Bucket`].
    pub fn files(&self, replicas: usize, placement_tags: &[String]) -> Result<Objects> {
        self.objects(self.names.files.clone(), replicas, placement_tags)
    }

    fn objects(&self, name: String, replicas: usize, placement_tags: &[String]) -> Result<Objects> {
        // The library starts a task for it.
        let _inside = self.runtime.enter();
        let context = async_nats::jetstream::new(self.inner.near.client.clone());
        let opened = objects::open(context, name.clone(), replicas, placement_tags.to_vec());
        match self.runtime.block_on(opened) {
            Ok(opened) => {
                let alive = Arc::clone(&self.alive);
                Ok(Objects::new((self.runtime.clone(), alive), name, opened))
            }
            Err(why) => Err(Error::Bucket(name, why)),
        }
    }

    /// Asks the stream's leader to let the server of that name lead.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Silent`].
    pub fn step_down_for(&self, server: &str) -> Result<()> {
        let subject = self.names.api("STREAM.LEADER.STEPDOWN");
        let preferred = serde_json::json!({ "placement": { "preferred": server } });
        let question = Question::new(subject, preferred.to_string(), ANSWER);
        self.wait(question, api::done, &[]).map(drop)
    }

    fn wait_info(
        &self,
        question: &str,
        payload: Vec<u8>,
        within: Duration,
    ) -> Result<Option<Info>> {
        let question = Question::new(self.names.api(question), payload, within);
        self.wait(question, api::info, &[api::NO_STREAM])
    }

    /// Asks, waits for the reply, and reads it. `None`: it was refused with one of these errors.
    ///
    /// # Errors
    /// [`Error::Refused`] with any other, [`Error::Silent`].
    pub(crate) fn wait<T>(
        &self,
        question: Question,
        read: fn(&[u8]) -> Option<Result<T, Refused>>,
        excused: &[u64],
    ) -> Result<Option<T>> {
        let Question {
            subject,
            payload,
            header,
            within,
        } = question;
        let (answer, answered) = std::sync::mpsc::channel();
        let inner = Arc::clone(&self.inner);
        let requested = subject.clone();
        self.runtime.spawn(async move {
            let reply = ask(&inner.near, requested, payload, header, within).await;
            answer.send(reply).ok();
        });
        let reply = answered.recv().ok().flatten().ok_or(Error::Silent)?;
        match read(&reply) {
            Some(Ok(answer)) => Ok(Some(answer)),
            Some(Err(refused)) if excused.contains(&refused.err_code) => Ok(None),
            Some(Err(refused)) => Err(Error::Refused(subject, refused)),
            None => Err(Error::Silent),
        }
    }

    /// Asks over the second connection and tells what `read` makes of the reply.
    fn ask_far<T: Send + 'static>(
        &self,
        question: &str,
        payload: Vec<u8>,
        callback: ReplyFn<T>,
        read: impl FnOnce(Option<Bytes>) -> T + Send + 'static,
    ) {
        let inner = Arc::clone(&self.inner);
        let subject = self.names.api(question);
        self.runtime.spawn(async move {
            let reply = ask(&inner.far, subject, payload.into(), None, ANSWER).await;
            callback(read(reply));
        });
    }
}

type Lines = (Arc<Line>, Arc<Line>, (String, Subscriber));

/// The runtime of the connections. It looks names up in a thread, which it has from the start and
/// keeps: without any, and where the system gives none, it would end the process.
fn runtime() -> std::io::Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_name(LOOKUPS)
        .thread_keep_alive(Duration::from_secs(u32::MAX.into()))
        .build()?;
    // An error if there is none to be had.
    let other = std::thread::Builder::new().spawn(|| {})?;
    other.join().ok();
    runtime.block_on(runtime.spawn_blocking(|| {})).ok();
    Ok(runtime)
}

async fn connect_twice(servers: &Servers, names: &Names) -> Result<Lines> {
    let addresses = nearest_first(servers).await;
    let near = connect(servers, &addresses, true).await?;
    // The other way round, so that it leads to another server where there is one.
    let reversed: Vec<String> = addresses.iter().rev().cloned().collect();
    let far = connect(servers, &reversed, true).await?;
    let inbox = near.new_inbox();
    let answers = near.subscribe(format!("{inbox}.*")).await;
    let answers = answers
        .map_err(|error| Error::Unreachable(servers.addresses.clone(), error.to_string()))?;
    let line = |client, addresses| {
        let servers = Servers {
            addresses,
            ..servers.clone()
        };
        Line::new(client, servers, names.api("STREAM.INFO"))
    };
    let (near, far) = (line(near, addresses), line(far, reversed));
    Ok((near, far, (inbox, answers)))
}

impl Inner {
    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends appends, in the order they were requested.
    async fn send_all(self: Arc<Self>, mut queue: mpsc::UnboundedReceiver<Append>) {
        while let Some(append) = queue.recv().await {
            // The library would keep it until there is a connection, and send it then beside the
            // copies sent since.
            if !self.near.is_connected() {
                (append.callback)(Answer::Unknown);
                continue;
            }
            let (number, given_up) = {
                let mut waiting = self.waiting();
                let number = waiting.next;
                waiting.next += 1;
                waiting.callback.insert(number, append.callback);
                let oldest = (waiting.callback.len() > UNANSWERED)
                    .then(|| waiting.callback.pop_first())
                    .flatten();
                (number, oldest)
            };
            if let Some((_, callback)) = given_up {
                callback(Answer::Unknown);
            }
            let mut headers = HeaderMap::new();
            headers.insert("Nats-Expected-Stream", self.names.stream.as_str());
            headers.insert(
                "Nats-Expected-Last-Sequence",
                append.expected.to_string().as_str(),
            );
            let reply = format!("{}.{number}", self.inbox);
            self.near.silence().appended(Instant::now());
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
            match answer {
                Answer::Stored(_) => self.near.silence().stored(),
                // A leader says no by itself, also one that its peers cannot reach.
                Answer::Wrong | Answer::Full(_) | Answer::Unknown => {}
            }
            self.answer(number, answer);
        }
    }

    fn answer(&self, number: u64, answer: Answer) {
        let callback = self.waiting().callback.remove(&number);
        if let Some(callback) = callback {
            callback(answer);
        }
    }
}

impl Stream for JetStream {
    fn name(&self) -> String {
        format!("JetStream's {}", self.names.stream)
    }

    fn append(&self, expected: Seq, entry: Bytes, callback: ReplyFn<Answer>) {
        let append = Append {
            expected,
            entry,
            callback,
        };
        if let Err(unsent) = self.appends.send(append) {
            (unsent.0.callback)(Answer::Unknown);
        }
    }

    fn ends(&self, callback: ReplyFn<Option<Ends>>) {
        let inner = Arc::clone(&self.inner);
        self.runtime.spawn(async move {
            let (far, near) = (
                ends(&inner.far, &inner.names),
                ends(&inner.near, &inner.names),
            );
            callback(newer(pin!(far), pin!(near)).await);
        });
    }

    fn get(&self, seq: Seq, callback: ReplyFn<EntryLookup>) {
        let question = format!("{{\"seq\":{seq}}}");
        self.ask_far("STREAM.MSG.GET", question.into(), callback, move |reply| {
            reply.map_or(EntryLookup::Unknown, |reply| api::found(seq, &reply))
        });
    }

    fn tail(&self, from: Seq, each: Box<dyn FnMut(TailEvent) + Send>) -> Tail {
        let (near, names) = (Arc::clone(&self.inner.near), self.names.clone());
        let task = self.runtime.spawn(tail::follow(near, names, from, each));
        Tail::new(Following(task))
    }

    fn purge_below(&self, seq: Seq, callback: ReplyFn<bool>) {
        // Asked for less, the servers empty the whole stream.
        assert!(seq >= Seq(2), "a purge below {seq} would take everything");
        let question = format!("{{\"seq\":{seq}}}");
        self.ask_far("STREAM.PURGE", question.into(), callback, |reply| {
            matches!(reply.and_then(|reply| api::done(&reply)), Some(Ok(())))
        });
    }

    fn distrust(
        &self,
        ends: Ends,
        bad: &[String],
        doubted: &[String],
        callback: ReplyFn<Distrusted>,
    ) {
        let (bad, doubted) = (bad.to_vec(), doubted.to_vec());
        let inner = Arc::clone(&self.inner);
        self.runtime.spawn(async move {
            let names = &inner.names;
            let requested =
                |question, payload| ask(&inner.far, names.api(question), payload, None, ANSWER);
            let reply = requested("STREAM.INFO", Bytes::new()).await;
            let info = reply.and_then(|reply| api::info(&reply)?.ok());
            let came = match info.and_then(|info| successor(&info, &ends, &bad, &doubted)) {
                None => Distrusted::Unknown,
                Some((leader, None)) => Distrusted::NoOther(leader),
                Some((leader, Some(next))) => {
                    let question = serde_json::json!({ "placement": { "preferred": next } });
                    let payload = Bytes::from(question.to_string());
                    let reply = requested("STREAM.LEADER.STEPDOWN", payload).await;
                    match reply.and_then(|reply| api::done(&reply)) {
                        Some(Ok(())) => Distrusted::Requested(leader),
                        Some(Err(_)) | None => Distrusted::Unknown,
                    }
                }
            };
            callback(came);
        });
    }
}

/// The newer of two answers, of which the later one is waited for for [`SECOND`] only: a machine
/// that went silent would hold up a takeover by as long as it takes to notice.
async fn newer<A: Answering, B: Answering>(one: A, other: B) -> Option<Ends> {
    let (first, rest) = match select(one, other).await {
        Either::Left((first, rest)) => (first, Either::Left(rest)),
        Either::Right((first, rest)) => (first, Either::Right(rest)),
    };
    if first.is_none() {
        return rest.await;
    }
    let second = timeout(SECOND, rest).await.ok().flatten();
    first.into_iter().chain(second).max_by_key(|ends| ends.last)
}

/// A question for the ends of the stream.
trait Answering: Future<Output = Option<Ends>> + Unpin {}
impl<F: Future<Output = Option<Ends>> + Unpin> Answering for F {}

/// The names of who leads and of who could lead in its place; `None`: nobody can tell, or what the
/// stream has is not what is distrusted. Absent: there is nobody else.
fn successor(
    info: &Info,
    ends: &Ends,
    bad: &[String],
    doubted: &[String],
) -> Option<(String, Option<String>)> {
    let now = info.ends();
    let same =
        now.leader == ends.leader && now.first == ends.first && now.missing() == ends.missing();
    let Some(peers) = &info.cluster else {
        return same.then(|| (api::ONLY.to_owned(), None));
    };
    let leader = peers.leader.clone().filter(|_| same)?;
    let others = &peers.replicas;
    let mut untried = others.iter().filter(|peer| !bad.contains(&peer.name));
    let fit = untried
        .clone()
        .filter(|peer| peer.current && !peer.offline)
        .min_by_key(|peer| doubted.contains(&peer.name));
    match fit {
        Some(peer) => Some((leader, Some(peer.name.clone()))),
        // One that is away may have all of it.
        None if untried.next().is_some() => None,
        None => Some((leader, None)),
    }
}

/// A task that ends when this goes.
struct Following(tokio::task::JoinHandle<()>);

impl Drop for Following {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, pending, ready};

    use quintet_cluster::{Ends, Seq};

    use super::{LOOKUPS, newer, runtime, successor};
    use crate::api;

    /// The system may give none later.
    #[test]
    fn the_thread_that_looks_names_up_is_there_before_the_first_name() {
        let _runtime = runtime().expect("there are threads");
        let is_named = |thread: std::io::Result<std::fs::DirEntry>| {
            let comm = thread.expect("an entry").path().join("comm");
            // Others end meanwhile.
            std::fs::read_to_string(comm).is_ok_and(|name| name.trim() == LOOKUPS)
        };
        let mut threads = std::fs::read_dir("/proc/self/task").expect("Linux has it");
        assert!(threads.any(is_named));
    }

    #[tokio::test]
    async fn the_newer_of_two_answers_counts_and_one_is_enough() {
        let to = |last| Some(Ends::whole(Seq(1), Seq(last)));
        let callback = |last| -> Ready<Option<Ends>> { ready(to(last)) };
        let silent = || Box::pin(pending::<Option<Ends>>());
        assert_eq!(newer(callback(5), silent()).await, to(5));
        assert_eq!(newer(silent(), callback(5)).await, to(5));
        assert_eq!(newer(callback(5), ready(None)).await, to(5));
        assert_eq!(newer(ready(None), callback(5)).await, to(5));
        assert_eq!(newer(ready(None), ready(None)).await, None);
        // A leader that its peers cannot reach does not know of the newest.
        assert_eq!(newer(callback(5), callback(7)).await, to(7));
        assert_eq!(newer(callback(7), callback(5)).await, to(7));
    }

    #[test]
    fn each_other_server_gets_one_request_to_lead_for_a_damaged_copy() {
        let callback = |leader: &str, peers: [(&str, bool); 2]| {
            let replicas = peers.map(|(name, current)| {
                serde_json::json!({"name": name, "current": current, "active": 1})
            });
            let config =
                serde_json::to_value(api::Config::of_log(&api::Names::of("a", 0), 3, &[], "1"));
            let info = serde_json::json!({
                "config": config.expect("JSON"),
                "created": "2026-01-01T00:00:00Z",
                "state": {"first_seq": 202, "last_seq": 300, "messages": 99},
                "cluster": {"leader": leader, "replicas": replicas},
            });
            let info = api::info(info.to_string().as_bytes()).expect("info");
            info.expect("no error")
        };
        let ends = Ends {
            leader: Some("n0".into()),
            ..Ends::whole(Seq(202), Seq(290))
        };
        let owned = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        let requested = |info, bad: &[&str]| successor(&info, &ends, &owned(bad), &owned(bad));
        let to =
            |leader: &str, next: Option<&str>| Some((leader.to_owned(), next.map(str::to_owned)));
        let n0 = || callback("n0", [("n1", true), ("n2", true)]);
        assert_eq!(requested(n0(), &[]), to("n0", Some("n1")));
        assert_eq!(requested(n0(), &["n1"]), to("n0", Some("n2")));
        assert_eq!(requested(n0(), &["n1", "n2"]), to("n0", None));
        // One that was distrusted before a whole copy led is asked last.
        let doubting =
            |bad: &[&str], doubted: &[&str]| successor(&n0(), &ends, &owned(bad), &owned(doubted));
        assert_eq!(doubting(&[], &["n1"]), to("n0", Some("n2")));
        assert_eq!(doubting(&["n2"], &["n1", "n2"]), to("n0", Some("n1")));
        // Somebody else leads by now, whose copy looks the same.
        assert_eq!(
            requested(callback("n1", [("n0", true), ("n2", true)]), &[]),
            None
        );
        // One that is behind may have all of it later.
        let behind = callback("n0", [("n1", true), ("n2", false)]);
        assert_eq!(requested(behind, &["n1"]), None);
        // Somebody else leads by now, whose copy is another.
        let whole = Ends {
            first: Seq(1),
            count: 300,
            ..ends.clone()
        };
        assert_eq!(successor(&n0(), &whole, &[], &[]), None);
        // Nobody else can lead where one server keeps the stream.
        let mut lone = n0();
        lone.cluster = None;
        let (leader, next) = successor(&lone, &lone.ends(), &[], &[]).expect("it is known");
        assert!(next.is_none() && !leader.is_empty());
    }
}
