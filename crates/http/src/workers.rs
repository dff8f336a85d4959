//! The threads that wait for the shards and the disk. Each thread that serves has its own. Those of
//! a runtime would end the process where the system has no thread to give.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, Builder};
use std::time::Duration;

use quintet_types::locked;
use tokio::sync::oneshot;

/// Threads at most, of each thread that serves; further work waits for one. Uploads hold one each,
/// so there are more of these than of those.
const MOST: usize = 64;
/// A thread without work ends after this time.
const IDLE: Duration = Duration::from_secs(10);

type Work = Box<dyn FnOnce() + Send>;

thread_local! {
    /// Those of this thread.
    static WORKERS: Arc<Workers> = Arc::default();
}

#[derive(Default)]
struct Workers {
    state: Mutex<State>,
    /// There is more work.
    came: Condvar,
    /// A thread has nothing to do.
    rests: Condvar,
}

#[derive(Default)]
struct State {
    /// Work that no thread has begun.
    queue: VecDeque<Work>,
    threads: usize,
    /// Those of them without work.
    idle: usize,
}

impl Workers {
    /// Has `work` done by an idle thread, or by one that `start` starts.
    ///
    /// # Errors
    /// There is no thread, and `start` starts none.
    fn give(
        self: &Arc<Self>,
        work: Work,
        start: impl FnOnce(Work) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut state = locked(&self.state);
        state.queue.push_back(work);
        if state.idle < state.queue.len() && state.threads < MOST {
            let workers = Arc::clone(self);
            match start(Box::new(move || workers.work())) {
                Ok(()) => state.threads += 1,
                Err(error) if state.threads == 0 => {
                    state.queue.clear();
                    return Err(error);
                }
                // A thread that is busy now does it later.
                Err(_) => {}
            }
        }
        self.came.notify_one();
        Ok(())
    }

    /// The work of a thread, until there is none for a while.
    fn work(&self) {
        let mut state = locked(&self.state);
        loop {
            while let Some(work) = state.queue.pop_front() {
                drop(state);
                // Where a panic does not end the process, it fails this work alone.
                let _panicked = catch_unwind(AssertUnwindSafe(work));
                state = locked(&self.state);
            }
            state.idle += 1;
            self.rests.notify_all();
            let waited = self.came.wait_timeout(state, IDLE);
            let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if timeout.timed_out() && state.queue.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }

    /// Waits until no thread has work, at most so long. Work that none has begun is not done.
    fn end(&self, at_most: Duration) {
        let mut state = locked(&self.state);
        state.queue.clear();
        let busy = |state: &mut State| state.idle < state.threads;
        drop(self.rests.wait_timeout_while(state, at_most, busy));
    }
}

/// Runs what may wait for the shards, the disk or other nodes, in a thread for that.
///
/// # Errors
/// The system has no thread to give, or `ask` panicked.
pub(crate) async fn run<T, F>(ask: F) -> io::Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let (sender, answer) = oneshot::channel();
    // Whoever asked may be gone.
    let work = Box::new(move || drop(sender.send(ask())));
    WORKERS.with(|workers| workers.give(work, start))?;
    answer.await.map_err(|_| io::Error::other("it failed"))
}

/// Starts a thread, named after this one.
fn start(work: Work) -> io::Result<()> {
    let name = format!("{}-work", thread::current().name().unwrap_or_default());
    Builder::new().name(name).spawn(work).map(drop)
}

/// Ends the work of this thread's, whose runtime is gone: waits for it, at most so long.
pub(crate) fn end(at_most: Duration) {
    WORKERS.with(|workers| workers.end(at_most));
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn none(_: Work) -> io::Result<()> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    #[test]
    fn without_a_thread_work_is_an_error_and_with_a_busy_one_it_is_done_later() {
        let workers = Arc::new(Workers::default());
        let (done, end) = channel();
        let says = |what: &'static str| {
            let done = done.clone();
            Box::new(move || done.send(what).expect("somebody listens"))
        };
        let refused = workers.give(says("never"), none).expect_err("no thread");
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        let (go_on, held) = channel::<()>();
        let busy = Box::new(move || held.recv().expect("it goes on"));
        workers.give(busy, start).expect("a thread");
        workers.give(says("later"), none).expect("a busy thread");
        go_on.send(()).expect("it waits");
        assert_eq!(end.recv(), Ok("later"));
        assert!(end.try_recv().is_err());
    }

    #[test]
    fn the_end_waits_for_what_a_thread_does_and_not_for_the_rest() {
        let (go_on, held) = channel::<()>();
        let (began, begins) = channel();
        let work = Box::new(move || {
            began.send(()).expect("somebody listens");
            let _told = held.recv();
        });
        let workers = Arc::new(Workers::default());
        workers.give(work, start).expect("a thread");
        begins.recv().expect("it begins");
        let never: Work = Box::new(|| unreachable!("no thread begins it"));
        workers.give(never, none).expect("a busy thread");
        workers.end(Duration::ZERO);
        {
            let state = locked(&workers.state);
            assert_eq!((state.queue.len(), state.threads, state.idle), (0, 1, 0));
        }
        drop(go_on);
        workers.end(Duration::from_secs(100));
        assert_eq!(locked(&workers.state).idle, 1);
    }
}
