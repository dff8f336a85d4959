//! A run's header and trailer, which are alike. The layout is the table "Header and trailer" in
//! `docs/run-format.md`.

use crate::{
    LogError, Result, StorageFile,
    frame::u64_at,
    head,
    run::{
        RunName, RunNumber,
        part::{GAP_BYTES, PART_HEADER_BYTES},
    },
    storage::read_full,
};

/// Bytes of a header or trailer.
pub(super) const COVER_BYTES: u64 = 128;

#[expect(clippy::cast_possible_truncation, reason = "128")]
const BYTES: usize = COVER_BYTES as usize;
const MAGIC: &[u8; 8] = b"QUINTRUN";

/// A header or trailer, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cover {
    pub(super) name: RunName,
    pub(super) salt: u64,
    pub(super) created_ms: u64,
    /// Length of the file, bytes.
    pub(super) file_len: u64,
    /// Offset of the first footer, bytes.
    pub(super) footer: u64,
}

impl Cover {
    pub(super) fn encode(&self) -> [u8; BYTES] {
        let mut out = [0; BYTES];
        out[24..32].copy_from_slice(&self.salt.to_le_bytes());
        out[32..40].copy_from_slice(&self.created_ms.to_le_bytes());
        out[40..48].copy_from_slice(&self.file_len.to_le_bytes());
        out[48..56].copy_from_slice(&self.footer.to_le_bytes());
        head::seal(&mut out, MAGIC, self.name.shard, self.name.number.0);
        out
    }

    /// Reads a run's header and trailer and believes one that is good. What it says has been held
    /// against the file's length and name.
    ///
    /// # Errors
    /// [`LogError::Damaged`], [`LogError::NewerFormat`], [`LogError::BadRead`].
    pub(super) fn read(file: &dyn StorageFile, file_name: &str) -> Result<Self> {
        let len = file
            .len()
            .map_err(|error| LogError::unreadable(file_name, 0, &error))?;
        let Some(trailer) = len.checked_sub(COVER_BYTES) else {
            let why = format!("the file ends after {len} bytes, inside its header");
            return Err(LogError::damaged(file_name, 0, why));
        };
        let cover = match (
            Self::read_at(file, file_name, 0)?,
            Self::read_at(file, file_name, trailer)?,
        ) {
            (Ok(header), Ok(trailer)) if header == trailer => header,
            (Ok(_), Ok(_)) => {
                let why = "the trailer differs from the header";
                return Err(LogError::damaged(file_name, trailer, why));
            }
            (Ok(one), Err(_)) | (Err(_), Ok(one)) => one,
            (Err(why), Err(_)) => {
                let why = format!("{why}, and the trailer is no better");
                return Err(LogError::damaged(file_name, 0, why));
            }
        };
        if cover.file_len != len {
            let why = format!("the file has {len} bytes instead of {}", cover.file_len);
            return Err(LogError::damaged(file_name, len.min(cover.file_len), why));
        }
        if RunName::parse(file_name) != Some(cover.name) {
            let why = format!("its header says that it is {}", cover.name);
            return Err(LogError::damaged(file_name, 10, why));
        }
        Ok(cover)
    }

    /// Reads a header or trailer; what is wrong with it, if something is.
    pub(super) fn read_at(
        file: &dyn StorageFile,
        file_name: &str,
        offset: u64,
    ) -> Result<Result<Self, &'static str>> {
        let mut bytes = [0; BYTES];
        match read_full(file, offset, &mut bytes) {
            Ok(BYTES) => Self::decode(&bytes, file_name),
            Ok(_) => Ok(Err("the file ends inside its header")),
            // A bad sector here is what the other one is for.
            Err(_) => Ok(Err("the header cannot be read")),
        }
    }

    fn decode(bytes: &[u8; BYTES], file_name: &str) -> Result<Result<Self, &'static str>> {
        if bytes[..8] != *MAGIC {
            return Ok(Err("it does not begin as a run does"));
        }
        let found = head::read(bytes, file_name)?;
        Ok(found.map(|(shard, number)| Self {
            name: RunName {
                shard,
                number: RunNumber(number),
            },
            salt: u64_at(bytes, 24),
            created_ms: u64_at(bytes, 32),
            file_len: u64_at(bytes, 40),
            footer: u64_at(bytes, 48),
        }))
    }
}

/// Where the two footers and the gap are.
pub(super) struct FooterPlaces {
    pub(super) footers: [u64; 2],
    pub(super) gap: u64,
    pub(super) content_len: u32,
}

impl FooterPlaces {
    /// Follows from the length of the file and the place of the first; `None` when these do not
    /// fit.
    pub(super) fn of(cover: &Cover) -> Option<Self> {
        let header = PART_HEADER_BYTES as u64;
        if cover.footer < COVER_BYTES {
            return None;
        }
        let gap_len = header + GAP_BYTES as u64;
        let both = cover
            .file_len
            .checked_sub(cover.footer)?
            .checked_sub(gap_len + COVER_BYTES + 2 * header)?;
        if !both.is_multiple_of(2) {
            return None;
        }
        let content_len = u32::try_from(both / 2).ok()?;
        let gap = cover.footer + header + u64::from(content_len);
        Some(Self {
            footers: [cover.footer, gap + gap_len],
            gap,
            content_len,
        })
    }
}
