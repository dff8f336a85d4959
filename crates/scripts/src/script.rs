//! How a script is started: the words of its command, and its environment.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use quintet_client::trace::{TRACEPARENT, TRACESTATE, is_traceparent, is_tracestate};
use quintet_types::Message;

use crate::config::QueueConfig;
use crate::ids::short_id;
use crate::options::Options;
use crate::record::{self, attr_text};
use crate::service::Rq;

/// A script that can be started.
pub(crate) struct Script {
    /// The program and its arguments.
    pub(crate) words: Vec<OsString>,
    /// With all links followed; for a built-in one its name.
    pub(crate) real: PathBuf,
}

impl Script {
    /// Finds what is to be started now: links may lead elsewhere than the last
    /// time. `None` if it is not there or not executable.
    pub(crate) fn find(config: &QueueConfig, options: &Options) -> Option<Self> {
        let Some(path) = config.script_path(&options.root) else {
            let name = config.script.trim_start_matches("builtin:");
            return Some(Self {
                words: (options.builtin)(name).filter(|words| !words.is_empty())?,
                real: PathBuf::from(&config.script),
            });
        };
        let real = path.canonicalize().ok()?;
        let about = real.metadata().ok()?;
        if !about.is_file() || about.permissions().mode() & 0o111 == 0 {
            return None;
        }
        let mut words: Vec<OsString> = config
            .exec_prefix
            .split_whitespace()
            .map(OsString::from)
            .collect();
        words.push(for_prefix(&config.exec_prefix, &real));
        Some(Self { words, real })
    }
}

/// A shell that is handed the path as a command (`bash -lc`) would take a
/// space in it for its end.
fn for_prefix(prefix: &str, path: &Path) -> OsString {
    let last = prefix.split_whitespace().last().unwrap_or_default();
    let is_command = last.starts_with('-') && !last.starts_with("--") && last.ends_with('c');
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%,:".contains(c);
    match path.to_str() {
        Some(text) if is_command && !text.chars().all(plain) => {
            format!("'{}'", text.replace('\'', r"'\''")).into()
        }
        _ => path.as_os_str().to_owned(),
    }
}

/// The variables a script gets besides those of the server.
pub(crate) fn environment(
    rq: &Rq,
    queue: &str,
    config: &QueueConfig,
    message: &Message,
    script: &Script,
    param1: &str,
    job: &Path,
) -> Vec<(OsString, OsString)> {
    let full = rq.full_id(queue, message);
    let dest = attr_text(message, "dest").unwrap_or_else(|| rq.address(queue));
    let mut all: Vec<(OsString, OsString)> = Vec::new();
    for (name, value) in &config.env_vars {
        let possible = !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0');
        if possible && !name.starts_with("RQ_") {
            all.push((name.into(), value.into()));
        }
    }
    let mut put = |name: &str, value: OsString| all.push((name.into(), value));
    put("RQ_VER", env!("CARGO_PKG_VERSION").into());
    put("RQ_SCRIPT", config.script.clone().into());
    put("RQ_REALSCRIPT", script.real.clone().into());
    put("RQ_HOST", rq.options.host.clone().into());
    put("RQ_DEST_QUEUE", queue_of(&dest).unwrap_or(queue).into());
    put("RQ_DEST", dest.into());
    put("RQ_MSG_ID", short_id(message).into());
    put("RQ_MSG_DIR", job.into());
    for (name, fd) in [("RQ_WRITE", "3"), ("RQ_READ", "4"), ("RQ_PIPE", "3")] {
        put(name, fd.into());
    }
    put("RQ_COUNT", record::count(message).to_string().into());
    put("RQ_PARAM1", param1.into());
    for n in 2..=4 {
        // Other protocols may have put what no environment holds.
        let value = record::param(message, n).filter(|value| {
            !value.contains('\0') && value.len() <= rq.options.limits.param_bytes_max
        });
        put(&format!("RQ_PARAM{n}"), value.unwrap_or_default().into());
    }
    let first = attr_text(message, "orig_msg_id").unwrap_or_else(|| full.clone());
    put("RQ_ORIG_MSG_ID", first.into());
    put("RQ_FULL_MSG_ID", full.into());
    if record::attr(message, "force_remote").is_some() {
        put("RQ_FORCE_REMOTE", "1".into());
    }
    for (name, of, fine) in [
        (
            "TRACEPARENT",
            TRACEPARENT,
            is_traceparent as fn(&str) -> bool,
        ),
        ("TRACESTATE", TRACESTATE, is_tracestate),
    ] {
        // Any client may have written something else there.
        if let Some(value) = attr_text(message, of).filter(|value| fine(value)) {
            put(name, value.into());
        }
    }
    put("RQ_ENV", rq.options.env.clone().into());
    put("RQ_PORT", rq.options.port.to_string().into());
    if config.script_path(&rq.options.root).is_none() {
        put("RQ_ROOT", rq.root().into());
    }
    all.retain(|(_, value)| !value.as_encoded_bytes().contains(&0));
    all
}

/// The queue in an address, `…/q/NAME…`.
fn queue_of(dest: &str) -> Option<&str> {
    let (_, rest) = dest.split_once("/q/")?;
    rest.split('/').next().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_behind_prefixes() {
        for (prefix, path, word) in [
            ("bash -lc", "/a/b.sh", "/a/b.sh"),
            ("bash -lc", "/a b/it's", r"'/a b/it'\''s'"),
            ("", "/a b", "/a b"),
            ("nice -n 5", "/a b", "/a b"),
            ("env --nc", "/a b", "/a b"),
        ] {
            assert_eq!(for_prefix(prefix, Path::new(path)), word, "{prefix}");
        }
    }

    #[test]
    fn queues_in_addresses() {
        assert_eq!(queue_of("http://h:1/q/a"), Some("a"));
        assert_eq!(queue_of("http://h:1/base/q/a/b"), Some("a"));
        assert_eq!(queue_of("http://h:1/"), None);
    }
}
