//! One shard: its engine and its part of the open batch.

use quintet_engine::{Engine, Fact, Hold, Home, Journal};

use super::tickets::{Need, Progress, Ring};

/// Facts of one shard, encoded, not yet with the log.
#[derive(Default)]
pub(crate) struct Batch {
    /// The records, one after the other.
    pub(crate) records: Vec<u8>,
    /// How many.
    pub(crate) count: u32,
}

impl Journal for Batch {
    fn record(&mut self, fact: &Fact) {
        fact.encode(&mut self.records);
        self.count += 1;
    }
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Empties it and keeps its memory, unless that grew far beyond the usual.
    pub(crate) fn clear(&mut self) {
        self.records.clear();
        self.records.shrink_to(1 << 20);
        self.count = 0;
    }
}

/// What one mutex guards.
pub(crate) struct Shard {
    pub(crate) engine: Engine,
    pub(crate) batch: Batch,
    pub(crate) ring: Ring,
}

impl Shard {
    pub(crate) fn new(engine: Engine) -> Self {
        Self {
            engine,
            batch: Batch::default(),
            ring: Ring::default(),
        }
    }

    /// What a reply decided now waits for. `waits_for_disk`: durable means
    /// synced; else it means written.
    pub(crate) fn need(&mut self, hold: Hold, progress: &Progress, waits_for_disk: bool) -> Need {
        let open = progress.open();
        let last = if self.batch.is_empty() {
            open - 1
        } else {
            open
        };
        let need = match hold {
            Hold::Turn => Need::default(),
            Hold::Durable => Need {
                written: last,
                durable: last,
            },
            Hold::Written(id) => {
                let durable = self.ring.ticket_of(id, last, progress.durable());
                Need {
                    written: last,
                    durable,
                }
            }
        };
        if waits_for_disk {
            need
        } else {
            Need {
                written: need.written,
                durable: 0,
            }
        }
    }

    /// Puts the shard's snapshot at the front of the open batch, which is the
    /// first of the segment `home`.
    pub(crate) fn begin_segment(&mut self, home: Home) {
        let Self { engine, batch, .. } = self;
        engine.set_home(home);
        engine.snapshot(&mut |fact| batch.record(fact));
    }
}
