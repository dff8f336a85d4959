//! Workers of clients, as they are steered.

/// A request to a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkerAction {
    /// It finishes what it has and gets nothing more.
    Quiet,
    /// It is to end as well.
    Terminate,
}
