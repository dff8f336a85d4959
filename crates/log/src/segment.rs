//! A segment's name and header. The layout is the table "Segment" in `docs/log-format.md`.

use std::{io::ErrorKind, sync::Arc};

use crate::error::OfStorage as _;
use crate::{
    LogError, Position, Result, SegmentNumber, Storage, StorageFile, frame::u64_at, head,
    storage::read_full,
};

/// Where the first frame of a segment begins, bytes.
pub(crate) const SEGMENT_HEADER_BYTES: u64 = 4096;

/// The same as a length in memory.
#[expect(clippy::cast_possible_truncation, reason = "4096")]
pub(crate) const HEADER_LEN: usize = SEGMENT_HEADER_BYTES as usize;

const COPY_BYTES: usize = 2048;
const MAGIC: &[u8; 8] = b"QUINTLOG";
/// Far beyond any log (four exabytes).
const POSITION_MAX: u64 = 1 << 62;

/// A segment's header, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) shard: u16,
    pub(crate) number: SegmentNumber,
    pub(crate) salt: u64,
    pub(crate) first: Position,
    pub(crate) created_ms: u64,
    pub(crate) synced_through: Position,
    /// Length of the file when this was written, bytes; 0: not known.
    pub(crate) made: u64,
}

/// A segment's file, by its name.
///
/// The name is evidence: a segment is *begun* until it was synced for the first time, and only then
/// gets the name without which its header must be readable. "Segment" in `docs/log-format.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SegmentFile {
    pub(crate) number: SegmentNumber,
    pub(crate) begun: bool,
}

/// A header, and what is wrong with the copy of it that could not be used, if one could not.
pub(crate) struct ReadHeader {
    pub(crate) header: SegmentHeader,
    /// Offset of the bad copy, and why it is bad.
    pub(crate) bad_copy: Option<(u64, &'static str)>,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; COPY_BYTES];
        out[24..32].copy_from_slice(&self.salt.to_le_bytes());
        out[32..40].copy_from_slice(&self.first.0.to_le_bytes());
        out[40..48].copy_from_slice(&self.created_ms.to_le_bytes());
        out[48..56].copy_from_slice(&self.synced_through.0.to_le_bytes());
        out[88..96].copy_from_slice(&self.made.to_le_bytes());
        head::seal(&mut out, MAGIC, self.shard, self.number.0);
        out.extend_from_within(..);
        out
    }

    /// File offset of a position in this segment; `position` is not before the first.
    pub(crate) fn offset_of(&self, position: Position) -> u64 {
        SEGMENT_HEADER_BYTES + (position.0 - self.first.0)
    }

    /// Reads the header of a segment's file; both copies must be good.
    ///
    /// # Errors
    /// [`LogError::Damaged`], [`LogError::NewerFormat`], [`LogError::Io`].
    pub(crate) fn read(file: &dyn StorageFile, name: &str) -> Result<Self> {
        let found = Self::salvage(file, name)?;
        match found.bad_copy {
            Some((offset, why)) => Err(LogError::damaged(name, offset, why)),
            None => Ok(found.header),
        }
    }

    /// Reads the header from whichever copy is good.
    pub(crate) fn salvage(file: &dyn StorageFile, name: &str) -> Result<ReadHeader> {
        let mut bytes = [0; HEADER_LEN];
        let len = read_full(file, 0, &mut bytes).or_io("read", name)?;
        let copies = [
            Self::decode_copy(&bytes[..len.min(COPY_BYTES)], name)?,
            Self::decode_copy(&bytes[len.min(COPY_BYTES)..len], name)?,
        ];
        let second = COPY_BYTES as u64;
        let (header, bad_copy) = match copies {
            [Ok(one), Ok(two)] if one == two => (one, None),
            // Both are whole and differ: no crash and no bit flip does this.
            [Ok(_), Ok(_)] => {
                return Err(LogError::damaged(
                    name,
                    second,
                    "the two copies of the header differ",
                ));
            }
            [Ok(one), Err(why)] => (one, Some((second, why))),
            [Err(why), Ok(two)] => (two, Some((0, why))),
            [Err(why), Err(_)] => return Err(LogError::damaged(name, 0, why)),
        };
        if SegmentFile::parse(name).map(|file| file.number) != Some(header.number) {
            let why = format!("its header says that it is segment {}", header.number);
            return Err(LogError::damaged(name, 12, why));
        }
        Ok(ReadHeader { header, bad_copy })
    }

    /// Why a file of so many bytes is not all that it was.
    pub(crate) fn is_cut(&self, len: u64) -> Option<String> {
        (len < self.made).then(|| format!("the file was created with {} bytes", self.made))
    }

    fn decode_copy(bytes: &[u8], name: &str) -> Result<Result<Self, &'static str>> {
        if bytes.len() < COPY_BYTES {
            return Ok(Err("the file ends inside its header"));
        }
        if bytes[..8] != *MAGIC {
            return Ok(Err("it does not begin as a segment does"));
        }
        let found = head::read(bytes, name)?;
        Ok(found.and_then(|(shard, number)| {
            // Nothing of this size is ever written; refusing it here keeps sums from overflowing.
            let (first, synced) = (u64_at(bytes, 32), u64_at(bytes, 48));
            if first > POSITION_MAX || synced > first || number == u32::MAX {
                return Err("the header is not one this version writes");
            }
            Ok(Self {
                shard,
                number: SegmentNumber(number),
                salt: u64_at(bytes, 24),
                first: Position(first),
                created_ms: u64_at(bytes, 40),
                synced_through: Position(synced),
                made: u64_at(bytes, 88),
            })
        }))
    }
}

impl SegmentFile {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let of = |begun, suffix| {
            let number = SegmentNumber(parse(name, "segment-", suffix)?);
            Some(Self { number, begun })
        };
        of(false, ".log").or_else(|| of(true, ".new"))
    }

    pub(crate) fn name(self) -> String {
        if self.begun {
            begun_name(self.number)
        } else {
            segment_name(self.number)
        }
    }

    /// All there are, by number; `whose` is the directory in an error.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub(crate) fn list(storage: &dyn Storage, whose: &str) -> Result<Vec<Self>> {
        let names = storage.list();
        let names = names.or_io("list", whose)?;
        let mut files: Vec<Self> = names.iter().filter_map(|name| Self::parse(name)).collect();
        files.sort_unstable();
        Ok(files)
    }

    /// Opens it for reading, and answers the name it has now: a server that runs beside may give
    /// it the one of a synced segment just then.
    ///
    /// # Errors
    /// [`LogError::Io`]: among others, it is gone.
    pub(crate) fn open_read(self, storage: &dyn Storage) -> Result<(String, Arc<dyn StorageFile>)> {
        let opened = match storage.open_read(&self.name()) {
            Err(error) if self.begun && error.kind() == ErrorKind::NotFound => {
                let named = Self {
                    begun: false,
                    ..self
                };
                return named.open_read(storage);
            }
            opened => opened,
        };
        match opened {
            Ok(file) => Ok((self.name(), file)),
            Err(error) => Err(LogError::io("open", &self.name(), 0, error)),
        }
    }

    /// Why it is damage that this one follows `last` in the list: two files of one number, which
    /// no crash leaves.
    pub(crate) fn doubles(self, last: Option<Self>) -> Option<String> {
        let last = last.filter(|last| last.number == self.number)?;
        Some(format!("there is {} too", last.name()))
    }
}

pub(crate) fn segment_name(number: SegmentNumber) -> String {
    format!("segment-{:010}.log", number.0)
}

pub(crate) fn begun_name(number: SegmentNumber) -> String {
    format!("segment-{:010}.new", number.0)
}

pub(crate) fn segment_tmp_name(number: SegmentNumber) -> String {
    format!("segment-{:010}.tmp", number.0)
}

pub(crate) fn spare_name(number: u32) -> String {
    format!("spare-{number:010}.log")
}

pub(crate) fn spare_tmp_name(number: u32) -> String {
    format!("spare-{number:010}.tmp")
}

pub(crate) fn parse_spare_name(name: &str) -> Option<u32> {
    parse(name, "spare-", ".log")
}

/// Whether a file is one of ours that was never finished.
pub(crate) fn is_tmp_name(name: &str) -> bool {
    parse(name, "segment-", ".tmp").is_some() || parse(name, "spare-", ".tmp").is_some()
}

fn parse(name: &str, prefix: &str, suffix: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
    if digits.len() != 10 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Disk;

    #[test]
    fn a_segment_is_found_when_it_has_just_got_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::new(dir.path());
        let number = SegmentNumber(3);
        let begun = SegmentFile {
            number,
            begun: true,
        };
        let named = SegmentFile {
            number,
            begun: false,
        };
        disk.create(&begun.name()).unwrap();
        assert_eq!(begun.open_read(&disk).unwrap().0, begun.name());
        disk.rename(&begun.name(), &named.name()).unwrap();
        assert_eq!(begun.open_read(&disk).unwrap().0, named.name());
        disk.remove(&named.name()).unwrap();
        assert!(matches!(begun.open_read(&disk), Err(LogError::Io { .. })));
    }
}
