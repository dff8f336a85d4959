//! How fast a run is written and read: `cargo run --release -p quintet-log --example run_speed --
//! [ENTRIES] [PAYLOAD BYTES]`. Everything is in the page cache, so this is the price of the format,
//! not of the disk; the sync at the end is timed apart.

use std::{
    error::Error,
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use quintet_log::{
    Disk,
    run::{Run, RunName, RunNumber, RunOptions, RunWriter},
};

const LOOKUPS: u64 = 100_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let entries: u64 = args.next().map_or(Ok(1_000_000), |arg| arg.parse())?;
    let payload: usize = args.next().map_or(Ok(100), |arg| arg.parse())?;
    let dir = tempfile::tempdir()?;
    println!("{entries} entries of {payload} bytes; ns per entry");
    println!(
        "{:<24}{:>8}{:>8}{:>8}{:>8}{:>10}",
        "ids", "write", "end", "read", "find", "memory"
    );
    // An odd factor permutes the numbers below a power of two: ids in no order, none twice.
    let mask = entries.next_power_of_two() - 1;
    let scattered = |index: u64| index.wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask;
    one(dir.path(), "rising", entries, payload, false, &|index| {
        index + 1
    })?;
    one(
        dir.path(),
        "rising, with keys",
        entries,
        payload,
        true,
        &|index| index + 1,
    )?;
    one(
        dir.path(),
        "in no order, with keys",
        entries,
        payload,
        true,
        &scattered,
    )
}

fn one(
    dir: &std::path::Path,
    title: &str,
    entries: u64,
    payload: usize,
    keyed: bool,
    id_of: &dyn Fn(u64) -> u64,
) -> Result<(), Box<dyn Error>> {
    let storage = Arc::new(Disk::new(dir));
    let name = RunName {
        shard: 0,
        number: RunNumber(1),
    };
    let body = vec![b'x'; payload];
    let started = Instant::now();
    let mut writer = RunWriter::create(storage.clone(), name, RunOptions::default())?;
    writer.state_index(b"lane")?;
    for index in 0..entries {
        let id = id_of(index);
        let key = keyed.then(|| id.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        writer.push(id, key, &body)?;
    }
    let pushed = started.elapsed();
    let run = writer.finish()?;
    let written = started.elapsed();

    let run = Run::open(&*storage, run.name())?;
    let started = Instant::now();
    let (mut sum, mut memory) = (0, Vec::new());
    for number in 0..run.blocks() {
        let block = run.read_block_into(number, memory)?;
        for entry in block.entries() {
            sum += entry.id + entry.payload.len() as u64;
        }
        memory = block.into_bytes();
    }
    black_box(sum);
    let read = started.elapsed();

    let lookups = LOOKUPS.min(entries);
    let started = Instant::now();
    for index in 0..lookups {
        let id = id_of(index * (entries / lookups));
        if run.find_id(id)?.is_none() {
            return Err(format!("id {id} was not found").into());
        }
    }
    let found = started.elapsed();

    let per = |time: Duration, count: u64| time.as_nanos() as f64 / count as f64;
    println!(
        "{title:<24}{:>8.1}{:>8.1}{:>8.1}{:>8.0}{:>10}",
        per(pushed, entries),
        per(written - pushed, entries),
        per(read, entries),
        per(found, lookups),
        run.memory_bytes()
    );
    quintet_log::run::remove_run(&*storage, name)?;
    Ok(())
}
