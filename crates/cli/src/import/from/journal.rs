//! The journal of one of Kestrel's queues, which no Kestrel uses. It is only read.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use quintet_control::Head;
use quintet_import::journal::{Item, Record, records};
use quintet_types::Name;

use super::bodies::{Bodies, Files, Stored};

/// An item, its queue, and the file it is in.
pub(in crate::import) struct Placed {
    queue: Arc<str>,
    file: usize,
    item: Item,
}

/// Reads which items there are: of the file, and of those older ones beside it that Kestrel has not
/// yet packed.
///
/// # Errors
/// It cannot be read.
pub(in crate::import) fn inspect(path: &Path) -> Result<Files<Placed>> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        bail!(
            "{} is not a journal: the file's name is the name of the queue",
            path.display()
        );
    };
    let mut replay = Replay {
        name: name.into(),
        ..Replay::default()
    };
    let mut all = Files::of(Vec::new());
    for path in files(path, name)? {
        let bytes =
            std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let file = all.bodies.add(path.clone());
        for record in records(&bytes) {
            match record {
                Ok(record) => replay.apply(file, record),
                Err((at, why)) => all.damaged(format!("{}: byte {at}: {why}", path.display())),
            }
        }
    }
    all.messages = replay.left();
    Ok(all)
}

/// The files of a queue, the oldest first: `NAME.N` by their numbers, then `NAME`. Those before one
/// that ends in `.pack` are in that.
fn files(path: &Path, name: &str) -> Result<Vec<PathBuf>> {
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let cannot = || format!("cannot read {}", dir.display());
    let mut older = BTreeMap::new();
    for entry in std::fs::read_dir(dir).with_context(cannot)? {
        let beside = entry.with_context(cannot)?.path();
        let other = beside.file_name().and_then(|other| other.to_str());
        let end = other.and_then(|other| other.strip_prefix(name)?.strip_prefix('.'));
        let Some(end) = end else { continue };
        let number = end.strip_suffix(".pack").unwrap_or(end);
        if let Ok(number) = number.parse::<u64>() {
            older.insert((number, end.ends_with(".pack")), beside);
        }
    }
    let packed = older.keys().rfind(|(_, packed)| *packed).copied();
    let first = packed.unwrap_or_default();
    let mut all: Vec<PathBuf> = older.split_off(&first).into_values().collect();
    if path.is_file() || all.is_empty() {
        all.push(path.to_owned());
    }
    Ok(all)
}

/// Kestrel's handling of a journal when it starts.
#[derive(Default)]
struct Replay {
    name: Arc<str>,
    queue: VecDeque<Placed>,
    /// Taken and not confirmed, by the number of the read.
    open: BTreeMap<u32, Placed>,
    last: u32,
}

impl Replay {
    fn apply(&mut self, file: usize, record: Record) {
        let placed = |item| Placed {
            queue: Arc::clone(&self.name),
            file,
            item,
        };
        match record {
            Record::Add(item) => self.queue.push_back(placed(item)),
            Record::Remove => drop(self.queue.pop_front()),
            Record::Open(number) => {
                let Some(taken) = self.queue.pop_front() else {
                    return;
                };
                let number = number.or(taken.item.read).unwrap_or_else(|| self.next());
                self.last = number;
                self.open.insert(number, taken);
            }
            Record::Last(number) => self.last = number,
            Record::Abort(number) => {
                if let Some(back) = self.open.remove(&number) {
                    self.queue.push_front(back);
                }
            }
            Record::Close(number) => drop(self.open.remove(&number)),
            Record::Continue(number, item) => {
                self.open.remove(&number);
                self.queue.push_back(placed(item));
            }
        }
    }

    /// The number of a read that says none.
    fn next(&self) -> u32 {
        let mut number = self.last.wrapping_add(1);
        while number == 0 || self.open.contains_key(&number) {
            number = number.wrapping_add(1);
        }
        number
    }

    /// The reader has gone: open items are in front.
    fn left(self) -> Vec<Placed> {
        self.open.into_values().chain(self.queue).collect()
    }
}

impl Stored for Placed {
    /// All of them are ready.
    fn counted(&self) -> (&str, &'static str) {
        (&self.queue, "ready")
    }

    fn read(&self, bodies: &mut Bodies) -> Result<(Head, Vec<u8>)> {
        let item = &self.item;
        let head = Head {
            queue: Name::of_shown(&self.queue).to_string(),
            created_ms: item.added_ms,
            expires_ms: item.expires_ms,
            bytes: item.bytes as u64,
            ..Head::default()
        };
        Ok((head, bodies.read(self.file, item.at, item.bytes)?))
    }

    fn place(&self, bodies: &Bodies) -> String {
        let path = bodies.path(self.file).display();
        format!("byte {} of {path}", self.item.at)
    }
}
