//! Queues by link: `scandir/NAME` leads to a folder with a program `run`, and
//! perhaps a `config.json`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::config::{QueueConfig, check_queue_name};
use crate::fault::Fault;
use crate::paths::{links, read_small};
use crate::service::Rq;

/// The queues that were found.
#[derive(Default)]
pub(crate) struct Scandir {
    found: BTreeMap<String, QueueConfig>,
}

impl Scandir {
    /// Starts what was linked, tells what was changed, forgets what is gone.
    /// Messages of a forgotten queue stay, and go on when it is back.
    pub(crate) fn scan(&mut self, rq: &Arc<Rq>) {
        let mut there = Vec::new();
        for (name, path) in links(&rq.paths.scandir()) {
            let is_ours = !rq.is_from_settings(&name) && !rq.paths.queue_config(&name).exists();
            if check_queue_name(&name).is_err() || !is_ours {
                continue;
            }
            match read(&path, &name) {
                Ok(config) => {
                    there.push(name.clone());
                    if self.found.get(&name) != Some(&config) {
                        rq.add_queue(config.clone());
                        self.found.insert(name, config);
                    }
                }
                // No folder behind it, or no program: as if it were not there.
                Err(fault) => tracing::debug!(queue = name, %fault, "no queue behind the link"),
            }
        }
        self.found.retain(|name, _| {
            let stays = there.contains(name);
            if !stays {
                rq.forget_queue(name);
            }
            stays
        });
    }
}

fn read(folder: &Path, name: &str) -> Result<QueueConfig, Fault> {
    let script = folder.join("run");
    fs::metadata(&script)?;
    let mut value = json!({"num_workers": 1, "exec_prefix": ""});
    let config = folder.join("config.json");
    if config.exists() {
        let own: Value = serde_json::from_slice(&read_small(&config)?)
            .map_err(|error| Fault::Failed(error.to_string()))?;
        for (key, own) in own.as_object().into_iter().flatten() {
            value[key] = own.clone();
        }
    }
    value["script"] = json!(script);
    QueueConfig::from_json(&value, Some(name))
}
