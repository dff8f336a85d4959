//! Threads that end together, and for which one waits.

use std::convert::Infallible;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::{Context as _, Result};

/// Some threads. Dropped, they go on by themselves.
pub struct Crew {
    threads: Vec<JoinHandle<()>>,
    /// Each thread holds one as well, until it ends.
    alive: Sender<Infallible>,
    ended: Receiver<Infallible>,
}

impl Default for Crew {
    fn default() -> Self {
        let (alive, ended) = channel();
        Self {
            threads: Vec::new(),
            alive,
            ended,
        }
    }
}

impl Crew {
    /// Starts one.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
        let alive = self.alive.clone();
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || {
            let _alive = alive;
            body();
        });
        self.threads.push(thread.context("cannot start a thread")?);
        Ok(())
    }

    /// True: one of this name was started.
    pub fn has(&self, name: &str) -> bool {
        let mut names = self.threads.iter().map(|thread| thread.thread().name());
        names.any(|one| one == Some(name))
    }

    /// Waits until all have ended, or it is that late; nobody is started any more. True: they have.
    pub fn ends_by(&mut self, by: Instant) -> bool {
        // The one that is held here would keep it waiting.
        self.alive = channel().0;
        let left = by.saturating_duration_since(Instant::now());
        match self.ended.recv_timeout(left) {
            Ok(never) => match never {},
            Err(RecvTimeoutError::Disconnected) => true,
            Err(RecvTimeoutError::Timeout) => false,
        }
    }

    /// Waits for all. False: one has panicked.
    pub fn join(self) -> bool {
        let ended = self.threads.into_iter().map(|thread| thread.join().is_ok());
        ended.fold(true, |whole, one| whole & one)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::Barrier;
    use std::time::{Duration, Instant};

    use super::Crew;

    #[test]
    fn it_has_ended_when_the_last_thread_has() {
        let mut crew = Crew::default();
        let gate = Arc::new(Barrier::new(2));
        let held = Arc::clone(&gate);
        crew.start("ends", || {}).expect("a thread");
        crew.start("waits", move || {
            held.wait();
        })
        .expect("a thread");
        assert!(crew.has("ends") && crew.has("waits") && !crew.has("w"));
        assert!(!crew.ends_by(Instant::now()));
        gate.wait();
        assert!(crew.ends_by(Instant::now() + Duration::from_secs(100)));
        assert!(crew.join());
    }
}
