//! `quintet cluster`.

use std::io::{Write as _, stdout};
use std::process::ExitCode;

use anyhow::Result;

use super::demo::Demo;
use super::handover::{Drain, Move, Undrain};
use super::node::{Node, report};
use super::ways::{Adopt, Detach, Reseed};

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
