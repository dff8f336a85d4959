//! Requests of the control channel.

use quintet_door::FOLDER;
use quintet_types::{
    Attr, BatchAsk, BatchId, Body, By, ByName, Command, Dedupe, Edit, Expiry, Groups, ListState,
    MessageId, Name, NamedAct, OnRepeat, Overrides, Pattern, Peek, Put, PutMore, Scope, StatsOf,
    Take, Tie, Wait, When,
};
use quintet_wire::{Ask, CronAct, HostAsk, Login, WorkerState};
use serde_json::Value;
use smallvec::SmallVec;

use super::head::Head;
use super::sweep::{self, Bodies};

/// For how long the server knows what was imported: long enough to find out
/// why an import stopped and to repeat it after a weekend.
const IMPORT_WINDOW_MS: u64 = 7 * 24 * 3600 * 1000;

/// Batches told of at once.
const BATCHES: u32 = 1000;

/// What a request line asks for.
#[derive(Debug)]
pub(crate) enum Request {
    /// Ask at once.
    Ask(Ask),
    /// The same; of messages that are shown these parts of their bodies.
    Show(Ask, Bodies),
    /// A put whose body of so many bytes follows.
    Put(Box<Put>, u64),
    /// A message's new body, of so many bytes, follows.
    Edit(MessageId, Box<Edit>, u64),
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
        "put" => {
            let bytes = object.get("bytes").and_then(Value::as_u64).unwrap_or(0);
            Ok(Request::Put(Box::new(put(of)?), bytes))
        }
        "take" => engine(Command::Take(take(of)?)),
        "peek" => engine(Command::Peek(peek(of)?)),
        "list" => engine(Command::Peek(list(of)?)),
        "import" => {
            let (puts, lens) = import(of)?;
            Ok(Request::Import(puts, lens))
        }
        "imported" => engine(imported(of)?),
        "stats" => Ok(Request::Ask(
            match of.get("queue").and_then(Value::as_str) {
                Some(queue) => Ask::Engine(Command::Stats(StatsOf::Queue(Name::of_shown(queue)))),
                None => Ask::Host(HostAsk::Stats),
            },
        )),
        "login" => login(of),
        "setup" => engine(Command::Stats(StatsOf::Setup(queue(of)?))),
        "config" => Ok(Request::Ask(Ask::Host(HostAsk::Config))),
        "create" => engine(create(of)?),
        "join" => engine(join(of)?),
        "metrics" => Ok(Request::Ask(Ask::Host(HostAsk::Metrics))),
        "rates" => Ok(Request::Ask(Ask::Host(HostAsk::Rates))),
        "drop" => engine(drop_queues(of)?),
        "move" => engine(moving(of)?),
        "sweep" => {
            let (command, bodies) = sweep::read(of)?;
            Ok(Request::Show(Ask::Engine(command), bodies))
        }
        "flush" => engine(Command::Flush {
            queue: queue(of)?,
            reserved: false,
        }),
        "delete" => engine(Command::Delete {
            id: id(of)?,
            by: By::Anyone,
        }),
        "kick" => engine(Command::KickId(id(of)?)),
        "edit" => {
            let edit = Edit {
                rank: number_u32(of, "rank")?,
                due: number(of, "delay_ms").map(When::In),
                ..Edit::default()
            };
            match object.get("bytes").and_then(Value::as_u64) {
                Some(bytes) => Ok(Request::Edit(id(of)?, Box::new(edit), bytes)),
                None => engine(Command::Edit(id(of)?, Box::new(edit))),
            }
        }
        "pause" => engine(Command::Pause {
            queue: queue(of)?,
            for_ms: number(of, "for_ms"),
        }),
        "resume" => engine(Command::Pause {
            queue: queue(of)?,
            for_ms: Some(0),
        }),
        "drain" => Ok(Request::Ask(Ask::Host(HostAsk::Drain(true)))),
        "undrain" => Ok(Request::Ask(Ask::Host(HostAsk::Drain(false)))),
        "clients" => Ok(Request::Ask(Ask::Host(HostAsk::Clients))),
        "close_client" => {
            let id = number(of, "id").ok_or("which connection?")?;
            Ok(Request::Ask(Ask::Host(HostAsk::CloseClient(id))))
        }
        "batch_new" => engine(new_batch(of)?),
        "batch_open" => engine(Command::Batch(BatchAsk::Open(batch(of)?))),
        "batch_commit" => engine(Command::Batch(BatchAsk::Commit(batch(of)?))),
        "batch_show" => engine(Command::Batch(BatchAsk::Show(batch(of)?))),
        "batch_forget" => engine(Command::Batch(BatchAsk::Forget(batch(of)?))),
        "track" => {
            let name = of.get("name").and_then(Value::as_str);
            let by_name = ByName {
                queue: Some(queue(of)?),
                name: name.ok_or("which name?")?.as_bytes().into(),
                by: By::Anyone,
                act: NamedAct::Track,
            };
            engine(Command::ByName(Box::new(by_name)))
        }
        "batches" => {
            let after = of.get("after").and_then(Value::as_str);
            let list = quintet_api::list_batches(after, BATCHES);
            engine(Command::Batch(list.ok_or("after which batch?")?))
        }
        "workers" => Ok(Request::Ask(Ask::Host(HostAsk::Workers))),
        "worker_quiet" => steer(WorkerState::Quiet, of),
        "worker_terminate" => steer(WorkerState::Terminate, of),
        "crons" => Ok(Request::Ask(Ask::Host(HostAsk::Crons))),
        "cron_pause" => cron(CronAct::Pause, of),
        "cron_resume" => cron(CronAct::Resume, of),
        "cron_run" => cron(CronAct::Run, of),
        "reload" => Ok(Request::Ask(Ask::Host(HostAsk::Reload))),
        "queues" => {
            let from = from(of)?;
            engine(Command::Stats(StatsOf::Queues { from }))
        }
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

fn batch(of: &Value) -> Result<BatchId, String> {
    let id = of
        .get("id")
        .and_then(Value::as_str)
        .and_then(BatchId::parse);
    id.ok_or_else(|| "which batch?".to_owned())
}

fn new_batch(of: &Value) -> Result<Command, String> {
    let new: quintet_api::NewBatch =
        serde_json::from_value(of.clone()).map_err(|error| error.to_string())?;
    let ask = new
        .ask()
        .map_err(|(field, why)| format!("{field}: {why}"))?;
    Ok(Command::Batch(ask))
}

fn steer(state: WorkerState, of: &Value) -> Result<Request, String> {
    let wid = of
        .get("wid")
        .and_then(Value::as_str)
        .ok_or("which worker?")?;
    Ok(Request::Ask(Ask::Host(HostAsk::Steer(state, wid.into()))))
}

fn cron(act: CronAct, of: &Value) -> Result<Request, String> {
    let name = of.get("name").and_then(Value::as_str);
    let name = name.ok_or("which [[cron]] table?")?;
    Ok(Request::Ask(Ask::Host(HostAsk::Cron(act, name.into()))))
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

fn join(of: &Value) -> Result<Command, String> {
    let parent = queue(of)?;
    let child = of.get("child").and_then(Value::as_str);
    let child = child.ok_or("which child?")?;
    let named = parent.child(&Name::of_shown(child));
    let child = named.ok_or_else(|| {
        format!("{parent} cannot have a child \"{child}\": too long together, or a child itself")
    })?;
    Ok(Command::Join { parent, child })
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

fn id(of: &Value) -> Result<MessageId, String> {
    number(of, "id")
        .map(MessageId)
        .ok_or_else(|| "which message?".to_owned())
}

fn number(of: &Value, key: &str) -> Option<u64> {
    of.get(key).and_then(Value::as_u64)
}

fn number_u32(of: &Value, key: &str) -> Result<Option<u32>, String> {
    number(of, key)
        .map(|n| u32::try_from(n).map_err(|_| format!("{key} is at most 4294967295")))
        .transpose()
}

fn put(of: &Value) -> Result<Put, String> {
    Ok(Put {
        queue: queue(of)?,
        must_exist: false,
        body: Body::default(),
        rank: number_u32(of, "rank")?,
        flags: number_u32(of, "flags")?.unwrap_or(0),
        due: number(of, "delay_ms").map_or(When::Default, When::In),
        expires: number(of, "ttl_ms").map_or(Expiry::Default, Expiry::In),
        ttr_ms: number(of, "ttr_ms"),
        more: more_of_put(of)?,
    })
}

/// Key, attributes and the id that makes it unique, if it has any.
fn more_of_put(of: &Value) -> Result<Option<Box<PutMore>>, String> {
    let text = |key: &str| of.get(key).and_then(Value::as_str);
    let pairs = of
        .get("attrs")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let pair = |pair: &Value| {
        let text = |at: usize| pair.get(at).and_then(Value::as_str);
        let pair = text(0).zip(text(1));
        let pair = pair.map(|(name, value)| (name.as_bytes().into(), value.as_bytes().into()));
        pair.ok_or("an attribute is a name and a value")
    };
    let attrs: Vec<Attr> = pairs.map(pair).collect::<Result<_, _>>()?;
    if attrs.iter().any(|(name, _)| **name == *FOLDER.as_bytes()) {
        return Err(format!("the attribute {FOLDER} is the server's own"));
    }
    let more = PutMore {
        key: text("key").map(|key| key.as_bytes().into()),
        name: text("name").map(|name| name.as_bytes().into()),
        attrs,
        dedupe: dedupe(of)?,
        batch: match text("batch") {
            Some(id) => Some(Tie::member(BatchId::parse(id).ok_or("which batch?")?)),
            None => None,
        },
        tracked: of.get("tracked").and_then(Value::as_bool).unwrap_or(false),
        ..PutMore::default()
    };
    Ok((more != PutMore::default()).then(|| Box::new(more)))
}

/// What makes a put unique, if anything does; what is not said is as the queue has it.
fn dedupe(of: &Value) -> Result<Option<Dedupe>, String> {
    let text = |key: &str| of.get(key).and_then(Value::as_str);
    let scope = |word| Scope::of_word(word).ok_or("unique until what?");
    let on_repeat = |word| OnRepeat::of_word(word).ok_or("what does a repeat do?");
    let Some(id) = text("unique") else {
        return Ok(None);
    };
    Ok(Some(Dedupe {
        id: id.as_bytes().into(),
        window_ms: number(of, "unique_for_ms"),
        scope: text("unique_until").map(scope).transpose()?,
        on_repeat: text("on_repeat").map(on_repeat).transpose()?,
    }))
}

fn take(of: &Value) -> Result<Take, String> {
    let queues: SmallVec<[Name; 1]> = match of.get("queues").and_then(Value::as_array) {
        None => SmallVec::from_iter([queue(of)?]),
        Some(list) => list
            .iter()
            .map(|text| {
                text.as_str()
                    .map(Name::of_shown)
                    .ok_or("queues are named by texts")
            })
            .collect::<Result<_, _>>()?,
    };
    let max = number_u32(of, "max")?.unwrap_or(1);
    // A reply names the queue of its first message only.
    if queues.is_empty() || queues.len() > 1 && max > 1 {
        return Err("take one message from several queues, or several from one".to_owned());
    }
    Ok(Take {
        queues,
        wait: match number(of, "wait_ms") {
            None | Some(0) => Wait::No,
            Some(ms) => Wait::For(ms),
        },
        messages_max: max,
        ..Take::default()
    })
}

fn peek(of: &Value) -> Result<Peek, String> {
    if let Some(id) = number(of, "id") {
        return Ok(Peek::Id(quintet_types::MessageId(id)));
    }
    let queue = queue(of)?;
    match of.get("state").and_then(Value::as_str).unwrap_or("ready") {
        "ready" => Ok(Peek::Ready(queue)),
        "delayed" => Ok(Peek::Delayed(queue)),
        "buried" => Ok(Peek::Buried(queue)),
        other => Err(format!(
            "\"{other}\" is not a state to peek at: ready, delayed or buried"
        )),
    }
}

fn list(of: &Value) -> Result<Peek, String> {
    Ok(Peek::List {
        queue: queue(of)?,
        state: state(of)?,
        after: number(of, "after").map(MessageId),
        max: number_u32(of, "max")?.unwrap_or(1),
    })
}

fn state(of: &Value) -> Result<ListState, String> {
    let named = of.get("state").and_then(Value::as_str);
    sweep::state_named(named.unwrap_or_default())
}

fn moving(of: &Value) -> Result<Command, String> {
    let to = of.get("to").and_then(Value::as_str).map(Name::of_shown);
    let to = to.ok_or("to which queue?")?;
    Ok(Command::Move { id: id(of)?, to })
}

fn drop_queues(of: &Value) -> Result<Command, String> {
    let pattern = of.get("pattern").and_then(Value::as_str);
    let flag = |key: &str| of.get(key).and_then(Value::as_bool).unwrap_or(false);
    Ok(Command::DropQueues {
        pattern: Pattern::of_name(Name::of_shown(pattern.ok_or("which queues?")?).as_bytes()),
        messages: flag("messages"),
        dry_run: flag("dry_run"),
        from: from(of)?,
    })
}

/// Where to go on: what the reply before said is `next`.
fn from(of: &Value) -> Result<(u8, u32), String> {
    let from = of.get("from").filter(|from| !from.is_null()).cloned();
    let from = from.map_or(Ok((0, 0)), serde_json::from_value);
    from.map_err(|_| "go on from where?".to_owned())
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
            "{\"put\": {}}",
            "{\"take\": {\"queue\": 3}}",
            "{\"take\": {\"queues\": []}}",
            "{\"take\": {\"queues\": [\"a\", 3]}}",
            "{\"take\": {\"queues\": [\"a\", \"b\"], \"max\": 2}}",
            "{\"list\": {\"queue\": \"a\"}}",
            "{\"import\": {}}",
            "{\"import\": {\"messages\": []}}",
            "{\"import\": {\"messages\": [{\"queue\": \"a\"}, {\"queue\": \"b\"}]}}",
            "{\"imported\": {\"queue\": \"a\"}}",
            "{\"sweep\": {\"queue\": \"a\", \"state\": \"ready\", \"max\": 1}}",
            "{\"sweep\": {\"queue\": \"a\", \"state\": \"ready\", \"max\": 1, \"act\": \"move\"}}",
            "{\"sweep\": {\"queue\": \"a\", \"state\": \"ready\", \"max\": 1, \"act\": \"show\", \"x\": 1}}",
            "{\"delete\": {}}",
            "{\"edit\": {\"rank\": 1}}",
            "{\"pause\": {}}",
            "{\"batch_new\": {\"x\": 1}}",
            "{\"batch_new\": {\"parent\": \"b-7\"}}",
            "{\"batch_open\": {\"id\": 7}}",
            "{\"batches\": {\"after\": \"x\"}}",
            "{\"put\": {\"queue\": \"a\", \"batch\": \"7\"}}",
            "{\"worker_quiet\": {}}",
            "{\"cron_pause\": {}}",
            "{\"cron_run\": {\"name\": 3}}",
            "{\"drop\": {}}",
            "{\"drop\": {\"pattern\": 3}}",
            "{\"drop\": {\"pattern\": \"*\", \"from\": \"here\"}}",
            "{\"drop\": {\"pattern\": \"*\", \"from\": [256, 0]}}",
        ] {
            assert!(parse(line.as_bytes()).is_err(), "{line}");
        }
    }
}
