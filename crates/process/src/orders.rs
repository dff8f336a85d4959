//! What the main thread is told to do.

use quintet_types::Principal;

/// What the main thread is told to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// End in good order.
    Stop,
    /// Read the configuration again; for a client, if it is one that asks. True: the next of
    /// `reload_tells` is told what came of it.
    Reload(Option<Principal>, bool),
    /// Take no puts from now on, or take them again.
    Drain(bool),
    /// Something happened in the cluster.
    Look,
    /// Let another node own the queues.
    HandOver,
}

/// Why a server that owned its queues serves no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It was told to stop.
    Stop,
    /// Another node is to own them; this one follows.
    HandOver,
}
