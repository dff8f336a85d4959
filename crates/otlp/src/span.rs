//! Spans, and the queue to their sender.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use quintet_types::{MessageId, Name, locked};

quintet_types::named! {
    /// The part of a message's life that a span covers.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Kind, name {
        /// A message was put; ends when that may be answered.
        Put = "put",
        /// It waited to be taken, from its put or its last lease on.
        Wait = "wait",
        /// Somebody held it.
        Run = "run",
    }
}

/// One span that has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    pub kind: Kind,
    pub trace: [u8; 16],
    pub id: [u8; 8],
    pub parent: [u8; 8],
    /// The `tracestate` it came with; empty: none.
    pub state: Arc<str>,
    pub queue: Name,
    pub message: MessageId,
    /// Wall clock, ns since 1970.
    pub start_ns: u64,
    pub end_ns: u64,
    /// Which lease of the message, from 1; 0: it had none so far.
    pub attempt: u32,
    /// The error: a word, and its details.
    pub error: Option<(&'static str, String)>,
}

/// Fate of spans.
#[derive(Debug, Default)]
pub struct Counts {
    /// Taken by the collector.
    pub sent: AtomicU64,
    /// Given up before they were sent, as there were too many.
    pub dropped: AtomicU64,
    /// Given up, as the collector did not take them.
    pub failed: AtomicU64,
}

impl Counts {
    pub(crate) fn add_dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// The way to their sender, for all shards.
#[derive(Debug)]
pub struct Spans {
    queue: SyncSender<Span>,
    /// Puts that are not answered, with their batches, rising.
    puts: Mutex<VecDeque<(u64, Span)>>,
    most: usize,
    pub counts: Arc<Counts>,
}

impl Spans {
    /// For so many spans at once.
    pub fn new(most: usize, counts: Arc<Counts>) -> (Arc<Self>, Receiver<Span>) {
        let (queue, ended) = sync_channel(most);
        let spans = Self {
            queue,
            puts: Mutex::default(),
            most,
            counts,
        };
        (Arc::new(spans), ended)
    }

    /// A span has ended.
    pub(crate) fn ended(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.counts.add_dropped();
        }
    }

    /// A put is in the batch of this number, which is not below any before it.
    pub(crate) fn put(&self, batch: u64, span: Span) {
        let mut puts = locked(&self.puts);
        match puts.len() < self.most {
            true => puts.push_back((batch, span)),
            false => self.counts.add_dropped(),
        }
    }

    /// Puts up to this batch may be answered, at `now_ns`.
    pub fn settled(&self, batch: u64, now_ns: u64) {
        let mut puts = locked(&self.puts);
        while puts.front().is_some_and(|(of, _)| *of <= batch) {
            if let Some((_, span)) = puts.pop_front() {
                self.ended(Span {
                    end_ns: now_ns,
                    ..span
                });
            }
        }
    }
}
