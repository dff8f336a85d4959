//! Which shard a queue and a message belong to.
//!
//! The layout of a data directory depends on both functions, so they are fixed
//! for good.

use crate::bytes::fnv;
use crate::id::MessageId;

/// Bits below the shard's number in an id, when there is more than one shard:
/// 256 shards of 2^55 ids each stay below 2^63.
pub const SHARD_SHIFT: u32 = 55;

/// The shard, of `shards`, in which the queue of this name lives. A fan-out
/// child `a+b` lives with `a`, so that a put and its copies are one step.
pub fn shard_of_queue(name: &[u8], shards: usize) -> usize {
    if shards <= 1 {
        return 0;
    }
    let parent = name.split(|&byte| byte == b'+').next().unwrap_or(name);
    let shard = usize::try_from(fnv(parent) % shards as u64);
    shard.expect("below a number of this type")
}

/// The shard, of `shards`, that gave this id and holds its message. Below
/// `shards` for any number, as clients name ids that never were.
pub fn shard_of_id(id: MessageId, shards: usize) -> usize {
    if shards <= 1 {
        return 0;
    }
    usize::try_from(id.0 >> SHARD_SHIFT).unwrap_or(0) % shards
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_where_they_are() {
        // Data directories depend on these.
        let found: Vec<usize> = ["", "a", "b", "mail", "a+b", "a+c", "+"]
            .iter()
            .map(|name| shard_of_queue(name.as_bytes(), 4))
            .collect();
        assert_eq!(found, [1, 0, 1, 2, 0, 0, 1]);
        assert_eq!(shard_of_queue(b"mail", 1), 0);
    }

    #[test]
    fn an_id_names_its_shard() {
        assert_eq!(shard_of_id(MessageId(3 << SHARD_SHIFT | 7), 4), 3);
        assert_eq!(shard_of_id(MessageId(3 << SHARD_SHIFT | 7), 1), 0);
        assert_eq!(shard_of_id(MessageId(u64::MAX), 4), 3);
    }
}
