//! The shards, as a hook asks them.

use std::sync::{Arc, Mutex};

use quintet_hooks::{Host, Level};
use quintet_host::{Access, Core, Decided, Required, Trail, locked};
use quintet_types::{Caller, Command, Ms, Name, Outcome, TableRequest};

/// Result of hooks' commands.
#[derive(Default)]
pub struct Did {
    /// The condition for a reply that reports it.
    pub required: Required,
    /// Work that their steps have left.
    pub trail: Trail,
}

impl Did {
    /// Sees to it; answers what a reply that names it waits for.
    pub fn see_to(mut self, core: &Core) -> Required {
        self.trail.recorded = self.trail.recorded.max(self.required.written);
        core.see_to(self.trail);
        self.required
    }
}

/// A state's host.
pub(super) struct Shards {
    pub(super) core: Arc<Core>,
    pub(super) did: Arc<Mutex<Did>>,
}

impl Host for Shards {
    fn now(&self) -> Ms {
        self.core.clock.now()
    }

    fn wall(&self) -> Ms {
        self.core.clock.wall()
    }

    fn ask(&mut self, caller: Caller, command: Command) -> (Option<Outcome>, Name) {
        let mut did = locked(&self.did);
        let did = &mut *did;
        let now = self.core.clock.now();
        let decided = Access::new(&self.core, now, &mut did.trail).submit(caller, command);
        match decided {
            Decided::Now(outcome, name, required) => {
                did.required = did.required.and(required);
                (Some(outcome), name)
            }
            Decided::Later => (None, Name::default()),
        }
    }

    fn ask_at_once(&mut self, caller: Caller, command: Command) -> (Option<Outcome>, Name) {
        if !peeks(&command) {
            return self.ask(caller, command);
        }
        let (outcome, name, required) = self.core.peek(command);
        let mut did = locked(&self.did);
        did.required = did.required.and(required);
        (Some(outcome), name)
    }

    fn log(&mut self, level: Level, text: &str) {
        match level {
            Level::Info => tracing::info!(target: "hooks", "{text}"),
            Level::Warn => tracing::warn!(target: "hooks", "{text}"),
            Level::Error => tracing::error!(target: "hooks", "{text}"),
        }
    }
}

/// True for a peek: a hook that asks for it gets its answer at once,
/// also if a run has to be read for it.
fn peeks(command: &Command) -> bool {
    matches!(
        command,
        Command::Peek(_)
            | Command::Stats(_)
            | Command::Table(TableRequest::Get { .. } | TableRequest::List { .. })
    ) || matches!(command, Command::BulkOp(bulk_op) if !bulk_op.action.changes())
}
