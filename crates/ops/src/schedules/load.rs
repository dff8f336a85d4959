//! Definitions and cursors in the durable tables.

use std::sync::Arc;
use std::sync::mpsc;

use quintet_client::{ClientApi, ScheduleSpec, ScopedClient};
use quintet_policy::Schedule;
use quintet_types::{
    Caller, Command, CommandError, Effect, Guard, Name, Outcome, TableEntry, TableRequest,
    Transaction,
};
use serde::{Deserialize, Serialize};

use super::plan::Cursor;

/// The durable table of cursors, a key each.
pub(super) const MARKS: &str = "quintet.cron";
/// The durable table of definitions.
pub(super) const DEFINITIONS: &str = "quintet.schedules";
/// The version of a definition that this program writes, and the newest that it reads.
const VERSION: u32 = 1;

/// A definition in its table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Stored {
    pub(super) v: u32,
    /// The user who defined it; empty: nobody is known.
    #[serde(default)]
    pub(super) by: String,
    /// When, by the wall clock.
    #[serde(default)]
    pub(super) at: u64,
    pub(super) spec: ScheduleSpec,
}

impl Stored {
    pub(super) fn new(spec: ScheduleSpec, by: String, at: u64) -> Self {
        Self {
            v: VERSION,
            by,
            at,
            spec,
        }
    }

    /// Reads an entry.
    ///
    /// # Errors
    /// Why it cannot be read: it is of a newer version, or nobody here wrote it.
    pub(super) fn read(value: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Version {
            v: u32,
        }
        match serde_json::from_slice::<Version>(value) {
            Ok(Version { v: VERSION }) => {}
            Ok(Version { v }) => {
                return Err(format!(
                    "its definition is of version {v}, which is unknown"
                ));
            }
            Err(_) => return Err("its definition is damaged".to_owned()),
        }
        serde_json::from_slice(value).map_err(|error| format!("its definition is damaged: {error}"))
    }
}

/// A schedule with all that the tables say of it.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) name: Arc<str>,
    /// Its definition, if that is in the configuration.
    pub(super) of_file: Option<Arc<Schedule>>,
    /// Or why it cannot run.
    pub(super) schedule: Result<Arc<Schedule>, String>,
    /// Its definition in the table, with the version of the entry.
    pub(super) stored: Option<(Stored, u64)>,
    /// The version of an entry that cannot be read.
    pub(super) definition: Option<u64>,
    pub(super) cursor: Cursor,
    /// `None`: there is no cursor.
    pub(super) cursor_version: Option<u64>,
}

impl Loaded {
    /// From the entries of both tables; a table of the configuration wins.
    pub(super) fn new(
        name: impl Into<Arc<str>>,
        of_file: Option<&Arc<Schedule>>,
        definition: Option<&TableEntry>,
        cursor: Option<&TableEntry>,
    ) -> Self {
        let name = name.into();
        let stored = definition.map(|entry| (Stored::read(&entry.value), entry.version));
        let schedule = match (of_file, &stored) {
            (Some(schedule), _) => Ok(Arc::clone(schedule)),
            (None, Some((Ok(stored), _))) => {
                let schedule = stored.spec.schedule(&name);
                schedule
                    .map(Arc::new)
                    .map_err(|bad| format!("{}: {}", bad.field, bad.why))
            }
            (None, Some((Err(why), _))) => Err(why.clone()),
            (None, None) => Err("there is no such schedule".to_owned()),
        };
        // A cursor that nobody here wrote counts as none.
        let read = cursor.map(|entry| serde_json::from_slice(&entry.value).unwrap_or_default());
        Self {
            name,
            of_file: of_file.cloned(),
            schedule,
            definition: definition.map(|entry| entry.version),
            stored: stored.and_then(|(stored, version)| Some((stored.ok()?, version))),
            cursor: read.unwrap_or_default(),
            cursor_version: cursor.map(|entry| entry.version),
        }
    }

    /// A step that needs the entries to be as they were read; of a schedule of the configuration
    /// only the cursor counts.
    pub(super) fn step(&self, effects: Vec<Effect>) -> Command {
        let guard = |table, version| Guard::Table {
            table: Name::from(table),
            key: self.name.as_bytes().into(),
            version,
        };
        let mut guards = vec![guard(MARKS, self.cursor_version)];
        if self.of_file.is_none() {
            guards.push(guard(DEFINITIONS, self.definition));
        }
        step(guards, effects)
    }

    /// The version of the definition that counts, if that is in the table.
    pub(super) fn version(&self) -> Option<u64> {
        self.definition.filter(|_| self.of_file.is_none())
    }
}

/// Sets or removes an entry.
pub(crate) fn set<T: Serialize>(table: &str, name: &str, value: Option<&T>) -> Effect {
    // Numbers and texts have JSON.
    let value = value.map(|value| serde_json::to_vec(value).unwrap_or_default().into());
    Effect::Set {
        table: Name::from(table),
        key: name.as_bytes().into(),
        value,
        ttl_ms: None,
    }
}

/// Sets a cursor; without its runs where the tables are `full`.
pub(super) fn set_cursor(name: &str, cursor: &Cursor, full: bool) -> Effect {
    set(MARKS, name, Some(&cursor.entry(full)))
}

/// True if a step was refused for want of room in the tables.
pub(super) fn is_full(command_error: CommandError) -> bool {
    matches!(
        command_error,
        CommandError::TablesFull | CommandError::SnapshotFull
    )
}

/// A step that needs nothing.
pub(crate) fn free_step(effect: Effect) -> Command {
    step(Vec::new(), vec![effect])
}

fn step(guards: Vec<Guard>, effects: Vec<Effect>) -> Command {
    Command::Transaction(Box::new(Transaction {
        guards,
        effects,
        then: None,
    }))
}

/// The question for an entry.
pub(crate) fn get(table: &str, name: &str) -> Command {
    Command::Table(TableRequest::Get {
        table: Name::from(table),
        key: name.as_bytes().into(),
    })
}

/// The question for a page of a table.
pub(super) fn page(table: &str, after: Option<Box<[u8]>>, max: u32) -> Command {
    Command::Table(TableRequest::List {
        table: Name::from(table),
        after,
        max,
    })
}

/// Asks all of these at once, as the server, and waits for the answers, in the order of the
/// commands. What nobody answers has an unknown outcome.
pub(super) fn ask_all(
    client_api: &dyn ClientApi,
    client: &ScopedClient<'_>,
    commands: Vec<Command>,
) -> Vec<Outcome> {
    let unknown = || Outcome::Refused(CommandError::Unknown);
    let mut outcomes: Vec<Outcome> = commands.iter().map(|_| unknown()).collect();
    let (sender, receiver) = mpsc::channel();
    for (at, command) in commands.into_iter().enumerate() {
        let sender = sender.clone();
        let reply = Box::new(move |outcome, _| {
            // This thread waits until all are called or dropped.
            let _delivered = sender.send((at, outcome));
        });
        client_api.submit(Caller::server(client.client_id()), command, reply);
    }
    drop(sender);
    for (at, outcome) in receiver {
        outcomes[at] = outcome;
    }
    outcomes
}

/// The entries of an answer; `None`: it is an error.
pub(super) fn entries(outcome: Outcome) -> Option<Vec<TableEntry>> {
    if let Outcome::Entries(entries) = outcome {
        Some(entries)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(value: &str) -> Loaded {
        let entry = TableEntry {
            key: b"a"[..].into(),
            value: value.as_bytes().into(),
            version: 7,
            until: None,
        };
        Loaded::new("a", None, Some(&entry), None)
    }

    /// A schedule that cannot be read puts nothing, and can still be changed or removed.
    #[test]
    fn a_definition_that_cannot_run_says_why() {
        let good = r#"{"v":1,"by":"ann","at":5,"spec":{"every_ms":1000,"queue":"w"}}"#;
        let read = loaded(good);
        assert_eq!(read.schedule.expect("a schedule").queue(), &Name::from("w"));
        let (stored, version) = read.stored.expect("a definition");
        assert_eq!((stored.by.as_str(), stored.at, version), ("ann", 5, 7));
        let vanished = r#"{"cron":"0 3 * * *","zone":"Mars/Base","queue":"w"}"#;
        for (value, expected) in [
            (format!(r#"{{"v":1,"spec":{vanished}}}"#), "zone: Mars/Base"),
            (good.replace(r#""v":1"#, r#""v":2"#), "version 2"),
            (good.replace("queue", "colour"), "damaged"),
            ("nonsense".to_owned(), "damaged"),
        ] {
            let read = loaded(&value);
            let why = read.schedule.as_ref().expect_err(&value);
            assert!(why.contains(expected), "{value}: {why}");
            assert_eq!(read.definition, Some(7));
            let Command::Transaction(step) = read.step(Vec::new()) else {
                panic!("no step");
            };
            assert!(step.guards.iter().any(|guard| matches!(
                guard,
                Guard::Table {
                    version: Some(7),
                    ..
                }
            )));
        }
    }
}
