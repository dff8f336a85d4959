//! What is wrong with a configuration file, and on which line.

use anyhow::{Error, anyhow};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Something that cannot be as the file has it.
#[derive(Debug)]
pub(super) struct Wrong {
    /// Which of the tables of this name, from 0; of those written with two brackets.
    row: Option<usize>,
    /// The key within the table.
    key: Option<String>,
    /// A sentence; of a table it says which.
    why: String,
}

impl From<String> for Wrong {
    fn from(why: String) -> Self {
        let (row, key) = (None, None);
        Self { row, key, why }
    }
}

impl Wrong {
    /// About this key of its table.
    pub(super) fn of_key(key: &str, why: String) -> Self {
        Self {
            key: Some(key.to_owned()),
            ..Self::from(why)
        }
    }

    /// About something in the table that is called so.
    pub(super) fn within(self, place: &str) -> Self {
        Self {
            why: format!("in {place}: {}", self.why),
            ..self
        }
    }

    /// About this one of several tables.
    pub(super) fn of_row(self, row: usize) -> Self {
        Self {
            row: Some(row),
            ..self
        }
    }

    /// With the line of the file, where `name` is the setting or table.
    pub(super) fn on_line(self, file: &str, name: &str) -> Error {
        match self.line(file, name) {
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

type Entry<'a, 'i> = (usize, &'a Spanned<DeValue<'i>>);

/// Where a key begins, and its value.
fn entry<'a, 'i>(table: &'a DeTable<'i>, name: &str) -> Option<Entry<'a, 'i>> {
    let found = table.iter().find(|(key, _)| key.get_ref() == name);
    found.map(|(key, value)| (key.span().start, value))
}

/// What other systems call a setting, and what it is called here.
const SYNONYMS: &[(&str, &str)] = &[
    ("max_attempts", "attempts_max"),
    ("max_retries", "retry_max"),
    ("max_receive_count", "attempts_max"),
    ("retries", "retry_max"),
    ("backoff", "retry_delay"),
    ("max_backoff", "retry_delay_max"),
    ("workers", "num_workers"),
    ("concurrency", "num_workers"),
    ("timeout", "default_ttr"),
    ("visibility_timeout", "default_ttr"),
    ("ttr", "default_ttr"),
    ("dead_letter_queue", "dead_letter"),
    ("dlq", "dead_letter"),
    ("expires", "ttl"),
    ("dead_ttl", "buried_ttl"),
    ("bury_ttl", "buried_ttl"),
    ("expiration", "ttl"),
    ("max_length", "messages_max"),
    ("max_messages", "messages_max"),
    ("max_items", "messages_max"),
    ("max_size", "bytes_max"),
    ("max_bytes", "bytes_max"),
    ("max_connections", "connections_max"),
    ("data_dir", "data"),
    ("fsync", "sync"),
    ("bind", "listen"),
    ("port", "listen"),
];

/// So many are named to whoever knows none of them.
const FEW: usize = 16;

/// "unknown key", with the one that is called so elsewhere, or the nearest known one, or the
/// version: a file that a newer one reads may have keys that nobody knows here.
pub(super) fn unknown<'a>(what: &str, word: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    let meant = SYNONYMS
        .iter()
        .find(|(other, here)| *other == word && known.contains(here));
    if let Some((_, here)) = meant {
        return format!("unknown {what} \"{word}\"; did you mean \"{here}\"?");
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
    fn what_is_wrong_has_its_line_and_what_is_unknown_the_version() {
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
                "[[listen]]\nvoice = 'memcache'\n[[listen]]\nvoice = 'telepathy'",
                "line 4: in [[listen]]: unknown voice",
                &of_newer,
            ),
            (
                "[[listen]]\nvoice = 'http'\naura = true",
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
}
