//! The thread for what no client asked for: timers, what happens by itself,
//! start and stop; and the eye on the files.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use quintet_hooks::{Event, Who};
use quintet_host::locked;
use quintet_types::Caller;

use super::{Runner, stamp};
use crate::server::Server;

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(1);

impl Server {
    /// The hooks thread: runs until `stop`.
    pub(crate) fn run_hooks(self: &Arc<Self>, stop: &AtomicBool) {
        let weak = Arc::downgrade(self);
        let party = self.core.own_party();
        let who = Who {
            caller: Caller::server(party),
            ..Who::default()
        };
        let mut runner: Option<Runner> = None;
        let mut looked = Instant::now();
        let mut seen = self.hooks_path().map(|path| stamp(&path));
        let mut version = 0;
        loop {
            self.hooks.renew(&mut runner, &weak);
            if let Some(runner) = &mut runner {
                if version != self.hooks.version() {
                    version = self.hooks.version();
                    self.core.want_intents(runner.state.intents(party));
                    runner.state.notify(&who, Event::Start);
                }
                for intent in self.core.take_intents() {
                    runner.state.intent(&who, &intent);
                    self.settle_did(runner);
                }
                runner.state.run_timers(&who);
                self.settle_did(runner);
            }
            if stop.load(Ordering::SeqCst) {
                if let Some(runner) = &mut runner {
                    runner.state.notify(&who, Event::Stop);
                    self.settle_did(runner);
                }
                return;
            }
            self.core
                .hooks_work
                .wait_for(self.hooks_rest(runner.as_ref()));
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                for line in self.hooks.shared().overdue(self.core.clock.now()) {
                    tracing::error!(target: "hooks", "{line}");
                }
                let now = self.hooks_path().map(|path| stamp(&path));
                if now != seen {
                    seen = now;
                    self.reload_hooks();
                }
            }
        }
    }

    /// Reads the hooks again; says so, or why not.
    pub(crate) fn reload_hooks(&self) {
        let (path, limits) = {
            let config = locked(&self.config);
            (config.hooks_path(), config.hook_limits())
        };
        match self.hooks.reload(path.as_deref(), &limits) {
            Ok(()) => {
                self.core.hooks_work.raise();
                if path.is_some() {
                    tracing::info!("hooks reloaded");
                }
            }
            Err(error) => tracing::error!("hooks not reloaded, the old ones go on: {error}"),
        }
    }

    fn hooks_path(&self) -> Option<std::path::PathBuf> {
        locked(&self.config).hooks_path()
    }

    /// How long the thread may sleep.
    fn hooks_rest(&self, runner: Option<&Runner>) -> Duration {
        let Some(runner) = runner else { return LOOK };
        let next = runner.state.next_timer().since(self.core.clock.now());
        Duration::from_millis(next).clamp(Duration::from_millis(1), LOOK)
    }

    /// Sees to what a state's commands did: it is written, and others are
    /// told what they waited for.
    pub(crate) fn settle_did(&self, runner: &Runner) {
        runner.take_did().see_to(&self.core);
    }
}
