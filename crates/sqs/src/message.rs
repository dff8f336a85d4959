//! Messages on their way in: what they may hold.

use quintet_types::Attr;

use crate::digest;
use crate::fault::{Fault, Shape};
use crate::input::{Attribute, NewMessage};
use crate::names;
use crate::reply::Sent;
use crate::value::{Value, ValueKind, kind_of};
use crate::whole::{Named, within};

/// Attributes of a message at most.
const ATTRIBUTES_MAX: usize = 10;
/// Characters of an attribute's name, and of its type, at most.
const NAME_MAX: usize = 256;
/// Characters of a group's name and of a deduplication id at most.
const ID_MAX: usize = 128;
/// Digits that count of a number at most.
const DIGITS_MAX: usize = 38;
/// Seconds of a delay at most.
const DELAY_MAX: i64 = 900;

/// How an attribute of a message is called where it is stored: this and its name.
pub(crate) const STORED: &[u8] = b"m:";
/// Attribute that stores the trace header.
pub(crate) const TRACE: &[u8] = b"sqs:trace";
/// Attribute that stores a deduplication id.
pub(crate) const DEDUP: &[u8] = b"sqs:dedup";
/// Attribute that stores the sender.
pub(crate) const SENDER: &[u8] = b"sqs:sender";
/// The only attribute that is the system's and a client's to give.
pub(crate) const TRACE_NAME: &str = "AWSTraceHeader";

/// True for a character that a text may have.
fn is_allowed(c: char) -> bool {
    // What is no scalar value is no `char`.
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..)
}

/// True if a text has no character that it may not have.
pub(crate) fn is_text(text: &str) -> bool {
    // Beyond ASCII only U+FFFE and U+FFFF are refused, both EF BF BE or BF.
    let plain = |b: u8| (b >= b' ') & (b != 0xef) | (b == b'\t') | (b == b'\n') | (b == b'\r');
    // Without a branch for each byte.
    let all_plain = |some: &[u8]| some.iter().fold(true, |all, &b| all & plain(b));
    text.as_bytes().chunks(512).all(all_plain) || text.chars().all(is_allowed)
}

/// Looks at the characters of a text.
///
/// # Errors
/// One that it may not have.
pub(crate) fn check_text(text: &str) -> Result<(), Fault> {
    match is_text(text) {
        true => Ok(()),
        false => Err(Fault::new(
            Shape::InvalidMessageContents,
            "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to \
             #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF",
        )),
    }
}

/// Looks at a group's name, or a deduplication id or an id of an attempt.
///
/// # Errors
/// It is none.
pub(crate) fn check_id(value: &str, parameter: &str) -> Result<(), Fault> {
    let good = (1..=ID_MAX).contains(&value.len()) && value.bytes().all(|b| b.is_ascii_graphic());
    match good {
        true => Ok(()),
        false => Err(Fault::value(
            value,
            parameter,
            &format!(
                "{parameter} can only include alphanumeric and punctuation characters. 1 to 128 \
                 in length."
            ),
        )),
    }
}

/// By what messages are measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// False: as AWS has them.
    pub(crate) open: bool,
    /// Bytes of a message at most, whatever its queue says.
    pub(crate) message_bytes_max: u64,
}

impl Limits {
    /// The bound of AWS, or the one beyond it.
    pub(crate) fn of<T>(self, aws: T, beyond: T) -> T {
        match self.open {
            true => beyond,
            false => aws,
        }
    }
}

/// A message that may be put, as far as can be said without its queue.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct CheckedMessage {
    pub(crate) body: String,
    /// `None`: as its queue says.
    pub(crate) delay_s: Option<u64>,
    /// As they are stored.
    pub(crate) attributes: Vec<Attr>,
    pub(crate) group: Option<String>,
    pub(crate) dedup: Option<String>,
    /// Bytes of body and attributes.
    pub(crate) bytes: u64,
    /// The sums of its attributes.
    pub(crate) told: Sent,
}

/// A message is longer than it may be.
pub(crate) fn too_long(max: u64, in_batch: bool) -> Fault {
    let begin = match in_batch {
        true => "One or more parameters cannot be validated.",
        false => "One or more parameters are invalid.",
    };
    Fault::parameter(format!(
        "{begin} Reason: Message must be shorter than {max} bytes."
    ))
}

/// Reply to a sender beside the message itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Way<'a> {
    /// Its queue is ordered.
    pub(crate) fifo: bool,
    pub(crate) in_batch: bool,
    /// The header `X-Amzn-Trace-Id`.
    pub(crate) trace: Option<&'a str>,
}

/// Looks at a message.
///
/// # Errors
/// It cannot be put.
pub(crate) fn check<Url, Id>(
    entry: NewMessage<Url, Id>,
    way: Way<'_>,
    limits: Limits,
) -> Result<CheckedMessage, Fault> {
    let body = entry.message_body.unwrap_or_default();
    if body.is_empty() {
        return Err(Fault::missing("MessageBody"));
    }
    check_text(&body)?;
    let delay_s = within(
        &entry.delay_seconds,
        "DelaySeconds",
        (0, limits.of(DELAY_MAX, i64::MAX / 1000)),
        "DelaySeconds must be >= 0 and <= 900.",
    )?;
    if let Some(delay @ 1..) = delay_s.filter(|_| way.fifo) {
        let why = "The request include parameter that is not valid for this queue type.";
        return Err(Fault::value(delay, "DelaySeconds", why));
    }
    let delay_s = delay_s.filter(|_| !way.fifo);
    for (id, parameter) in [
        (&entry.message_group_id, "MessageGroupId"),
        (&entry.message_deduplication_id, "MessageDeduplicationId"),
    ] {
        if let Some(id) = id {
            check_id(id, parameter)?;
        }
    }
    let mut sent = CheckedMessage {
        bytes: body.len() as u64,
        body,
        delay_s,
        group: entry.message_group_id,
        dedup: entry.message_deduplication_id,
        ..CheckedMessage::default()
    };
    of_user(&entry.message_attributes, &mut sent)?;
    of_system(entry.message_system_attributes, way.trace, &mut sent)?;
    if let Some(dedup) = &sent.dedup {
        let stored = (DEDUP.into(), dedup.as_bytes().into());
        sent.attributes.push(stored);
    }
    match sent.bytes > limits.message_bytes_max {
        true => Err(too_long(limits.message_bytes_max, way.in_batch)),
        false => Ok(sent),
    }
}

fn of_user(supplied: &Named<Attribute>, sent: &mut CheckedMessage) -> Result<(), Fault> {
    if supplied.count > ATTRIBUTES_MAX {
        return Err(Fault::parameter(format!(
            "Number of message attributes [{}] exceeds the allowed maximum [{ATTRIBUTES_MAX}].",
            supplied.count
        )));
    }
    let mut values = Vec::with_capacity(supplied.kept.len());
    for (name, attribute) in &supplied.kept {
        if !is_name(name) {
            return Err(Fault::parameter(format!(
                "The message attribute name '{name}' is invalid. Attribute name can contain A-Z, \
                 a-z, 0-9, underscore (_), hyphen (-), and period (.) characters."
            )));
        }
        let value = value(name, attribute, "user")?;
        sent.bytes += (name.len() + value.data_type.len() + value.bytes.len()) as u64;
        let stored = [STORED, name.as_bytes()].concat().into();
        sent.attributes.push((stored, value.stored()));
        values.push((name.as_str(), value));
    }
    sent.told.md5_of_attributes = digest::of_attributes(values);
    Ok(())
}

fn of_system(
    supplied: Named<Attribute>,
    header: Option<&str>,
    sent: &mut CheckedMessage,
) -> Result<(), Fault> {
    for (name, attribute) in &supplied.kept {
        if name != TRACE_NAME || attribute.data_type.as_deref() != Some("String") {
            return Err(Fault::parameter(format!(
                "Message system attribute name '{name}' is invalid."
            )));
        }
        let value = value(name, attribute, "system")?;
        sent.told.md5_of_system = digest::of_attributes([(name.as_str(), value)]);
        sent.attributes.push((TRACE.into(), value.bytes.into()));
    }
    if let Some(header) = header.filter(|_| supplied.kept.is_empty()) {
        let stored = (TRACE.into(), header.as_bytes().into());
        sent.attributes.push(stored);
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    (1..=NAME_MAX).contains(&name.chars().count())
        && !names::begins(name, "aws.")
        && !names::begins(name, "amazon.")
        && !name.starts_with('.')
        && !name.ends_with('.')
        && !name.contains("..")
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

fn value<'a>(name: &str, supplied: &'a Attribute, whose: &str) -> Result<Value<'a>, Fault> {
    if supplied.string_list_values.count > 0 || supplied.binary_list_values.count > 0 {
        let why = "Message attribute list values in SendMessage operation are not supported.";
        return Err(Fault::new(Shape::UnsupportedOperation, why));
    }
    let data_type = supplied.data_type.as_deref().unwrap_or_default();
    let kind = kind_of(data_type).filter(|_| data_type.len() <= NAME_MAX && is_text(data_type));
    let Some(kind) = kind else {
        return Err(Fault::parameter(format!(
            "The message attribute '{name}' has an invalid message attribute type, the set of \
             supported type prefixes is Binary, Number, and String."
        )));
    };
    let empty = |kind: &str| {
        Fault::parameter(format!(
            "Message ({whose}) attribute '{name}' must contain a non-empty value of type '{kind}'."
        ))
    };
    let text = supplied
        .string_value
        .as_deref()
        .filter(|text| !text.is_empty());
    let blob = supplied
        .binary_value
        .as_ref()
        .filter(|blob| !blob.0.is_empty());
    let bytes = match (kind, text, blob) {
        (ValueKind::Binary, None, Some(blob)) => &blob.0[..],
        (ValueKind::String | ValueKind::Number, Some(text), None) => text.as_bytes(),
        (ValueKind::Binary, ..) => return Err(empty("Binary")),
        (ValueKind::String | ValueKind::Number, ..) => return Err(empty("String")),
    };
    if let Some(text) = text {
        if let Err(fault) = check_text(text) {
            return Err(Fault::parameter(fault.text));
        }
        if kind == ValueKind::Number && !is_number(text) {
            return Err(Fault::parameter(format!(
                "Can't cast the value of message ({whose}) attribute '{name}' to a number."
            )));
        }
    }
    Ok(Value { data_type, bytes })
}

/// True for a decimal number of 38 digits at most, between -10^128 and 10^126.
fn is_number(text: &str) -> bool {
    let (negative, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (digits, exponent) = match text.split_once(['e', 'E']) {
        Some((digits, exponent)) => match exponent.parse::<i32>() {
            Ok(exponent) => (digits, i64::from(exponent)),
            Err(_) => return false,
        },
        None => (text, 0),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && part.is_empty()) || !all_digits(whole) || !all_digits(part) {
        return false;
    }
    let written = [whole, part].concat();
    let from_first = written.trim_start_matches('0');
    let counted = from_first.trim_end_matches('0');
    if counted.is_empty() {
        return true;
    }
    // 10^top <= number < 10^(top + 1)
    let zeros = (written.len() - from_first.len()) as i64;
    let top = whole.len() as i64 - zeros - 1 + exponent;
    let most = if negative { 128 } else { 126 };
    counted.len() <= DIGITS_MAX && (top < most || (top == most && counted == "1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        open: false,
        message_bytes_max: 1 << 20,
    };

    fn entry(json: serde_json::Value) -> crate::input::SendEntry {
        serde_json::from_value(json).expect("an entry")
    }

    fn checked(json: serde_json::Value) -> Result<CheckedMessage, Fault> {
        check(entry(json), Way::default(), LIMITS)
    }

    fn text_of(json: serde_json::Value) -> String {
        checked(json).expect_err("refused").text.into_owned()
    }

    /// Case 22.
    #[test]
    fn bodies_have_the_characters_of_xml() {
        let shape =
            |body: &str| checked(serde_json::json!({"MessageBody": body})).map_err(|f| f.shape);
        assert_eq!(shape(""), Err(Shape::MissingParameter));
        for odd in ["\0", "\u{fffe}", "\u{ffff}", "a\u{1}", "\u{b}"] {
            assert_eq!(shape(odd), Err(Shape::InvalidMessageContents), "{odd:?}");
        }
        for good in [
            "\t\n\r ",
            "\u{1f600}",
            "\u{7f}",
            "\u{d7ff}",
            "\u{e000}",
            "\u{fffd}",
            "\u{10ffff}",
            "ï",
        ] {
            assert!(shape(good).is_ok(), "{good:?}");
        }
    }

    /// Cases 18, 21 and 24.
    #[test]
    fn attributes_are_checked_and_summed() {
        let sent = checked(
            serde_json::json!({"MessageBody": "x", "MessageAttributes": {
            "Name": {"DataType": "String", "StringValue": "hé"},
            "bin": {"DataType": "Binary", "BinaryValue": "AP8="},
            "n": {"DataType": "Number.int", "StringValue": "42"},
        }, "MessageSystemAttributes": {"AWSTraceHeader": {"DataType": "String",
            "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"}}}),
        );
        let sent = sent.expect("good");
        assert_eq!(
            sent.told.md5_of_attributes.as_deref(),
            Some("80fa93021d530b96009893fafddaf3b5")
        );
        assert_eq!(
            sent.told.md5_of_system.as_deref(),
            Some("5ae4d5d7636402d80f4eb6d213245a88")
        );
        assert_eq!(sent.bytes, 1 + 4 + 6 + 3 + 3 + 6 + 2 + 1 + 10 + 2);
        let (name, stored) = &sent.attributes[1];
        assert_eq!(&**name, b"m:bin");
        let value = Value::of_stored(stored).expect("stored");
        assert_eq!(
            (value.data_type, value.bytes),
            ("Binary", [0, 0xff].as_slice())
        );

        let with = |name: &str, value: serde_json::Value| serde_json::json!({"MessageBody": "x", "MessageAttributes": {name: value}});
        let string = |text: &str| serde_json::json!({"DataType": "String", "StringValue": text});
        assert_eq!(
            text_of(with("x", string(""))),
            "Message (user) attribute 'x' must contain a non-empty value of type 'String'."
        );
        for name in ["aws.x", "AWS.x", "Amazon.x", ".x", "x.", "x..y", "", "x y"] {
            assert!(text_of(with(name, string("v"))).contains("name"), "{name}");
        }
        let odd = serde_json::json!({"DataType": "Foo", "StringValue": "v"});
        assert!(text_of(with("x", odd)).contains("supported type prefixes"));
        let list = serde_json::json!({"DataType": "String", "StringListValues": ["a"]});
        let fault = checked(with("x", list)).expect_err("refused");
        assert_eq!(fault.shape, Shape::UnsupportedOperation);
        let many: serde_json::Map<String, serde_json::Value> =
            (0..11).map(|n| (n.to_string(), string("v"))).collect();
        assert_eq!(
            text_of(serde_json::json!({"MessageBody": "x", "MessageAttributes": many})),
            "Number of message attributes [11] exceeds the allowed maximum [10]."
        );
    }

    /// Case 23.
    #[test]
    fn attributes_count_in_the_size() {
        let body = "a".repeat(1 << 20);
        assert!(checked(serde_json::json!({"MessageBody": body})).is_ok());
        let longer = format!("{body}a");
        assert_eq!(
            text_of(serde_json::json!({"MessageBody": longer})),
            "One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes."
        );
        let with = serde_json::json!({"MessageBody": body, "MessageAttributes": {
            "a": {"DataType": "String", "StringValue": "b"}}});
        assert!(text_of(with).ends_with("shorter than 1048576 bytes."));
    }

    #[test]
    fn numbers_are_decimal_and_bounded() {
        let nines = "9".repeat(38);
        for good in [
            "0",
            "-0.00",
            "1",
            "+1",
            "1.5",
            ".5",
            "5.",
            "1e126",
            "-1e128",
            "9e125",
            &nines,
            "0.00000000000000000000000000000000000000000000000000001",
            "1E-400",
            "10e125",
        ] {
            assert!(is_number(good), "{good}");
        }
        for odd in [
            "",
            ".",
            "-",
            "x",
            "1e",
            "1e127",
            "2e126",
            "-1.1e128",
            "0x1",
            "1 ",
            "NaN",
            "inf",
            &format!("{nines}9"),
            "1e99999999999",
            "--1",
        ] {
            assert!(!is_number(odd), "{odd}");
        }
    }

    /// Cases 25, 29 and 49.
    #[test]
    fn delays_have_bounds_and_fifo_queues_have_none() {
        let delayed =
            |seconds: i64| serde_json::json!({"MessageBody": "x", "DelaySeconds": seconds});
        assert_eq!(checked(delayed(900)).expect("good").delay_s, Some(900));
        assert_eq!(
            text_of(delayed(901)),
            "Value 901 for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= 900."
        );
        assert!(checked(delayed(-1)).is_err());
        let fifo = Way {
            fifo: true,
            ..Way::default()
        };
        let of = |seconds| check(entry(delayed(seconds)), fifo, LIMITS);
        assert_eq!(of(0).expect("good").delay_s, None);
        let refused = of(2).expect_err("refused").text;
        assert!(
            refused.ends_with("not valid for this queue type."),
            "{refused}"
        );
        let open = Limits {
            open: true,
            ..LIMITS
        };
        let long = check(entry(delayed(1_000_000)), Way::default(), open).expect("good");
        assert_eq!(long.delay_s, Some(1_000_000));
    }

    #[test]
    fn ids_are_printable_and_short() {
        for good in ["a", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", &"x".repeat(128)] {
            assert!(check_id(good, "MessageGroupId").is_ok(), "{good}");
        }
        for odd in ["", " ", "é", "a b", &"x".repeat(129)] {
            assert!(check_id(odd, "MessageGroupId").is_err(), "{odd}");
        }
    }

    #[test]
    fn a_trace_header_of_http_counts_if_no_attribute_does() {
        let way = Way {
            trace: Some("Root=1"),
            ..Way::default()
        };
        let sent =
            check(entry(serde_json::json!({"MessageBody": "x"})), way, LIMITS).expect("good");
        assert_eq!(
            sent.attributes,
            [(TRACE.into(), b"Root=1".as_slice().into())]
        );
        assert_eq!(sent.told.md5_of_system, None);
        let odd = serde_json::json!({"MessageBody": "x", "MessageSystemAttributes":
            {"Other": {"DataType": "String", "StringValue": "v"}}});
        assert!(checked(odd).is_err());
    }
}
