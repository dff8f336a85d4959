//! Numbers that fit a narrower type, as somebody has seen to already. One that
//! does not stops the process, before anything is written with it.

/// A length or place in memory.
pub(crate) fn to_usize(number: u64) -> usize {
    usize::try_from(number).expect("sizes in memory fit their types")
}

/// Converts a number that runs and frames store in 32 bits.
pub(crate) fn to_u32(number: usize) -> u32 {
    u32::try_from(number).expect("writers bound what the format counts in 32 bits")
}
