//! The threads of HTTP. The first one accepts; a further one begins when each has connections and
//! one more comes.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SendError, channel};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Handle, Runtime};
use tokio::sync::oneshot;

use crate::locks::locked;

/// Threads that wait for the shards and the disk, of each thread that serves;
/// further requests wait for one. Uploads hold one each, so there are more of these than of those.
const WORKERS_MAX: usize = 64;

/// How long a thread in the middle of something is waited for in the end.
pub(crate) const LAST_WAIT: Duration = Duration::from_secs(2);

/// Work beside the connections of a thread.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The threads of some sites.
pub(crate) struct Threads {
    name: &'static str,
    /// Threads at most, the first one included.
    most: usize,
    /// Asked once for each thread.
    task: Box<dyn Fn() -> Option<Task> + Send + Sync>,
    /// Each connection of the first thread has a clone.
    first: Arc<()>,
    others: Mutex<Vec<Other>>,
    /// Threads that the system did not give.
    failed: AtomicU64,
}

/// The place of a connection in a thread.
pub(crate) struct Place {
    /// `None`: the first one, which accepts.
    pub(crate) runtime: Option<Handle>,
    /// Kept as long as the connection is there.
    pub(crate) counted: Arc<()>,
}

impl Threads {
    /// So many at most, one at least.
    pub(crate) fn new(
        name: &'static str,
        most: usize,
        task: impl Fn() -> Option<Task> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name,
            most,
            task: Box::new(task),
            first: Arc::default(),
            others: Mutex::default(),
            failed: AtomicU64::new(0),
        }
    }

    /// The first one's, with its task.
    ///
    /// # Errors
    /// The system has no event queue to give.
    pub(crate) fn first(&self) -> io::Result<Runtime> {
        let runtime = self.runtime()?;
        self.give_task(runtime.handle());
        Ok(runtime)
    }

    fn runtime(&self) -> io::Result<Runtime> {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(WORKERS_MAX)
            .thread_name(format!("{}-work", self.name))
            .build()
    }

    fn give_task(&self, runtime: &Handle) {
        if let Some(task) = (self.task)() {
            runtime.spawn(task);
        }
    }

    /// A place for one more connection, where there are the fewest.
    pub(crate) fn place(&self) -> Place {
        let mut others = locked(&self.others);
        let is_used = |connections: &Arc<()>| Arc::strong_count(connections) > 1;
        if others.len() + 1 < self.most
            && is_used(&self.first)
            && others.iter().all(|other| is_used(&other.connections))
        {
            match self.start() {
                Ok(other) => others.push(other),
                Err(error) => self.report(&error),
            }
        }
        let count = |other: &&Other| Arc::strong_count(&other.connections);
        match others.iter().min_by_key(count) {
            Some(other) if count(&other) < Arc::strong_count(&self.first) => Place {
                runtime: Some(other.runtime.clone()),
                counted: Arc::clone(&other.connections),
            },
            Some(_) | None => Place {
                runtime: None,
                counted: Arc::clone(&self.first),
            },
        }
    }

    /// Starts a further one.
    fn start(&self) -> io::Result<Other> {
        let thread = Builder::new().name(self.name.to_owned());
        let other = Other::start(thread, || self.runtime())?;
        // Before its first connection.
        self.give_task(&other.runtime);
        Ok(other)
    }

    /// The others serve what comes.
    fn report(&self, error: &io::Error) {
        let failed = self.failed.fetch_add(1, Ordering::Relaxed) + 1;
        if failed.is_power_of_two() {
            let name = self.name;
            tracing::warn!("{name}: cannot start a further thread, {failed} times: {error}");
        }
    }

    /// Cuts the connections that are left on others than the first one. These end by themselves
    /// from here on.
    pub(crate) fn end(&self) -> Vec<JoinHandle<()>> {
        let others = std::mem::take(&mut *locked(&self.others));
        others.into_iter().map(Other::end).collect()
    }
}

/// A thread beside the first one.
struct Other {
    runtime: Handle,
    /// Each of its connections has a clone.
    connections: Arc<()>,
    /// Dropped: it ends.
    go_on: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Other {
    /// The thread is there before its runtime: one that is dropped in a task, as its thread did not
    /// start, panics.
    fn start(thread: Builder, runtime: impl FnOnce() -> io::Result<Runtime>) -> io::Result<Self> {
        let (go_on, over) = oneshot::channel::<()>();
        let (give, given) = channel::<Runtime>();
        let thread = thread.spawn(move || {
            // Without a runtime there is nothing to do.
            let Ok(runtime) = given.recv() else { return };
            // Told by being dropped.
            let _over = runtime.block_on(over);
            runtime.shutdown_timeout(LAST_WAIT);
        })?;
        let runtime = runtime()?;
        let handle = runtime.handle().clone();
        if let Err(SendError(runtime)) = give.send(runtime) {
            runtime.shutdown_background();
            return Err(io::Error::other("the thread has ended"));
        }
        Ok(Self {
            runtime: handle,
            connections: Arc::default(),
            go_on,
            thread,
        })
    }

    fn end(self) -> JoinHandle<()> {
        drop(self.go_on);
        self.thread
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_thread_or_an_event_queue_that_the_system_does_not_give_is_an_error() {
        let threads = Threads::new("test", 2, || None);
        // No machine has so much memory for a stack.
        let thread = Builder::new().stack_size(1 << 60);
        assert!(Other::start(thread, || threads.runtime()).is_err());
        let thread = Builder::new();
        let none = || Err(io::Error::other("no event queue"));
        assert!(Other::start(thread, none).is_err());
        let other = Other::start(Builder::new(), || threads.runtime()).expect("a thread");
        let ran = other.runtime.spawn(async {});
        ran.await.expect("it runs tasks");
        other.end().join().expect("it ends");
    }
}
