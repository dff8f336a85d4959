//! Files of messages: attachments, streamed to files beside the log, and what
//! scripts leave.

use std::io::Read;
use std::path::PathBuf;

use quintet_types::{Attachment, Command, Edit, Message, hex};

use crate::config::check_queue_name;
use crate::fault::Fault;
use crate::files::{new_file, store};
use crate::kept::attribute;
use crate::messages::done;
use quintet_client::FOLDER;

use crate::paths::{self, check_file_name};
use crate::record::set;
use crate::service::Rq;

/// A new attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// MD5 of the content, in hexadecimal digits.
    pub md5: String,
    /// Bytes.
    pub len: u64,
}

impl Rq {
    /// Stores what `source` gives as a file of a prepared message; one of the
    /// same name is replaced. Durable when this returns; a source that fails,
    /// or is not what `expect_md5` says, leaves nothing.
    ///
    /// # Errors
    /// [`Fault::BadName`], [`Fault::MessageNotFound`], [`Fault::WrongState`]
    /// if the message is not prepared, [`Fault::Failed`] if the source or the
    /// disk does.
    pub fn attach(
        &self,
        queue: &str,
        id: &str,
        name: &str,
        source: &mut dyn Read,
        expect_md5: Option<&str>,
    ) -> Result<Attached, Fault> {
        check_file_name(name)?;
        let message = self.prepared(queue, id)?;
        let dir = self.paths.dir(queue, &message);
        let folder = self.paths.absolute(&dir).join("attach");
        paths::make_folder(&folder)?;
        let new = new_file(&folder);
        let stored = store(&new, source).and_then(|attached| match expect_md5 {
            Some(md5) if !md5.eq_ignore_ascii_case(&hex(&attached.md5)) => Err(Fault::Failed(
                format!("md5 is {}, not {md5}", hex(&attached.md5)),
            )),
            _ => Ok(attached),
        });
        let kept = stored.and_then(|stored| Ok((self.replicate(&dir, &new)?, stored)));
        let named = kept.and_then(|(kept, stored)| {
            let _one_at_a_time = self.preparing(&message);
            let message = self.prepared(queue, id)?;
            std::fs::rename(&new, folder.join(name))?;
            paths::sync_up(&folder)?;
            self.know(&dir, name, &stored);
            let mut files = attachments(&message);
            files.retain(|file| *file.name != *name.as_bytes());
            files.push(Attachment {
                name: name.as_bytes().into(),
                ..stored.clone()
            });
            files.sort_by(|a, b| a.name.cmp(&b.name));
            let mut attrs = vec![set(FOLDER, &dir.to_string_lossy())];
            attrs.extend(kept.map(|kept| set(&attribute(name), &kept)));
            let edit = Edit {
                attachments: Some(files),
                attrs,
                ..Edit::default()
            };
            done(self.ask(Command::Edit(message.id, Box::new(edit))))?;
            Ok(Attached {
                md5: hex(&stored.md5),
                len: stored.len,
            })
        });
        if named.is_err() {
            // If it is there still; the cleanup finds it otherwise.
            let _gone = std::fs::remove_file(&new);
        }
        named
    }

    /// Removes an attachment of a prepared message.
    ///
    /// # Errors
    /// As [`Rq::attach`]; [`Fault::Failed`] if there is none of that name.
    pub fn delete_attachment(&self, queue: &str, id: &str, name: &str) -> Result<(), Fault> {
        check_file_name(name)?;
        let message = self.prepared(queue, id)?;
        let _one_at_a_time = self.preparing(&message);
        let message = self.prepared(queue, id)?;
        let mut files = attachments(&message);
        let before = files.len();
        files.retain(|file| *file.name != *name.as_bytes());
        if files.len() == before {
            return Err(no_file(name));
        }
        // What is kept of it elsewhere goes with the message.
        let edit = Edit {
            attachments: Some(files),
            attrs: vec![(attribute(name).into_bytes().into(), None)],
            ..Edit::default()
        };
        done(self.ask(Command::Edit(message.id, Box::new(edit))))?;
        let file = self.message_dir(queue, &message).join("attach").join(name);
        paths::forget(&file);
        Ok(())
    }

    /// The file of an attachment. It stays as it is for as long as it is open,
    /// also if the message goes.
    ///
    /// # Errors
    /// [`Fault::BadName`], [`Fault::MessageNotFound`], [`Fault::Failed`] if
    /// there is none of that name.
    pub fn attachment_path(&self, queue: &str, id: &str, name: &str) -> Result<PathBuf, Fault> {
        check_file_name(name)?;
        let message = self.find(queue, id)?.message;
        let files = message.extra.iter().flat_map(|extra| &extra.attachments);
        for file in files.filter(|file| *file.name == *name.as_bytes()) {
            self.bring_one(queue, &message, file)?;
        }
        self.file(queue, id, "attach", name)
    }

    /// A file in the folder a message's script runs in, such as `stdio.log`.
    ///
    /// # Errors
    /// As [`Rq::attachment_path`].
    pub fn log_path(&self, queue: &str, id: &str, name: &str) -> Result<PathBuf, Fault> {
        self.file(queue, id, "job", name)
    }

    /// The log of a message's runs, one behind the other, if there is one, and
    /// the queue it was written in: files stay where they are when a message
    /// moves, and who may see the message may not see all of that queue.
    pub fn log_of(&self, queue: &str, message: &Message) -> Option<(String, PathBuf)> {
        check_queue_name(queue).ok()?;
        let dir = self.paths.dir(queue, message);
        let of = dir.components().nth(1)?.as_os_str().to_str()?.to_owned();
        let path = self.paths.absolute(&dir).join("job").join("stdio.log");
        // As in `file`.
        let about = std::fs::symlink_metadata(&path).ok()?;
        about.is_file().then_some((of, path))
    }

    fn file(&self, queue: &str, id: &str, folder: &str, name: &str) -> Result<PathBuf, Fault> {
        check_file_name(name)?;
        let found = self.find(queue, id)?;
        let path = self
            .message_dir(queue, &found.message)
            .join(folder)
            .join(name);
        // A script may leave links; they are not followed out of its folder.
        match std::fs::symlink_metadata(&path) {
            Ok(about) if about.is_file() => Ok(path),
            _ => Err(no_file(name)),
        }
    }

    fn prepared(&self, queue: &str, id: &str) -> Result<Message, Fault> {
        let found = self.find(queue, id)?;
        self.must_be_up(queue)?;
        if found.state == "prep" {
            Ok(found.message)
        } else {
            Err(Fault::WrongState("cannot find message".to_owned()))
        }
    }
}

fn no_file(name: &str) -> Fault {
    Fault::Failed(format!("no file {name}"))
}

fn attachments(message: &Message) -> Vec<Attachment> {
    let extra = message.extra.as_ref();
    extra.map_or_else(Vec::new, |extra| extra.attachments.clone())
}
