//! Streams of what changes in queues: who follows what, and the events that they get.

mod figures;
mod hub;
mod reader;

pub(crate) use figures::{Figures, Queues};
pub(crate) use hub::{Hub, Selection};
