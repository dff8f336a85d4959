//! Attachments that others keep as well: kept when they are stored, brought when they are wanted.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use quintet_types::{Attachment, Message, hex, locked};

use crate::fault::Fault;
use crate::files::{new_file, summed};
use crate::paths::{self, check_file_name, is_message_dir};
use crate::record::attr_text;
use crate::service::Rq;

/// The attribute that says under which name an attachment is kept.
pub(crate) fn attribute(file: &str) -> String {
    format!("blob {file}")
}

/// Hands on every attachment that lies under the root folder of a service that does not run, with
/// the name that others are to keep it under: they are looked for there where a message does not
/// say otherwise. Those that no message has any more are among them until the next cleanup.
///
/// # Errors
/// A folder or file cannot be read, or `each` says so.
pub fn each_attachment(
    root: &Path,
    each: &mut dyn FnMut(&str, &Path) -> io::Result<()>,
) -> io::Result<()> {
    for dir in paths::message_dirs(root)? {
        let folder = root.join(&dir).join("attach");
        for name in paths::names_in(&folder)? {
            let path = folder.join(&name);
            // What a crash cut short has no name that an attachment may have.
            if check_file_name(&name).is_err() || !std::fs::symlink_metadata(&path)?.is_file() {
                continue;
            }
            let mut content = std::fs::File::open(&path)?;
            let sum = summed(&mut content, &mut io::sink()).map_err(io::Error::other)?;
            each(&under_its_sum(&dir, &sum), &path)?;
        }
    }
    Ok(())
}

/// The name of an attachment that came with a whole folder: its content says it.
fn under_its_sum(dir: &Path, file: &Attachment) -> String {
    format!("{}/{}", dir.display(), hex(&file.md5))
}

/// The folder a name belongs to, from the root on.
pub(crate) fn folder_of(name: &str) -> Option<PathBuf> {
    let (folder, _) = name.rsplit_once('/')?;
    let folder = PathBuf::from(folder);
    is_message_dir(&folder).then_some(folder)
}

impl Rq {
    /// Has a file kept that becomes an attachment in the folder `dir`. `None`: nobody but this
    /// disk keeps any.
    pub(crate) fn replicate(&self, dir: &Path, file: &Path) -> Result<Option<String>, Fault> {
        let Some(blobs) = &self.options.blobs else {
            return Ok(None);
        };
        let under = dir.to_string_lossy();
        let kept = blobs.put(&under, file).map_err(|error| {
            Fault::Failed(format!("the attachment could not be replicated: {error}"))
        })?;
        Ok(Some(kept))
    }

    /// Notes a file that was just stored here as the message describes it.
    pub(crate) fn know(&self, dir: &Path, name: &str, file: &Attachment) {
        if self.options.blobs.is_some() {
            locked(&self.known).add(known_name(dir, name, file));
        }
    }

    /// Brings the attachments of a message here, those that are not.
    ///
    /// # Errors
    /// [`Fault::Failed`] names the one that cannot be had.
    pub(crate) fn bring(&self, queue: &str, message: &Message) -> Result<(), Fault> {
        let mut files = message.extra.iter().flat_map(|extra| &extra.attachments);
        files.try_for_each(|file| self.bring_one(queue, message, file))
    }

    pub(crate) fn bring_one(
        &self,
        queue: &str,
        message: &Message,
        file: &Attachment,
    ) -> Result<(), Fault> {
        let Some(blobs) = &self.options.blobs else {
            return Ok(());
        };
        let name = String::from_utf8_lossy(&file.name).into_owned();
        check_file_name(&name)?;
        let dir = self.paths.dir(queue, message);
        let known = known_name(&dir, &name, file);
        let path = self.paths.absolute(&dir).join("attach").join(&name);
        let here = std::fs::symlink_metadata(&path);
        if here.is_ok_and(|about| about.is_file())
            && (locked(&self.known).has(&known) || is_what(file, &path))
        {
            locked(&self.known).add(known);
            return Ok(());
        }
        let kept = attr_text(message, &attribute(&name)).filter(|kept| is_hex(kept));
        let kept = kept.map(|kept| format!("{}/{kept}", dir.display()));
        let by_sum = under_its_sum(&dir, file);
        let failed =
            |why: &str| Fault::Failed(format!("attachment {name} is not available: {why}"));
        let folder = self.paths.absolute(&dir).join("attach");
        paths::make_folder(&folder)?;
        let new = new_file(&folder);
        let mut got = Err(failed("it is neither here nor in the cluster's bucket"));
        for kept in kept.iter().chain([&by_sum]) {
            got = match blobs.get(kept, &new) {
                Ok(true) if is_what(file, &new) => Ok(std::fs::rename(&new, &path)?),
                Ok(true) => Err(failed("the stored copy is damaged")),
                Ok(false) => {
                    paths::forget(&new);
                    continue;
                }
                Err(error) => Err(failed(&error.to_string())),
            };
            break;
        }
        if got.is_err() {
            paths::forget(&new);
        }
        got?;
        locked(&self.known).add(known);
        Ok(())
    }

    /// Names of what is kept, by the folder it belongs to. None if nobody answers.
    pub(crate) fn kept(&self) -> BTreeMap<PathBuf, Vec<String>> {
        let mut kept: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
        let Some(blobs) = &self.options.blobs else {
            return kept;
        };
        match blobs.list() {
            Ok(names) => {
                for name in names {
                    if let Some(folder) = folder_of(&name) {
                        kept.entry(folder).or_default().push(name);
                    }
                }
            }
            Err(error) => tracing::debug!("cannot list attachments: {error}"),
        }
        kept
    }

    /// Has these kept no longer.
    pub(crate) fn forget_kept(&self, names: &[String]) {
        let Some(blobs) = &self.options.blobs else {
            return;
        };
        for name in names {
            if let Err(error) = blobs.delete(name) {
                // The next cleanup tries again.
                tracing::debug!("cannot delete {name}: {error}");
                return;
            }
        }
    }
}

/// A folder and a file in it, with its sum: one that replaced it is another.
fn known_name(dir: &Path, name: &str, file: &Attachment) -> String {
    format!("{}/{}/{name}", dir.display(), hex(&file.md5))
}

fn is_what(file: &Attachment, path: &Path) -> bool {
    let read = std::fs::File::open(path).map_err(Fault::from);
    let read = read.and_then(|mut content| summed(&mut content, &mut io::sink()));
    read.is_ok_and(|read| (read.len, read.md5) == (file.len, file.md5))
}

fn is_hex(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
