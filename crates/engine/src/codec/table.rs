//! The one list of facts, and of the enums inside them, with the bytes they
//! have in a record. A new fact is a variant of [`Fact`] and a line here; the
//! compiler then asks for its fields in `encode` and `decode`, the round-trip
//! test for a generator, the test of `docs/log-format.md` for its line there.

use quintet_types::coded;

use crate::fact::Fact;

macro_rules! facts {
    ($($variant:ident = $byte:literal,)*) => {
        coded! {
            /// Which fact, without its fields; as a number the operation byte
            /// its record begins with. 0x40 and above are the server's.
            #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
            pub enum FactKind, "operation" {
                $(#[doc = concat!("[`Fact::", stringify!($variant), "`].")] $variant = $byte,)*
            }
        }

        impl Fact {
            /// The number and name of the fact, without its fields.
            pub fn kind(&self) -> FactKind {
                match self {
                    $(Fact::$variant { .. } => FactKind::$variant,)*
                }
            }
        }
    };
}

facts! {
    Put = 0x01,
    Removed = 0x02,
    Leased = 0x03,
    Released = 0x04,
    Touched = 0x05,
    Buried = 0x06,
    Archived = 0x07,
    Kicked = 0x08,
    Moved = 0x09,
    Committed = 0x0a,
    Edited = 0x0b,
    Image = 0x0c,
    Restored = 0x0d,
    Remembered = 0x0e,
    Sent = 0x0f,
    SentImage = 0x10,
    Arrived = 0x11,
    Carried = 0x12,
    Evicted = 0x13,
    Loaded = 0x14,
    RunImage = 0x15,
    RunGone = 0x16,
    Pending = 0x17,
    TableSet = 0x18,
    TableDropped = 0x19,
    Epoch = 0x20,
    IdMark = 0x21,
    QueueMade = 0x22,
    QueueConfigured = 0x23,
    QueuePaused = 0x24,
    QueueFlushed = 0x25,
    QueueDropped = 0x26,
    QueueCounted = 0x27,
    ShardCounted = 0x28,
    QueueMaker = 0x29,
    Reheld = 0x2a,
    QueuePurged = 0x2b,
    DedupeForgotten = 0x2c,
    HashKey = 0x2d,
    KeyHeld = 0x2e,
    AgingSet = 0x2f,
    BatchMade = 0x30,
    BatchProgress = 0x31,
    BatchGone = 0x32,
    BatchOwed = 0x33,
    Tracked = 0x34,
    Awaits = 0x35,
    ParentEnded = 0x36,
    ParentTold = 0x37,
    Freed = 0x38,
    Watched = 0x39,
}

#[cfg(test)]
mod tests {
    use quintet_types::Coded;

    use super::*;

    #[test]
    fn the_page_of_the_format_has_a_line_for_each_fact_and_no_other() {
        let page = include_str!("../../../../docs/log-format.md");
        let lines: Vec<(u8, &str)> = page
            .lines()
            .filter_map(|line| {
                let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
                let (byte, name) = (cells.next()?, cells.next()?);
                let is_fact = byte.len() == 2 && name.starts_with(char::is_uppercase);
                is_fact.then(|| Some((u8::from_str_radix(byte, 16).ok()?, name)))?
            })
            .collect();
        let kinds: Vec<String> = FactKind::ALL
            .iter()
            .map(|kind| format!("{kind:?}"))
            .collect();
        let expected: Vec<(u8, &str)> = FactKind::ALL
            .iter()
            .zip(&kinds)
            .map(|(kind, name)| (kind.byte(), name.as_str()))
            .collect();
        assert_eq!(lines, expected);
    }
}
