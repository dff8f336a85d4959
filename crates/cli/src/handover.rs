//! `quintet cluster move`, `drain` and `undrain`: which node owns the queues, and which should not.

use std::io::{Write as _, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use quintet_nodes::{DRAIN, Fault, MOVE, NodeReport, REPORT_OF, Reply, Successor, UNDRAIN};
use quintet_proxy::line::Question;

use super::node::{Node, ask};

/// A node asks others before it answers, which takes a few seconds where one is gone.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two questions whether it is done.
const AGAIN: Duration = Duration::from_millis(20);

pub(super) const CODES: &str = "\
Exit code: 0 done, 1 not understood or another node became the owner, 3 no such node, 4 no node
could serve at once, 5 the node is drained, 6 no node owns the queues, 7 JetStream has no quorum, 8
not done in time; it may still happen.
";

#[derive(clap::Args)]
#[command(after_help = format!("{CODES}
Plain connections without state are kept, others close. Clients wait at any node until the other
node owns the queues, mostly less than 0.2 s.

Examples:
  quintet cluster move 0 b
  quintet cluster move 0 b --data /var/lib/quintet --wait 60"))]
pub(super) struct Move {
    /// Group; a cluster has one, 0.
    group: String,
    /// Node that becomes the owner.
    node: String,
    #[command(flatten)]
    at: Node,
    #[command(flatten)]
    wait: Wait,
}

#[derive(clap::Args)]
pub(super) struct Drain {
    /// Name of the node [default: the node of --data].
    node: Option<String>,
    #[command(flatten)]
    at: Node,
    #[command(flatten)]
    wait: Wait,
}

/// How long it is waited until it is done.
#[derive(clap::Args)]
struct Wait {
    /// Seconds to wait before the command gives up (exit code 8).
    #[arg(long = "wait", value_name = "N", default_value_t = 30,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
}

impl Move {
    pub(super) fn run(self) -> Result<ExitCode> {
        NodePoll::new(&self.at, &self.wait).order(&[MOVE, &self.group, &self.node], true)
    }
}

impl Drain {
    /// Drains the node, or ends that.
    pub(super) fn run(self, drained: bool) -> Result<ExitCode> {
        let order = if drained { DRAIN } else { UNDRAIN };
        let words: Vec<&str> = std::iter::once(order).chain(self.node.as_deref()).collect();
        NodePoll::new(&self.at, &self.wait).order(&words, drained)
    }
}

/// A node of this machine that is asked until something is done.
struct NodePoll {
    data: PathBuf,
    began: Instant,
    by: Instant,
}

impl NodePoll {
    fn new(at: &Node, wait: &Wait) -> Self {
        let began = Instant::now();
        Self {
            data: at.data(),
            began,
            by: began + Duration::from_secs(wait.seconds),
        }
    }

    /// Has it done, and waits until it is; `drained`: what the node is to be, where that is given.
    fn order(&self, words: &[&str], drained: bool) -> Result<ExitCode> {
        let question = Question::Order(words.iter().map(|word| (*word).to_owned()).collect());
        let response = ask(&self.data, question, PATIENCE)?;
        let reply = serde_json::from_str(&response)
            .context("cannot read the node's reply: are both of the same version?")?;
        let done = match reply {
            Reply::Done => Ok("it is so".to_owned()),
            Reply::Refused { fault, why } => Err((fault, why)),
            Reply::Moving { from, epoch, to } => {
                // Who is drained chooses a successor by itself, and that may be another.
                let only = words.first() == Some(&MOVE);
                self.until_owned(&from, epoch, &to, only)
            }
            Reply::Told { node, address } => self.until_drained(&node, &address, drained),
        };
        match done {
            Ok(text) => {
                writeln!(stdout(), "{text}")?;
                Ok(ExitCode::SUCCESS)
            }
            Err((fault, why)) => {
                eprintln!("quintet: {fault}: {why}");
                Ok(ExitCode::from(fault.code()))
            }
        }
    }

    /// Until another node owns than `from` in `epoch`; `only`: until `to` does.
    fn until_owned(
        &self,
        from: &str,
        epoch: u64,
        to: &Successor,
        only: bool,
    ) -> Result<String, (Fault, String)> {
        let mut named = None;
        self.until(&to.address, |report| {
            if report.epoch > epoch && report.owner.is_some() {
                named.clone_from(&report.owner);
            }
            report.serves || named.as_ref().is_some_and(|owner| *owner != to.node)
        })
        .map_err(|fault| {
            let why = format!("{from} hands over to {}, which does not serve yet", to.node);
            (fault, why)
        })?;
        let ms = self.began.elapsed().as_millis();
        let owner = named.unwrap_or_else(|| to.node.clone());
        if owner == from || only && owner != to.node {
            let why = format!(
                "{} did not take over in time: {owner} owns the queues now",
                to.node
            );
            return Err((Fault::Order, why));
        }
        Ok(format!("{owner} owns the queues after {ms} ms"))
    }

    fn until_drained(
        &self,
        node: &str,
        address: &str,
        drained: bool,
    ) -> Result<String, (Fault, String)> {
        let is = if drained { "drained" } else { "not drained" };
        match self.until(address, |report| report.drained == drained) {
            Ok(()) => Ok(format!("{node} is {is}")),
            Err(fault) => Err((
                fault,
                format!("{node} does not confirm that it is {is}; it applies this when it starts"),
            )),
        }
    }

    /// Asks for the report of the node at `address` until it is as it should be.
    fn until(&self, address: &str, mut is: impl FnMut(&NodeReport) -> bool) -> Result<(), Fault> {
        loop {
            let question = Question::Order(vec![REPORT_OF.to_owned(), address.to_owned()]);
            let left = self.by.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Fault::TimedOut);
            }
            // The node that is asked may be the one that begins again just now.
            let report = ask(&self.data, question, left.min(PATIENCE)).ok();
            let report = report.and_then(|line| serde_json::from_str(&line).ok());
            if report.is_some_and(|report| is(&report)) {
                return Ok(());
            }
            std::thread::sleep(AGAIN);
        }
    }
}
