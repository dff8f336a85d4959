//! Operators' commands on queues and messages of a running server.

mod batch;
mod browse;
mod bulk;
mod cancel;
mod clients;
mod fanout;
mod hold;
mod message;
mod moving;
mod pause;
mod purge;
mod retry;
mod schedules;
mod server;
mod trace;
mod track;
mod workers;

use std::{fs, io};

use anyhow::{Context as _, Result};
use serde_json::Value;

pub(super) use batch::Batch;
pub(super) use browse::{Browse, preview};
pub(super) use bulk::{Bulk, PURGE, RETRY, headers, pair};
pub(super) use cancel::Cancel;
pub(super) use clients::{CONNECTIONS, Clients, Leases, queue, shown};
pub(super) use fanout::Fanout;
pub(super) use hold::Hold;
pub(super) use message::{Delete, Edit};
pub(super) use moving::Move;
pub(super) use pause::{Pause, Resume};
pub(super) use purge::Purge;
pub(super) use quintet_config::parse_duration_ms as duration;
pub(super) use retry::{Kick, Redrive, Retry};
pub(super) use schedules::Schedule;
pub(super) use server::{Drain, Reload, Undrain, Wait};
pub(super) use trace::Trace;
pub(super) use track::Track;
pub(super) use workers::Workers;

/// The JSON in a file; `-`: on standard input.
fn json_of(file: &str) -> Result<Value> {
    let text = match file {
        "-" => io::read_to_string(io::stdin()).context("cannot read standard input")?,
        path => fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?,
    };
    serde_json::from_str(&text).with_context(|| format!("{file} is not JSON"))
}

/// The fields of a request that are given.
pub(super) fn given(mut of: Value) -> Value {
    if let Some(fields) = of.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    of
}
