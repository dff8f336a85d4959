//! `quintet cluster`.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _, stdout};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use quintet_front::line::{Answer, Ask, Question};
use quintet_nodes::{ClusterReport, NODE_SOCKET};

use super::demo::Demo;
use super::handover::{Drain, Move, Undrain};
use super::ways::{Adopt, Detach, Reseed};

/// A node asks all others before it answers, which takes a few seconds where one is gone.
const PATIENCE: Duration = Duration::from_secs(30);

/// `quintet cluster`.
#[derive(clap::Subcommand)]
pub(super) enum Cluster {
    /// Say whether the loss of a machine would be survived, and how each node stands.
    Status(Status),
    /// Have another node own the queues.
    Move(Move),
    /// Have a node own nothing, before it is stopped.
    Drain(Drain),
    /// Have a node take over again when others are gone.
    Undrain(Undrain),
    /// Make a stopped server's data directory the log of a new cluster.
    Adopt(Adopt),
    /// Make a new log from a node's directory when JetStream has lost the old one.
    Reseed(Reseed),
    /// Make a stopped node's directory that of a single server.
    Detach(Detach),
    /// Try it: three nodes on this machine, whose owner is killed on a key.
    Demo(Demo),
}

/// Which node is asked.
#[derive(clap::Args)]
pub(super) struct Node {
    /// Data directory of a node on this machine.
    #[arg(long, value_name = "DIR", default_value = "data", env = "QUINTET_DATA")]
    pub(super) data: PathBuf,
}

/// Arguments of `cluster status`.
#[derive(clap::Args)]
#[command(after_help = "\
Exit code: 0 all is well, 1 the loss of one machine would stop the cluster or a node does not
answer, 2 nobody answers commands now.

Examples:
  quintet cluster status
  quintet cluster status --json
  quintet cluster status --data /var/lib/quintet || page-somebody")]
pub(super) struct Status {
    #[command(flatten)]
    at: Node,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Cluster {
    pub(super) fn run(self) -> Result<ExitCode> {
        match self {
            Self::Status(status) => status.run(),
            Self::Move(order) => order.run(),
            Self::Drain(order) => order.run(),
            Self::Undrain(order) => order.run(),
            Self::Adopt(way) => way.run(),
            Self::Reseed(way) => way.run(),
            Self::Detach(way) => way.run(),
            Self::Demo(demo) => demo.run(),
        }
    }
}

impl Status {
    fn run(self) -> Result<ExitCode> {
        let report = report(&self.at.data)?;
        let mut out = stdout().lock();
        match self.json {
            true => {
                let verdict = report.verdict();
                let mut json = serde_json::to_value(&report)?;
                json["serves"] = verdict.serves.into();
                json["survives"] = verdict.survives.into();
                json["notes"] = verdict.notes.clone().into();
                writeln!(out, "{json}")?;
            }
            false => write!(out, "{}", report.text())?,
        }
        Ok(ExitCode::from(report.verdict().code()))
    }
}

/// What the node whose data directory this is says of its cluster.
pub(super) fn report(data: &Path) -> Result<ClusterReport> {
    let line = ask(data, Question::Status, PATIENCE)?;
    serde_json::from_str(&line).context("the node's answer makes no sense")
}

/// Asks the node whose data directory this is, and waits so long for its answer.
pub(super) fn ask(data: &Path, question: Question, patience: Duration) -> Result<String> {
    let path = data.join(NODE_SOCKET);
    #[expect(clippy::wildcard_enum_match_arm, reason = "as the system says it")]
    let stream = UnixStream::connect(&path).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => anyhow!(
            "no node of a cluster runs on {}: start one with `quintet serve --cluster \
             nats://HOST:4222 --data {}`, or name the directory of the one that runs with --data",
            data.display(),
            data.display()
        ),
        ErrorKind::PermissionDenied => anyhow!(
            "{} belongs to another user: run this as the user the server runs as",
            path.display()
        ),
        _ => anyhow!("cannot connect to {}: {error}", path.display()),
    })?;
    stream.set_read_timeout(Some(patience))?;
    (&stream).write_all(Ask::Node(question).line(None).as_bytes())?;
    let mut line = String::new();
    let read = BufReader::new(&stream).read_line(&mut line);
    read.context("the node does not answer: while it cannot reach NATS it says so in its log")?;
    let line = line.trim_end_matches('\n');
    match Answer::read(line) {
        Some(Answer::Refused(why)) => bail!("the node refuses: {why}"),
        _ if line.is_empty() => bail!("the node ended the connection without an answer"),
        _ => Ok(line.to_owned()),
    }
}
