//! Messages of RQ with files, made over the RQ sockets of the server, which reads the files itself.
//!
//! Each is known to the server for a day by a token of RQ's id, so a repeat goes on where it was.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::rq::Place;
use crate::rq::client::Folder;

/// The server's own folder of scripts.
pub(in crate::import) struct Attached {
    folder: Folder,
    /// Messages stored, and those that were before.
    pub(in crate::import) stored: u64,
    pub(in crate::import) before: u64,
    /// Of them, those that failed there and wait prepared here.
    pub(in crate::import) failed: u64,
}

impl Attached {
    /// Messages go to the server whose folder of scripts this is.
    pub(in crate::import) fn to(root: PathBuf) -> Self {
        Self {
            folder: Folder(root),
            stored: 0,
            before: 0,
            failed: 0,
        }
    }

    /// Asks whether the server is there, and takes messages for these queues.
    ///
    /// # Errors
    /// It is not, or does not.
    pub(in crate::import) fn ready(&self, places: &[Place]) -> Result<()> {
        let mut last = None;
        for place in places {
            if last == Some(&place.queue) {
                continue;
            }
            last = Some(&place.queue);
            let response = self.folder.queue(&place.queue, "ping", &Value::Null);
            response.with_context(|| {
                format!(
                    "the messages of the queue {} have attachments, and only a queue with a \
                     script can keep them; nothing is imported yet",
                    place.queue
                )
            })?;
        }
        Ok(())
    }

    /// Stores one with its files.
    ///
    /// # Errors
    /// The server refuses the message, which then is prepared or missing there.
    pub(in crate::import) fn store(&mut self, place: &Place) -> Result<()> {
        let mut fields = place.fields()?;
        // With the host it was made on.
        let first = fields["orig_msg_id"].as_str().unwrap_or_default();
        let token = format!("import {first} {}/{}", place.queue, place.id());
        fields["relay_token"] = json!(token);
        let full = self.ask(place, "prep_message", &fields)?;
        let of = json!({ "msg_id": full });
        let there = self.ask(place, "get_message", &of)?;
        let has = |name: &String| there["_attachments"].get(name).is_some();
        let missing: Vec<&String> = place.files.iter().filter(|name| !has(name)).collect();
        let commits = matches!(place.state, "run" | "que");
        if there["state"] != "prep" || (missing.is_empty() && !commits) {
            self.before += 1;
            return Ok(());
        }
        let from = std::path::absolute(&place.folder)?.join("attach");
        for name in missing {
            let file = json!({ "msg_id": full, "pathname": from.join(name), "name": name });
            self.ask(place, "attach_message", &file)?;
        }
        if commits {
            self.ask(place, "commit_message", &of)?;
        }
        self.failed += u64::from(matches!(place.state, "err" | "errack"));
        self.stored += 1;
        Ok(())
    }

    /// The value beside `ok`.
    fn ask(&self, place: &Place, command: &str, fields: &Value) -> Result<Value> {
        let context = || format!("{}: {command}", place.folder.display());
        let reply = self.folder.queue(&place.queue, command, fields);
        let mut reply = reply.with_context(context)?;
        match (reply[0].as_str(), reply[1].as_str()) {
            (Some("ok"), _) => Ok(reply[1].take()),
            (Some("fail"), Some(why)) => bail!("{}: {why}", context()),
            _ => bail!("{}: the server answered {reply}", context()),
        }
    }
}

/// Says whether RQ still works on its folder: then messages that are read may run there too.
/// The server's own folder is its own.
pub(in crate::import) fn still_runs(root: &Path, own: &Path) -> bool {
    let socket = root.join("config/queuemgr.sock");
    let same = match (root.canonicalize(), own.canonicalize()) {
        (Ok(root), Ok(own)) => root == own,
        _ => false,
    };
    !same && std::os::unix::net::UnixStream::connect(socket).is_ok()
}
