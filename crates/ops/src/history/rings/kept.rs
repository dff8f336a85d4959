//! The rings in a file, so that they are there after a restart.
//!
//! All numbers are little-endian. A magic of 8 bytes; of each queue its name with its length
//! before it (4 bytes), its birth and when it last moved (8 each), the two rings (the newest step
//! in 8 bytes, the number of samples in 4, each sample in 40), the number of minutes with dead
//! letters (4) and these (8 and 8 each); at the end CRC-32C of all before it.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::sync::Mutex;

use quintet_host::locked;

use super::{
    Counted, FORGOTTEN, Histories, Left, MINUTES, Ms, Name, Packed, QUARTERS, Rates, Ring, Rings,
    Sample,
};

const MAGIC: &[u8; 8] = b"QNTHIST1";
/// Bytes of the file at most; queues that do not fit are left out.
const BYTES_MAX: u64 = 64 << 20;
/// Queues written while nobody else looks at the histories.
const AT_ONCE: usize = 64;

/// Writes those that there are; the file is there whole or as it was.
///
/// # Errors
/// It cannot be written.
pub(crate) fn save(all: &Mutex<Histories>, path: &Path) -> io::Result<()> {
    let names: Vec<Name> = locked(all).rings.keys().cloned().collect();
    if names.is_empty() && !path.exists() {
        return Ok(());
    }
    let new = path.with_extension("new");
    let written = write(all, &names, &new).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // Half a file takes room that others need.
        let _gone = fs::remove_file(&new);
    }
    written
}

fn write(all: &Mutex<Histories>, names: &[Name], path: &Path) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let (mut sum, mut bytes) = (0, 0);
    let mut part = MAGIC.to_vec();
    for some in names.chunks(AT_ONCE) {
        let inside = locked(all);
        for name in some {
            if let Some((_, rings)) = inside.rings.get(name) {
                put(&mut part, name, rings);
            }
        }
        drop(inside);
        bytes += part.len() as u64;
        if bytes > BYTES_MAX {
            part.clear();
            break;
        }
        sum = crc32c::crc32c_append(sum, &part);
        file.write_all(&part)?;
        part.clear();
    }
    sum = crc32c::crc32c_append(sum, &part);
    file.write_all(&part)?;
    file.write_all(&sum.to_le_bytes())?;
    file.into_inner()?.sync_data()
}

fn put(into: &mut Vec<u8>, name: &Name, rings: &Rings) {
    put_count(into, name.as_bytes().len());
    into.extend(name.as_bytes());
    for time in [rings.created, rings.moved] {
        into.extend(time.0.to_le_bytes());
    }
    put_ring(into, &rings.minutes);
    put_ring(into, &rings.quarters);
    put_count(into, rings.dead.len());
    for (minute, count) in &rings.dead {
        into.extend([*minute, *count].map(u64::to_le_bytes).as_flattened());
    }
}

fn put_count(into: &mut Vec<u8>, count: usize) {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    into.extend(count.to_le_bytes());
}

fn put_ring<const N: usize>(into: &mut Vec<u8>, ring: &Ring<N>) {
    into.extend(ring.newest.to_le_bytes());
    put_count(into, ring.samples.len());
    for Packed(sample) in &ring.samples {
        let rates = sample.rates;
        let [a, b, c, d, e, f] = rates.left.values();
        let rates = [rates.into, rates.due, a, b, c, d, e, f].map(f32::to_bits);
        for word in [sample.ready, sample.oldest_s].iter().chain(&rates) {
            into.extend(word.to_le_bytes());
        }
    }
}

/// Reads what was kept; `most` queues, and nothing later than `now`. A file that is not as it was
/// written is left alone.
///
/// # Errors
/// There is none, or it is damaged.
pub(crate) fn load(all: &Mutex<Histories>, path: &Path, now: Ms, most: usize) -> io::Result<()> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "it is damaged");
    if fs::metadata(path)?.len() > BYTES_MAX + 4 {
        return Err(damaged());
    }
    let bytes = fs::read(path)?;
    let (whole, sum) = bytes.split_last_chunk().ok_or_else(damaged)?;
    if crc32c::crc32c(whole) != u32::from_le_bytes(*sum) {
        return Err(damaged());
    }
    let mut rest = whole.strip_prefix(MAGIC).ok_or_else(damaged)?;
    while !rest.is_empty() {
        let (name, rings) = get(&mut rest).ok_or_else(damaged)?;
        let mut inside = locked(all);
        if rings.moved <= now && now.since(rings.moved) < FORGOTTEN && inside.rings.len() < most {
            inside.keep(name, rings);
        }
    }
    Ok(())
}

fn get(from: &mut &[u8]) -> Option<(Name, Rings)> {
    let len = count(from)?;
    let (name, rest) = from.split_at_checked(len)?;
    *from = rest;
    let (created, moved) = (Ms(number(from)?), Ms(number(from)?));
    let (minutes, quarters) = (ring::<MINUTES>(from)?, ring::<QUARTERS>(from)?);
    let dead = (0..count(from)?).map(|_| Some((number(from)?, number(from)?)));
    let rings = Rings {
        counted: Counted::none(moved),
        dead: dead.collect::<Option<_>>()?,
        ended: moved,
        held: false,
        recent: [].into(),
        created,
        moved,
        minutes,
        quarters,
    };
    Some((Name::new(name), rings))
}

fn count(from: &mut &[u8]) -> Option<usize> {
    usize::try_from(word(from)?).ok()
}

fn word(from: &mut &[u8]) -> Option<u32> {
    let (bytes, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(u32::from_le_bytes(*bytes))
}

fn number(from: &mut &[u8]) -> Option<u64> {
    let (bytes, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(u64::from_le_bytes(*bytes))
}

fn ring<const N: usize>(from: &mut &[u8]) -> Option<Ring<N>> {
    let newest = number(from)?;
    let samples = count(from).filter(|count| *count <= N)?;
    let samples = (0..samples).map(|_| sample(from));
    Some(Ring {
        samples: samples.collect::<Option<_>>()?,
        newest,
    })
}

fn sample(from: &mut &[u8]) -> Option<Packed> {
    let (ready, oldest_s) = (word(from)?, word(from)?);
    let mut rate = || word(from).map(f32::from_bits);
    let (into, due) = (rate()?, rate()?);
    let left = [rate()?, rate()?, rate()?, rate()?, rate()?, rate()?];
    Some(Packed(Sample {
        ready,
        oldest_s,
        rates: Rates {
            into,
            due,
            left: Left::from_values(left),
        },
    }))
}
