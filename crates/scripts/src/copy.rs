//! Copies of messages, for `dup` and clones: attachments are linked, never
//! copied on this disk.

use quintet_client::BodyBytes;
use quintet_types::{AttrChange, Body, By, Command, Edit, Message, Name};

use crate::admin::Admin;
use crate::config::check_queue_name;
use crate::fault::Fault;
use crate::kept::attribute;
use crate::messages::{PutAs, done};
use crate::new::NewMessage;
use quintet_client::FOLDER;

use crate::paths::{self, own_dir};
use crate::record::{self, attr_text};
use crate::service::Rq;

/// The attribute of a copy whose attachments are not there yet, with the service that makes it.
/// After a crash nobody goes on with it: a prepared message that has another's is removed.
pub(crate) const COPYING: &str = "copying";

/// Where a copy failed.
#[derive(Debug, thiserror::Error)]
#[error("{step} fail {fault}")]
pub(crate) struct CopyFailure {
    pub(crate) step: &'static str,
    pub(crate) fault: Fault,
}

impl Rq {
    /// A new message with what a copy keeps.
    pub(crate) fn like(&self, queue: &str, message: &Message) -> NewMessage {
        NewMessage {
            src: attr_text(message, "src"),
            orig_msg_id: Some(
                attr_text(message, "orig_msg_id").unwrap_or_else(|| self.full_id(queue, message)),
            ),
            max_count: Some(record::max_count(message)),
            params: [
                None,
                record::param(message, 2),
                record::param(message, 3),
                record::param(message, 4),
            ],
            post_run_webhook: record::hooks(message),
            ..NewMessage::default()
        }
    }

    /// Puts a copy of a message with its body and attachments. Answers its
    /// full id.
    pub(crate) fn copy(
        &self,
        from: &str,
        message: &Message,
        to: &str,
        new: &NewMessage,
    ) -> Result<String, CopyFailure> {
        let at = |step: &'static str| move |fault| CopyFailure { step, fault };
        let body = self.body_for(to, message).map_err(at("prep"))?;
        let files = message.extra.as_ref().map(|extra| &extra.attachments);
        let files = files.filter(|files| !files.is_empty());
        let mark = files.map(|_| (COPYING.as_bytes().into(), self.life.as_bytes().into()));
        let put_as = PutAs {
            body: Some(body),
            prepared: files.is_some(),
            attrs: mark.into_iter().collect(),
            ..PutAs::default()
        };
        let copy = self.put(to, new, put_as).map_err(at("prep"))?;
        let Some(files) = files else {
            return Ok(self.full_id(to, &copy));
        };
        let dir = own_dir(to, &copy);
        let linked = self.link_files(from, message, &dir);
        let edited = linked.and_then(|mut attrs| {
            attrs.push(record::set(FOLDER, &dir.to_string_lossy()));
            let edit = Edit {
                attachments: Some(files.clone()),
                attrs,
                ..Edit::default()
            };
            done(self.ask(Command::Edit(copy.id, Box::new(edit))))
        });
        let committed = edited
            .map_err(at("attach"))
            .and_then(|()| done(self.ask(Command::Commit(copy.id))).map_err(at("commit")));
        if let Err(failure) = committed {
            let by = By::Anyone;
            // What is left of it goes with the next cleanup.
            let _outcome = self.ask(Command::Delete { id: copy.id, by });
            paths::remove_tree(&self.paths.absolute(&dir));
            return Err(failure);
        }
        self.kick(to);
        Ok(self.full_id(to, &copy))
    }

    /// Answers the attributes that say where others keep them.
    fn link_files(
        &self,
        from: &str,
        message: &Message,
        dir: &std::path::Path,
    ) -> Result<Vec<AttrChange>, Fault> {
        self.bring(from, message)?;
        let source = self.message_dir(from, message).join("attach");
        let target = self.paths.absolute(dir).join("attach");
        paths::make_folder(&target)?;
        let files = message.extra.iter().flat_map(|extra| &extra.attachments);
        let mut attrs = Vec::new();
        for file in files {
            let name = String::from_utf8_lossy(&file.name);
            paths::check_file_name(&name)?;
            let link = target.join(&*name);
            std::fs::hard_link(source.join(&*name), &link)?;
            // Each message's own: what is kept goes with the message it is of.
            let kept = self.replicate(dir, &link)?;
            attrs.extend(kept.map(|kept| record::set(&attribute(&name), &kept)));
            self.know(dir, &name, file);
        }
        paths::sync_up(&target)?;
        Ok(attrs)
    }

    /// The body again, where the other queue can have it.
    fn body_for(&self, to: &str, message: &Message) -> Result<Body, Fault> {
        if message.body.as_small().is_some() {
            return Ok(message.body.clone());
        }
        let mut bytes = BodyBytes::new(&*self.client_api, message.body.clone());
        self.client_api
            .store(&Name::from(to), message.body.len(), &mut bytes)
            .map_err(|error| Fault::Failed(error.to_string()))
    }

    /// Carries out `dup`. Returns the text behind `ok `; the error is the text behind `fail `.
    pub(crate) fn dup(
        &self,
        from: &str,
        message: &Message,
        due_s: u64,
        dest: &str,
    ) -> Result<String, String> {
        let remote = dest.starts_with("http:") || dest.starts_with("https:");
        let to = if remote { "relay" } else { dest };
        if check_queue_name(to).is_err() || !self.has_queue(to) {
            return Err(format!("couldn't connect to queue - {to}"));
        }
        match self.read_admin(to) {
            Admin::Up => {}
            Admin::Paused => return Err(format!("dup failed - {}", Fault::Paused)),
            Admin::Down => return Err(format!("dup failed - {}", Fault::Down)),
        }
        let mut new = self.like(from, message);
        new.dest = remote.then(|| dest.to_owned());
        let now = self.client_api.wall().0;
        new.due_ms = Some(now.saturating_add(due_s.saturating_mul(1000)));
        self.copy(from, message, to, &new)
            .map_err(|failure| format!("dup failed - {failure}"))
    }
}
