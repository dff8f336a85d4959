//! A load: how much of what, and running it.

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser as _;
use serde_json::{Value, json};

use crate::conn::Conn;
use crate::mix::Mix;
use crate::pace::Pace;
use crate::progress::Bar;
use crate::protocol::{Keys, Protocol, pinpriq};
use crate::report::{Live, Report};
use crate::stream::Stream;
use crate::target::Target;
use crate::tls::{Openers, Tls};
use crate::units;
use crate::worker::{LoadResults, SILENCE, Worker, lock};

/// Idle connections at most.
const IDLE_MAX: usize = 100_000;
/// Connections at most.
pub(crate) const CONNECTIONS_MAX: usize = 100_000;
/// Requests of one connection without a reply at most.
const DEPTH_MAX: usize = 100_000;
/// Bytes of a message at most.
const SIZE_MAX: usize = 1 << 30;
/// Bytes this process may need for requests.
const BUFFERS_MAX: usize = 2 << 30;
/// Bytes of a queue's name before its number at most.
const QUEUE_BYTES_MAX: usize = 100;
/// Threads at most.
const THREADS_MAX: usize = 64;
/// Requests a second at most.
const RATE_MAX: f64 = 1e8;
/// Longest load.
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);
/// Longest time to put what is put beforehand.
const FILL_TIME_MAX: Duration = Duration::from_secs(3600);
/// Depth of the puts beforehand.
const FILL_DEPTH: usize = 64;
/// How far apart the keys of connections begin: a prime, so that few meet.
const KEYS_APART: u64 = 7919;
/// How often somebody may look at a load under way.
const LOOK: Duration = Duration::from_millis(250);

/// A load; its defaults are those of the command line.
#[derive(clap::Parser, Clone, Debug)]
pub struct Load {
    /// The server.
    #[arg(skip = Target::local(0))]
    pub target: Target,
    /// TLS, if the server speaks it there.
    #[arg(skip)]
    pub tls: Option<Tls>,
    /// Extra connections to open each second, each closed after its handshake.
    #[arg(long, value_name = "N", default_value_t = 0.0)]
    pub openings: f64,
    /// Protocol: memcache, lineup, jobqueue, beanstalk, beanstalk-priorities, faktory, pinpriq,
    /// http, sqs, sqs-ten (ten messages a request), resp or echo.
    #[arg(long, default_value = "memcache", value_parser = Protocol::named)]
    pub protocol: Protocol,
    /// Allow a server on another machine.
    #[arg(long)]
    pub remote: bool,
    /// Connections that send requests, 1 to 100000.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub connections: usize,
    /// Extra connections that stay idle.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub idle: usize,
    /// Requests in flight on each connection, 1 to 100000.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub depth: usize,
    /// Size of a message, such as 64 or 8MiB.
    #[arg(long, value_name = "SIZE", default_value = "64", value_parser = units::size)]
    pub size: usize,
    /// put+take, put, take, or PUTS:TAKES such as 3:1.
    #[arg(long, default_value = "put+take", value_parser = Mix::parse)]
    pub mix: Mix,
    /// Requests a second over all connections [default: as fast as replies come].
    #[arg(long, value_name = "N")]
    pub rate: Option<f64>,
    /// Duration of the load, such as 500ms, 10s or 2m.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::time)]
    pub time: Duration,
    /// Largest number of requests.
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Prefix of the queue names.
    #[arg(long, value_name = "NAME", default_value = "bench")]
    pub queue: String,
    /// Number of queues that the connections share [default: each connection has its own].
    #[arg(long, value_name = "N")]
    pub queues: Option<usize>,
    /// Give the messages N keys in turn (protocol http).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub keys: Option<u64>,
    /// Messages to put before the load; they do not count.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub fill: u64,
    /// Threads of the client, 1 to 64.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: usize,
}

impl Load {
    /// Ten seconds of one put and one take in turn, 64 B, over 50 connections
    /// each with its own queue, in a closed loop.
    pub fn new(target: Target, protocol: Protocol) -> Self {
        Self {
            target,
            protocol,
            ..Self::parse_from([""])
        }
    }

    /// In one line.
    pub fn describe(&self) -> String {
        let pace = match self.rate {
            Some(rate) => format!("{rate} requests/s"),
            None => "closed loop".to_owned(),
        };
        format!(
            "{} of {} B over {}{}, {} connections, depth {}, {pace}, {:?}",
            self.mix,
            self.size,
            self.protocol.name,
            if self.tls.is_some() { " under TLS" } else { "" },
            self.connections,
            self.depth,
            self.time
        )
    }

    /// For a result file; without the address, which says nothing.
    pub fn to_json(&self) -> Value {
        json!({
            "protocol": self.protocol.name,
            "voice": self.protocol.name, // its old name, for one release
            "connections": self.connections,
            "idle": self.idle,
            "tls": self.tls.is_some(),
            "openings": self.openings,
            "depth": self.depth,
            "size": self.size,
            "mix": self.mix.to_string(),
            "rate": self.rate,
            "seconds_max": self.time.as_secs_f64(),
            "count_max": self.count,
            "queues": self.queues,
            "keys": self.keys,
            "fill": self.fill,
            "threads": self.threads,
        })
    }

    /// Runs it; `observe` is shown how it goes several times a second.
    ///
    /// # Errors
    /// The load is not a sensible one, the server cannot be reached, breaks a
    /// connection, answers wrongly or falls silent. A server on another
    /// machine is refused unless `remote` is set, before any byte is sent.
    pub fn run(&self, observe: &mut dyn FnMut(Live)) -> Result<Report> {
        self.check()?;
        raise_file_limit(self.connections + self.idle);
        if self.fill > 0 {
            self.put_beforehand(observe)?;
        }
        let idle = (0..self.idle).map(|_| self.connect());
        let mut idle: Vec<Stream> = idle.collect::<Result<_>>()?;
        let found = Arc::<Mutex<LoadResults>>::default();
        let workers = self.share_out(&found)?;
        let openers = (self.openings > 0.0)
            .then(|| Openers::start(&self.target, self.tls.as_ref(), self.openings))
            .transpose()?;
        let start = Instant::now();
        let (ended, end) = mpsc::channel();
        let mut running = workers.len();
        for worker in workers {
            let ended = ended.clone();
            let thread = std::thread::Builder::new().name("load".into());
            // The receiver is gone only if another thread failed.
            let work = move || drop(ended.send(worker.run(start)));
            thread.spawn(work).context("cannot start a thread")?;
        }
        drop(ended);
        let mut seen = (0.0, 0);
        while running > 0 {
            match end.recv_timeout(LOOK) {
                Ok(done) => {
                    done?;
                    running -= 1;
                }
                Err(mpsc::RecvTimeoutError::Timeout) => observe(live(&found, start, &mut seen)),
                Err(mpsc::RecvTimeoutError::Disconnected) => bail!("a thread of the load failed"),
            }
        }
        idle.retain(|stream| !stream.is_open());
        let closed = idle.len();
        ensure!(closed == 0, "the server closed {closed} idle connections");
        let mut report = report(&lock(&found));
        if let Some(openers) = openers {
            report.openings = Some(openers.stop()?);
        }
        Ok(report)
    }

    /// # Errors
    /// The target is remote without leave, or a number is out of its range.
    fn check(&self) -> Result<()> {
        self.check_target()?;
        within("connections", self.connections, 1..=CONNECTIONS_MAX)?;
        within("idle connections", self.idle, 0..=IDLE_MAX)?;
        within("depth", self.depth, 1..=DEPTH_MAX)?;
        let protocol = self.protocol.name;
        ensure!(
            self.keys.is_none() || protocol == "http",
            "the protocol {protocol} does not support --keys: use --protocol http"
        );
        let least = usize::from(protocol == "echo");
        let most = match protocol {
            "pinpriq" => pinpriq::PAYLOAD_MAX,
            _ => SIZE_MAX,
        };
        within("size", self.size, least..=most)?;
        within("threads", self.threads, 1..=THREADS_MAX)?;
        within("queues", self.queues.unwrap_or(1), 1..=CONNECTIONS_MAX)?;
        // One copy prepared, and up to a whole round on its way out.
        let buffers = (self.size + 128).saturating_mul((self.depth + 1) * self.connections);
        ensure!(
            buffers <= BUFFERS_MAX,
            "size x depth x connections would need {buffers} bytes; make one smaller"
        );
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        ensure!(
            self.queue.len() <= QUEUE_BYTES_MAX && self.queue.bytes().all(plain),
            "a queue is named with letters, digits, - _ and ., {QUEUE_BYTES_MAX} at most"
        );
        ensure!(
            !self.time.is_zero() && self.time <= TIME_MAX,
            "the time must be above zero and at most {TIME_MAX:?}"
        );
        ensure!(
            (0.0..=RATE_MAX).contains(&self.openings),
            "connections are opened {RATE_MAX} times a second at most"
        );
        let rate = self.rate.unwrap_or(1.0);
        ensure!(
            rate > 0.0 && rate <= RATE_MAX,
            "the rate must be above zero and at most {RATE_MAX} a second"
        );
        Ok(())
    }

    /// # Errors
    /// The target is remote without leave.
    pub(crate) fn check_target(&self) -> Result<()> {
        ensure!(
            self.remote || self.target.is_local(),
            "{} is not on this machine; give --remote if the load may go there",
            self.target
        );
        Ok(())
    }

    fn put_beforehand(&self, observe: &mut dyn FnMut(Live)) -> Result<()> {
        let mut first = self.clone();
        first.fill = 0;
        first.idle = 0;
        first.openings = 0.0;
        first.depth = FILL_DEPTH
            .min(BUFFERS_MAX / (self.size + 128) / self.connections)
            .max(1);
        first.mix = Mix::PUT;
        first.rate = None;
        first.count = Some(self.fill);
        first.time = FILL_TIME_MAX;
        let report = first.run(observe).context("while putting beforehand")?;
        let puts = report.puts;
        ensure!(
            puts >= self.fill,
            "only {puts} messages could be put beforehand"
        );
        Ok(())
    }

    pub(crate) fn connect(&self) -> Result<Stream> {
        Stream::connect(&self.target, self.tls.as_ref())
            .with_context(|| format!("cannot connect to {}", self.target))
    }

    /// Runs it as [`Load::run`], with a line named `what` on a terminal meanwhile.
    ///
    /// # Errors
    /// As [`Load::run`].
    pub fn measure(&self, what: &str, observe: &mut dyn FnMut(Live)) -> Result<Report> {
        let bar = Bar::new(what, self.time);
        self.run(&mut |live| {
            bar.show(live);
            observe(live);
        })
    }

    /// The threads to be, with their connections open.
    fn share_out(&self, found: &Arc<Mutex<LoadResults>>) -> Result<Vec<Worker>> {
        let threads = self.threads.min(self.connections);
        let end = units::nanos(self.time);
        let body: Arc<[u8]> = body(self.size).into();
        let queues = self.queues.unwrap_or(self.connections);
        let mut workers = Vec::with_capacity(threads);
        for thread in 0..threads {
            let share = |of: u64| {
                let (thread, threads) = (thread as u64, threads as u64);
                of / threads + u64::from(thread < of % threads)
            };
            let count = self.count.map_or(u64::MAX, share);
            let mut conns = Vec::new();
            for number in (thread..self.connections).step_by(threads) {
                let queue = format!("{}{:04}", self.queue, number % queues);
                let first = number as u64 * KEYS_APART;
                let keys = self.keys.map(|of| Keys::new(first, of));
                let speaker = (self.protocol.open)(&queue, &body, keys);
                conns.push(Conn::new(self.connect()?, speaker, Arc::clone(&body)));
            }
            let pace = self.rate;
            let pace = pace.map(|rate| Pace::new(rate, thread, threads, count, end));
            let found = Arc::clone(found);
            let worker = Worker::new(conns, self.depth, self.mix, count, end, pace, found)?;
            workers.push(worker);
        }
        Ok(workers)
    }
}

/// Refuses a number out of its range.
pub(crate) fn within(what: &str, value: usize, range: RangeInclusive<usize>) -> Result<()> {
    let (least, most) = (range.start(), range.end());
    let fits = range.contains(&value);
    ensure!(fits, "{what} must be {least} to {most}, not {value}");
    Ok(())
}

/// Bytes of every message: the letters, again and again.
pub(crate) fn body(size: usize) -> Vec<u8> {
    (0..size).map(|at| b'a' + (at % 26) as u8).collect()
}

fn live(found: &Mutex<LoadResults>, start: Instant, seen: &mut (f64, u64)) -> Live {
    let mut found = lock(found);
    let seconds = start.elapsed().as_secs_f64();
    let requests = found.total.count();
    let live = Live {
        seconds,
        requests,
        rate: (requests - seen.1) as f64 / (seconds - seen.0),
        p99_us: found.window.latency().p99_us,
    };
    found.window.clear();
    *seen = (seconds, requests);
    live
}

fn report(found: &LoadResults) -> Report {
    let requests = found.counts.puts + found.counts.takes;
    let seconds = match found.last {
        0 => SILENCE.as_secs_f64(),
        last => last as f64 / 1e9,
    };
    Report {
        requests,
        seconds,
        rate: requests as f64 / seconds,
        latency: found.total.latency(),
        ..found.counts
    }
}

/// Files a load may have open beside its connections: two of each thread, and some.
const OTHER_FILES: u64 = 192;

/// How many connections this process may have open at most, if that is limited.
pub fn connections_max() -> Option<usize> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let most = limit.maximum?.saturating_sub(OTHER_FILES);
    usize::try_from(most).ok()
}

/// Lets this process have `connections` open files and some more, as far as
/// the system allows; opening them says so if it does not.
pub fn raise_file_limit(connections: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let wanted = connections as u64 + OTHER_FILES;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
        let raised = Rlimit {
            current: Some(raised),
            maximum: limit.maximum,
        };
        setrlimit(Resource::Nofile, raised).ok();
    }
}
