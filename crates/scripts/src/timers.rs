//! Timers: links in `timers/` to files that say which message is put again and
//! again. `NAME.json` holds `{"period": SECONDS, "msg": {"dest": QUEUE,
//! "param1": …}}`; `NAME.yaml` and `NAME.yml` hold the same in YAML.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use quintet_types::Ms;
use serde_json::Value;

use crate::admin::Admin;
use crate::config::text;
use crate::fault::Fault;
use crate::new::{Method, NewMessage};
use crate::paths::{links, read_small};
use crate::service::Rq;

/// Seconds between two messages at least (RQ's).
const PERIOD_MIN_S: u64 = 60;

/// Between the first messages of timers that are new at once, ms (RQ's).
const STAGGER_MS: u64 = 2000;

/// The timers that are known.
#[derive(Default)]
pub(crate) struct Timers {
    all: BTreeMap<String, Timer>,
    /// Files that were not understood: when they were changed, and why.
    bad: BTreeMap<String, (SystemTime, String)>,
}

struct Timer {
    changed: SystemTime,
    period_ms: u64,
    dest: String,
    message: NewMessage,
    next: Ms,
}

impl Timers {
    /// Takes in what was linked, changed or removed.
    pub(crate) fn scan(&mut self, rq: &Rq) {
        let mut first = rq.client_api.now();
        let mut there = Vec::new();
        for (name, path) in links(&rq.paths.timers()) {
            let Some(form) = Form::of(&name) else {
                continue;
            };
            let Ok(changed) = fs::metadata(&path).and_then(|about| about.modified()) else {
                continue;
            };
            there.push(name.clone());
            if self
                .all
                .get(&name)
                .is_some_and(|timer| timer.changed == changed)
            {
                continue;
            }
            match read(&path, form, changed, first) {
                Ok(timer) => {
                    first = first + STAGGER_MS;
                    self.bad.remove(&name);
                    self.all.insert(name, timer);
                }
                Err(fault) => {
                    self.all.remove(&name);
                    if self.is_news(&name, (changed, fault.to_string())) {
                        tracing::warn!(timer = name, %fault, "timer not understood");
                    }
                }
            }
        }
        self.all.retain(|name, _| there.contains(name));
        self.bad.retain(|name, _| there.contains(name));
    }

    /// True if the last scan did not find the file of this name bad in the same way.
    fn is_news(&mut self, name: &str, found: (SystemTime, String)) -> bool {
        let before = self.bad.insert(name.to_owned(), found.clone());
        before != Some(found)
    }

    /// Puts the messages whose time has come.
    pub(crate) fn check(&mut self, rq: &Rq) {
        let now = rq.client_api.now();
        for (name, timer) in &mut self.all {
            if timer.next > now {
                continue;
            }
            // What was missed is not made up for.
            let missed = now.since(timer.next) / timer.period_ms;
            timer.next = timer.next + (missed + 1) * timer.period_ms;
            let (queue, dest) = rq.route(&timer.dest);
            if rq.admin_files(&queue) != Admin::Up {
                continue;
            }
            let mut message = timer.message.clone();
            message.dest = dest;
            if let Err(fault) = rq.create(&queue, message, Method::Commit) {
                tracing::warn!(timer = name, %fault, "put of a timer failed");
            }
        }
    }
}

/// Form of a timer's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Yaml,
}

impl Form {
    /// By the file's name, `NAME.FORM` with one dot (RQ's rule); `None` for
    /// files that are no timers.
    fn of(name: &str) -> Option<Self> {
        match name.split_once('.')? {
            ("", _) => None,
            (_, "json") => Some(Form::Json),
            (_, "yaml" | "yml") => Some(Form::Yaml),
            _ => None,
        }
    }
}

fn read(path: &Path, form: Form, changed: SystemTime, next: Ms) -> Result<Timer, Fault> {
    let failed = |text: &str| Fault::Failed(text.to_owned());
    let bytes = read_small(path)?;
    let value: Value = match form {
        Form::Json => {
            serde_json::from_slice(&bytes).map_err(|error| Fault::Failed(error.to_string()))?
        }
        Form::Yaml => crate::yaml::timer(&bytes)?,
    };
    let period: u64 = text(value.get("period"))
        .and_then(|text| text.parse().ok())
        .filter(|&period| (PERIOD_MIN_S..=u64::from(u32::MAX)).contains(&period))
        .ok_or_else(|| failed("period is not a number of at least 60 s"))?;
    let message = value.get("msg").ok_or_else(|| failed("no msg"))?;
    let mut new = NewMessage::from_json(message)?;
    new.src.get_or_insert_with(|| "timer".to_owned());
    Ok(Timer {
        changed,
        period_ms: period * 1000,
        dest: new.dest.take().ok_or_else(|| failed("no dest"))?,
        message: new,
        next,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_file_is_warned_of_once_until_it_changes() {
        let mut timers = Timers::default();
        let (old, new) = (SystemTime::UNIX_EPOCH, SystemTime::now());
        for (changed, why, expected) in [
            (old, "no msg", true),
            (old, "no msg", false),
            (new, "no msg", true),
            (new, "it cannot be read", true),
            (new, "it cannot be read", false),
        ] {
            let found = (changed, why.to_owned());
            assert_eq!(timers.is_news("a.json", found), expected, "{why}");
        }
    }

    #[test]
    fn names_of_files() {
        for (name, form) in [
            ("a.json", Some(Form::Json)),
            ("a.yaml", Some(Form::Yaml)),
            ("a.yml", Some(Form::Yaml)),
            (".json", None),
            (".yml", None),
            ("a.b.yml", None),
            ("a.json.swp", None),
            ("a.YML", None),
            ("a.toml", None),
            ("json", None),
        ] {
            assert_eq!(Form::of(name), form, "{name}");
        }
    }
}
