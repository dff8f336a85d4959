//! The caller of a command: its client and its principal.

/// A connection, a child process or another part of the server that can hold
/// leases and wait. Unique while the process lives; never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ClientId(pub u64);

/// On whose behalf a command runs. A number stands for one user while the
/// process lives, and is never given to another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Principal(pub u32);

impl Principal {
    /// A client that has not said who it is.
    pub const ANONYMOUS: Self = Self(0);
    /// The server itself, with what it does of its own accord, its scripts and
    /// hooks, and its operator: may do everything.
    pub const SERVER: Self = Self(1);
    /// The first number of a user.
    pub const FIRST: Self = Self(2);
}

/// The author of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Caller {
    /// Holds the leases and waits.
    pub client_id: ClientId,
    /// The principal whose rights count.
    pub principal: Principal,
}

impl Caller {
    /// The server itself, as this client.
    pub fn server(client_id: ClientId) -> Self {
        Self {
            client_id,
            principal: Principal::SERVER,
        }
    }
}
