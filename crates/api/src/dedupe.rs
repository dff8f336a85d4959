//! Deduplication in requests.

use quintet_client::choices;
use serde::Deserialize;
use utoipa::ToSchema;

/// A deduplication id and its rules; fields left out are as the queue's settings.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Dedupe {
    /// Compared within the queue.
    pub id: String,
    /// For how long the first put is remembered at most, ms; left out: as the
    /// queue's `unique_for` says.
    #[serde(default, deserialize_with = "super::read::duration_ms")]
    pub window_ms: Option<u64>,
    /// Event that also ends that; left out: as the queue's `unique_until` says.
    pub until: Option<Until>,
    /// Handling of a repeat; left out: as the queue's `unique_repeat` says.
    pub on_repeat: Option<Repeat>,
}

choices! {
    /// Event that ends the memory of a put, besides its time.
    pub enum Until of quintet_types::Scope {
        /// The end of `window_ms` only.
        Time = Window,
        /// Its message is taken; given back, it counts again.
        Waiting = Waiting,
        /// Its message is taken for the first time.
        Started = Started,
        /// Its message is gone, archived or buried.
        Done = Done,
    }

    /// Effect of a put whose deduplication id is remembered.
    pub enum Repeat of quintet_types::OnRepeat {
        /// It is refused: 409 `duplicate`.
        Refuse = Refuse,
        /// It stores nothing and is answered with the id of the first.
        First = First,
        /// It takes the place of the first if that waits, and is refused else.
        Replace = Replace,
    }
}
