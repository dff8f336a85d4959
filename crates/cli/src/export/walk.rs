//! Going through queues, list by list and page by page.

use std::io::Read as _;

use anyhow::{Context, Result};
use quintet_control::{Head, Standing};
use quintet_types::CommandError;

use crate::api::{Api, part};
use crate::client::Refused;
use crate::progress::Progress;
use crate::records::Sink;

/// Messages asked for at once; a page ends at 1 MiB, too.
const PAGE: u32 = 1000;
const BATCHES: &str = "/batches?limit=1000";

/// A list of messages of a queue, in an order of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct List {
    /// As a request names it.
    pub(super) name: &'static str,
    /// Numbers of a queue that say how many there are.
    pub(super) counts: &'static [&'static str],
    /// Only with `--all-states`.
    pub(super) rare: bool,
}

/// In the order of the file. Those under a lease come first: they stood in
/// front.
pub(super) const LISTS: [List; 6] = [
    List::new("reserved", &["reserved"], true),
    List::new("ready", &["ready", "not_selectable"], false),
    List::new("delayed", &["delayed"], false),
    List::new("buried", &["buried"], false),
    List::new("prepared", &["prepared"], true),
    List::new("archived", &["done", "relayed"], true),
];

impl List {
    const fn new(name: &'static str, counts: &'static [&'static str], rare: bool) -> Self {
        Self { name, counts, rare }
    }

    /// The cursor of the API behind a message of the list.
    fn behind(&self, head: &Head) -> String {
        let order = |ms: u64| (0, i64::try_from(ms).unwrap_or(i64::MAX));
        let (priority, at) = match self.name {
            "ready" => (head.priority.unwrap_or(0), head.place),
            "delayed" => order(head.due_ms.unwrap_or(0)),
            "buried" => order(head.bury_order),
            "archived" => order(head.changed_ms),
            _ => (0, 0),
        };
        let not_selectable = self.name == "ready" && head.not_selectable;
        format!("{}_{priority}_{at}_{}", u8::from(not_selectable), head.id)
    }

    /// The list a message of a file was in.
    pub(super) fn of(head: &Head) -> &'static str {
        match head.state {
            Standing::Ready => "ready",
            Standing::Delayed => "delayed",
            Standing::Reserved => "reserved",
            Standing::Buried => "buried",
            Standing::Prepared => "prepared",
            Standing::Done | Standing::Relayed => "archived",
        }
    }
}

/// Goes through lists, page by page.
pub(super) struct Walk {
    pub(super) api: Api,
    pub(super) sink: Box<dyn Sink>,
    pub(super) progress: Progress,
    /// Messages in the file before.
    pub(super) before: u64,
}

impl Walk {
    /// Exports the batches.
    ///
    /// # Errors
    /// The server is gone, or the file takes no more.
    pub(super) fn batches(&mut self) -> Result<()> {
        let all = self.api.pages(BATCHES, "batches", "next", "after")?;
        for id in all.iter().filter_map(|batch| batch["id"].as_str()) {
            match self.api.get(&format!("/batches/{id}")) {
                // It was forgotten meanwhile.
                Err(error) if Refused::is(&error, CommandError::BatchNotFound) => {}
                batch => self.sink.batch(&batch?)?,
            }
        }
        Ok(())
    }

    /// Exports a list, behind the message `from`.
    ///
    /// # Errors
    /// The server is gone, or the file takes no more.
    pub(super) fn list(&mut self, queue: &str, list: &List, from: Option<Head>) -> Result<()> {
        let path = format!(
            "/queues/{}/records?state={}&max={PAGE}",
            part(queue),
            list.name
        );
        let mut cursor = from.map(|head| list.behind(&head));
        loop {
            let after = cursor.map_or_else(String::new, |cursor| format!("&cursor={cursor}"));
            let page = match self.api.open("GET", &format!("{path}{after}"), None) {
                // It was dropped meanwhile.
                Err(error) if Refused::is(&error, CommandError::QueueNotFound) => return Ok(()),
                page => page?,
            };
            let messages = page["messages"].as_array();
            for message in messages.context("the server is of another version")? {
                let follows = message["follows"].as_u64().unwrap_or(0);
                let mut head = message.clone();
                if let Some(head) = head.as_object_mut() {
                    head.retain(|key, _| !["follows", "lease"].contains(&key.as_str()));
                }
                let mut head: Head =
                    serde_json::from_value(head).context("the server is of another version")?;
                if list.name == "delayed" {
                    head.state = Standing::Delayed;
                }
                let mut body = (&mut self.api).take(follows);
                self.sink.message(&head, &mut body)?;
                let position = self.before + self.progress.messages + 1;
                self.progress.add(1, head.bytes, position);
            }
            match page["cursor"].as_str() {
                Some(next) => cursor = Some(next.to_owned()),
                None => return Ok(()),
            }
        }
    }
}
