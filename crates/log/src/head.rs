//! The fields that the headers of a segment and of a run have at the same places.

use crate::{LogError, Result, frame::u32_at};

const VERSION: u16 = 1;
const WRITTEN_BY: &str = concat!("quintet ", env!("CARGO_PKG_VERSION"));
const WRITTEN_BY_BYTES: usize = 32;

/// Fills these fields in. The others have been filled in before: the checksum is over all.
pub(crate) fn seal(out: &mut [u8], magic: &[u8; 8], shard: u16, number: u32) {
    out[..8].copy_from_slice(magic);
    out[8..10].copy_from_slice(&VERSION.to_le_bytes());
    out[10..12].copy_from_slice(&shard.to_le_bytes());
    out[12..16].copy_from_slice(&number.to_le_bytes());
    let writer = &WRITTEN_BY.as_bytes()[..WRITTEN_BY.len().min(WRITTEN_BY_BYTES)];
    out[56..56 + writer.len()].copy_from_slice(writer);
    let (content, checksum) = out.split_at_mut(out.len() - 4);
    checksum.copy_from_slice(&crc32c::crc32c(content).to_le_bytes());
}

/// The shard and the number in a header that begins as it should; else what is wrong with it.
///
/// # Errors
/// [`LogError::NewerFormat`].
pub(crate) fn read(bytes: &[u8], file: &str) -> Result<Result<(u16, u32), &'static str>> {
    let end = bytes.len() - 4;
    if u32_at(bytes, end) != crc32c::crc32c(&bytes[..end]) {
        return Ok(Err("the header's checksum is wrong"));
    }
    let newer = |what| {
        let writer = String::from_utf8_lossy(&bytes[56..56 + WRITTEN_BY_BYTES]);
        Err(LogError::NewerFormat {
            file: file.to_owned(),
            what,
            written_by: writer.trim_end_matches('\0').to_owned(),
        })
    };
    let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let version = u16_at(8);
    if version != VERSION {
        return newer(format!("format version {version}"));
    }
    let features = u32_at(bytes, 16);
    if features != 0 {
        return newer(format!("feature flags {features:#x}"));
    }
    Ok(Ok((u16_at(10), u32_at(bytes, 12))))
}
