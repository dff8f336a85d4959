//! Where all servers' copies of a log begin that does not say where it begins itself, as those of
//! version 1 do not.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use quintet_cluster::Seq;
use quintet_host::locked;
use quintet_nodes::stores;

/// How long an answer counts.
const COUNTS: Duration = Duration::from_secs(2);
/// How often it is said why such a log is not accepted.
const SAID: Duration = Duration::from_secs(30);

/// Asks the servers, in the background.
pub(super) struct Copies {
    monitor: Vec<String>,
    stream: String,
    check: Arc<Mutex<CopyCheck>>,
}

/// The last question to them.
#[derive(Default)]
struct CopyCheck {
    /// They are being asked.
    now: bool,
    /// The entry they were asked of, and when they answered that all begin with it.
    all: Option<(Seq, Instant)>,
    reported: Option<Instant>,
}

impl Copies {
    /// Of this stream, on the servers with these monitoring addresses.
    pub(super) fn new(monitor: &[String], stream: &str) -> Self {
        Self {
            monitor: monitor.to_vec(),
            stream: stream.to_owned(),
            check: Arc::default(),
        }
    }

    /// Whether all begin with this entry and lack none, as far as is known by now. Without
    /// monitoring addresses nobody can tell: it is believed.
    pub(super) fn begin_with(&self, first: Seq) -> bool {
        let mut check = locked(&self.check);
        if self.monitor.is_empty() {
            if check.reported.replace(Instant::now()).is_none() {
                tracing::warn!(
                    "this log has version 1, which does not record its first entry: set `monitor` \
                     in [cluster], so that this node can check entry {first}"
                );
            }
            return true;
        }
        let all = check
            .all
            .filter(|(of, at)| *of == first && at.elapsed() < COUNTS);
        if all.is_none() && !check.now {
            let (monitor, stream) = (self.monitor.clone(), self.stream.clone());
            let shared_check = Arc::clone(&self.check);
            let look = move || {
                let came = stores::begin_with(&monitor, &stream, first);
                locked(&shared_check).came(first, came);
            };
            // Without a thread the next call tries again.
            check.now = std::thread::Builder::new().spawn(look).is_ok();
        }
        all.is_some()
    }
}

impl CopyCheck {
    /// They have answered.
    fn came(&mut self, first: Seq, came: Result<()>) {
        let now = Instant::now();
        self.now = false;
        self.all = came.is_ok().then_some((first, now));
        let Err(why) = came else { return };
        if self.reported.is_none_or(|reported| now - reported > SAID) {
            self.reported = Some(now);
            tracing::error!(
                "this log has version 1, which does not record its first entry: this node waits \
                 until all NATS servers have the same complete copy: {why:#}"
            );
        }
    }
}
