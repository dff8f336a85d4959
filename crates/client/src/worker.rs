//! Workers of clients, as they are steered.

/// A request that a Faktory worker gets with its next heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkerAction {
    /// It finishes what it has and gets nothing more.
    Quiet,
    /// It is to end as well.
    Terminate,
}
