//! `quintet fanout`.

use std::io::{Write as _, stdout};

use anyhow::Result;
use serde_json::{Value, json};

use super::super::api::{Api, part};
use super::super::table::named;

#[derive(clap::Args)]
#[command(after_help = "\
From now on each child gets a copy of each message put to the queue, but not of earlier ones. The
child CHILD of QUEUE is the queue QUEUE+CHILD for every protocol. `quintet drop QUEUE+CHILD` ends
it. With `fanout_only = true` in its [[queue]] table, a queue keeps no message for itself.

Examples:
  quintet fanout orders audit billing   create orders+audit and orders+billing
  quintet fanout orders                 list the children")]
pub(in super::super) struct Fanout {
    /// Queue to copy puts from
    queue: String,
    /// Children that get copies; none: print the present ones
    #[arg(value_name = "CHILD")]
    children: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Fanout {
    pub(in super::super) fn run(self, mut api: Api) -> Result<()> {
        let queue = format!("/queues/{}", part(&self.queue));
        for child in &self.children {
            let name = json!({ "name": child });
            api.ask("POST", &format!("{queue}/children"), Some(&name))?;
        }
        let setup = api.get(&format!("{queue}/settings"))?;
        let mut out = stdout().lock();
        if self.json {
            let summary = json!({ "queue": setup["queue"], "children": setup["children"] });
            writeln!(out, "{summary}")?;
            return Ok(());
        }
        let children = setup["children"].as_array().into_iter().flatten();
        for child in children.filter_map(Value::as_str) {
            writeln!(out, "{}", named(child))?;
        }
        Ok(())
    }
}
