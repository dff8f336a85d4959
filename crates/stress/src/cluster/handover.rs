//! Owners that go in good order: for how long nobody is served at a stretch.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use rustix::process::Signal;

use super::fleet::{Fleet, NODES};
use super::inflict::acknowledged;
use super::kinds::Kind;
use super::{COUNT, Campaign};
use crate::load::Load;

/// Clients that were held up by it have come again by then.
const AFTER: Duration = Duration::from_millis(1500);

impl Campaign<'_> {
    /// The owner is stopped, or another node is to own.
    pub(super) fn hand_over(&mut self, load: &Load, kind: Kind, owner: usize) -> Result<Duration> {
        let requested = self.random.index(COUNT);
        let successor = (owner + 1 + self.random.index(COUNT - 1)) % COUNT;
        let fleet = &mut self.fleet;
        match kind {
            Kind::MoveOwner => longest(load, || {
                // One that has runs to fetch is refused.
                let other = COUNT - owner - successor;
                fleet
                    .order(requested, &["move", "0", NODES[successor]])
                    .or_else(|_| fleet.order(requested, &["move", "0", NODES[other]]))
            }),
            Kind::DrainOwner => {
                let took = longest(load, || fleet.order(requested, &["drain", NODES[owner]]))?;
                fleet.order(requested, &["undrain", NODES[owner]])?;
                Ok(took)
            }
            _ => {
                let node = &mut fleet.nodes[owner];
                let took = longest(load, || {
                    node.signal(Signal::TERM)?;
                    let status = node.end()?;
                    ensure!(status.success(), "SIGTERM ended it with {status}");
                    Ok(())
                })?;
                node.start()?;
                Ok(took)
            }
        }
    }
}

impl Fleet {
    /// Has the node `at` do something, and waits until it is done.
    fn order(&self, at: usize, words: &[&str]) -> Result<()> {
        let data = self.addresses[at].data.display().to_string();
        let mut words = words.to_vec();
        words.extend(["--data", data.as_str()]);
        self.command(&words)
    }

    /// Runs `quintet cluster` to its end.
    pub(super) fn command(&self, words: &[&str]) -> Result<()> {
        let mut command = Command::new(&self.addresses[0].binary);
        command.arg("cluster").args(words).stdin(Stdio::null());
        let output = command.output()?;
        let printed = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{words:?}: {} {printed}",
            output.status
        );
        Ok(())
    }
}

/// Has it done, and answers for how long no put was acknowledged meanwhile, or soon after. What is
/// between two puts of those that probe counts as well.
fn longest(load: &Load, act: impl FnOnce() -> Result<()> + Send) -> Result<Duration> {
    std::thread::scope(|scope| {
        let acting = scope.spawn(act);
        let (mut longest, mut since) = (Duration::ZERO, Instant::now());
        while since.elapsed() < AFTER {
            if !acting.is_finished() {
                since = Instant::now();
            }
            load.await_put();
            longest = longest.max(acknowledged(load)?);
        }
        match acting.join() {
            Ok(done) => done.map(|()| longest),
            Err(_) => bail!("the step has panicked"),
        }
    })
}
