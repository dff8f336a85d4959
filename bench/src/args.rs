//! The command line of a load.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::json;

use crate::load::Load;
use crate::mix::Mix;
use crate::polls::{Polls, PollsReport};
use crate::progress::{Bar, micros, thousands};
use crate::protocol::Protocol;
use crate::report::Report;
use crate::target::Target;
use crate::tls::Tls;

const EXAMPLES: &str = "\
Examples:
  quintet bench                                    ten seconds against memcache on this machine
  quintet bench --connections 200 --size 1KiB
  quintet bench --depth 16 --mix put --count 1000000
  quintet bench --protocol http --keys 1000 --queues 1
  quintet bench --rate 20000 --time 1m             latency under a steady load
  quintet bench --protocol lineup --target :9876 --json
  quintet bench --protocol resp --target :6379        Redis, by the same client
  quintet bench --target tls://localhost:22133 --ca data/tls-self-signed.crt
  quintet bench --protocol sqs --polls 10000 --pid 4711   memory and latency of 10,000 long polls

Every load ends after --time, or earlier after --count requests. The queues are bench0000, bench0001
and so on; a mix with more puts than takes leaves messages there.

Without --rate each connection sends --depth requests at once and waits for all replies.
With --rate each request has a planned time. Its latency counts from this time, even if a slow
server made it leave later.

With --polls there is no such load. Each poll waits on its own connection. Bench sends 100
messages, or --count, one after the other, and prints the time that each needs to wake a poll. With
--pid it also prints the memory of the server while all polls wait.";

/// Arguments of loads alone, and not of polls.
const NO_LOAD: [&str; 9] = [
    "connections",
    "idle",
    "openings",
    "depth",
    "mix",
    "rate",
    "keys",
    "fill",
    "threads",
];
/// Messages that wake polls, unless told otherwise.
const SENDS: u64 = 100;

/// Arguments of a load.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Address of the server: HOST:PORT, :PORT, PORT, unix:PATH or tls://HOST:PORT [default: the
    /// port of the protocol on this machine].
    #[arg(long, value_name = "ADDR")]
    target: Option<String>,
    /// Use TLS.
    #[arg(long)]
    tls: bool,
    /// CA certificates for the server, or its own certificate [default: the system's CAs].
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Client certificate.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Key of the client certificate.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Extra connections to open each second, each closed after its handshake.
    #[arg(long, value_name = "N", default_value_t = 0.0)]
    openings: f64,
    /// Protocol: memcache, lineup, jobqueue, beanstalk, beanstalk-priorities, faktory, pinpriq,
    /// http, sqs, sqs-ten (ten messages a request), resp or echo.
    #[arg(long, default_value = "memcache", value_parser = Protocol::named)]
    protocol: Protocol,
    /// The old name of --protocol.
    #[arg(long, hide = true, value_parser = renamed)]
    voice: Option<bool>,
    /// Allow a server on another machine.
    #[arg(long)]
    remote: bool,
    /// Connections that send requests, 1 to 100000.
    #[arg(long, value_name = "N", default_value_t = 50)]
    connections: usize,
    /// Extra connections that stay idle.
    #[arg(long, value_name = "N", default_value_t = 0)]
    idle: usize,
    /// Requests in flight on each connection, 1 to 100000.
    #[arg(long, value_name = "N", default_value_t = 1)]
    depth: usize,
    /// Size of a message, such as 64 or 8MiB.
    #[arg(long, value_name = "SIZE", default_value = "64", value_parser = size)]
    size: usize,
    /// put+take, put, take, or PUTS:TAKES such as 3:1.
    #[arg(long, default_value = "put+take", value_parser = Mix::parse)]
    mix: Mix,
    /// Requests a second over all connections [default: as fast as replies come].
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Duration of the load, such as 500ms, 10s or 2m.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    time: Duration,
    /// Largest number of requests.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Prefix of the queue names.
    #[arg(long, value_name = "NAME", default_value = "bench")]
    queue: String,
    /// Number of queues that the connections share [default: each connection has its own].
    #[arg(long, value_name = "N")]
    queues: Option<usize>,
    /// Give the messages N keys in turn (protocol http).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    keys: Option<u64>,
    /// Messages to put before the load; they do not count.
    #[arg(long, value_name = "N", default_value_t = 0)]
    fill: u64,
    /// Long polls that wait at the same time, instead of a load (protocol sqs).
    #[arg(long, value_name = "N", conflicts_with_all = NO_LOAD)]
    polls: Option<usize>,
    /// Process id of the server, to print its memory.
    #[arg(long, value_name = "PID", requires = "polls")]
    pid: Option<u32>,
    /// Threads of the client, 1 to 64.
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Refuses `--voice`.
fn renamed(_: &str) -> Result<bool, &'static str> {
    Err("--voice is called --protocol now")
}

impl Args {
    /// The load they ask for.
    ///
    /// # Errors
    /// There is no such address, or the files of TLS are not what they should be.
    pub fn load(&self) -> Result<Load> {
        let (target, tls) = self.server()?;
        Ok(Load {
            target,
            tls,
            openings: self.openings,
            protocol: self.protocol,
            remote: self.remote,
            connections: self.connections,
            idle: self.idle,
            depth: self.depth,
            size: self.size,
            mix: self.mix,
            rate: self.rate,
            time: self.time,
            count: self.count,
            queue: self.queue.clone(),
            queues: self.queues,
            keys: self.keys,
            fill: self.fill,
            threads: self.threads,
        })
    }

    /// So many polls, where they are asked for.
    ///
    /// # Errors
    /// As [`Args::load`]; the protocol has none.
    fn waiting(&self, polls: usize) -> Result<Polls> {
        if self.protocol.name != "sqs" {
            bail!("--polls needs --protocol sqs, not {}", self.protocol.name);
        }
        let (target, tls) = self.server()?;
        Ok(Polls {
            target,
            tls,
            remote: self.remote,
            polls,
            queues: self.queues.unwrap_or(polls),
            queue: self.queue.clone(),
            size: self.size,
            sends: self.count.unwrap_or(SENDS),
            time: self.time,
            pid: self.pid,
        })
    }

    fn server(&self) -> Result<(Target, Option<Tls>)> {
        let supplied = self.target.as_deref();
        let host = supplied.and_then(|supplied| supplied.strip_prefix("tls://"));
        let target = match host.or(supplied) {
            Some(text) => Target::parse(text).map_err(anyhow::Error::msg)?,
            None => Target::local(self.protocol.port),
        };
        let secret = self.tls || host.is_some();
        if !secret && (self.ca.is_some() || self.cert.is_some()) {
            bail!("--ca and --cert need --tls");
        }
        let shown = self.cert.clone().zip(self.key.clone());
        let name = host.or(supplied.filter(|text| text.contains(':')));
        let tls = match secret {
            true => Some(Tls::new(
                name.unwrap_or("localhost"),
                self.ca.clone(),
                shown,
            )?),
            false => None,
        };
        Ok((target, tls))
    }

    /// Runs the load with a live line and prints what it found.
    ///
    /// # Errors
    /// As [`Load::run`], or standard output is closed.
    pub fn run(&self) -> Result<()> {
        if let Some(polls) = self.polls {
            return self.run_polls(&self.waiting(polls)?);
        }
        let load = self.load()?;
        let bar = Bar::new("bench", load.time);
        let report = load.run(&mut |live| bar.show(live));
        bar.clear();
        let report = report?;
        let mut out = std::io::stdout().lock();
        if self.json {
            let all = json!({ "load": load.to_json(), "report": report });
            writeln!(out, "{all}")?;
        } else {
            writeln!(out, "{}", load.describe())?;
            writeln!(out, "{}", in_words(&report))?;
        }
        Ok(())
    }

    fn run_polls(&self, polls: &Polls) -> Result<()> {
        let bar = Bar::new("bench", polls.time);
        let report = polls.run(&mut |live| bar.show(live));
        bar.clear();
        let report = report?;
        let mut out = std::io::stdout().lock();
        if self.json {
            let all = json!({ "polls": polls.to_json(), "report": report });
            writeln!(out, "{all}")?;
        } else {
            writeln!(out, "{}", polls_in_words(polls, &report))?;
        }
        Ok(())
    }
}

fn polls_in_words(polls: &Polls, report: &PollsReport) -> String {
    let count = |value: usize| thousands(value as f64);
    let mut text = format!(
        "{} polls over {} queues, opened in {:.2} s\na send wakes one in  p50 {}  p90 {}  p99 {}  \
         max {}  ({} sends)",
        count(polls.polls),
        count(polls.queues),
        report.opened_s,
        micros(report.wake.p50_us),
        micros(report.wake.p90_us),
        micros(report.wake.p99_us),
        micros(report.wake.max_us),
        thousands(report.sends as f64),
    );
    if let (Some(before), Some(resident)) = (report.resident_before, report.resident) {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        text += &format!(
            "\nresident  {:.1} MiB before, {:.1} MiB with all of them",
            mib(before),
            mib(resident)
        );
    }
    if report.renewed > 0 {
        let renewed = thousands(report.renewed as f64);
        text += &format!("\n{renewed} polls ended without a message and were repeated");
    }
    text
}

fn in_words(report: &Report) -> String {
    let latency = &report.latency;
    let mut text = format!(
        "{} requests/s  ({} puts, {} takes in {:.2} s)\nlatency  p50 {}  p90 {}  p99 {}  p99.9 \
         {}  max {}",
        thousands(report.rate),
        thousands(report.puts as f64),
        thousands(report.takes as f64),
        report.seconds,
        micros(latency.p50_us),
        micros(latency.p90_us),
        micros(latency.p99_us),
        micros(latency.p999_us),
        micros(latency.max_us),
    );
    if let Some(openings) = &report.openings {
        text += &format!(
            "\n{} connections opened a second, each in  p50 {}  p99 {}  max {}",
            thousands(openings.rate),
            micros(openings.latency.p50_us),
            micros(openings.latency.p99_us),
            micros(openings.latency.max_us),
        );
    }
    if report.empty > 0 {
        text += &format!("\n{} takes found nothing", thousands(report.empty as f64));
    }
    if report.unanswered > 0 {
        text += &format!(
            "\n{} requests got no reply",
            thousands(report.unanswered as f64)
        );
    }
    text
}

/// A number with one of some units.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

fn size(text: &str) -> Result<usize, String> {
    let units = [
        ("", 1),
        ("B", 1),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
    ];
    with_unit(text, &units)
        .and_then(|bytes| usize::try_from(bytes).ok())
        .ok_or_else(|| format!("\"{text}\" is not a size; write a number of bytes or \"8MiB\""))
}

fn time(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];
    with_unit(text, &units)
        .map(Duration::from_millis)
        .ok_or_else(|| format!("\"{text}\" is not a time; write \"500ms\", \"10s\" or \"2m\""))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{size, time};

    #[test]
    fn sizes_and_times() {
        assert_eq!((size("64"), size("8MiB")), (Ok(64), Ok(8 << 20)));
        assert_eq!(time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(time("2m"), Ok(Duration::from_secs(120)));
        for text in ["", "x", "8 parsecs", "-1", "99999999999999999999"] {
            assert!(size(text).is_err() && time(text).is_err(), "{text}");
        }
        assert!(time("10").is_err(), "a time needs its unit");
    }
}
