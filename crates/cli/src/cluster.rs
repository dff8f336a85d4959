//! `quintet cluster`.

use std::io::{Write as _, stdout};
use std::process::ExitCode;

use anyhow::Result;

use super::demo::Demo;
use super::handover::{CODES, Drain, Move};
use super::node::{Node, report};
use super::ways::{Adopt, Detach, Reseed};

/// `quintet cluster`.
#[derive(clap::Subcommand)]
pub(super) enum Cluster {
    /// Show whether the cluster survives the loss of a machine, and the state of each node.
    Status(Status),
    /// Make another node the owner of the queues.
    Move(Move),
    /// Give the queues of a node to another one, before you stop it.
    #[command(after_help = format!("{CODES}
A drained node follows the log and passes clients on to the owner. It takes over only after ten
times takeover_after without an owner. It stays drained, also after a restart, until `undrain`.

Examples:
  quintet cluster drain && systemctl stop quintet
  quintet cluster drain b"))]
    Drain(Drain),
    /// Let a drained node own queues again.
    #[command(after_help = format!("{CODES}
Examples:
  quintet cluster undrain
  quintet cluster undrain b"))]
    Undrain(Drain),
    /// Create the log of a new cluster from the data directory of a stopped server.
    Adopt(Adopt),
    /// Create a new log from the directory of a node after JetStream has lost the old one.
    Reseed(Reseed),
    /// Create the data directory of a single server from that of a stopped node.
    Detach(Detach),
    /// Try a cluster: run three nodes on this machine and kill the owner with a key.
    Demo(Demo),
}

#[derive(clap::Args)]
#[command(after_help = "\
Exit code: 0 all is well, 1 the loss of one machine would stop the cluster or a node does not
respond, 2 no node executes commands now.

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
            Self::Drain(order) => order.run(true),
            Self::Undrain(order) => order.run(false),
            Self::Adopt(way) => way.run(),
            Self::Reseed(way) => way.run(),
            Self::Detach(way) => way.run(),
            Self::Demo(demo) => demo.run(),
        }
    }
}

impl Status {
    fn run(self) -> Result<ExitCode> {
        let report = report(&self.at.data())?;
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
