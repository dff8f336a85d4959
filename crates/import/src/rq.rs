//! The files of a message in a folder of RQ.

use quintet_scripts::NewMessage;
use serde_json::Value;

/// A message as RQ has it, without files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Its `param1`.
    pub body: String,
    /// Not run before, Unix ms.
    pub due_ms: Option<u64>,
    /// Its other fields, under the names that a script's messages have here.
    pub attrs: Vec<(&'static str, String)>,
}

/// Reads a file `msg`.
///
/// # Errors
/// The file is no JSON, or no object.
pub fn fields(msg: &[u8]) -> Result<Value, String> {
    let fields: Value = serde_json::from_slice(msg)
        .map_err(|error| format!("it is not what RQ writes: {error}"))?;
    match fields.is_object() {
        true => Ok(fields),
        false => Err("it is not what RQ writes: no object".to_owned()),
    }
}

/// The message that these fields are of.
///
/// # Errors
/// The first field that is not what RQ writes.
pub fn message(fields: &Value) -> Result<Message, String> {
    let new = NewMessage::from_json(fields).map_err(|fault| fault.to_string())?;
    let mut attrs = Vec::new();
    let mut add = |name, value: Option<String>| attrs.extend(value.map(|value| (name, value)));
    let due_ms = new.due_ms;
    let [body, param2, param3, param4] = new.params;
    add("dest", new.dest);
    add("src", new.src);
    add("orig_msg_id", new.orig_msg_id);
    add("param2", param2);
    add("param3", param3);
    add("param4", param4);
    let count = Some(new.count).filter(|count| *count > 0);
    add("count", count.map(|count| count.to_string()));
    add("max_count", new.max_count.map(|count| count.to_string()));
    add("due", due_ms.map(|due| due.to_string()));
    add("force_remote", new.force_remote.then(|| "1".to_owned()));
    let hooks = Some(new.post_run_webhook).filter(|hooks| !hooks.is_empty());
    add(
        "post_run_webhook",
        hooks.map(|hooks| Value::from(hooks).to_string()),
    );
    let body = body.unwrap_or_default();
    Ok(Message {
        body,
        due_ms,
        attrs,
    })
}

/// Last entry of a file `status`, without the name of the state. Empty if RQ does not write such a
/// file.
pub fn status(status: &[u8], state: &str) -> String {
    let status: Value = serde_json::from_slice(status).unwrap_or_default();
    let status = status["job_status"].as_str().unwrap_or_default();
    let own = format!("{state} - ");
    status.strip_prefix(&own).unwrap_or(status).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_and_nonsense_named() {
        let text = br#"{"dest":"http://h/q/a","param1":"x","param3":"z","due":5,"count":"2"}"#;
        let read = message(&fields(text).unwrap()).unwrap();
        assert_eq!((&*read.body, read.due_ms), ("x", Some(5000)));
        let names: Vec<&str> = read.attrs.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["dest", "param3", "count", "due"]);
        assert!(fields(b"[]").unwrap_err().contains("no object"));
        assert!(fields(b"{").is_err());
        assert_eq!(status(br#"{"job_status":"err - why"}"#, "err"), "why");
        assert_eq!(status(br#"{"job_status":"err - why"}"#, "que"), "err - why");
        assert_eq!(status(b"{", "que"), "");
    }
}
