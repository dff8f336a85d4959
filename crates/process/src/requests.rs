//! Requests to the main thread.

use quintet_client::TellReload;
use quintet_types::Principal;

/// A request to the main thread.
pub enum MainRequest {
    /// End in good order.
    Stop,
    /// Read the configuration again, for a client if one asks, and tell what came of it.
    Reload(Option<Principal>, Option<TellReload>),
    /// Take no puts from now on, or take them again.
    Drain(bool),
    /// Something happened in the cluster.
    ClusterChanged,
    /// Let another node own the queues.
    HandOver,
    /// Another node may own them already.
    StepDown,
}

/// Why a server that owned its queues serves no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Stop,
    /// Another node is to own them; this one follows.
    HandOver,
    /// Another node may own them already: nothing more is answered, and this one follows.
    Deposed,
}
