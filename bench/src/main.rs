//! A first comparison: put and get of small messages over the memcache
//! protocol, against Debian's memcached, in alternation in one run.
//!
//! Absolute rates on a shared machine mean little; the ratio is the figure.

mod load;
mod peers;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;

use load::Load;
use peers::Peer;

/// Load against Quintet and memcached in alternation; prints rates and ratios.
#[derive(Parser)]
#[command(
    after_help = "Example:\n  cargo run --release -p quintet-bench -- --connections 50 --depth 1"
)]
struct Args {
    /// Connections, each with a queue of its own.
    #[arg(long, default_value_t = 50)]
    connections: usize,
    /// Requests a connection sends before it reads the replies.
    #[arg(long, default_value_t = 1)]
    depth: usize,
    /// Bytes of a message.
    #[arg(long, default_value_t = 64)]
    size: usize,
    /// Seconds of load per server and turn.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Turns; the medians are shown.
    #[arg(long, default_value_t = 5)]
    turns: usize,
    /// The quintet binary.
    #[arg(long, default_value = "target/release/quintet")]
    quintet: PathBuf,
    /// The memcached binary.
    #[arg(long, default_value = "/usr/bin/memcached")]
    memcached: PathBuf,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let mut peers = vec![Peer::memcached(&args.memcached)?];
    for sync in ["50ms", "never", "always"] {
        peers.push(Peer::quintet(&args.quintet, sync)?);
    }
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); peers.len()];
    for turn in 1..=args.turns {
        for (peer, rates) in peers.iter().zip(&mut rates) {
            eprint!("\rturn {turn} of {}: {:<24}", args.turns, peer.name);
            let load = Load {
                connections: args.connections,
                depth: args.depth,
                size: args.size,
                time: Duration::from_secs(args.seconds),
            };
            let rate = load.run(peer.address).with_context(|| peer.name.clone())?;
            rates.push(rate);
        }
    }
    eprintln!("\r{:<40}", "");
    println!(
        "put+get of {} B, {} connections, depth {}, {} turns of {} s",
        args.size, args.connections, args.depth, args.turns, args.seconds
    );
    let base = median(&mut rates[0].clone());
    for (peer, rates) in peers.iter().zip(&mut rates) {
        let middle = median(rates);
        let spread = (rates[rates.len() - 1] - rates[0]) / middle * 100.0;
        println!(
            "{:<24} {:>9.0} requests/s  spread {spread:>3.0} %  {:.2} x memcached",
            peer.name,
            middle,
            middle / base
        );
    }
    Ok(())
}

/// Sorts, and answers the one in the middle.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
