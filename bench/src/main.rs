//! `quintet-bench`: the comparison with other servers, what backlogs do, and a cluster.

mod backlog;
mod cluster;
mod common;
mod compare;

use std::net::TcpListener;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

/// Measures Quintet, alone and beside other servers, on this machine.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Quintet and its peers under the same load, in alternation.
    Compare(compare::Args),
    /// Quintet with backlogs far larger than memory.
    Backlog(backlog::Args),
    /// A cluster beside bare JetStream, on the same servers.
    Cluster(cluster::Args),
    /// A load against one server, as `quintet bench`.
    Run(Box<quintet_bench::Args>),
    /// Serve a bare echo on 127.0.0.1: the limit the others are measured against.
    #[command(hide = true)]
    Echo {
        /// Port; 0: any that is free.
        #[arg(long, default_value_t = 0)]
        port: u16,
        /// Answer what was written to this new file and synced.
        #[arg(long, value_name = "FILE")]
        synced: Option<PathBuf>,
    },
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Compare(args) => args.run(),
        Command::Backlog(args) => args.run(),
        Command::Cluster(args) => args.run(),
        Command::Run(args) => args.run(),
        Command::Echo { port, synced } => {
            let listener = TcpListener::bind(("127.0.0.1", port)).context("cannot listen")?;
            println!("listening echo {}", listener.local_addr()?);
            println!("echo ready");
            quintet_bench::serve_echo(listener, synced.as_deref())
        }
    }
}
