//! Streams of what changes in queues: who follows what, and what they are told.

mod figures;
mod hub;
mod reader;

pub(crate) use figures::{Figures, Queues};
pub(crate) use hub::{Hub, Selection};
