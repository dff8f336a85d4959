//! A folder of RQ: `queue/NAME/STATE/ID/`, each with `msg`, `status` and `attach/`. It is only
//! read.
//!
//! Messages without files come as any other; those with files are made over the server's own RQ
//! sockets ([`super::attached`]), as only it knows where its files are.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use quintet_control::{Head, Standing, Text};
use quintet_import::rq;
use quintet_scripts::check_queue_name;
use quintet_types::Name;
use serde_json::Value;

use super::bodies::{Bodies, Stored, counts};
use crate::import::count::Counts;
use crate::records::BadInput;

/// RQ's folders of messages that are still to be done, each with what they become: those that ran
/// run again, as when RQ itself starts.
const STATES: [(&str, Standing); 5] = [
    ("run", Standing::Ready),
    ("que", Standing::Ready),
    ("err", Standing::Buried),
    ("errack", Standing::Buried),
    ("prep", Standing::Prepared),
];

/// States of messages that have ended.
const OVER: [&str; 2] = ["done", "relayed"];

/// A longer `msg` or `status` is none of RQ's.
const FILE_MAX: u64 = 64 << 20;

/// A message's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::import) struct Place {
    pub(in crate::import) queue: String,
    pub(in crate::import) state: &'static str,
    standing: Standing,
    pub(in crate::import) folder: PathBuf,
    /// Names of its files.
    pub(in crate::import) files: Vec<String>,
}

/// A folder of RQ, looked through.
pub(in crate::import) struct Folder {
    /// Messages without files, in the order of the file.
    pub(in crate::import) plain: Vec<Place>,
    /// Messages with files.
    pub(in crate::import) attached: Vec<Place>,
}

impl Folder {
    /// Looks through it.
    ///
    /// # Errors
    /// It is none of RQ's, another version's, or cannot be read.
    pub(in crate::import) fn inspect(root: &Path) -> Result<Self> {
        let queues = root.join("queue");
        if !queues.is_dir() {
            bail!(
                "{} is not a folder of RQ: it has no folder queue",
                root.display()
            );
        }
        let (mut plain, mut attached) = (Vec::new(), Vec::new());
        for queue in folders(&queues)? {
            let name = file_name(&queue);
            check_queue_name(&name)
                .map_err(|error| BadInput::error(queue.display().to_string(), error.to_string()))?;
            known(&queue)?;
            for (state, standing) in STATES {
                for folder in folders(&queue.join(state))? {
                    if !folder.join("msg").is_file() {
                        // RQ makes the folder first: what it died over was never answered.
                        continue;
                    }
                    let place = Place {
                        queue: name.clone(),
                        state,
                        standing,
                        files: names(&folder.join("attach"))?,
                        folder,
                    };
                    match place.files.is_empty() {
                        true => plain.push(place),
                        false => attached.push(place),
                    }
                }
            }
        }
        Ok(Self { plain, attached })
    }

    /// By queue and RQ's words for states.
    pub(in crate::import) fn counts(&self) -> Counts {
        counts(self.plain.iter().chain(&self.attached))
    }
}

/// Says whether a queue has nothing but what is known: messages in a folder of another name are
/// another version's, and would be left out.
fn known(queue: &Path) -> Result<()> {
    for folder in folders(queue)? {
        let name = file_name(&folder);
        let known = STATES.iter().any(|(state, _)| *state == name) || OVER.contains(&&*name);
        // Quintet's own messages have their files in `msg`.
        if known || name == "msg" {
            continue;
        }
        let has = folders(&folder)?
            .iter()
            .any(|message| message.join("msg").is_file());
        if has {
            let why = "unknown state of messages: the folder is of another version of RQ";
            return Err(BadInput::error(folder.display().to_string(), why));
        }
    }
    Ok(())
}

/// Folders in a folder, by name; none if it is not there.
fn folders(of: &Path) -> Result<Vec<PathBuf>> {
    let all = entries(of)?;
    Ok(all.into_iter().filter(|path| path.is_dir()).collect())
}

fn entries(of: &Path) -> Result<Vec<PathBuf>> {
    let cannot = || format!("cannot read {}", of.display());
    let entries = match std::fs::read_dir(of) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(cannot)?,
    };
    let mut all = Vec::new();
    for entry in entries {
        all.push(entry.with_context(cannot)?.path());
    }
    all.sort();
    Ok(all)
}

/// Names of the files in a folder.
fn names(of: &Path) -> Result<Vec<String>> {
    let files = entries(of)?.into_iter().filter(|path| path.is_file());
    Ok(files.map(|path| file_name(&path)).collect())
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

impl Place {
    /// Its id at RQ.
    pub(in crate::import) fn id(&self) -> String {
        file_name(&self.folder)
    }

    fn file(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.folder.join(name);
        let cannot = || format!("cannot read {}", path.display());
        let len = match path.metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            meta => meta.with_context(cannot)?.len(),
        };
        if len > FILE_MAX {
            return Err(self.bad(name, "it is longer than RQ makes any"));
        }
        std::fs::read(&path).with_context(cannot).map(Some)
    }

    fn bad(&self, name: &str, why: &str) -> anyhow::Error {
        BadInput::error(self.folder.join(name).display().to_string(), why)
    }

    /// Its `msg`, as RQ wrote it.
    ///
    /// # Errors
    /// [`BadInput`], or it cannot be read.
    pub(in crate::import) fn fields(&self) -> Result<Value> {
        let text = self.file("msg")?.unwrap_or_default();
        rq::fields(&text).map_err(|why| self.bad("msg", &why))
    }

    /// Last report about it, without the name of its state.
    fn status(&self) -> Result<String> {
        let text = self.file("status")?.unwrap_or_default();
        Ok(rq::status(&text, self.state))
    }
}

impl Stored for Place {
    fn counted(&self) -> (&str, &'static str) {
        (&self.queue, self.state)
    }

    fn read(&self, _: &mut Bodies) -> Result<(Head, Vec<u8>)> {
        let fields = self.fields()?;
        let read = rq::message(&fields).map_err(|why| self.bad("msg", &why))?;
        let text = |text: &str| Text(text.as_bytes().to_vec());
        let attrs = read.attrs.iter();
        let attrs = attrs.map(|(name, value)| (text(name), text(value)));
        let body = read.body.into_bytes();
        let head = Head {
            queue: Name::of_shown(&self.queue).to_string(),
            state: self.standing,
            // What is set aside is not due.
            due_ms: read.due_ms.filter(|_| self.standing != Standing::Buried),
            attrs: attrs.collect(),
            status: text(&self.status()?),
            buries: u32::from(self.standing == Standing::Buried),
            bytes: body.len() as u64,
            ..Head::default()
        };
        Ok((head, body))
    }

    fn place(&self, _: &Bodies) -> String {
        self.folder.display().to_string()
    }
}
