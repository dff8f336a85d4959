//! Hooks that were read and found good.

use std::sync::Arc;

use crate::shared::Shared;
use quintet_policy::Events;
use quintet_policy::Limits;

/// One of the files.
pub(crate) struct Source {
    /// As errors show it: the last part of its path.
    pub(crate) name: String,
    pub(crate) text: Vec<u8>,
}

/// Hooks that were read and have run once without an error. Cheap to share;
/// each thread makes a [`crate::HookState`] of its own from it.
pub struct Program {
    pub(crate) sources: Vec<Source>,
    pub(crate) names: Vec<String>,
    pub(crate) limits: Limits,
    pub(crate) shared: Arc<Shared>,
    pub(crate) events: Events,
}

impl Program {
    /// The events that have functions.
    pub fn events(&self) -> Events {
        self.events
    }

    /// Names of the files, as errors show them.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Counters, metrics and statistics.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}
