//! The caller of a command: its party and its principal.

/// A connection, a child process or another part of the server that can hold
/// leases and wait. Unique while the process lives; never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Party(pub u64);

/// On whose behalf a command runs. A number stands for one user while the
/// process lives, and is never given to another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Principal(pub u32);

impl Principal {
    /// A client that has not said who it is.
    pub const ANONYMOUS: Self = Self(0);
    /// The server itself, with what it does of its own accord, its scripts and
    /// hooks, and whoever operates it: may do everything.
    pub const SERVER: Self = Self(1);
    /// The first number of a user.
    pub const FIRST: Self = Self(2);
}

/// The author of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Caller {
    /// Holds the leases and waits.
    pub party: Party,
    /// The principal whose rights count.
    pub principal: Principal,
}

impl Caller {
    /// The server itself, as this party.
    pub fn server(party: Party) -> Self {
        Self {
            party,
            principal: Principal::SERVER,
        }
    }
}
