//! Going through queues, list by list and page by page.

use std::collections::VecDeque;
use std::io::sink;

use anyhow::{Context, Result, bail};
use quintet_control::{Head, Standing};
use serde_json::{Value, json};

use crate::client::Client;
use crate::progress::Progress;
use crate::records::Sink;

/// Messages asked for at once: 4 MiB of bodies at most, larger ones apart.
const PAGE: u32 = 64;

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
    List {
        name: "reserved",
        counts: &["reserved"],
        rare: true,
    },
    List {
        name: "ready",
        counts: &["ready", "held_back"],
        rare: false,
    },
    List {
        name: "delayed",
        counts: &["delayed"],
        rare: false,
    },
    List {
        name: "buried",
        counts: &["buried"],
        rare: false,
    },
    List {
        name: "prepared",
        counts: &["prepared"],
        rare: true,
    },
    List {
        name: "archived",
        counts: &["done", "relayed"],
        rare: true,
    },
];

/// Where a message stands in its list.
type Order = (u64, u64, i64, u64);

impl List {
    fn order(&self, head: &Head) -> Order {
        let id = head.id;
        match self.name {
            "ready" => {
                let rank = u64::from(head.rank.unwrap_or(0));
                (u64::from(head.held_back), rank, head.place, id)
            }
            "delayed" => (head.due_ms.unwrap_or(0), 0, 0, id),
            "buried" => (head.bury_order, 0, 0, id),
            "archived" => (head.changed_ms, 0, 0, id),
            _ => (0, 0, 0, id),
        }
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
    pub(super) client: Client,
    pub(super) sink: Box<dyn Sink>,
    pub(super) progress: Progress,
    /// Messages in the file before.
    pub(super) before: u64,
}

/// How far a list was read.
struct Place {
    last: Option<Order>,
    /// The last messages, newest last.
    recent: VecDeque<u64>,
}

impl Place {
    /// Where to go on if the last message has left the list: behind one that
    /// stood before it, or from the front.
    fn others(&self) -> Vec<Option<u64>> {
        let steps = std::iter::successors(Some(1), |step| Some(step * 2));
        let back = steps.map_while(|step: usize| self.recent.iter().rev().nth(step));
        back.map(|&id| Some(id)).chain([None]).collect()
    }
}

impl Walk {
    /// Exports a list, behind the message `from`.
    ///
    /// # Errors
    /// The server is gone, or the file takes no more.
    pub(super) fn list(&mut self, queue: &str, list: &List, from: Option<Head>) -> Result<()> {
        let mut place = Place {
            last: from.as_ref().map(|head| list.order(head)),
            recent: from.iter().map(|head| head.id).collect(),
        };
        let after = place.recent.back().copied();
        self.forward(queue, list, &mut place, after)?;
        // A list ends where there is no more, and where the message it was to
        // go on behind has left it meanwhile.
        while place.last.is_some() {
            let mut new = 0;
            for after in place.others() {
                let (seen, found) = self.forward(queue, list, &mut place, after)?;
                new = found;
                if seen > 0 {
                    break;
                }
            }
            if new == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Exports what is new behind `after`, to the end; answers how many
    /// messages it saw, and how many of them were new.
    fn forward(
        &mut self,
        queue: &str,
        list: &List,
        place: &mut Place,
        mut after: Option<u64>,
    ) -> Result<(u64, u64)> {
        let (mut seen, mut new) = (0, 0);
        loop {
            let of = json!({ "queue": queue, "state": list.name, "after": after, "max": PAGE });
            let reply = self
                .client
                .ask(&json!({ "list": of }), &mut std::io::empty());
            let reply = match reply {
                // It was dropped meanwhile.
                Err(error) if error.to_string() == "queue not found" => return Ok((seen, new)),
                reply => reply?,
            };
            let Some(Value::Array(messages)) = reply.get("messages") else {
                bail!("the server is of another version");
            };
            if messages.is_empty() {
                return Ok((seen, new));
            }
            for message in messages {
                let mut head: Head = serde_json::from_value(message.clone())
                    .context("the server is of another version")?;
                seen += 1;
                after = Some(head.id);
                let order = list.order(&head);
                if place.last.is_some_and(|last| order <= last) {
                    self.client.body(head.bytes, &mut sink())?;
                    continue;
                }
                if list.name == "delayed" {
                    head.state = Standing::Delayed;
                }
                self.sink.message(&head, self.client.bodies())?;
                new += 1;
                place.last = Some(order);
                place.recent.push_back(head.id);
                if place.recent.len() > PAGE as usize {
                    place.recent.pop_front();
                }
                let position = self.before + self.progress.messages() + 1;
                self.progress.add(1, head.bytes, position);
            }
        }
    }
}
