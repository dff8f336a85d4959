//! The command line of a load.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::load::Load;
use crate::polls::{Polls, PollsReport};
use crate::progress::Bar;
use crate::report::Report;
use crate::target::Target;
use crate::tls::Tls;
use crate::units::{micros, thousands};

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
    /// The old name of --protocol.
    #[arg(long, hide = true, value_parser = renamed)]
    voice: Option<bool>,
    #[command(flatten)]
    load: Load,
    /// Long polls that wait at the same time, instead of a load (protocol sqs).
    #[arg(long, value_name = "N", conflicts_with_all = NO_LOAD)]
    polls: Option<usize>,
    /// Process id of the server, to print its memory.
    #[arg(long, value_name = "PID", requires = "polls")]
    pid: Option<u32>,
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
    fn load(&self) -> Result<Load> {
        let supplied = self.target.as_deref();
        let host = supplied.and_then(|supplied| supplied.strip_prefix("tls://"));
        let target = match host.or(supplied) {
            Some(text) => Target::parse(text).map_err(anyhow::Error::msg)?,
            None => Target::local(self.load.protocol.port),
        };
        let secret = self.tls || host.is_some();
        let files = self.ca.is_some() || self.cert.is_some();
        ensure!(secret || !files, "--ca and --cert need --tls");
        let shown = self.cert.clone().zip(self.key.clone());
        let name = host.or(supplied.filter(|text| text.contains(':')));
        let tls = || Tls::new(name.unwrap_or("localhost"), self.ca.clone(), shown);
        Ok(Load {
            target,
            tls: secret.then(tls).transpose()?,
            ..self.load.clone()
        })
    }

    /// Runs the load with a live line and prints what it found.
    ///
    /// # Errors
    /// As [`Load::run`], or standard output is closed.
    pub fn run(&self) -> Result<()> {
        let load = self.load()?;
        let (json, words) = match self.polls {
            None => {
                let report = load.measure("bench", &mut |_| {})?;
                let words = format!("{}\n{}", load.describe(), in_words(&report));
                (json!({ "load": load.to_json(), "report": report }), words)
            }
            Some(count) => {
                let polls = Polls::new(load, count, self.pid)?;
                let bar = Bar::new("bench", polls.load.time);
                let report = polls.run(&mut |live| bar.show(live))?;
                drop(bar);
                let words = polls_in_words(&polls, &report);
                (json!({ "polls": polls.to_json(), "report": report }), words)
            }
        };
        let mut out = std::io::stdout().lock();
        match self.json {
            true => writeln!(out, "{json}")?,
            false => writeln!(out, "{words}")?,
        }
        Ok(())
    }
}

/// So many of something, where there are any.
fn line_of(count: u64, what: &str) -> String {
    match count {
        0 => String::new(),
        count => format!("\n{} {what}", thousands(count as f64)),
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
        let [before, resident] = [before, resident].map(|bytes| bytes as f64 / f64::from(1 << 20));
        text += &format!("\nresident  {before:.1} MiB before, {resident:.1} MiB with all of them");
    }
    let renewed = "polls ended without a message and were repeated";
    text + &line_of(report.renewed, renewed)
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
    text += &line_of(report.empty, "takes found nothing");
    text + &line_of(report.unanswered, "requests got no reply")
}
