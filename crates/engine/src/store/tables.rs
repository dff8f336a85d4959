//! Durable tables: small named values that hooks keep.
//!
//! Held in memory and told in full at the beginning of each segment, so they
//! are bounded (`tables_bytes_max`, `snapshot_bytes_max`).

use std::collections::BTreeMap;

use super::Durable;
use quintet_types::{Ms, Name, TableEntry};

use crate::fact::Fact;

/// Memory of an entry beside its bytes, about: a node's share and the boxes.
const PER_ENTRY: u64 = 96;

#[derive(Debug)]
struct Entry {
    value: Box<[u8]>,
    version: u64,
    until: Option<Ms>,
}

/// All tables of a shard.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    tables: BTreeMap<Name, BTreeMap<Box<[u8]>, Entry>>,
    /// Of keys, values and entries.
    pub(crate) bytes: u64,
    /// Bytes they take in a snapshot at most.
    pub(crate) restated_bytes: u64,
    /// The newest version given.
    pub(crate) version: u64,
}

/// The counted size of an entry.
pub(crate) fn cost(key: &[u8], value: &[u8]) -> u64 {
    key.len() as u64 + value.len() as u64 + PER_ENTRY
}

/// Size of an entry in a snapshot at most: each has its table's name.
pub(crate) fn restated_size(table: &Name, key: &[u8], value: &[u8]) -> u64 {
    const REST: u64 = 48;
    (table.as_bytes().len() + key.len() + value.len()) as u64 + REST
}

impl Tables {
    /// An entry whose time is not over.
    pub(crate) fn get(&self, table: &Name, key: &[u8], now: Ms) -> Option<TableEntry> {
        let (key, entry) = self.tables.get(table)?.get_key_value(key)?;
        alive(entry, now).then(|| shown(key, entry))
    }

    /// Version of an entry whose time is not over.
    pub(crate) fn version_of(&self, table: &Name, key: &[u8], now: Ms) -> Option<u64> {
        let entry = self.tables.get(table)?.get(key)?;
        alive(entry, now).then_some(entry.version)
    }

    /// The counted size of an entry, whether its time is over or not.
    pub(crate) fn cost_of(&self, table: &Name, key: &[u8]) -> u64 {
        let entry = self.tables.get(table).and_then(|table| table.get(key));
        entry.map_or(0, |entry| cost(key, &entry.value))
    }

    /// The same in a snapshot.
    pub(crate) fn restated_size_of(&self, table: &Name, key: &[u8]) -> u64 {
        let entry = self.tables.get(table).and_then(|table| table.get(key));
        entry.map_or(0, |entry| restated_size(table, key, &entry.value))
    }

    pub(crate) fn list(
        &self,
        table: &Name,
        after: Option<&[u8]>,
        max: usize,
        now: Ms,
    ) -> Vec<TableEntry> {
        use std::ops::Bound::{Excluded, Unbounded};
        let Some(table) = self.tables.get(table) else {
            // No client has set anything in it.
            return Vec::new();
        };
        let from = after.map_or(Unbounded, Excluded);
        let entries = table.range::<[u8], _>((from, Unbounded));
        let entries = entries.filter(|(_, entry)| alive(entry, now)).take(max);
        entries.map(|(key, entry)| shown(key, entry)).collect()
    }

    pub(crate) fn exists(&self, table: &Name) -> bool {
        self.tables.contains_key(table)
    }

    pub(super) fn set(
        &mut self,
        name: Name,
        key: Box<[u8]>,
        value: Option<Box<[u8]>>,
        until: Option<Ms>,
        version: u64,
    ) {
        self.bytes -= self.cost_of(&name, &key);
        self.restated_bytes -= self.restated_size_of(&name, &key);
        self.version = self.version.max(version);
        match value {
            Some(value) => {
                self.bytes += cost(&key, &value);
                self.restated_bytes += restated_size(&name, &key, &value);
                let entry = Entry {
                    value,
                    version,
                    until,
                };
                self.tables.entry(name).or_default().insert(key, entry);
            }
            None => {
                if let Some(table) = self.tables.get_mut(&name) {
                    table.remove(&key);
                    if table.is_empty() {
                        self.tables.remove(&name);
                    }
                }
            }
        }
    }

    pub(super) fn drop_table(&mut self, name: &Name) {
        for (key, entry) in self.tables.remove(name).unwrap_or_default() {
            self.bytes -= cost(&key, &entry.value);
            self.restated_bytes -= restated_size(name, &key, &entry.value);
        }
    }

    /// The entries behind this one, for the beginning of a segment, until `left` bytes are used
    /// up. Answers the last one then.
    pub(super) fn restate(
        &self,
        after: Option<(Name, Box<[u8]>)>,
        left: &mut u64,
        record: &mut dyn FnMut(&Fact),
    ) -> Option<(Name, Box<[u8]>)> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let (first, mut behind) = after.unzip();
        let from = first.as_ref().map_or(Unbounded, Included);
        for (name, table) in self.tables.range::<Name, _>((from, Unbounded)) {
            // The table itself may be gone by now.
            let behind = behind.take().filter(|_| first.as_ref() == Some(name));
            let from = behind.as_deref().map_or(Unbounded, Excluded);
            for (key, entry) in table.range::<[u8], _>((from, Unbounded)) {
                record(&Fact::TableSet {
                    table: name.clone(),
                    key: key.clone(),
                    value: Some(entry.value.clone()),
                    until: entry.until,
                    version: entry.version,
                });
                *left = left.saturating_sub(restated_size(name, key, &entry.value));
                if *left == 0 {
                    return Some((name.clone(), key.clone()));
                }
            }
        }
        None
    }

    /// Forgets entries whose time is over: a predicate on time, so no fact
    /// records it, and those that come back with a replay are as dead as
    /// before.
    pub(crate) fn drop_expired(&mut self, now: Ms) {
        let (bytes, restated_bytes) = (&mut self.bytes, &mut self.restated_bytes);
        self.tables.retain(|name, table| {
            table.retain(|key, entry| {
                let keep = alive(entry, now);
                if !keep {
                    *bytes -= cost(key, &entry.value);
                    *restated_bytes -= restated_size(name, key, &entry.value);
                }
                keep
            });
            !table.is_empty()
        });
    }
}

impl Durable {
    /// Checks the sum of the tables' bytes.
    pub(super) fn verify_tables(&self) -> Result<(), String> {
        let (mut bytes, mut restated_bytes) = (0, 0);
        for (name, table) in &self.tables.tables {
            for (key, entry) in table {
                bytes += cost(key, &entry.value);
                restated_bytes += restated_size(name, key, &entry.value);
            }
        }
        let counted = (self.tables.bytes, self.tables.restated_bytes);
        if (bytes, restated_bytes) == counted {
            Ok(())
        } else {
            let found = (bytes, restated_bytes);
            Err(format!(
                "tables: {found:?} bytes are counted as {counted:?}"
            ))
        }
    }
}

fn alive(entry: &Entry, now: Ms) -> bool {
    entry.until.is_none_or(|until| until > now)
}

fn shown(key: &[u8], entry: &Entry) -> TableEntry {
    TableEntry {
        key: key.into(),
        value: entry.value.clone(),
        version: entry.version,
        until: entry.until,
    }
}
