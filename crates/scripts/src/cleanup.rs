//! Cleanup of folders and attachments whose message is gone, and of copies that a crash cut short.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use quintet_client::{ScopedClient, ask_named};
use quintet_types::{By, Command, Message, Outcome, Peek};

use crate::copy::COPYING;
use crate::ids::parse_short;
use crate::paths::{is_message_dir, names_in, own_dir, remove_tree};
use crate::record::{STATES, attr};
use crate::service::Rq;

/// Time after which a copy that is not committed is nobody's, ms. Links are
/// made in far less.
const COPY_MS: u64 = 3_600_000;

impl Rq {
    /// Removes folders without a message, and copies that a service before this
    /// one began and did not commit. `first`: right after the start.
    pub(crate) fn clean_up(&self, first: bool) {
        let queues = self.queues();
        let now = self.client_api.now();
        for queue in &queues {
            let mut cut_short = Vec::new();
            self.each(queue, "prep", |message| {
                let old = now.since(message.created) > COPY_MS;
                let maker = attr(&message, COPYING);
                if maker.is_some_and(|maker| old || maker != self.life.as_bytes()) {
                    cut_short.push(message.id);
                }
                !self.stopping.load(Ordering::SeqCst)
            });
            for id in cut_short {
                let by = By::OwnerOrFree;
                // Committed or gone since is as good.
                let _outcome = self.ask(Command::Delete { id, by });
            }
        }
        let mut orphans = self.folders_without_own_message();
        // Not right after the start: in a cluster the servers may still elect who answers.
        let kept = if first { BTreeMap::new() } else { self.kept() };
        orphans.extend(self.of_nobody(kept.keys()));
        if orphans.is_empty() {
            return;
        }
        // A message that moved has another id or queue, but still its files.
        let mut all_seen = true;
        for queue in &queues {
            for state in STATES {
                all_seen &= self.each(queue, state, |message| {
                    orphans.remove(&self.paths.dir(queue, &message));
                    !self.stopping.load(Ordering::SeqCst)
                });
            }
        }
        for dir in orphans {
            let path = self.paths.absolute(&dir);
            // Only attachments can belong to a message that was not seen.
            if all_seen || !has_files(&path) {
                remove_tree(&path);
            }
            if all_seen {
                self.forget_kept(kept.get(&dir).map_or(&[], Vec::as_slice));
            }
        }
    }

    /// Those of these folders that have no message of their own.
    fn of_nobody<'a>(&self, folders: impl Iterator<Item = &'a PathBuf>) -> BTreeSet<PathBuf> {
        let owned = |folder: &PathBuf| {
            let mut words = folder.iter().map(|word| word.to_string_lossy());
            match (words.nth(1), words.nth(2)) {
                (Some(queue), Some(id)) => self.has_own_message(&queue, &id),
                _ => true,
            }
        };
        folders.filter(|folder| !owned(folder)).cloned().collect()
    }

    fn folders_without_own_message(&self) -> BTreeSet<PathBuf> {
        let mut orphans = BTreeSet::new();
        for queue in names(&self.paths.queues()) {
            let messages = self.paths.queue(&queue).join("msg");
            for day in names(&messages) {
                for id in names(&messages.join(&day)) {
                    let dir: PathBuf = ["queue", &queue, "msg", &day, &id].iter().collect();
                    if self.stopping.load(Ordering::SeqCst) {
                        return BTreeSet::new();
                    }
                    if is_message_dir(&dir) && !self.has_own_message(&queue, &id) {
                        orphans.insert(dir);
                    }
                }
                // Days that are over and empty; others refuse to go.
                let _in_use = fs::remove_dir(messages.join(&day));
            }
        }
        orphans
    }

    /// True if the message the folder was made for is there and still uses it.
    fn has_own_message(&self, queue: &str, id: &str) -> bool {
        let Some((created, number)) = parse_short(id) else {
            return true;
        };
        let client = ScopedClient::new(&*self.client_api);
        let peek = Command::Peek(Peek::Id(number));
        match ask_named(&*self.client_api, client.client_id(), peek) {
            (Outcome::Messages(messages), name) => messages.first().is_some_and(|message| {
                let at = String::from_utf8_lossy(name.as_bytes());
                let own: &Message = message;
                own.created == created
                    && (at == queue || self.paths.dir(&at, own) == own_dir(queue, own))
            }),
            // Not there; anything but a clear answer keeps the folder.
            (Outcome::Refused(quintet_types::CommandError::NotFound), _) => false,
            _ => true,
        }
    }
}

/// None of a folder that cannot be read.
fn names(folder: &std::path::Path) -> Vec<String> {
    names_in(folder).unwrap_or_default()
}

fn has_files(dir: &std::path::Path) -> bool {
    fs::read_dir(dir.join("attach")).is_ok_and(|mut entries| entries.next().is_some())
}
