//! The words of RQ's command line: `--name=value`, `--name value`, `--name`.

use std::ffi::OsString;

use anyhow::{Context, Result};
use serde_json::{Map, Value};

/// A command, its options, and what is neither.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Words {
    pub(super) command: String,
    pub(super) fields: Map<String, Value>,
    rest: Vec<String>,
}

impl Words {
    /// # Errors
    /// A word is not UTF-8.
    pub(super) fn parse(words: Vec<OsString>) -> Result<Self, String> {
        let mut words = words
            .into_iter()
            .map(|word| {
                word.into_string()
                    .map_err(|word| format!("{word:?} is not UTF-8"))
            })
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .peekable();
        let mut parsed = Self::default();
        while let Some(word) = words.next() {
            let Some(option) = word.strip_prefix("--") else {
                // Options may stand before the command.
                match parsed.command.is_empty() {
                    true => parsed.command = word,
                    false => parsed.rest.push(word),
                }
                continue;
            };
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Value::from(value)),
                // What begins like an option is none's value (RQ).
                None => match words.next_if(|next| !next.starts_with("--")) {
                    Some(value) => (option, Value::from(value)),
                    None => (option, Value::from(true)),
                },
            };
            parsed.fields.insert(name.to_owned(), value);
        }
        Ok(parsed)
    }

    /// The value of an option; one without a value is empty.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .get(name)
            .map(|value| value.as_str().unwrap_or_default())
    }

    pub(super) fn need(&self, name: &str) -> Result<&str> {
        self.field(name)
            .filter(|value| !value.is_empty())
            .with_context(|| format!("{} needs --{name}", self.command))
    }

    /// The one word that is no option.
    pub(super) fn name(&self) -> Result<&str> {
        match &self.rest[..] {
            [name] => Ok(name),
            _ => anyhow::bail!("{} needs one name", self.command),
        }
    }

    /// The one word that is no option, if there is one.
    pub(super) fn optional(&self) -> Result<Option<&str>> {
        match &self.rest[..] {
            [] => Ok(None),
            [word] => Ok(Some(word)),
            _ => anyhow::bail!("{} takes one file", self.command),
        }
    }

    /// Queue and short id of the message that is named.
    pub(super) fn message(&self) -> Result<(&str, &str)> {
        let full = self.need("msg_id")?;
        let mut parts = full.rsplit('/');
        let (id, queue, q) = (parts.next(), parts.next(), parts.next());
        match (id, queue, q) {
            (Some(id), Some(queue), Some("q")) if !id.is_empty() && !queue.is_empty() => {
                Ok((queue, id))
            }
            _ => {
                anyhow::bail!("{full} is not a full message id, as in http://HOST:PORT/q/QUEUE/ID")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(line: &str) -> Words {
        Words::parse(line.split(' ').map(OsString::from).collect()).expect("UTF-8")
    }

    #[test]
    fn options_in_each_form() {
        let words = parse("sendmesg --dest test --relay-ok --param1=a=b --due 5 x --last");
        assert_eq!(words.command, "sendmesg");
        let expected = json!({
            "dest": "test", "relay-ok": true, "param1": "a=b", "due": "5", "last": true,
        });
        assert_eq!(Value::Object(words.fields.clone()), expected);
        assert_eq!(words.name().expect("one"), "x");
        assert_eq!(words.field("relay-ok"), Some(""));
        assert!(words.need("relay-ok").is_err() && words.need("src").is_err());
    }

    #[test]
    fn ids_are_full_ones() {
        let words = |id: &str| parse(&format!("state --msg_id {id}"));
        let good = words("http://h:1/base/q/test/2026.1");
        assert_eq!(good.message().expect("good"), ("test", "2026.1"));
        for bad in [
            "2026.1",
            "http://h/test/2026.1",
            "http://h/q//2026.1",
            "http://h/q/test/",
        ] {
            assert!(words(bad).message().is_err(), "{bad}");
        }
    }
}
