//! Messages of the host to threads that have clients.

use quintet_types::Delivery;

use super::Required;

/// A thread with clients, as others reach it. Its number is in their
/// [`crate::ClientKey`]s.
pub trait Post: Send + Sync {
    /// Leaves an outcome for a take that waited, and what it waits for.
    fn post(&self, delivery: Delivery, required: Required);

    /// A batch was written: wakes the thread if it holds replies for that.
    fn notify_written(&self);

    /// A batch became durable: wakes the thread if it holds replies for that.
    fn notify_durable(&self);

    /// Wakes the thread.
    fn wake(&self);

    /// Takes what was left, where a test keeps it.
    #[cfg(test)]
    fn take(&self) -> Vec<(Delivery, Required)> {
        Vec::new()
    }
}
