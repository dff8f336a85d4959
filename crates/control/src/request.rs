//! Requests of the control channel.

use quintet_types::{Command, Dedupe, Groups, Name, OnRepeat, Overrides, Put, Scope};
use quintet_wire::{Ask, Login};
use serde_json::Value;

use super::head::Head;

/// For how long the server knows what was imported: long enough to find out
/// why an import stopped and to repeat it after a weekend.
const IMPORT_WINDOW_MS: u64 = 7 * 24 * 3600 * 1000;

/// The request of a line.
#[derive(Debug)]
pub(crate) enum Request {
    /// Ask at once.
    Ask(Ask),
    /// Puts that are done together or not at all; their bodies, of so many
    /// bytes each, follow.
    Import(Vec<Put>, Vec<u64>),
}

/// Reads a request line.
///
/// # Errors
/// A sentence for the one who typed the command.
pub(crate) fn parse(line: &[u8]) -> Result<Request, String> {
    let value: Value = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let object = value.as_object().ok_or("a request is an object")?;
    let (verb, of) = object
        .iter()
        .find(|(key, _)| *key != "bytes")
        .ok_or("a request names what to do")?;
    let engine = |command| Ok(Request::Ask(Ask::Engine(command)));
    match verb.as_str() {
        "import" => {
            let (puts, lens) = import(of)?;
            Ok(Request::Import(puts, lens))
        }
        "imported" => engine(imported(of)?),
        "login" => login(of),
        "create" => engine(create(of)?),
        other => Err(format!("\"{other}\" is not a request")),
    }
}

fn queue(of: &Value) -> Result<Name, String> {
    let text = of
        .get("queue")
        .and_then(Value::as_str)
        .ok_or("which queue?")?;
    Ok(Name::of_shown(text))
}

fn create(of: &Value) -> Result<Command, String> {
    let groups = match of.get("groups").and_then(Value::as_str) {
        Some("ordered") => Some(Groups::Ordered),
        Some("fair") => Some(Groups::Fair),
        Some(other) => return Err(format!("groups {other} are not known")),
        None => None,
    };
    let overrides = Overrides {
        default_ttr_ms: number(of, "ttr_ms"),
        ttl_ms: number(of, "ttl_ms"),
        default_delay_ms: number(of, "delay_ms").filter(|&ms| ms > 0),
        groups,
        ..Overrides::default()
    };
    Ok(Command::Create {
        queue: queue(of)?,
        overrides: Box::new(overrides),
    })
}

fn login(of: &Value) -> Result<Request, String> {
    let text = |key: &str| {
        let text = of.get(key).and_then(Value::as_str);
        text.map(|text| text.as_bytes().into())
            .ok_or_else(|| format!("a login has a {key}"))
    };
    Ok(Request::Ask(Ask::Login(Login {
        name: text("name")?,
        secret: text("secret")?,
    })))
}

fn number(of: &Value, key: &str) -> Option<u64> {
    of.get(key).and_then(Value::as_u64)
}

/// The messages of an import, all of one queue, and the lengths of their
/// bodies. With a token, a repeat of all of them is refused.
fn import(of: &Value) -> Result<(Vec<Put>, Vec<u64>), String> {
    let heads = of.get("messages").cloned().unwrap_or_default();
    let heads: Vec<Head> = serde_json::from_value(heads).map_err(|error| error.to_string())?;
    let Some(first) = heads.first() else {
        return Err("import what?".to_owned());
    };
    if heads.iter().any(|head| head.queue != first.queue) {
        return Err("messages that are imported together go to one queue".to_owned());
    }
    let lens = heads.iter().map(|head| head.bytes).collect();
    let mut puts: Vec<Put> = heads.into_iter().map(Head::put).collect();
    if let (Some(token), Some(put)) = (token(of), puts.first_mut()) {
        put.more.get_or_insert_default().dedupe = Some(token);
    }
    Ok((puts, lens))
}

fn token(of: &Value) -> Option<Dedupe> {
    let token = of.get("token").and_then(Value::as_str)?;
    Some(Dedupe {
        id: token.as_bytes().into(),
        window_ms: Some(IMPORT_WINDOW_MS),
        scope: Some(Scope::Window),
        on_repeat: Some(OnRepeat::Refuse),
    })
}

/// Asks whether an import with this token was done.
fn imported(of: &Value) -> Result<Command, String> {
    let queue = queue(of)?;
    let id = token(of).ok_or("which import?")?.id;
    Ok(Command::Remembered { queue, id })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_as_they_are_shown() {
        for bytes in [
            &b"work"[..],
            b"a\\b",
            b"\x00\xff",
            "schlange \u{e4}".as_bytes(),
        ] {
            let shown = Name::new(bytes).to_string();
            assert_eq!(Name::of_shown(&shown).as_bytes(), bytes, "{shown}");
        }
    }

    #[test]
    fn nonsense_is_answered_not_obeyed() {
        for line in [
            "",
            "[]",
            "{}",
            "{\"explode\": {}}",
            "{\"import\": {}}",
            "{\"import\": {\"messages\": []}}",
            "{\"import\": {\"messages\": [{\"queue\": \"a\"}, {\"queue\": \"b\"}]}}",
            "{\"imported\": {\"queue\": \"a\"}}",
        ] {
            assert!(parse(line.as_bytes()).is_err(), "{line}");
        }
    }
}
