//! Lua hooks in the server: which are in force, who runs them, and how they
//! ask the shards.
//!
//! Each I/O thread has a state of its own, the dispatcher one for all that comes in
//! through the client API, and the hooks thread one for timers and for what happens
//! by itself. A change of the files makes new states; a thread notices by a
//! number it looks at once a turn.

mod edge;
mod thread;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use quintet_hooks::{HookError, HookState, Limits, Program, Shared, Who};
use quintet_host::{Core, locked};
use quintet_types::{Caller, ClientId, CommandError, Outcome};

pub(crate) use edge::Did;
use edge::Shards;

/// The outcome of a command on a thread that could not load the hooks: memory or the like.
pub(crate) fn not_loaded() -> Outcome {
    Outcome::Refused(CommandError::NoMemory)
}

/// There are hooks, and they could not be loaded.
#[derive(Debug)]
pub struct NotLoaded;

/// The loaded hook files, which a reload replaces while threads run the old ones.
#[derive(Default)]
pub struct Hooks {
    shared: Arc<Shared>,
    current: Mutex<Option<Arc<Program>>>,
    /// Rises with each change; 0: there never were any hooks.
    version: AtomicU64,
    /// The version that some thread could not load, which is said once.
    failed: AtomicU64,
    /// The state for commands that come in through the client API.
    dispatcher: Mutex<Option<Runner>>,
}

/// A state, and what its host does for it.
pub struct Runner {
    pub state: HookState,
    did: Arc<Mutex<Did>>,
    version: u64,
}

impl Hooks {
    /// Reads the hooks in `path`, if one is given.
    ///
    /// # Errors
    /// They cannot be read, or fail when they are loaded.
    pub fn load(path: Option<&Path>, limits: &Limits) -> Result<Self, HookError> {
        let hooks = Self::default();
        if path.is_some() {
            hooks.reload(path, limits)?;
        }
        Ok(hooks)
    }

    /// Reads them again. If that fails those in force stay.
    ///
    /// # Errors
    /// As [`Hooks::load`].
    pub fn reload(&self, path: Option<&Path>, limits: &Limits) -> Result<(), HookError> {
        let program = match path {
            Some(path) => Program::load(path, limits, Arc::clone(&self.shared))?,
            // Not nothing: takes that wait may still need what earlier hooks
            // began.
            None if self.are_used() => {
                Program::from_text("", "", limits, Arc::clone(&self.shared))?
            }
            None => return Ok(()),
        };
        *locked(&self.current) = Some(program);
        self.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// True if there are, or were, hooks since the start.
    pub fn are_used(&self) -> bool {
        self.version() > 0
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Counters, metrics and statistics.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Makes `runner` one of the hooks in force, if it is not.
    pub fn renew(&self, runner: &mut Option<Runner>, core: &Arc<Core>) {
        let version = self.version();
        if runner.as_ref().map_or(0, |runner| runner.version) == version {
            return;
        }
        let Some(program) = locked(&self.current).clone() else {
            return;
        };
        let did = Arc::new(Mutex::new(Did::default()));
        let host = Shards {
            core: Arc::clone(core),
            did: Arc::clone(&did),
        };
        match HookState::new(program, Box::new(host)) {
            Ok(mut state) => {
                if let Some(old) = runner.take() {
                    state.take_over(old.state);
                }
                *runner = Some(Runner {
                    state,
                    did,
                    version,
                });
            }
            // It was loaded on trial before, so this is memory or the like. A thread without hooks
            // tries again, and does nothing for clients until then.
            Err(error) => {
                if self.failed.swap(version, Ordering::Relaxed) != version {
                    tracing::error!("cannot load the hooks on a thread: {error}");
                }
                if let Some(runner) = runner {
                    runner.version = version;
                }
            }
        }
    }

    /// Works with the dispatcher's state, if there are hooks.
    ///
    /// # Errors
    /// There are, and they could not be loaded.
    pub fn at_dispatcher<T>(
        &self,
        core: &Arc<Core>,
        work: impl FnOnce(&mut Runner) -> T,
    ) -> Result<Option<T>, NotLoaded> {
        if !self.are_used() {
            return Ok(None);
        }
        let mut runner = locked(&self.dispatcher);
        self.renew(&mut runner, core);
        runner.as_mut().map(work).map(Some).ok_or(NotLoaded)
    }

    /// Says which events they decide, before any happens: a start does what was due meanwhile.
    pub fn begin(&self, core: &Arc<Core>) {
        let client_id = core.own_client();
        let decide = |runner: &mut Runner| runner.state.pending_decisions(client_id);
        if let Ok(Some(pending_decisions)) = self.at_dispatcher(core, decide) {
            core.want_pending_decisions(pending_decisions);
        }
    }

    /// `auth`: whether somebody who comes in by HTTP may; `None`: no hook says. Hooks that could not
    /// be loaded let nobody in.
    pub fn may_log_in(&self, core: &Arc<Core>, user: &str, secret: &[u8]) -> Option<bool> {
        let who = at_client_api(Caller::server(ClientId::default()));
        let outcome = self.at_dispatcher(core, |runner| {
            let may = runner.state.auth(&who, user, secret);
            (may, runner.take_did())
        });
        let Ok(outcome) = outcome else {
            return Some(false);
        };
        let (may, did) = outcome?;
        did.see_to(core);
        may
    }
}

/// The client of the client API, as hooks see it.
pub(crate) fn at_client_api(caller: Caller) -> Who {
    Who {
        caller,
        connection: caller.client_id.0,
        protocol: "door",
        ..Who::default()
    }
}

impl Runner {
    /// The results since the last call, for their consequences.
    pub fn take_did(&self) -> Did {
        std::mem::take(&mut *locked(&self.did))
    }
}

/// The hooks of an I/O thread.
#[derive(Default)]
pub(crate) struct ThreadHooks {
    pub(crate) runner: Option<Runner>,
    /// The version of the hooks it was made from.
    seen: u64,
}

impl ThreadHooks {
    /// Takes up hooks that have changed.
    #[inline]
    pub(crate) fn renew(&mut self, hooks: &Hooks, core: &Arc<Core>) {
        if hooks.version() != self.seen || self.are_lacking() {
            self.seen = hooks.version();
            hooks.renew(&mut self.runner, core);
        }
    }

    /// True if there are hooks and this thread could not load them: it tries again, and decides
    /// nothing for clients until then.
    #[inline]
    pub(crate) fn are_lacking(&self) -> bool {
        self.runner.is_none() && self.seen > 0
    }
}

/// The files of `path` and when each was changed, to notice changes by.
fn stamp(path: &Path) -> Vec<(PathBuf, Option<std::time::SystemTime>, u64)> {
    let one = |path: PathBuf| {
        let about = path.metadata().ok();
        let changed = about.as_ref().and_then(|about| about.modified().ok());
        (path, changed, about.map_or(0, |about| about.len()))
    };
    let mut files = vec![one(path.to_owned())];
    if let Ok(inside) = path.read_dir() {
        files.extend(inside.flatten().map(|entry| one(entry.path())));
    }
    files.sort();
    files
}
