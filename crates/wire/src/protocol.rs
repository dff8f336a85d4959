//! Registration of protocols and their listener options.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::session::Session;

/// A protocol, as the server sees it.
#[derive(Debug, Clone, Copy)]
pub struct Protocol {
    /// Its name in the configuration and on the command line.
    pub name: &'static str,
    /// Its default TCP port.
    pub port: u16,
    /// One line for `--help` and the documentation.
    pub about: &'static str,
    /// Options of its listeners; the configuration file, `--print-config` and
    /// the documentation follow from them.
    pub options: &'static [OptionSpec],
    /// Names of the tally's counters, by index.
    pub tally_names: &'static [&'static str],
    /// Checks the options of one listener and makes what opens its sessions.
    ///
    /// # Errors
    /// A sentence that names the option and what it takes.
    pub listener: fn(&Options) -> Result<Box<dyn Listener>, String>,
}

/// Opens a session for each connection of one configured listener.
pub trait Listener: Send + Sync {
    /// A session for a new connection.
    fn open(&self) -> Box<dyn Session>;

    /// True if its sessions have something to say before their clients do.
    fn speaks_first(&self) -> bool {
        false
    }

    /// True if its sessions are to be asked now and then whether their clients
    /// have been silent for too long ([`Session::is_overdue`]).
    fn ends_silent(&self) -> bool {
        false
    }
}

/// A listener of which all sessions share something.
struct Sharing<S, T> {
    shared: Arc<S>,
    session: fn(Arc<S>) -> T,
}

impl<S: Send + Sync, T: Session + 'static> Listener for Sharing<S, T> {
    fn open(&self) -> Box<dyn Session> {
        Box::new((self.session)(Arc::clone(&self.shared)))
    }
}

/// A listener whose sessions are made by `session` from what they share.
pub(crate) fn sharing<S: Send + Sync + 'static, T: Session + 'static>(
    shared: S,
    session: fn(Arc<S>) -> T,
) -> Box<dyn Listener> {
    let shared = Arc::new(shared);
    Box::new(Sharing { shared, session })
}

/// One option of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionSpec {
    /// Its key.
    pub name: &'static str,
    /// Its default, which also gives its type.
    pub default: Value<'static>,
    /// Effect, with unit and range.
    pub help: &'static str,
}

/// The options of a listener, a row each: name, default and effect. Where it is used [`OptionSpec`]
/// and [`Value`] are in scope.
#[macro_export]
macro_rules! options {
    ($($name:literal $kind:ident($default:expr) $help:literal;)*) => {
        &[$(OptionSpec { name: $name, default: Value::$kind($default), help: $help }),*]
    };
}

/// The value of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// true or false.
    Bool(bool),
    Number(u64),
    /// Bytes, written as a number or as "64MiB".
    Bytes(u64),
    Text(&'a str),
}

/// The options given for one listener; absent ones have their defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    specs: &'static [OptionSpec],
    supplied: BTreeMap<String, OptionValue>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum OptionValue {
    Bool(bool),
    Number(u64),
    Text(String),
}

impl Options {
    /// All defaults.
    pub fn new(specs: &'static [OptionSpec]) -> Self {
        Self {
            specs,
            supplied: BTreeMap::new(),
        }
    }

    /// Sets an option.
    ///
    /// # Errors
    /// A sentence, if there is no such option or the value is of another type.
    pub fn set(&mut self, name: &str, value: Value<'_>) -> Result<(), String> {
        let spec = self.spec(name);
        let spec = spec.ok_or_else(|| format!("unknown option \"{name}\""))?;
        let supplied = match (spec.default, value) {
            (Value::Bool(_), Value::Bool(b)) => OptionValue::Bool(b),
            (Value::Number(_), Value::Number(n)) => OptionValue::Number(n),
            (Value::Bytes(_), Value::Number(n) | Value::Bytes(n)) => OptionValue::Number(n),
            (Value::Text(_), Value::Text(t)) => OptionValue::Text(t.to_owned()),
            (Value::Bool(_), _) => return Err(format!("{name} takes true or false")),
            (Value::Number(_), _) => return Err(format!("{name} takes a whole number")),
            (Value::Bytes(_), _) => {
                return Err(format!(
                    "{name} takes a size, a number or text such as \"64MiB\""
                ));
            }
            (Value::Text(_), _) => return Err(format!("{name} takes text")),
        };
        self.supplied.insert(name.to_owned(), supplied);
        Ok(())
    }

    /// The value of an option of type text; `""` if there is no such option.
    pub fn text(&self, name: &str) -> &str {
        match (self.supplied.get(name), self.default(name)) {
            (Some(OptionValue::Text(text)), _) => text,
            (_, Some(Value::Text(text))) => text,
            _ => "",
        }
    }

    /// The value of an option of type number or bytes; 0 if there is none.
    pub fn number(&self, name: &str) -> u64 {
        match (self.supplied.get(name), self.default(name)) {
            (Some(OptionValue::Number(number)), _) => *number,
            (_, Some(Value::Number(number) | Value::Bytes(number))) => number,
            _ => 0,
        }
    }

    /// The value of an option of type bool; false if there is none.
    pub fn flag(&self, name: &str) -> bool {
        match (self.supplied.get(name), self.default(name)) {
            (Some(OptionValue::Bool(flag)), _) => *flag,
            (_, Some(Value::Bool(flag))) => flag,
            _ => false,
        }
    }

    /// The value of an option of type number or bytes.
    ///
    /// # Errors
    /// A sentence that tells the bounds, if it is not within them.
    pub fn within<T: TryFrom<u64>>(&self, name: &str, least: u64, most: u64) -> Result<T, String> {
        let value = self.number(name);
        T::try_from(value)
            .ok()
            .filter(|_| (least..=most).contains(&value))
            .ok_or_else(|| format!("{name} takes {least} to {most}, not {value}"))
    }

    /// The value of an option with two words to choose from.
    ///
    /// # Errors
    /// A sentence that tells the words, if it is neither.
    pub fn one_of(&self, name: &str, words: [&str; 2]) -> Result<&str, String> {
        let value = self.text(name);
        if words.contains(&value) {
            Ok(value)
        } else {
            let [first, second] = words;
            Err(format!(
                "{name} takes \"{first}\" or \"{second}\", not \"{value}\""
            ))
        }
    }

    /// The value of an option of type text that is one word of printable ASCII,
    /// with none of the characters `without`.
    ///
    /// # Errors
    /// A sentence that tells so, if it is none.
    pub fn word(&self, name: &str, without: &str) -> Result<&str, String> {
        let value = self.text(name);
        let plain = |char: char| char.is_ascii_graphic() && !without.contains(char);
        if !value.is_empty() && value.chars().all(plain) {
            return Ok(value);
        }
        let signs: String = without.chars().map(|sign| format!(", {sign}")).collect();
        Err(format!(
            "{name} takes printable ASCII without spaces{signs}"
        ))
    }

    fn spec(&self, name: &str) -> Option<&'static OptionSpec> {
        self.specs.iter().find(|spec| spec.name == name)
    }

    fn default(&self, name: &str) -> Option<Value<'static>> {
        self.spec(name).map(|spec| spec.default)
    }
}
