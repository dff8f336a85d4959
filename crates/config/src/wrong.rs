//! Errors of a configuration file, with their lines.

use std::fmt;

use anyhow::{Error, anyhow};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::cluster::CLUSTER;
use super::queues::{QUEUE_SETTINGS, SCRIPT_KEYS};
use super::schema::SETTINGS;

/// A fault of the configuration file.
#[derive(Debug, Default)]
pub struct Wrong {
    /// Which of the tables of this name, from 0; of those written with two brackets.
    row: Option<usize>,
    /// The name of the table, if there are several kinds.
    table: Option<&'static str>,
    /// The key within the table.
    key: Option<String>,
    /// A sentence; of a table it says which.
    why: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl From<String> for Wrong {
    fn from(why: String) -> Self {
        Self {
            why,
            ..Self::default()
        }
    }
}

impl Wrong {
    /// About this key of its table.
    pub(crate) fn of_key(key: &str, why: String) -> Self {
        Self {
            key: Some(key.to_owned()),
            ..Self::from(why)
        }
    }

    /// About the value of this key, which the sentence shows unless it is a secret.
    pub(crate) fn of_value(key: &str, value: &toml::Value, why: &str) -> Self {
        let supplied = shown(value);
        let text = value.as_str().map(|text| format!("\"{text}\""));
        let shows =
            why.ends_with(&format!("not {value}")) || text.is_some_and(|text| why.contains(&text));
        let secret = SECRETS.contains(&key) || supplied.contains('@');
        let why = match shows || secret {
            true => format!("{key} {why}"),
            false => format!("{key} {why}; not {supplied}"),
        };
        Self::of_key(key, why)
    }

    /// About the text that this key has.
    pub(crate) fn of_text(key: &str, supplied: &str, why: &str) -> Self {
        Self::of_value(key, &toml::Value::String(supplied.to_owned()), why)
    }

    /// About something in the table that is called so.
    pub(crate) fn within(mut self, place: &str) -> Self {
        self.why = format!("in {place}: {}", self.why);
        self
    }

    /// About this one of several tables.
    pub(crate) fn of_row(mut self, row: usize) -> Self {
        self.row = Some(row);
        self
    }

    /// In tables of this name.
    pub(crate) fn of_table(mut self, table: &'static str) -> Self {
        self.table = Some(table);
        self
    }

    /// With the line of the file, where `name` is the setting or table.
    pub(crate) fn on_line(self, file: &str, name: &str) -> Error {
        match self.line(file, self.table.unwrap_or(name)) {
            Some(line) => anyhow!("line {line}: {}", self.why),
            None => anyhow!(self.why),
        }
    }

    fn line(&self, file: &str, name: &str) -> Option<usize> {
        let root = DeTable::parse(file).ok()?;
        let (mut at, value) = entry(root.get_ref(), name)?;
        let mut table = value;
        if let (Some(row), DeValue::Array(rows)) = (self.row, value.get_ref()) {
            table = rows.get(row)?;
            at = table.span().start;
        }
        if let (Some(key), DeValue::Table(table)) = (&self.key, table.get_ref())
            && let Some((key_at, _)) = entry(table, key)
        {
            at = key_at;
        }
        Some(1 + file.get(..at)?.matches('\n').count())
    }
}

/// The lines of a table's rows, for mistakes that are found later.
#[derive(Clone, Default)]
pub(crate) struct Lines {
    row: usize,
    keys: Vec<(String, usize)>,
}

impl Lines {
    /// Where an error in this key is; empty where the row is in no file.
    pub(super) fn place(&self, key: &str) -> String {
        let of_key = self.keys.iter().find(|(name, _)| name == key);
        match of_key.map_or(self.row, |(_, line)| *line) {
            0 => String::new(),
            line => format!("line {line}: "),
        }
    }

    /// Of all tables of a name, in their order.
    pub(super) fn of_all(file: &str, name: &str) -> Vec<Self> {
        let root = DeTable::parse(file).ok();
        let found = root.as_ref().and_then(|root| entry(root.get_ref(), name));
        let Some(DeValue::Array(rows)) = found.map(|(_, value)| value.get_ref()) else {
            return Vec::new();
        };
        let line = |at: usize| 1 + file.get(..at).unwrap_or_default().matches('\n').count();
        let row = |row: &Spanned<DeValue<'_>>| {
            let keys = row.get_ref().as_table().into_iter().flatten();
            Self {
                row: line(row.span().start),
                keys: keys
                    .map(|(key, _)| (key.get_ref().to_string(), line(key.span().start)))
                    .collect(),
            }
        };
        rows.iter().map(row).collect()
    }
}

/// Their values stay out of errors and logs, as do addresses with a password.
const SECRETS: &[&str] = &["password", "tokens", "users", "env_vars"];

/// Characters of a value that an error shows.
const SHOWN: usize = 100;

/// A value as the file writes it, its beginning if it is long.
fn shown(value: &toml::Value) -> String {
    let text = value.to_string();
    let mut begin: String = text.chars().take(SHOWN).collect();
    if begin.len() < text.len() {
        begin.push_str("...");
    }
    begin.replace(char::is_control, " ")
}

type Entry<'a, 'i> = (usize, &'a Spanned<DeValue<'i>>);

/// Where a key begins, and its value.
fn entry<'a, 'i>(table: &'a DeTable<'i>, name: &str) -> Option<Entry<'a, 'i>> {
    let found = table.iter().find(|(key, _)| key.get_ref() == name);
    found.map(|(key, value)| (key.span().start, value))
}

/// Old names of settings, and their names now.
pub(crate) const RENAMED: &[(&str, &str)] = &[
    ("voice", "protocol"),
    ("rank", "priority"),
    ("default_rank", "default_priority"),
    ("beat", "heartbeat"),
    ("link_tls_ca", "peer_tls_ca"),
    ("link_tls_cert", "peer_tls_cert"),
    ("link_tls_key", "peer_tls_key"),
    ("link_insecure", "peer_insecure"),
];

/// The error for an old name.
pub(crate) fn renamed(old: &str) -> Option<String> {
    let (_, new) = RENAMED.iter().find(|(name, _)| *name == old)?;
    Some(format!("{old} is called {new} now"))
}

/// The old names in a file, each with its line, in order; and the file with the new names, for the
/// errors that the old ones would hide.
pub fn old_names(file: &str) -> (Vec<(usize, String)>, String) {
    let root = DeTable::parse(file).ok();
    let mut tables: Vec<&DeTable<'_>> = Vec::new();
    if let Some(root) = &root {
        tables.push(root.get_ref());
        for (_, value) in root.get_ref() {
            // Users choose the keys of deeper tables: tags, variables of a script.
            let rows = value.get_ref().as_array().into_iter().flatten();
            tables.extend(value.get_ref().as_table());
            tables.extend(rows.filter_map(|row| row.get_ref().as_table()));
        }
    }
    let keys = tables.into_iter().flatten();
    let old = keys.filter_map(|(key, _)| {
        let name: &str = key.get_ref();
        let (_, new) = RENAMED.iter().find(|(old, _)| *old == name)?;
        Some((key.span(), *new, renamed(name)?))
    });
    let mut found: Vec<_> = old.collect();
    found.sort_by_key(|(span, ..)| span.start);
    let mut now = file.to_owned();
    for (span, new, _) in found.iter().rev() {
        now.replace_range(span.clone(), new);
    }
    let line = |at: usize| 1 + file.get(..at).unwrap_or_default().matches('\n').count();
    let lines = found
        .into_iter()
        .map(|(span, _, why)| (line(span.start), why));
    (lines.collect(), now)
}

/// Names of settings here, each with its names in other systems.
const SYNONYMS: &[(&str, &str)] = &[
    ("attempts_max", "max_attempts max_receive_count"),
    ("retry_max", "max_retries retries"),
    ("retry_delay", "backoff"),
    ("retry_delay_max", "max_backoff"),
    ("num_workers", "workers concurrency"),
    ("default_ttr", "timeout visibility_timeout ttr"),
    ("dead_letter", "dead_letter_queue dlq"),
    ("ttl", "expires expiration"),
    ("buried_ttl", "dead_ttl bury_ttl"),
    ("messages_max", "max_length max_messages max_items"),
    ("bytes_max", "max_size max_bytes"),
    ("connections_max", "max_connections"),
    ("data", "data_dir"),
    ("sync", "fsync"),
    ("listen", "bind port"),
    ("address", "port bind host"),
    ("default_priority", "rank priority"),
];

/// The error for a key that stands in the wrong table.
fn misplaced(key: &str) -> Option<String> {
    let place = if QUEUE_SETTINGS.iter().any(|spec| spec.key == key) {
        "in a [[queue]] or [defaults] table"
    } else if SETTINGS.iter().any(|spec| spec.key == key) {
        "above the first table of the file"
    } else if CLUSTER.iter().any(|spec| spec.key == key) {
        "in [cluster]"
    } else if SCRIPT_KEYS.contains(&key) && key != "schedule" {
        "in a [[queue]] table"
    } else {
        return None;
    };
    Some(format!("unknown key \"{key}\" here; write it {place}"))
}

/// So many are named in the error for an unknown one.
const FEW: usize = 16;

/// The row of a table of keys that has this key.
///
/// # Errors
/// No row has it: names what it may be, also of `more`.
pub(crate) fn known<'a, T>(
    rows: &'a [T],
    key: &str,
    of: fn(&T) -> &'static str,
    more: &[&'static str],
) -> Result<&'a T, String> {
    rows.iter().find(|row| of(row) == key).ok_or_else(|| {
        let all = rows.iter().map(of).chain(more.iter().copied());
        unknown("key", key, all)
    })
}

/// "unknown key", with the one that is called so elsewhere, or its table, or the nearest known one,
/// or the version: a file that a newer one reads may have keys that nobody knows here.
pub(crate) fn unknown<'a>(what: &str, word: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    let meant = SYNONYMS
        .iter()
        .find(|(here, others)| known.contains(here) && others.split(' ').any(|one| one == word));
    if let Some((here, _)) = meant {
        return format!("unknown {what} \"{word}\"; did you mean \"{here}\"?");
    }
    // A letter more or less is a slip in this table.
    let slips = known
        .iter()
        .any(|key| strsim::damerau_levenshtein(word, key) == 1);
    let misplaced = misplaced(word).filter(|_| what == "key" && !slips && word != "name");
    if let Some(why) = renamed(word).or(misplaced) {
        return why;
    }
    let all = match known.len() {
        ..=FEW => format!("known are {}", known.join(", ")),
        _ => "see quintet serve --print-config".to_owned(),
    };
    let nearest = known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .min_by_key(|(distance, _)| *distance);
    match nearest {
        Some((distance, candidate)) if distance <= 2.max(word.len() / 3) => {
            format!("unknown {what} \"{word}\"; did you mean \"{candidate}\"?")
        }
        _ => format!(
            "unknown {what} \"{word}\" for this version, {}; {all}",
            env!("CARGO_PKG_VERSION")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::from_text;

    #[test]
    fn a_key_in_the_wrong_table_names_the_right_one() {
        for (text, says) in [
            (
                "take_rate = 5",
                "line 1: unknown key \"take_rate\" here; write it in a [[queue]] or [defaults] table",
            ),
            ("num_workers = 5", "write it in a [[queue]] table"),
            ("heartbeat = '5s'", "write it in [cluster]"),
            (
                "[defaults]\nsync = 'always'",
                "line 2: in [defaults]: unknown key \"sync\" here; write it above the first table",
            ),
            (
                "[defaults]\nscript = '/x'",
                "unknown key \"script\" here; write it in a [[queue]] table",
            ),
            (
                "[defaults]\nrank = 1",
                "unknown key \"rank\"; did you mean \"default_priority\"?",
            ),
            (
                "[defaults]\npriority = 1",
                "unknown key \"priority\"; did you mean \"default_priority\"?",
            ),
            (
                "[[cron]]\nrank = 1",
                "line 2: in [[cron]]: rank is called priority now",
            ),
        ] {
            let error = match from_text(text) {
                Ok(_) => panic!("accepted: {text}"),
                Err(error) => format!("{error:#}"),
            };
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn an_error_has_its_line_and_an_unknown_key_the_version() {
        let version = env!("CARGO_PKG_VERSION");
        let of_newer = format!("for this version, {version}");
        for (text, starts, says) in [
            ("\n\nquorum_writes = 3", "line 3: unknown key", &*of_newer),
            ("sync = 'never'\nshards = 65", "line 2: shards", "1 to 64"),
            (
                "[defaults]\n# so\nhologram = 1",
                "line 3: in [defaults]: unknown key \"hologram\"",
                &of_newer,
            ),
            (
                "[[queue]]\nname = 'a'\n\n[[queue]]\nname = 'b'\npriority_lanes = 4",
                "line 6: in [[queue]] b: unknown key",
                &of_newer,
            ),
            (
                "[[queue]]\nname = 'a'\n\n[[queue]]\nttl = '1s'",
                "line 4: a [[queue]] needs name",
                "pattern",
            ),
            (
                "[[listen]]\nprotocol = 'memcache'\n[[listen]]\nprotocol = 'telepathy'",
                "line 4: in [[listen]]: unknown protocol",
                &of_newer,
            ),
            (
                "[[listen]]\nprotocol = 'http'\naura = true",
                "line 3: in [[listen]] http: unknown key",
                "version",
            ),
            (
                "[[user]]\nname = 'a'\n[[user]]\nname = 'b'\nfingerprint = 'x'",
                "line 5: in [[user]]: unknown key",
                "known are name, ",
            ),
            (
                "[cluster]\nnats = ['nats://a']\nparliament = 3",
                "line 3: in [cluster]: unknown key",
                &of_newer,
            ),
            ("a = 1\nb = ", "TOML parse error at line 2", "column 5"),
        ] {
            let error = match from_text(text) {
                Ok(_) => panic!("accepted: {text}"),
                Err(error) => format!("{error:#}"),
            };
            assert!(
                error.starts_with(starts) && error.contains(says),
                "{text}: {error}"
            );
        }
    }

    /// Every setting, once with a value of a wrong type and once with a wrong text.
    #[test]
    fn each_wrong_value_is_shown_with_its_line_its_name_and_what_is_taken() {
        use super::super::webhooks::WEBHOOK;
        use super::super::{auth, limits::LIMIT, schedules::CRON, schedules::SCHEDULE};
        use super::{CLUSTER, QUEUE_SETTINGS, SCRIPT_KEYS, SECRETS, SETTINGS};
        let mut keys: Vec<(&str, &str)> = Vec::new();
        keys.extend(SETTINGS.iter().map(|spec| ("", spec.key)));
        keys.extend(CLUSTER.iter().map(|spec| ("[cluster]", spec.key)));
        let queue = "[[queue]]\nname = 'q'\nscript = '/x'";
        keys.extend(QUEUE_SETTINGS.iter().map(|spec| (queue, spec.key)));
        let of_scripts = SCRIPT_KEYS.iter().filter(|key| **key != "script");
        keys.extend(of_scripts.map(|key| (queue, *key)));
        keys.push(("[[queue]]\nname = 'q'", "script"));
        keys.extend(auth::USER.iter().map(|spec| ("[[user]]", spec.key)));
        keys.extend(auth::GRANT.iter().map(|spec| ("[[grant]]", spec.key)));
        keys.extend(CRON.iter().map(|spec| ("[[cron]]", spec.key)));
        keys.extend(WEBHOOK.iter().map(|spec| ("[[webhook]]", spec.key)));
        keys.extend(SCHEDULE.iter().map(|spec| ("[[schedule]]", spec.key)));
        keys.extend(LIMIT.iter().map(|spec| ("[[limit]]", spec.key)));
        for key in ["address", "idle", "user", "insecure", "tls", "tls_cert"] {
            keys.push(("[[listen]]\nprotocol = 'memcache'", key));
        }
        assert!(keys.len() > 100, "{}", keys.len());
        for (table, key) in keys {
            let secret = SECRETS.contains(&key);
            let line = 1 + table.lines().count().max(1);
            let mut refused = 0;
            for value in ["-7.5", "\"no such, value\""] {
                let error = match from_text(&format!("{table}\n{key} = {value}")) {
                    Ok(_) => continue,
                    Err(error) => format!("{error:#}"),
                };
                refused += 1;
                let shows = error.contains(value);
                assert!(
                    error.starts_with(&format!("line {line}: "))
                        && error.contains(&format!("{key} "))
                        && shows != secret,
                    "{table} {key} = {value}: {error}"
                );
            }
            assert!(refused > 0, "{table} {key}");
        }
        for (table, value) in [
            ("[[listen]]\nprotocol = 'sqs'\nusers", "['key:hush-hush']"),
            (
                "[[queue]]\nname = 'a'\nscript = '/s'\nenv_vars",
                "'T=hush-hush'",
            ),
        ] {
            let Err(error) = from_text(&format!("{table} = {value}")) else {
                panic!("{table} takes {value}");
            };
            let error = format!("{error:#}");
            assert!(
                error.contains("takes") && !error.contains("hush"),
                "{error}"
            );
        }
    }

    #[test]
    fn an_error_found_after_the_parser_has_its_line_too() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("quintet.toml");
        let cron = "[[cron]]\nname = 'a'\nschedule = '0 3 * * *'\nqueue = 'w'\n";
        for (text, says) in [
            (
                format!("\n{cron}ttl = '1 fortnight'"),
                "line 6: in [[cron]] a: ttl \"1 fortnight\"",
            ),
            (
                format!("{cron}priority = 4294967296"),
                "line 5: in [[cron]] a: priority takes a whole number, 0 to 4294967295; not 4294967296",
            ),
            (
                format!("{cron}missed = 'never'"),
                "line 5: in [[cron]] a: missed takes \"skip\", \"once\" or \"all\"; not \"never\"",
            ),
            (
                format!("{cron}zone = 'Mars'"),
                "line 5: in [[cron]] a: zone takes a name such as \"Europe/Berlin\"; not \"Mars\"",
            ),
            (
                "\n[[limit]]\naddress = '*'\nbytes_in_flight_max = '1KiB'".to_owned(),
                "line 2: [[limit]] bytes_in_flight_max takes 0 or 1MiB and more; not 1KiB",
            ),
            (
                "[cluster]\nnats = 'nats://a:hush@b'".to_owned(),
                "line 2: in [cluster]: nats takes a list",
            ),
        ] {
            std::fs::write(&path, &text).expect("written");
            let supplied = super::super::CommandLine {
                config: Some(path.clone()),
                ..Default::default()
            };
            let error = match super::super::load(&supplied) {
                Ok(_) => panic!("accepted: {text}"),
                Err(error) => format!("{error:#}"),
            };
            assert!(
                error.contains(says) && !error.contains("hush"),
                "{text}: {error}"
            );
        }
    }
}
