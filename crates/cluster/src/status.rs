//! State of a group's member, for others than itself.

use std::time::Duration;

use quintet_log::Epoch;

use crate::{Claim, Moment, Seq};

/// Role of a member in its group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// It reads the stream and has not come to its end.
    #[default]
    Reading,
    /// It has read all there is, and could take over.
    Standby,
    /// Its claim is on its way, or the places behind it are being filled.
    Claiming,
    Owner,
    /// It decided until somebody else claimed the log; it is over.
    Deposed,
    /// It found in the stream what cannot be, or could not write its mirror; it is over.
    Stopped,
}

impl Role {
    /// As operators see it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reading => "reading",
            Self::Standby => "standby",
            Self::Claiming => "claiming",
            Self::Owner => "owner",
            Self::Deposed => "deposed",
            Self::Stopped => "stopped",
        }
    }
}

/// How a member stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    pub role: Role,
    /// The newest epoch it knows of; 0: nobody has claimed the log yet.
    pub epoch: Epoch,
    /// The newest claim it has read, or its own: who owns the log, as far as it knows.
    pub owner: Option<Claim>,
    /// The last entry it has read and applied; for an owner the last one before it owned.
    pub read: Seq,
    /// The last entry the stream had when the leader was asked last, at least `read`.
    pub last: Seq,
    /// When it became what it is.
    pub since: Moment,
    pub tally: Tally,
    /// The entry that the log begins with, as far as the owners' words were read.
    pub begins: Option<Seq>,
    /// By how many ms this node's wall clock is ahead of the owner's time, while it follows and as
    /// far as it knows.
    pub clock_ahead_ms: Option<i64>,
    /// How the copy of the stream that answers is damaged, if it is: this member claims nothing
    /// while it answers.
    pub damage: Option<String>,
    /// The servers whose copies this member found damaged and that have not led with a whole one
    /// since.
    pub distrusted: Vec<String>,
}

/// Counts since the member first stood by; it does not count older events that it reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Claims behind silence, its own included.
    pub takeovers: u64,
    /// Claims behind a handoff, its own included.
    pub handovers: u64,
    /// Times that what it had read was not what the stream has, or could not be: it read
    /// everything again, or stopped.
    pub divergences: u64,
}

impl Tally {
    /// Somebody else reigns; `parted`: the owner before had handed off.
    pub(crate) fn claimed(&mut self, parted: bool) {
        match parted {
            true => self.handovers += 1,
            false => self.takeovers += 1,
        }
    }
}

impl Status {
    /// Whether this node's wall clock is off from the owner's time by more than this.
    pub const CLOCK_OFF: Duration = Duration::from_secs(1);

    /// Entries it has still to read, as far as it knows.
    pub fn lag(&self) -> u64 {
        self.last.0.saturating_sub(self.read.0)
    }
}
