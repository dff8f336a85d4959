//! Brings a message to a queue of another server, in two phases: it is
//! prepared there, its attachments follow, then it is committed.
//!
//! Any of this may break off anywhere, on either side, and is done again; in
//! the end the message is there once. What is known of the other side is in
//! files of the job's folder before it is acted on, and each message is
//! prepared under a token, by which a server like this one knows a repeat. A
//! server that knows no tokens (RQ) may get a message twice if it dies between
//! preparing it and answering.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

use md5::{Digest as _, Md5};
use serde_json::{Map, Value, json};

use super::client::{Client, HttpReply};
use super::{COUNT_MAX, End, Hosts, count, keep, later, log, not_among, read, variable};

/// RQ's unit of the time until the next try, s.
const UNIT_S: u64 = 10;

/// The id the message has there.
const ID: &str = "relay_id";
/// The id that was, or may have been, committed.
const COMMITTING: &str = "relay_commit";
/// How often a prepared message was lost there; a part of the token.
const GENERATION: &str = "relay_generation";

/// Fields that travel. `force_remote` is about this relay alone, as with RQ.
const FIELDS: [&str; 9] = [
    "dest",
    "src",
    "max_count",
    "param1",
    "param2",
    "param3",
    "param4",
    "post_run_webhook",
    "orig_msg_id",
];

pub(super) fn run(hosts: &Hosts, client: Client) -> End {
    let count = count();
    if count > COUNT_MAX {
        return End::Err(format!("RQ_COUNT > {COUNT_MAX} FAIL"));
    }
    let dest = variable("RQ_DEST").trim_end_matches('/').to_owned();
    if is_loop(&variable("RQ_ORIG_MSG_ID"), &dest) {
        return End::Err("Relay loop detected: RQ_DEST queue same as RQ_ORIG_MSG_ID".to_owned());
    }
    let Some((base, _)) = dest.rsplit_once("/q/") else {
        return End::Err(format!("no address of a queue: {dest}"));
    };
    if !hosts.allow(&dest) {
        return not_among("relay_hosts", &dest);
    }
    let relay = Relay {
        client,
        base: base.to_owned(),
        dest: dest.clone(),
    };
    match relay.bring() {
        Ok(id) => End::Relayed(id),
        Err(why) => later(UNIT_S, why),
    }
}

/// A message that comes from the queue it is to go to would go round for ever.
fn is_loop(origin: &str, dest: &str) -> bool {
    origin
        .strip_prefix(dest)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

struct Relay {
    client: Client,
    /// The other server, without a slash at the end.
    base: String,
    /// The queue there.
    dest: String,
}

/// The message as the other side has it.
enum There {
    /// Prepared, with these attachments and their sums.
    Prepared(BTreeMap<String, String>),
    /// Committed: its state.
    Committed(String),
    /// Not there, or not any more.
    Gone,
}

impl Relay {
    /// Goes on from wherever it is. Answers the id there.
    fn bring(&self) -> Result<String, String> {
        let message = read_message()?;
        let known = read(ID);
        let mut id = match &known {
            Some(id) => id.clone(),
            None => self.prepare(&message)?,
        };
        let mut there = self.find(&id)?;
        if let There::Gone = there {
            log(&format!("{id} is not there any more"));
            let again = self.prepare(&message)?;
            if number(&again) == number(&id) {
                // The other side knows the token, so it had the message.
                if read(COMMITTING).as_deref() == Some(&id) {
                    log("it was committed, and is gone since");
                    return Ok(id);
                }
                let generation = generation() + 1;
                keep(GENERATION, &generation.to_string())?;
                id = self.prepare(&message)?;
            } else {
                id = again;
            }
            there = self.find(&id)?;
        }
        match there {
            There::Committed(state) => {
                log(&format!("{id} is there, in {state}"));
                return Ok(id);
            }
            There::Gone => return Err(format!("{id} is not there")),
            There::Prepared(attached) => self.attach(&id, &message, &attached)?,
        }
        keep(COMMITTING, &id)?;
        self.commit(&id)
    }

    /// Prepares the message there and keeps its id. A repeat answers the first
    /// one's.
    fn prepare(&self, message: &Map<String, Value>) -> Result<String, String> {
        let mut fields = Map::new();
        for name in FIELDS {
            if let Some(value) = message.get(name).filter(|value| !value.is_null()) {
                fields.insert(name.to_owned(), value.clone());
            }
        }
        if own_body(message).is_some() {
            fields.remove("param1");
        }
        let token = format!(
            "{} {} {}",
            variable("RQ_FULL_MSG_ID"),
            self.dest,
            generation()
        );
        fields.insert("count".to_owned(), json!(count() + 1));
        fields.insert("_method".to_owned(), json!("prep"));
        fields.insert("relay_token".to_owned(), json!(token));
        let mesg = Value::Object(fields).to_string();
        let url = format!("{}/new_message", self.dest);
        // Both in RQ's words, which scripts look for.
        if !variable("RQ_FORCE_REMOTE").is_empty() {
            log("FORCE REMOTE");
        }
        log(&format!("attempting remote {}", self.dest));
        let reply = self
            .client
            .form(&url, &[("x_format", "json"), ("mesg", &mesg)]);
        let reply = reply.map_err(|why| format!("Could not connect to {}: {why}", self.dest))?;
        let id = reply
            .ok()
            .map_err(|why| format!("Couldn't queue message: {why}"))?;
        keep(ID, &id)?;
        Ok(id)
    }

    fn find(&self, id: &str) -> Result<There, String> {
        let reply = self
            .client
            .get(&format!("{}.json", self.address(id)?))
            .map_err(|why| format!("Could not ask for {id}: {why}"))?;
        there(&reply).ok_or_else(|| format!("Could not ask for {id}: {}", reply.shown()))
    }

    /// Where the message is, as this server knows it: the id begins
    /// with what the other one calls itself, which may lead elsewhere from
    /// here.
    fn address(&self, id: &str) -> Result<String, String> {
        let parts = id.rsplit_once("/q/").map(|(_, rest)| rest);
        let (queue, short) = parts
            .and_then(|rest| rest.split_once('/'))
            .ok_or_else(|| format!("not an id: {id}"))?;
        Ok(format!("{}/q/{queue}/{short}", self.base))
    }

    /// Sends the files that are not there as they are here.
    fn attach(
        &self,
        id: &str,
        message: &Map<String, Value>,
        attached: &BTreeMap<String, String>,
    ) -> Result<(), String> {
        let listed = message.get("_attachments").and_then(Value::as_object);
        let mut names: Vec<&str> = listed
            .into_iter()
            .flat_map(|files| files.keys().map(String::as_str))
            .collect();
        names.extend(own_body(message));
        for name in names {
            let path = Path::new("../attach").join(name);
            let sum = sum(&path).map_err(|error| format!("cannot read {name}: {error}"))?;
            if attached.get(name) == Some(&sum) {
                continue;
            }
            log(&format!("sending {name}"));
            let file = File::open(&path).map_err(|error| format!("cannot read {name}: {error}"))?;
            let url = format!("{}/attach/new", self.address(id)?);
            let short = id.rsplit('/').next().unwrap_or_default();
            let fields = [("pathname", name), ("msg_id", short), ("x_format", "json")];
            let reply = self
                .client
                .file(&url, name, file, &fields)
                .map_err(|why| format!("Could not send {name}: {why}"))?;
            let text = reply
                .ok()
                .map_err(|why| format!("Couldn't attach {name}: {why}"))?;
            if text != format!("{sum}-Attached successfully") {
                return Err(format!("Couldn't attach {name} - md5 mismatch: {text}"));
            }
        }
        Ok(())
    }

    fn commit(&self, id: &str) -> Result<String, String> {
        let short = id.rsplit('/').next().unwrap_or_default();
        let fields = [
            ("_method", "commit"),
            ("x_format", "json"),
            ("msg_id", short),
        ];
        log(&format!("committing {id}"));
        let reply = self
            .client
            .form(&self.address(id)?, &fields)
            .map_err(|why| format!("Could not commit {id}: {why}"))?;
        let Err(why) = reply.ok() else {
            return Ok(id.to_owned());
        };
        // An earlier commit, whose answer was lost, may have arrived late.
        match self.find(id)? {
            There::Committed(_) => Ok(id.to_owned()),
            There::Prepared(_) | There::Gone => Err(format!("Couldn't commit message: {why}")),
        }
    }
}

/// The meaning of a reply to a look.
fn there(reply: &HttpReply) -> Option<There> {
    match reply.status {
        404 => Some(There::Gone),
        200 => {
            let message = reply.json();
            let state = message["state"].as_str()?;
            if state != "prep" {
                return Some(There::Committed(state.to_owned()));
            }
            let files = message["_attachments"].as_object();
            let sum = |(name, about): (&String, &Value)| {
                Some((name.clone(), about["md5"].as_str()?.to_owned()))
            };
            Some(There::Prepared(
                files.into_iter().flatten().filter_map(sum).collect(),
            ))
        }
        _ => None,
    }
}

/// The last part of an id: the message's number.
fn number(id: &str) -> &str {
    id.rsplit('.').next().unwrap_or_default()
}

fn generation() -> u64 {
    read(GENERATION)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

/// The message, as the runner wrote it for built-in scripts.
fn read_message() -> Result<Map<String, Value>, String> {
    let Value::Object(message) = super::read_message()? else {
        return Err("msg is not an object".to_owned());
    };
    Ok(message)
}

/// The name of the file with the message's body, if it is one that no
/// variable holds and that is not an attachment already.
fn own_body(message: &Map<String, Value>) -> Option<&'static str> {
    const BODY: &str = "body";
    let listed = message
        .get("_attachments")
        .is_some_and(|files| files.get(BODY).is_some());
    (!listed && variable("RQ_PARAM1").is_empty() && Path::new("../attach").join(BODY).exists())
        .then_some(BODY)
}

/// MD5 of a file, in hexadecimal digits.
fn sum(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut sum = Md5::new();
    io::copy(&mut file, &mut sum)?;
    Ok(format!("{:x}", sum.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_seen() {
        assert!(is_loop("http://a:1/q/t/20", "http://a:1/q/t"));
        assert!(!is_loop("http://a:1/q/test/20", "http://a:1/q/t"));
        assert!(!is_loop("http://b:1/q/t/20", "http://a:1/q/t"));
    }

    #[test]
    fn replies_about_a_relayed_message_are_read() {
        let reply = |status, body: &str| HttpReply {
            status,
            body: body.to_owned(),
        };
        assert!(matches!(there(&reply(404, "")), Some(There::Gone)));
        assert!(there(&reply(502, "")).is_none());
        assert!(there(&reply(200, "<html>")).is_none());
        let done = there(&reply(200, r#"{"state":"done"}"#));
        assert!(matches!(done, Some(There::Committed(state)) if state == "done"));
        let prep = r#"{"state":"prep","_attachments":{"a":{"md5":"77","size":1}}}"#;
        let Some(There::Prepared(files)) = there(&reply(200, prep)) else {
            panic!("prepared");
        };
        assert_eq!(files.get("a").map(String::as_str), Some("77"));
    }
}
