//! Replies of the control channel.

use quintet_api::{base64_unless_text, lossy};
use quintet_config::told_of_queue;
use quintet_door::Setting;
use quintet_types::{
    Message, Name, Outcome, QueueGauges, QueueStats, QueueTotals, Refusal, ShardStats, StatsReply,
    TableEntry,
};
use quintet_wire::{Given, Output, ServerStats};
use serde_json::{Map, Value, json};

use super::head::Head;

/// The code of a hook's refusal; those of the engine are [`Refusal::code`].
const DENIED: &str = "denied";

/// Writes one reply: a line, and the bodies it announces.
pub(crate) fn write(given: &Given, output: &mut Output) {
    let line = match given {
        Given::Engine(Outcome::Messages(messages), queue) => {
            let list: Vec<Value> = messages.iter().map(|m| message(m, queue)).collect();
            end_line(output, &json!({ "messages": list }));
            messages
                .iter()
                .for_each(|message| output.body(&message.body));
            return;
        }
        Given::Engine(outcome, _) => engine(outcome),
        Given::Server(stats) => server(stats),
        Given::Host(Ok(text)) => json!({ "done": text }),
        Given::Host(Err(why)) => json!({ "error": why }),
        Given::Login(Ok(())) => json!({ "done": "" }),
        Given::Login(Err(refused)) => json!({ "error": refused.text() }),
        Given::Worker(_) | Given::Own => json!({}),
    };
    end_line(output, &line);
}

/// Writes a line of JSON.
pub(crate) fn end_line(output: &mut Output, value: &Value) {
    output.put(value.to_string().as_bytes());
    output.put(b"\n");
}

fn engine(outcome: &Outcome) -> Value {
    match outcome {
        Outcome::Done => json!({ "done": "" }),
        Outcome::Put { id, fresh } => json!({ "id": id.0, "fresh": fresh }),
        Outcome::PutMany(ids) => json!({ "ids": ids.iter().map(|id| id.0).collect::<Vec<_>>() }),
        Outcome::Messages(_) | Outcome::Empty | Outcome::DeadlineSoon => json!({ "messages": [] }),
        Outcome::Count(count) => json!({ "count": count }),
        Outcome::Compound { ids, then } => json!({
            "ids": ids.iter().map(|id| id.0).collect::<Vec<_>>(),
            "then": then.as_deref().map(engine),
        }),
        Outcome::Entries(entries) => {
            let entry = |entry: &TableEntry| {
                let mut told = json!({ "key": lossy(&entry.key), "value": lossy(&entry.value) });
                for (name, bytes) in [("key_base64", &entry.key), ("value_base64", &entry.value)] {
                    if let Some(coded) = base64_unless_text(bytes) {
                        told[name] = coded.into();
                    }
                }
                told
            };
            json!({ "entries": entries.iter().map(entry).collect::<Vec<_>>() })
        }
        Outcome::Dropped(dropped) => json!({
            "queues": dropped.queues,
            "messages": dropped.messages,
            "passed": dropped.passed,
            "next": dropped.next,
        }),
        Outcome::Batch(batch) => json!({ "batch": quintet_api::batch_line((**batch).clone()) }),
        Outcome::Batches(batches, next) => json!({
            "batches": batches.iter().cloned().map(quintet_api::batch_line).collect::<Vec<_>>(),
            "next": next.map(quintet_api::batches_after),
        }),
        // No order asks for one.
        Outcome::Tracked(track) => json!({ "track": quintet_api::track_line((**track).clone()) }),
        // Its session writes it, with bodies.
        Outcome::Swept(_) => json!({}),
        Outcome::Stats(stats) => match &**stats {
            StatsReply::Shard(stats) => json!({ "stats": shard(stats) }),
            StatsReply::Queue(stats) => json!({ "queue": queue(stats) }),
            StatsReply::Queues(page) => json!({
                "queues": page.queues.iter().map(queue).collect::<Vec<_>>(),
                "next": page.next,
            }),
            StatsReply::Names(page) => json!({
                "names": page.names.iter().map(Name::to_string).collect::<Vec<_>>(),
                "next": page.next.as_ref().map(Name::to_string),
            }),
            StatsReply::Setup(setup) => json!({
                "name": setup.name.to_string(),
                "settings": told_of_queue(setup).iter().map(setting).collect::<Vec<_>>(),
                "parent": setup.parent.as_ref().map(Name::to_string),
                "children": setup.children.iter().map(Name::to_string).collect::<Vec<_>>(),
            }),
            StatsReply::Message(stats) => {
                json!({ "message": message(&stats.message, &stats.queue) })
            }
        },
        Outcome::Refused(refusal) => {
            let (text, code) = (refusal.text(), refusal.code());
            let mut told = json!({ "error": text, "code": code });
            if let Refusal::Duplicate(id) = refusal {
                told["duplicate"] = id.0.into();
            }
            told
        }
        Outcome::Denied(text) => json!({ "error": text, "code": DENIED }),
    }
}

fn setting(setting: &Setting) -> Value {
    json!({ "key": setting.key, "value": setting.value, "source": setting.source.name() })
}

/// All of [`Head`], and always what most readers look for.
pub(crate) fn message(message: &Message, queue: &Name) -> Value {
    let head = Head::of(message, queue);
    let mut value = serde_json::to_value(&head).unwrap_or_default();
    if let Some(map) = value.as_object_mut() {
        map.insert("bytes".into(), head.bytes.into());
        map.insert("flags".into(), head.flags.into());
        map.insert("due_ms".into(), head.due_ms.into());
        map.insert("expires_ms".into(), head.expires_ms.into());
        map.insert("reserves".into(), head.reserves.into());
    }
    value
}

fn gauges(into: &mut Map<String, Value>, gauges: &QueueGauges) {
    let pairs = QueueGauges::NAMES.iter().zip(gauges.values());
    into.extend(pairs.map(|(name, value)| ((*name).to_owned(), value.into())));
}

fn totals(into: &mut Map<String, Value>, totals: &QueueTotals) {
    let pairs = QueueTotals::NAMES.iter().zip(totals.values());
    into.extend(pairs.map(|(name, value)| (format!("total_{name}"), value.into())));
}

fn shard(stats: &ShardStats) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("queues".into(), stats.queues.into());
    map.insert("queues_made".into(), stats.queues_made.into());
    map.insert("queues_dropped".into(), stats.queues_dropped.into());
    map.insert("queues_expired".into(), stats.queues_expired.into());
    map.insert("last_id".into(), stats.last_id.into());
    map.insert("memory_bytes".into(), stats.memory_bytes.into());
    map.insert("snapshot_bytes".into(), stats.snapshot_bytes.into());
    gauges(&mut map, &stats.gauges);
    totals(&mut map, &stats.totals);
    map
}

fn queue(stats: &QueueStats) -> Value {
    let mut map = Map::new();
    map.insert("name".into(), stats.name.to_string().into());
    map.insert("created_ms".into(), stats.created.0.into());
    map.insert("oldest_ms".into(), stats.oldest_ms.into());
    map.insert("age_ms".into(), stats.age_ms.into());
    map.insert("paused".into(), stats.paused.into());
    map.insert("down".into(), stats.down.into());
    map.insert("memory".into(), stats.memory.into());
    gauges(&mut map, &stats.gauges);
    totals(&mut map, &stats.totals);
    Value::Object(map)
}

fn server(stats: &ServerStats) -> Value {
    let mut map = Map::new();
    map.insert("version".into(), stats.version.into());
    map.insert("draining".into(), stats.draining.into());
    let numbers = stats.numbers.iter();
    map.extend(numbers.map(|(name, value)| (name.to_string(), number(*value))));
    let errors = stats.errors.iter();
    map.extend(errors.map(|(name, text)| (name.clone(), text.as_str().into())));
    json!({ "stats": map })
}

/// Whole numbers without a point.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "it is whole and below 2^53"
        )]
        Value::from(value as i64)
    } else {
        Value::from(value)
    }
}
