//! Deduplication in requests.

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

/// Event that ends the memory of a put, besides its time.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Until {
    /// The end of `window_ms` only.
    Time,
    /// Its message is taken; given back, it counts again.
    Waiting,
    /// Its message is taken for the first time.
    Started,
    /// Its message is gone, archived or buried.
    Done,
}

impl From<Until> for quintet_types::Scope {
    fn from(until: Until) -> Self {
        match until {
            Until::Time => Self::Window,
            Until::Waiting => Self::Waiting,
            Until::Started => Self::Started,
            Until::Done => Self::Done,
        }
    }
}

/// Effect of a put whose deduplication id is remembered.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Repeat {
    /// It is refused: 409 `duplicate`.
    Refuse,
    /// It stores nothing and is answered with the id of the first.
    First,
    /// It takes the place of the first if that waits, and is refused else.
    Replace,
}

impl From<Repeat> for quintet_types::OnRepeat {
    fn from(repeat: Repeat) -> Self {
        match repeat {
            Repeat::Refuse => Self::Refuse,
            Repeat::First => Self::First,
            Repeat::Replace => Self::Replace,
        }
    }
}
