//! The threads of HTTP. The first one accepts; a further one begins when each has connections and
//! one more comes.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use quintet_types::locked;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::oneshot;

use crate::workers;

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
        let thread = std::thread::Builder::new().name(self.name.to_owned());
        let other = Other::start(self.runtime()?, |work| thread.spawn(work))?;
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
    /// In the thread that `spawn` starts.
    fn start(
        runtime: Runtime,
        spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>>,
    ) -> io::Result<Self> {
        let (go_on, over) = oneshot::channel::<()>();
        let handle = runtime.handle().clone();
        // A runtime that is dropped in a task panics, and work without a thread is dropped.
        let kept = Arc::new(Mutex::new(Some(runtime)));
        let own = Arc::clone(&kept);
        let thread = spawn(Box::new(move || {
            let runtime = locked(&own).take();
            if let Some(runtime) = runtime {
                // Told by being dropped.
                let _over = runtime.block_on(over);
                runtime.shutdown_timeout(LAST_WAIT);
                workers::end(LAST_WAIT);
            }
        }));
        match thread {
            Ok(thread) => Ok(Self {
                runtime: handle,
                connections: Arc::default(),
                go_on,
                thread,
            }),
            Err(error) => {
                let unused = locked(&kept).take();
                if let Some(runtime) = unused {
                    runtime.shutdown_background();
                }
                Err(error)
            }
        }
    }

    fn end(self) -> JoinHandle<()> {
        drop(self.go_on);
        self.thread
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_the_system_does_not_give_ends_nothing() {
        let threads = Threads::new("t", 2, || None);
        let first = threads.first().expect("a runtime");
        // As connections are accepted: in a task.
        let started = first.block_on(async {
            let runtime = threads.runtime().expect("a runtime");
            Other::start(runtime, |_| Err(io::ErrorKind::WouldBlock.into()))
        });
        assert!(started.is_err());
    }
}
