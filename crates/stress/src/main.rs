//! `cargo xtask stress`: the real binary with all protocols under load, faults,
//! kills and hostile clients, and a check of what it acknowledged; and `cargo
//! xtask cluster`: the same of a cluster.

mod campaign;
mod check;
mod cluster;
mod deck;
mod history;
mod hostile;
mod ledger;
mod load;
mod operations;
mod protocols;
mod server;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

const USAGE: &str = "\
cargo xtask stress [--release] [OPTIONS]
       cargo xtask cluster [--release] [OPTIONS]";
const AFTER: &str = "\
--release builds and runs the optimised binary.

cargo xtask cluster runs three nodes over three NATS servers on this machine. Owners, standbys,
leaders and their servers are killed, stopped and cut off, and a server's store is damaged. As root
each store is a file system of its own, whose power is cut. QUINTET_NATS_SERVER and
QUINTET_NATS_SERVER_NEXT name the programs of the servers and of those that replace them. With an
even seed the links between nodes are under TLS. One kind of fault alone, twenty times:
cargo xtask cluster --only \"machine of owner\" --minutes 10 --at-least 20. Without an option this is
the part `cluster` of the tests.";

/// Stress tests the real server: load over all protocols, kills, power cuts, failing
/// calls, clock steps, hostile clients; then compares what is there with what
/// was acknowledged.
#[derive(Parser, Debug)]
#[command(name = "stress", override_usage = USAGE, after_help = AFTER)]
pub(crate) struct Args {
    /// How long, minutes
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    minutes: u64,
    /// The order of faults, settings and requests; without it one is chosen
    /// and printed
    #[arg(long)]
    seed: Option<u64>,
    /// Fails unless every protocol acknowledged, and every kind of fault happened,
    /// so often; goes on for up to three times as long to get there
    #[arg(long, default_value_t = 0)]
    at_least: u64,
    /// Ends as soon as --at-least, --kills and --puts are reached
    #[arg(long)]
    early: bool,
    /// With --early: so many kills and power cuts
    #[arg(long, default_value_t = 0)]
    kills: u64,
    /// With --early: so many acknowledged messages
    #[arg(long, default_value_t = 0)]
    puts: u64,
    /// The server's binary
    #[arg(long, hide = true)]
    quintet: PathBuf,
    /// Folder for its data; that of a violation is kept
    #[arg(long, hide = true)]
    scratch: PathBuf,
    /// The command that repeats this, without its seed
    #[arg(long, hide = true, default_value = "cargo xtask stress")]
    command: String,
    /// A cluster of three nodes over three NATS servers instead of one server
    #[arg(long, hide = true)]
    cluster: bool,
    /// With --cluster: the NATS server's binary
    #[arg(long, hide = true, default_value = "nats-server")]
    nats_server: PathBuf,
    /// With --cluster: another version of it, by which servers are replaced
    #[arg(long, hide = true)]
    nats_server_next: Option<PathBuf>,
    /// With --cluster: each NATS server's store is a file system of its own,
    /// whose power is cut. Only root may, in a mount namespace of its own
    #[arg(long, hide = true)]
    power: bool,
    /// Of a cluster: no old or single damaged stores, power cuts of servers, replaced peers, reseed
    /// and adopt, which take long
    #[arg(long, requires = "cluster")]
    plain: bool,
    /// Of a cluster: only faults whose name, as the table has it, contains this: 'leader cut off'
    #[arg(long, requires = "cluster")]
    only: Option<String>,
}

impl Args {
    /// The one given, or one by the clock.
    fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| {
            let time = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
            time.as_micros() as u64 % 1_000_000_000
        })
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let run = match args.cluster {
        true => cluster::run(&args),
        false => campaign::run(&args),
    };
    match run {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stress: {error:#}");
            ExitCode::FAILURE
        }
    }
}
