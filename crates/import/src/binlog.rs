//! The bytes of a binlog's file, as beanstalkd writes them on a 64-bit little-endian machine.
//!
//! | bytes | version 7 | version 5 |
//! |---|---|---|
//! | version | 4, once | the same |
//! | length of the tube's name; 0: a short record, without name and body | 4 | 8 |
//! | name | | |
//! | fields, in the order of [`Fields`] | 80, with gaps; times in ns | 77; times in µs |
//! | body with its CR LF, as long as the fields say | | |
//!
//! A file is made full of zeros: an id of 0 ends it.

use std::ops::Range;

/// A tube's name is no longer.
const NAME_MAX: u64 = 200;

/// The two there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Five,
    Seven,
}

/// State of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Also one that was reserved: its worker is gone.
    Ready,
    Delayed,
    Buried,
    /// Deleted, or written again in a later file.
    Gone,
}

/// Fields of a record about a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    pub priority: u32,
    pub delay_ns: u64,
    pub ttr_ns: u64,
    /// Of the body, without its end.
    pub bytes: usize,
    pub created_ns: u64,
    pub deadline_ns: u64,
    pub reserves: u32,
    pub timeouts: u32,
    pub releases: u32,
    pub buries: u32,
    pub kicks: u32,
    pub state: State,
}

/// Parts of a full record beside the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Full {
    pub tube: String,
    /// Where the body begins in the file.
    pub at: u64,
}

/// One record of beanstalkd's binlog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinlogRecord {
    pub id: u64,
    pub fields: Fields,
    /// `None`: a short one.
    pub full: Option<Full>,
}

/// Which version a file is of; `None`: it is empty, or nothing was written yet.
///
/// # Errors
/// The number of another one.
pub fn version(file: &[u8]) -> Result<Option<Version>, u32> {
    match u32_at(file, 0) {
        None | Some(0) => Ok(None),
        Some(5) => Ok(Some(Version::Five)),
        Some(7) => Ok(Some(Version::Seven)),
        Some(other) => Err(other),
    }
}

/// The records of a file, and where it is not what it should be: that is the last item.
pub fn records(
    file: &[u8],
    version: Version,
) -> impl Iterator<Item = Result<BinlogRecord, (u64, &'static str)>> + '_ {
    let mut at = 4;
    let mut over = false;
    std::iter::from_fn(move || {
        if over {
            return None;
        }
        let found = record(file, at, version).transpose()?;
        over = found.is_err();
        let found = found.map(|(found, next)| {
            at = next;
            found
        });
        Some(found.map_err(|why| (at as u64, why)))
    })
}

const CUT: &str = "the file ends inside a record";
const BLANK: &str = "nothing but zeros where a record should be, and more behind them";
const STRANGE: &str = "this is no record of beanstalkd";

/// The record that begins there, and where the next one does.
fn record(
    file: &[u8],
    at: usize,
    version: Version,
) -> Result<Option<(BinlogRecord, usize)>, &'static str> {
    if at == file.len() {
        return Ok(None);
    }
    let (name_bytes, name_at) = match version {
        Version::Seven => (u32_at(file, at).map(u64::from), at + 4),
        Version::Five => (u64_at(file, at), at + 8),
    };
    let name_bytes = name_bytes.ok_or(CUT)?;
    if name_bytes > NAME_MAX {
        return Err(STRANGE);
    }
    let name = part(file, name_at, name_bytes)?;
    let fields_at = name.end;
    let size = match version {
        Version::Seven => 80,
        Version::Five => 77,
    };
    let end = part(file, fields_at, size)?.end;
    let id = u64_at(file, fields_at).ok_or(CUT)?;
    if id == 0 {
        return match file[at..].iter().all(|&byte| byte == 0) {
            true => Ok(None),
            false => Err(BLANK),
        };
    }
    let (fields, body_bytes) = fields(file, fields_at, version).ok_or(CUT)??;
    if name_bytes == 0 {
        let full = None;
        return Ok(Some((BinlogRecord { id, fields, full }, end)));
    }
    let body = part(file, end, body_bytes)?;
    let tube = std::str::from_utf8(&file[name]).map_err(|_| STRANGE)?;
    if !file[body.clone()].ends_with(b"\r\n") {
        return Err(STRANGE);
    }
    let full = Some(Full {
        tube: tube.to_owned(),
        at: body.start as u64,
    });
    Ok(Some((BinlogRecord { id, fields, full }, body.end)))
}

/// The fields, and the length of the body with its end; `None`: the file ends inside.
fn fields(file: &[u8], at: usize, version: Version) -> Option<Result<(Fields, u64), &'static str>> {
    // With gaps where the machine wants them; the versions differ in the end alone.
    let small = |place| u32_at(file, at + place);
    let to_ns = |time: u64| match version {
        Version::Seven => time,
        Version::Five => time.saturating_mul(1000),
    };
    let large = |place| u64_at(file, at + place).map(to_ns);
    let state = match file.get(at + 76)? {
        0 => State::Gone,
        1 | 2 => State::Ready,
        3 => State::Buried,
        4 => State::Delayed,
        _ => return Some(Err(STRANGE)),
    };
    let size = small(32)?;
    if i32::try_from(size).is_err() || size < 2 {
        return Some(Err(STRANGE));
    }
    let fields = Fields {
        priority: small(8)?,
        delay_ns: large(16)?,
        ttr_ns: large(24)?,
        bytes: size as usize - 2,
        created_ns: large(40)?,
        deadline_ns: large(48)?,
        reserves: small(56)?,
        timeouts: small(60)?,
        releases: small(64)?,
        buries: small(68)?,
        kicks: small(72)?,
        state,
    };
    Some(Ok((fields, u64::from(size))))
}

/// Where so many bytes are.
fn part(file: &[u8], at: usize, bytes: u64) -> Result<Range<usize>, &'static str> {
    let end = usize::try_from(bytes)
        .ok()
        .and_then(|bytes| at.checked_add(bytes));
    match end {
        Some(end) if end <= file.len() => Ok(at..end),
        _ => Err(CUT),
    }
}

fn u32_at(file: &[u8], at: usize) -> Option<u32> {
    let bytes = file.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn u64_at(file: &[u8], at: usize) -> Option<u64> {
    let bytes = file.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(version: Version, id: u64, tube: &str, state: u8, body: &[u8]) -> Vec<u8> {
        let mut all = Vec::new();
        let ns = match version {
            Version::Seven => 1,
            Version::Five => 1000,
        };
        match version {
            Version::Seven => all.extend((u32::try_from(tube.len()).unwrap()).to_le_bytes()),
            Version::Five => all.extend((tube.len() as u64).to_le_bytes()),
        }
        all.extend(tube.as_bytes());
        let start = all.len();
        all.extend(id.to_le_bytes());
        all.extend(7_u64.to_le_bytes());
        all.extend((3_000_000_000_u64 / ns).to_le_bytes());
        all.extend((60_000_000_000_u64 / ns).to_le_bytes());
        all.extend((body.len() as u64 + 2).to_le_bytes());
        all.extend((5_000_u64 / ns).to_le_bytes());
        all.extend((9_000_u64 / ns).to_le_bytes());
        for counter in 1..=5_u32 {
            all.extend(counter.to_le_bytes());
        }
        all.push(state);
        if version == Version::Seven {
            all.resize(start + 80, 0);
        }
        if !tube.is_empty() {
            all.extend(body);
            all.extend(b"\r\n");
        }
        all
    }

    fn file(version: Version) -> Vec<u8> {
        let number: u32 = match version {
            Version::Seven => 7,
            Version::Five => 5,
        };
        let mut all = number.to_le_bytes().to_vec();
        all.extend(written(version, 1, "default", 1, b"hello"));
        all.extend(written(version, 2, "a/b", 4, b""));
        all.extend(written(version, 1, "", 3, b"hello"));
        all.extend(written(version, 2, "", 0, b""));
        all
    }

    #[test]
    fn both_versions_say_the_same() {
        for version_of in [Version::Seven, Version::Five] {
            let mut bytes = file(version_of);
            assert_eq!(version(&bytes), Ok(Some(version_of)));
            let whole = bytes.len();
            bytes.resize(whole + 300, 0);
            let found: Vec<BinlogRecord> = records(&bytes, version_of)
                .collect::<Result<_, _>>()
                .unwrap();
            assert_eq!(found.len(), 4);
            assert_eq!(
                found[0].fields,
                Fields {
                    priority: 7,
                    delay_ns: 3_000_000_000,
                    ttr_ns: 60_000_000_000,
                    bytes: 5,
                    created_ns: 5000,
                    deadline_ns: 9000,
                    reserves: 1,
                    timeouts: 2,
                    releases: 3,
                    buries: 4,
                    kicks: 5,
                    state: State::Ready,
                }
            );
            let full = found[0].full.as_ref().unwrap();
            let at = usize::try_from(full.at).unwrap();
            assert_eq!(
                (full.tube.as_str(), &bytes[at..at + 5]),
                ("default", &b"hello"[..])
            );
            let states: Vec<State> = found.iter().map(|found| found.fields.state).collect();
            assert_eq!(
                states,
                [State::Ready, State::Delayed, State::Buried, State::Gone]
            );
            assert!(found[2].full.is_none());
        }
    }

    #[test]
    fn a_file_cut_anywhere_gives_whole_records_and_says_where_it_ends() {
        for version in [Version::Seven, Version::Five] {
            let bytes = file(version);
            let all: Vec<_> = records(&bytes, version).map(Result::unwrap).collect();
            let mut whole = 0;
            for len in 4..bytes.len() {
                let cut: Vec<_> = records(&bytes[..len], version).collect();
                let (good, bad): (Vec<_>, Vec<_>) = cut.into_iter().partition(Result::is_ok);
                let good: Vec<BinlogRecord> = good.into_iter().map(Result::unwrap).collect();
                assert!(all.starts_with(&good), "{len}");
                match bad.first() {
                    Some(Err((at, why))) => assert!(*at < len as u64 && *why == CUT, "{len}"),
                    _ => whole += 1,
                }
            }
            assert_eq!(whole, 4, "ends of records, the last one's left out");
        }
    }

    #[test]
    fn nonsense_is_named_and_no_panic() {
        for version in [Version::Seven, Version::Five] {
            let bytes = file(version);
            for at in 4..bytes.len() {
                for flip in [1, 0x40, 0xff] {
                    let mut bytes = bytes.clone();
                    bytes[at] ^= flip;
                    records(&bytes, version).for_each(drop);
                }
            }
        }
        assert_eq!(version(&[8, 0, 0, 0]), Err(8));
        assert_eq!(version(&[]), Ok(None));
        assert_eq!(version(&[0; 4096]), Ok(None));
        let mut long = 7_u32.to_le_bytes().to_vec();
        long.extend(201_u32.to_le_bytes());
        let found: Vec<_> = records(&long, Version::Seven).collect();
        assert_eq!(found, [Err((4, STRANGE))]);
    }
}
