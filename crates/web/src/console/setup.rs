//! How a queue is set up: what holds, who said so, and where copies go.

use quintet_door::Source;
use quintet_engine::{Name, QueueSetup, Verb};

use super::Asked;
use super::names::{self, Named};

/// A setting in force.
pub(super) struct Value {
    pub(super) key: String,
    pub(super) value: String,
    pub(super) from: &'static str,
    /// Somebody said so.
    pub(super) said: bool,
    pub(super) help: String,
}

/// A queue's.
pub(super) struct Setup {
    /// Those that somebody said come first, each part in the documentation's order.
    pub(super) values: Vec<Value>,
    pub(super) said: usize,
    /// It gets copies of this one's puts.
    pub(super) parent: Option<Named>,
    /// They get copies of its puts; those that may be seen.
    pub(super) children: Vec<Named>,
}

pub(super) fn of(asked: &Asked, setup: &QueueSetup) -> Setup {
    let settings = asked.console.api.door().queue_settings(setup);
    let values = settings.into_iter().map(|setting| Value {
        key: setting.key,
        value: names::seen(&setting.value),
        from: setting.source.name(),
        said: setting.source != Source::Default,
        help: setting.help,
    });
    let mut values: Vec<Value> = values.collect();
    values.sort_by_key(|value| !value.said);
    let seen = |name: &&Name| asked.visitor.may_to(Verb::Stats, name);
    Setup {
        said: values.iter().filter(|value| value.said).count(),
        values,
        parent: setup.parent.as_ref().filter(seen).map(Named::new),
        children: setup.children.iter().filter(seen).map(Named::new).collect(),
    }
}
