//! The thread for what no client asked for: timers, what happens by itself,
//! start and stop; and the eye on the files.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quintet_config::Config;
use quintet_hooks::{Event, Who};
use quintet_host::{Core, locked};
use quintet_types::Caller;

use super::{Hooks, Runner, stamp};

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(1);

impl Hooks {
    /// The hooks thread: runs until `stop`.
    pub fn run(&self, core: &Arc<Core>, config: &Mutex<Config>, stop: &AtomicBool) {
        let hooks_path = || locked(config).hooks_path();
        let client_id = core.own_client();
        let who = Who {
            caller: Caller::server(client_id),
            ..Who::default()
        };
        let mut runner: Option<Runner> = None;
        let mut checked = Instant::now();
        let mut seen = hooks_path().map(|path| stamp(&path));
        let mut version = 0;
        loop {
            self.renew(&mut runner, core);
            if let Some(runner) = &mut runner {
                if version != self.version() {
                    version = self.version();
                    core.want_pending_decisions(runner.state.pending_decisions(client_id));
                    runner.state.notify(&who, Event::Start);
                }
                for pending_decision in core.take_pending_decisions() {
                    runner.state.pending_decision(&who, &pending_decision);
                    runner.take_did().see_to(core);
                }
                runner.state.run_timers(&who);
                runner.take_did().see_to(core);
            }
            if stop.load(Ordering::SeqCst) {
                if let Some(runner) = &mut runner {
                    runner.state.notify(&who, Event::Stop);
                    runner.take_did().see_to(core);
                }
                return;
            }
            core.hooks_work.wait_for(rest(core, runner.as_ref()));
            if checked.elapsed() >= LOOK {
                checked = Instant::now();
                for line in self.shared.overdue(core.clock.now()) {
                    tracing::error!(target: "hooks", "{line}");
                }
                let now = hooks_path().map(|path| stamp(&path));
                if now != seen {
                    seen = now;
                    self.reload_by(core, config);
                }
            }
        }
    }

    /// Reads the hooks again; says so, or why not.
    pub fn reload_by(&self, core: &Core, config: &Mutex<Config>) {
        let (path, limits) = {
            let config = locked(config);
            (config.hooks_path(), config.hook_limits())
        };
        match self.reload(path.as_deref(), &limits) {
            Ok(()) => {
                core.hooks_work.raise();
                if path.is_some() {
                    tracing::info!("hooks reloaded");
                }
            }
            Err(error) => tracing::error!("hooks not reloaded, the old ones stay: {error}"),
        }
    }
}

/// How long the thread may sleep.
fn rest(core: &Core, runner: Option<&Runner>) -> Duration {
    let Some(runner) = runner else { return LOOK };
    let next = runner.state.next_timer().since(core.clock.now());
    Duration::from_millis(next).clamp(Duration::from_millis(1), LOOK)
}
