//! Attributes of queues: what may be set, and how it is kept in settings and
//! tags of the engine, which knows nothing of SQS.

use quintet_types::{AT_ONCE_MS, DeadLetter, Groups, Name, Overrides, QueueSettings, Tags};
use serde_json::Value;

use crate::fault::{Fault, Shape};
use crate::input::Texts;
use crate::message::Limits;
use crate::names::{self, Place};

/// Prefix of tags that are attributes: no client's tag begins so.
pub(crate) const OWN: &str = "aws:sqs:";
/// The tag that says when attributes were last set, ms since 1970.
pub(crate) const CHANGED: &[u8] = b"aws:sqs:changed";
/// The tag with the moves of messages out of a queue.
pub(crate) const TASKS: &[u8] = b"aws:sqs:tasks";

const RETENTION: u64 = 345_600;
const TTR: u64 = 30;
const SECOND: u64 = 1000;

const EVER: u64 = u64::MAX / SECOND / 2;

/// Attributes with a range of whole numbers: name, least, most, most where
/// limits are open.
const RANGES: &[(&str, u64, u64, u64)] = &[
    ("VisibilityTimeout", 0, 43_200, EVER),
    ("DelaySeconds", 0, 900, EVER),
    ("ReceiveMessageWaitTimeSeconds", 0, 20, 3600),
    ("MessageRetentionPeriod", 60, 1_209_600, EVER),
    ("KmsDataKeyReusePeriodSeconds", 60, 86_400, 86_400),
];

/// Attributes of FIFO queues alone, with the values they take; the first is the default.
const OF_FIFO: &[(&str, [&str; 2])] = &[
    ("ContentBasedDeduplication", ["false", "true"]),
    ("DeduplicationScope", ["queue", "messageGroup"]),
    ("FifoThroughputLimit", ["perQueue", "perMessageGroupId"]),
];

/// All attributes that a queue can show, in the order in which they are.
pub(crate) const ALL: &[&str] = &[
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesDelayed",
    "ApproximateNumberOfMessagesNotVisible",
    "ContentBasedDeduplication",
    "CreatedTimestamp",
    "DeduplicationScope",
    "DelaySeconds",
    "FifoQueue",
    "FifoThroughputLimit",
    "KmsDataKeyReusePeriodSeconds",
    "KmsMasterKeyId",
    "LastModifiedTimestamp",
    "MaximumMessageSize",
    "MessageRetentionPeriod",
    "Policy",
    "QueueArn",
    "ReceiveMessageWaitTimeSeconds",
    "RedriveAllowPolicy",
    "RedrivePolicy",
    "SqsManagedSseEnabled",
    "VisibilityTimeout",
];

/// Changes of a queue.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) settings: Overrides,
    pub(crate) tags: Tags,
    /// The queue that dead letters are to go to, which has to be there, with
    /// the policy as it was given.
    pub(crate) redrive: Option<(String, String)>,
    /// True: it is made as a FIFO queue.
    pub(crate) fifo: bool,
}

impl Changes {
    /// Keeps an attribute in its tag; `None`: there is none any more.
    fn tag(&mut self, attribute: &str, value: Option<&str>) {
        self.tags.set(&tag(attribute), value.map(str::as_bytes));
    }
}

/// The name of the tag that keeps an attribute.
pub(crate) fn tag(attribute: &str) -> Vec<u8> {
    [OWN, attribute].concat().into_bytes()
}

/// A tag's text.
pub(crate) fn text<'a>(tags: &'a Tags, attribute: &str) -> Option<&'a str> {
    std::str::from_utf8(tags.get(&tag(attribute))?).ok()
}

/// The attributes that FIFO queues alone have, and what they are by default.
pub(crate) fn of_fifo() -> impl Iterator<Item = (&'static str, &'static str)> {
    OF_FIFO.iter().map(|(name, values)| (*name, values[0]))
}

fn flag(text: &str) -> Option<bool> {
    text.to_ascii_lowercase().parse().ok()
}

/// Whether the attributes ask for a FIFO queue.
///
/// # Errors
/// They say neither yes nor no.
pub(crate) fn asks_fifo(attributes: &Texts) -> Result<bool, Fault> {
    match attributes.kept.get("FifoQueue") {
        None => Ok(false),
        Some(text) => flag(text).ok_or_else(|| Fault::attribute("FifoQueue", "")),
    }
}

/// Reads attributes that are to be set. `fifo`: of a FIFO queue; `now`: the
/// tags it has, `None`: it is being made.
///
/// # Errors
/// One cannot be, or cannot have this value. None counts then.
pub(crate) fn changes(
    attributes: &Texts,
    fifo: bool,
    now: Option<&Tags>,
    limits: Limits,
) -> Result<Changes, Fault> {
    let mut changes = Changes {
        fifo,
        ..Changes::default()
    };
    for (name, value) in &attributes.kept {
        match name.as_str() {
            "FifoQueue" => match now {
                _ if !fifo => return Err(Fault::unknown_attribute(name)),
                None => {}
                Some(_) if flag(value) == Some(true) => {}
                Some(_) => {
                    let why = "Modifying queue type is not supported.";
                    return Err(Fault::attribute(name, why));
                }
            },
            "MaximumMessageSize" => {
                let most = limits.of(1 << 20, limits.message_bytes_max);
                changes.settings.message_bytes_max = Some(number(name, value, 1024, most)?);
            }
            "RedrivePolicy" => redrive(value, &mut changes)?,
            "RedriveAllowPolicy" | "Policy" | "KmsMasterKeyId" => {
                let value = Some(value.as_str()).filter(|value| !value.is_empty());
                value.map_or(Ok(()), |value| check_text(name, value))?;
                changes.tag(name, value);
            }
            "SqsManagedSseEnabled" => {
                let on = flag(value).ok_or_else(|| Fault::attribute(name, ""))?;
                let value = if on { "true" } else { "false" };
                changes.tag(name, Some(value));
            }
            _ => others(name, value, &mut changes, limits)?,
        }
    }
    let key = attributes
        .kept
        .get("KmsMasterKeyId")
        .filter(|key| !key.is_empty());
    if key.is_some() {
        if changes.tags.get(&tag("SqsManagedSseEnabled")) == Some(b"true") {
            let why = "You can use one type of server-side encryption (SSE) at one time. You can \
                 either enable KMS SSE or SQS SSE.";
            return Err(Fault::new(Shape::InvalidAttributeName, why));
        }
        changes.tag("SqsManagedSseEnabled", Some("false"));
    }
    let of = |name: &str| {
        let set = text(&changes.tags, name);
        set.or_else(|| now.and_then(|tags| text(tags, name)))
    };
    if of("FifoThroughputLimit") == Some("perMessageGroupId")
        && of("DeduplicationScope") != Some("messageGroup")
    {
        let why = "The perMessageGroupId value is allowed only when the value for DeduplicationScope \
             is messageGroup.";
        return Err(Fault::attribute("FifoThroughputLimit", why));
    }
    Ok(changes)
}

/// Looks at an attribute that is kept as it comes.
fn check_text(name: &str, value: &str) -> Result<(), Fault> {
    let is_object = || serde_json::from_str(value).is_ok_and(|policy: Value| policy.is_object());
    match name {
        "RedriveAllowPolicy" => check_allow(value),
        "Policy" if !is_object() => Err(Fault::attribute(name, "")),
        _ => Ok(()),
    }
}

fn number(name: &str, value: &str, least: u64, most: u64) -> Result<u64, Fault> {
    let number = value
        .parse()
        .ok()
        .filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| Fault::attribute(name, ""))
}

/// Numbers, and what FIFO queues alone have.
fn others(name: &str, value: &str, changes: &mut Changes, limits: Limits) -> Result<(), Fault> {
    if let Some((_, least, most, open)) = RANGES.iter().find(|(known, ..)| *known == name) {
        let least = match (name, limits.open) {
            ("MessageRetentionPeriod", true) => 0,
            _ => *least,
        };
        let number = number(name, value, least, limits.of(*most, *open))?;
        match name {
            "VisibilityTimeout" => {
                changes.settings.default_ttr_ms = Some((number * SECOND).max(AT_ONCE_MS));
            }
            "DelaySeconds" => changes.settings.default_delay_ms = Some(number * SECOND),
            "MessageRetentionPeriod" => changes.settings.ttl_ms = Some(number * SECOND),
            _ => changes.tag(name, Some(&number.to_string())),
        }
        return Ok(());
    }
    let Some((_, values)) = OF_FIFO.iter().find(|(known, _)| *known == name) else {
        return Err(Fault::unknown_attribute(name));
    };
    if !changes.fifo {
        return Err(match name {
            "ContentBasedDeduplication" => Fault::unknown_attribute(name),
            _ => Fault::new(
                Shape::InvalidAttributeName,
                format!("You can specify the {name} only when FifoQueue is set to true."),
            ),
        });
    }
    let known = values.iter().find(|known| match name {
        "ContentBasedDeduplication" => known.eq_ignore_ascii_case(value),
        _ => **known == value,
    });
    let known = known.ok_or_else(|| Fault::attribute(name, ""))?;
    changes.tag(name, Some(known));
    Ok(())
}

/// A redrive policy is none, or its dead-letter queue is not there, is of the other type, or does
/// not let it.
pub(crate) fn redrive_wrong(policy: &str, reason: &str) -> Fault {
    Fault::value(policy, "RedrivePolicy", reason)
}

fn redrive(policy: &str, changes: &mut Changes) -> Result<(), Fault> {
    if policy.is_empty() {
        changes.settings.attempts_max = Some(0);
        changes.settings.dead_letter = Some(DeadLetter::Bury);
        changes.tag("RedrivePolicy", None);
        return Ok(());
    }
    let read: Value = serde_json::from_str(policy)
        .ok()
        .filter(Value::is_object)
        .ok_or_else(|| redrive_wrong(policy, "Redrive policy is not a valid JSON map."))?;
    let part = |name: &str| {
        read.get(name).ok_or_else(|| {
            let reason = format!("Redrive policy does not contain mandatory attribute: {name}.");
            redrive_wrong(policy, &reason)
        })
    };
    let (supplied, arn) = (part("maxReceiveCount")?, part("deadLetterTargetArn")?);
    let shown = supplied
        .as_str()
        .map_or_else(|| supplied.to_string(), str::to_owned);
    let count: Option<u32> = shown
        .parse()
        .ok()
        .filter(|count| (1..=1000).contains(count));
    let count = count.ok_or_else(|| {
        let reason = format!(
            "Invalid value for maxReceiveCount: {shown}, valid values are from 1 to 1000 both \
             inclusive."
        );
        redrive_wrong(policy, &reason)
    })?;
    let name = arn.as_str().and_then(names::of_arn);
    let name = name.ok_or_else(|| redrive_wrong(policy, "Dead letter target does not exist."))?;
    // As it came, but the count as a number.
    let kept = match supplied.is_string() {
        true => policy.replacen(&supplied.to_string(), &shown, 1),
        false => policy.to_owned(),
    };
    changes.settings.attempts_max = Some(count);
    changes.settings.dead_letter = Some(DeadLetter::To(Name::new(name.as_bytes())));
    changes.tag("RedrivePolicy", Some(&kept));
    changes.redrive = Some((name.to_owned(), policy.to_owned()));
    Ok(())
}

/// The queues that may use this queue as their dead-letter queue.
fn allow(policy: &str) -> Option<(String, Vec<String>)> {
    let read: Value = serde_json::from_str(policy).ok()?;
    let word = read.get("redrivePermission")?.as_str()?.to_owned();
    let arns = match read.get("sourceQueueArns") {
        None => Vec::new(),
        Some(arns) => {
            let arns = arns
                .as_array()?
                .iter()
                .map(|arn| arn.as_str().map(str::to_owned));
            arns.collect::<Option<Vec<String>>>()?
        }
    };
    Some((word, arns))
}

fn check_allow(policy: &str) -> Result<(), Fault> {
    let wrong = |reason: &str| Fault::value(policy, "RedriveAllowPolicy", reason);
    let (word, arns) = allow(policy).ok_or_else(|| wrong("Redrive allow policy is not valid."))?;
    match (word.as_str(), arns.len()) {
        ("allowAll" | "denyAll", 0) => Ok(()),
        ("byQueue", 1..=10) => Ok(()),
        ("byQueue", _) => Err(wrong("sourceQueueArns must have 1 to 10 entries.")),
        ("allowAll" | "denyAll", _) => Err(wrong(
            "sourceQueueArns can be given only if redrivePermission is byQueue.",
        )),
        _ => Err(wrong(
            "redrivePermission must be allowAll, denyAll or byQueue.",
        )),
    }
}

/// True if a queue with these tags takes the dead letters of `source`.
pub(crate) fn lets(tags: &Tags, source: &str) -> bool {
    let Some((word, arns)) = text(tags, "RedriveAllowPolicy").and_then(allow) else {
        return true;
    };
    match word.as_str() {
        "denyAll" => false,
        "byQueue" => arns.iter().any(|arn| names::of_arn(arn) == Some(source)),
        _ => true,
    }
}

/// A queue as its attributes show it.
pub(crate) struct QueueView<'a> {
    pub(crate) name: &'a str,
    pub(crate) settings: &'a QueueSettings,
    /// When it was made and last set up, seconds since 1970.
    pub(crate) created_s: u64,
    pub(crate) changed_s: u64,
    pub(crate) ready: u64,
    pub(crate) delayed: u64,
    pub(crate) reserved: u64,
    pub(crate) place: &'a Place,
}

impl QueueView<'_> {
    fn is_fifo(&self) -> bool {
        names::is_fifo(self.name)
    }

    /// The value of an attribute; `None`: it has none now.
    ///
    /// # Errors
    /// No queue has such an attribute.
    pub(crate) fn value(&self, attribute: &str) -> Result<Option<String>, Fault> {
        let settings = self.settings;
        let tagged = |name: &str| text(&settings.tags, name).map(str::to_owned);
        let number = |number: u64| Some(number.to_string());
        Ok(match attribute {
            "ApproximateNumberOfMessages" => number(self.ready),
            "ApproximateNumberOfMessagesDelayed" => number(self.delayed),
            "ApproximateNumberOfMessagesNotVisible" => number(self.reserved),
            "CreatedTimestamp" => number(self.created_s),
            "LastModifiedTimestamp" => number(self.changed_s),
            "DelaySeconds" => number(settings.default_delay_ms / SECOND),
            "VisibilityTimeout" => number(settings.default_ttr_ms / SECOND),
            "MessageRetentionPeriod" => number(settings.ttl_ms / SECOND),
            "MaximumMessageSize" => number(settings.message_bytes_max),
            "QueueArn" => Some(self.place.arn(self.name)),
            "ReceiveMessageWaitTimeSeconds" => tagged(attribute).or(number(0)),
            "SqsManagedSseEnabled" => tagged(attribute).or(Some("true".to_owned())),
            "KmsDataKeyReusePeriodSeconds" => tagged(attribute).filter(|period| period != "300"),
            "KmsMasterKeyId" | "Policy" | "RedriveAllowPolicy" => tagged(attribute),
            "RedrivePolicy" => self.redrive(),
            "FifoQueue" => self.is_fifo().then(|| "true".to_owned()),
            _ => {
                let known = OF_FIFO.iter().find(|(known, _)| *known == attribute);
                let (_, values) = known.ok_or_else(|| Fault::unknown_attribute(attribute))?;
                let default = Some(values[0].to_owned());
                tagged(attribute).or(default).filter(|_| self.is_fifo())
            }
        })
    }

    /// The policy as it was given, if it still says what is so; else what is so.
    fn redrive(&self) -> Option<String> {
        let DeadLetter::To(to) = &self.settings.dead_letter else {
            return None;
        };
        let count = self.settings.attempts_max;
        if count == 0 {
            return None;
        }
        let kept = text(&self.settings.tags, "RedrivePolicy");
        let says = |kept: &&str| {
            let read: Value = serde_json::from_str(kept).unwrap_or_default();
            let name = read["deadLetterTargetArn"].as_str().and_then(names::of_arn);
            name.map(str::as_bytes) == Some(to.as_bytes())
                && read["maxReceiveCount"].as_u64() == Some(count.into())
        };
        if let Some(kept) = kept.filter(says) {
            return Some(kept.to_owned());
        }
        let arn = self.place.arn(&String::from_utf8_lossy(to.as_bytes()));
        Some(format!(
            "{{\"deadLetterTargetArn\":{},\"maxReceiveCount\":{count}}}",
            Value::from(arn)
        ))
    }

    /// The attributes of these names, or all.
    ///
    /// # Errors
    /// One of them is no attribute.
    pub(crate) fn values(&self, names: &[String]) -> Result<Vec<(&'static str, String)>, Fault> {
        let every = names.iter().any(|name| name == "All");
        if let Some(odd) = names
            .iter()
            .find(|name| *name != "All" && !ALL.contains(&name.as_str()))
        {
            return Err(Fault::unknown_attribute(odd));
        }
        let mut values = Vec::new();
        for &attribute in ALL {
            if (every || names.iter().any(|name| name == attribute))
                && let Some(value) = self.value(attribute)?
            {
                values.push((attribute, value));
            }
        }
        Ok(values)
    }

    /// The first of these attributes that the queue has another value of.
    ///
    /// # Errors
    /// One of them is no attribute.
    pub(crate) fn differs<'t>(&self, supplied: &'t Texts) -> Result<Option<&'t str>, Fault> {
        for (name, wanted) in &supplied.kept {
            let value = self.value(name)?;
            let same = match (&value, wanted.as_str()) {
                (None, "") => true,
                // Not shown, as it is the default.
                (None, wanted) => name == "KmsDataKeyReusePeriodSeconds" && wanted == "300",
                (Some(value), wanted) => is_same(value, wanted),
            };
            if !same {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }
}

/// Numbers are compared as numbers, JSON as JSON.
fn is_same(value: &str, wanted: &str) -> bool {
    let normal = |text: &str| -> Option<Value> {
        let mut read: Value = serde_json::from_str(text).ok()?;
        let count = read.get("maxReceiveCount").and_then(Value::as_str);
        if let Some(count) = count.and_then(|count| count.parse::<u64>().ok()) {
            read["maxReceiveCount"] = count.into();
        }
        Some(read)
    };
    let numbers = (value.parse::<u64>(), wanted.parse::<u64>());
    value == wanted
        || matches!(numbers, (Ok(value), Ok(wanted)) if value == wanted)
        || value.eq_ignore_ascii_case(wanted) && flag(value).is_some()
        || normal(value).is_some_and(|value| Some(value) == normal(wanted))
}

/// Defaults of a queue of this protocol, below the file and its maker.
pub(crate) fn defaults(name: &str, limits: Limits, file: &QueueSettings) -> Overrides {
    let below = QueueSettings::default();
    // What the file has set for its name stays.
    let unless = |set: bool, value: u64| (!set).then_some(value);
    Overrides {
        default_ttr_ms: unless(file.default_ttr_ms != below.default_ttr_ms, TTR * SECOND),
        ttl_ms: unless(file.ttl_ms != below.ttl_ms, RETENTION * SECOND),
        message_bytes_max: unless(
            file.message_bytes_max != below.message_bytes_max,
            limits.message_bytes_max.min(1 << 20),
        ),
        groups: groups(name, file),
        ..Overrides::default()
    }
}

/// A FIFO queue is ordered by its groups, another one shares what it has fairly among them, unless
/// the file says else.
fn groups(name: &str, file: &QueueSettings) -> Option<Groups> {
    match (file.groups, names::is_fifo(name)) {
        (Groups::None, true) => Some(Groups::Ordered),
        (Groups::None, false) => Some(Groups::Fair),
        _ => None,
    }
}

/// Tags of a queue, of those that clients give.
pub(crate) fn tags_of_clients(tags: &Tags) -> Vec<(String, String)> {
    let theirs = tags
        .iter()
        .filter(|(name, _)| !name.starts_with(b"aws:") && !name.starts_with(b"quintet:"));
    theirs
        .map(|(name, value)| {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            (text(name), text(value))
        })
        .collect()
}

/// Refuses tags that are AWS's or the server's own.
///
/// # Errors
/// No client changes this one.
pub(crate) fn not_reserved(tag: &str) -> Result<(), Fault> {
    match names::begins(tag, "aws:") || names::begins(tag, "quintet:") {
        false => Ok(()),
        true => Err(Fault::parameter(
            "System tags cannot be added, updated or deleted by requester.",
        )),
    }
}

/// Tags of a queue at most.
const TAGS_MAX: usize = 50;

/// Reads tags that are to be set, beside those that are there.
///
/// # Errors
/// They cannot be, or are too many.
pub(crate) fn check_tags(queue: &str, supplied: &Texts, there: &Tags) -> Result<Tags, Fault> {
    let mut change = Tags::default();
    for (key, value) in &supplied.kept {
        if !(1..=128).contains(&key.chars().count()) {
            let why = "Tag keys must be between 1 and 128 characters in length.";
            return Err(Fault::parameter(why));
        }
        if value.chars().count() > 256 {
            let why = "Tag values must be between 0 and 256 characters in length.";
            return Err(Fault::parameter(why));
        }
        not_reserved(key)?;
        change.set(key.as_bytes(), Some(value.as_bytes()));
    }
    let all = change.over(there);
    if supplied.count > TAGS_MAX || tags_of_clients(&all).len() > TAGS_MAX {
        return Err(Fault::parameter(format!(
            "Too many tags added for queue {queue}."
        )));
    }
    Ok(change)
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
