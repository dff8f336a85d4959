//! Which batch a message belongs to.

use std::fmt;

use crate::id::MessageId;

/// Identity of a batch: given by its shard as a message's is, and never a
/// message's. Shown as `b-` and 16 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct BatchId(pub u64);

impl BatchId {
    /// The batch that is shown so.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("b-")?;
        let plain = digits.len() == 16
            && digits
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        plain.then(|| u64::from_str_radix(digits, 16).ok().map(BatchId))?
    }

    /// As a message's, for who asks which shard gave it.
    pub fn as_id(self) -> MessageId {
        MessageId(self.0)
    }
}

impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b-{:016x}", self.0)
    }
}

coded! {
    /// The role of a message in a batch.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Role, "role" {
        /// One of its members, which has not run yet.
        Member = 0,
        /// One of them that failed at least once.
        Failed = 1,
        /// The message that says that all have run.
        Complete = 2,
        /// The message that says that all have succeeded.
        Success = 3,
    }
}

/// That a message belongs to a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tie {
    pub batch: BatchId,
    pub role: Role,
}

impl Tie {
    /// The tie of a member that is put.
    pub fn member(batch: BatchId) -> Self {
        Self {
            batch,
            role: Role::Member,
        }
    }

    /// True if it is counted.
    pub fn is_member(self) -> bool {
        matches!(self.role, Role::Member | Role::Failed)
    }
}
