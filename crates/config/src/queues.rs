//! The settings of queues: `[defaults]` and `[[queue]]`.

use quintet_types::{
    DeadLetter, Groups, Name, OnRepeat, Overrides, QueueSettings, Rate, RetryOn, Scope,
    TAGS_BYTES_MAX, Tags, WhenFull,
};

use super::schema::{bytes, duration, flag, number, quoted, range, takes, text, word};
use super::units::{parse_duration_ms, parse_rate, show_bytes, show_duration, show_rate};

/// A row each: the key, the values that it takes, and whether a value is one of them.
macro_rules! script_keys {
    (|$value:ident| $($key:literal $takes:literal $fits:expr;)*) => {
        /// The keys a `[[queue]]` has for its script, as RQ's.
        pub(crate) const SCRIPT_KEYS: &[&str] = &[$($key),*];

        /// The values that such a key takes, if this value is not one of them.
        pub(crate) fn script_takes(key: &str, $value: &toml::Value) -> Option<&'static str> {
            match key {
                $($key if $fits => None,)*
                $($key => Some($takes),)*
                _ => None,
            }
        }
    };
}

script_keys! { |value|
    "script" "takes a path, in quotes"
        value.as_str().is_some_and(|path| !path.is_empty());
    "num_workers" "takes a whole number, 1 to 4294967295" is_count(value);
    "exec_prefix" "takes text, in quotes" value.is_str();
    "env_vars" "takes names with texts, such as { A = \"1\" }" value.is_table();
    "coalesce_params" "takes a list of numbers, such as [1, 2]" value.is_array();
    "blocking_params" "takes a list of numbers, such as [1, 2]" value.is_array();
    "schedule" "takes a list such as [{ cron = \"*/5 * * * *\" }]"
        value.as_array().is_some_and(|all| all.iter().all(toml::Value::is_table));
    "strict_exit" "takes true or false"
        value.is_bool() || matches!(value.as_str(), Some("true" | "false"));
}

/// RQ's numbers may be texts, also empty ones.
fn is_count(value: &toml::Value) -> bool {
    let text = value.as_str();
    let number = value.as_integer().or_else(|| text?.parse().ok());
    number.is_some_and(|n| n > 0 && u32::try_from(n).is_ok()) || text == Some("")
}

/// The prefix of tags that say who set a setting and when.
pub(crate) const SET_BY: &[u8] = b"quintet:set:";

/// One setting of a queue.
pub(crate) struct QueueSpec {
    pub key: &'static str,
    /// Its bit ([`Overrides::bit`]), of this field.
    pub(crate) field: &'static str,
    /// Effect, with unit and range.
    pub help: &'static str,
    pub(crate) set: fn(&mut Overrides, &toml::Value) -> Result<(), String>,
    pub(crate) show: fn(&QueueSettings) -> String,
    /// True if it is among these.
    pub(crate) among: fn(&Overrides) -> bool,
}

fn name_of(value: &toml::Value) -> Result<Name, String> {
    let name = Name::from(text(value)?);
    match name.is_empty() || name.is_possible() {
        true => Ok(name),
        false => Err("this is not the name of a queue".to_owned()),
    }
}

fn size(bytes: u64) -> String {
    quoted(&show_bytes(bytes))
}

fn time(ms: u64) -> String {
    quoted(&show_duration(ms))
}

fn plain(value: impl ToString) -> String {
    value.to_string()
}

/// A row each: the field, its key unless that is the field's name, how a value is read and shown,
/// and the effect; last a row without a field.
macro_rules! rows {
    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident $key:literal) => { $key };
    ($($field:ident $(= $key:literal)? ($read:expr, $show:expr) $help:literal;)* + $last:expr) => {
        &[
            $(QueueSpec {
                key: rows!(@key $field $($key)?),
                field: stringify!($field),
                help: $help,
                set: |overrides, value| {
                    overrides.$field = $read(value)?.into();
                    Ok(())
                },
                show: |settings| $show(settings.$field.clone()),
                among: |overrides| overrides.$field.is_some(),
            },)*
            $last,
        ]
    };
}

/// Every setting of a queue, in the order they are shown.
pub(crate) const QUEUE_SETTINGS: &[QueueSpec] = rows! {
    default_priority (|v| between(v, 0, u32::MAX), plain)
        "Priority of messages put without one; 0 is the most urgent.";
    default_ttr_ms = "default_ttr" (duration, time)
        "Lease time if neither message nor command gives one. \"1ms\": the lease ends in the step \
         that gives it.";
    default_delay_ms = "default_delay" (duration, time)
        "Delay of messages put without one.";
    messages_max (number, plain)
        "Most waiting messages; 0: no limit.";
    bytes_max (bytes, size)
        "Most bytes of waiting messages: bodies, headers, keys, names and reasons; 0: no limit.";
    message_bytes_max (bytes, size)
        "Most bytes of one body.";
    attempts_max (|v| between(v, 0, u32::MAX), plain)
        "Leases without a finish after which a message is a dead letter; 1: a single try; 0: no \
         limit.";
    dead_letter (dead_letter_of, show_dead_letter)
        "Queue for messages with too many attempts or failures; empty: they are buried where they \
         are.";
    ttl_ms = "ttl" (duration, time)
        "Time to live of messages put without one, and of dead letters from their arrival; 0: for \
         ever.";
    ttl_max_ms = "ttl_max" (duration, time)
        "Upper bound of any time to live; 0: none.";
    expire_to (expire_to_of, show_expire_to)
        "Queue for expired messages; empty: they vanish. A message that expires in its own \
         `expire_to` queue vanishes too. A `[[queue]]` table with its own name here is an error.";
    when_full (when_full_of, |v: WhenFull| quoted(v.word()))
        "Effect of a put to a full queue: \"refuse\", or \"drop_oldest\" of the least urgent \
         priority.";
    dedupe_by_key_ms = "dedupe_by_key" (duration, time)
        "A put whose key was put within this time fails; 0: off.";
    retention_ms = "retention" (duration, time)
        "How long archived (done, relayed) messages stay.";
    buried_ttl_ms = "buried_ttl" (duration, time)
        "How long messages that are buried from now on stay; then they are gone, without a hook or \
         `expire_to`. A message may have its own time; 0: no end.";
    idle_ms = "idle" (duration, time)
        "A queue created by use is dropped after this time without messages, waits, own settings, \
         a pause, fan-out and deduplication records; 0: never. A queue that a [[queue]] table \
         names exactly stays, unless that table sets this.";
    paused (flag, plain)
        "Takes are not served.";
    down (flag, plain)
        "Puts and takes are rejected.";
    memory (flag, plain)
        "Not logged: fast, and gone at restart. Counts for queues created after the change.";
    fanout_only (flag, plain)
        "Puts go only to the queue's fan-out children.";
    in_flight_max (number, plain)
        "Most messages under a lease; further takes wait in line, as for an empty queue. A lease \
         by id is not limited, and messages that leave together are not parted; 0: no limit.";
    take_rate (rate, |v: Rate| quoted(&show_rate(v)))
        "Most messages delivered, such as \"100/s\", \"5/m\" or \"1000/h\"; further takes wait in \
         line. A restart resets it; \"0\": no limit.";
    take_burst (|v| between(v, 1, u32::MAX), plain)
        "How many of them may go at once after a rest; at least 1.";
    aging (steps_of, |v: Rate| quoted(&show_steps(v)))
        "How much the priority of a message rises while it waits, such as \"1 per 10m\", up to one \
         step per second; \"0\": not at all. A change counts from the next message that comes.";
    groups (groups_of, |v: Groups| quoted(v.word()))
        "Effect of keys on takes: \"none\"; \"ordered\": a message waits while an earlier one of \
         its key is reserved or delayed; \"fair\": keys with many leased messages go after others.";
    key_in_flight_max (number, plain)
        "Most messages of one key under a lease; takes skip the others. Exceptions as for \
         `in_flight_max`; 0: no limit.";
    key_take_rate (rate, |v: Rate| quoted(&show_rate(v)))
        "Most messages of one key delivered, written as `take_rate`; takes skip the others. A \
         restart or a flush resets it; \"0\": no limit.";
    key_take_burst (|v| between(v, 1, u32::MAX), plain)
        "How many of one key may go at once after a rest; at least 1.";
    retry_delay_ms = "retry_delay" (duration, time)
        "Delay of a message after its first failure; 0: none.";
    retry_factor (|v| between(v, 1, 1000), plain)
        "Factor from each delay to the next, 1 to 1000.";
    retry_delay_max_ms = "retry_delay_max" (duration, time)
        "Longest delay, without jitter.";
    retry_jitter (|v| between(v, 0, 100), plain)
        "Random addition to each delay, 0 to 100 percent of it.";
    retry_max (|v| between(v, 0, u32::MAX), plain)
        "Failures after which a message is tried again; after the next one it goes where \
         `dead_letter` says. `attempts_max` counts leases beside it: the first limit reached \
         counts. 0: no limit.";
    retry_on (retry_on_of, shown_causes)
        "Failures besides the report of the consumer: \"release\" without a delay of its own, \
         \"timeout\" of the lease, \"lost\" connection or process. A queue that sets `retry_delay` \
         or `retry_max` has all by default.";
    unique_by_body (flag, plain)
        "A put without a deduplication id gets the hash of its body; a body over 64 KiB gets none.";
    unique_for_ms = "unique_for" (duration, time)
        "How long a deduplication id is remembered, unless its put says; 0: until the end in \
         `unique_until`.";
    unique_until (scope_of, |v: Scope| quoted(v.word()))
        "Earlier end of the id, unless the put says: its message \"started\" (first take), is \
         \"done\" (gone, archived or buried), no longer \"waiting\" (the id counts again when the \
         message is given back); \"time\": only `unique_for` counts.";
    unique_repeat (repeat_of, |v: OnRepeat| quoted(v.word()))
        "Effect of a put with a remembered id, unless the put says: \"refuse\"; \"first\": stores \
         nothing and gets the reply of the first; \"replace\": replaces the first, and fails if \
         the first no longer waits.";
    tags (tags_of, shown_tags)
        "Named values of the queue for operators, such as { team = \"mail\" }.";
    + QueueSpec {
        key: "locked",
        field: "",
        help: "Settings that nobody may change over the API, the console or a protocol, such as \
               [\"take_rate\", \"paused\"]; earlier changes of them have no effect. A rule adds \
               to the locks of wider rules.",
        set: |overrides, value| {
            overrides.locked = locked_of(value)?;
            Ok(())
        },
        show: |settings| {
            let locked = QUEUE_SETTINGS
                .iter()
                .filter(|spec| spec.is_in(settings.locked));
            let locked: Vec<String> = locked.map(|spec| quoted(spec.key)).collect();
            format!("[{}]", locked.join(", "))
        },
        among: |overrides| overrides.locked != 0,
    }
};

impl QueueSpec {
    /// True if its bit is among these.
    pub(crate) fn is_in(&self, bits: u64) -> bool {
        Overrides::bit(self.field) & bits != 0
    }
}

fn locked_of(value: &toml::Value) -> Result<u64, String> {
    let wrong = || takes("a list of settings, such as [\"take_rate\"]", value);
    let mut locked = 0;
    for key in value.as_array().ok_or_else(wrong)? {
        let key = key.as_str().ok_or_else(wrong)?;
        let mut specs = QUEUE_SETTINGS.iter().filter(|spec| !spec.field.is_empty());
        let spec = specs.find(|spec| spec.key == key);
        let spec =
            spec.ok_or_else(|| format!("has no setting of a queue: \"{}\"", key.escape_default()))?;
        locked |= Overrides::bit(spec.field);
    }
    Ok(locked)
}

/// The empty name is how a rule takes back what a wider one set.
fn expire_to_of(value: &toml::Value) -> Result<Option<Name>, String> {
    Ok(Some(name_of(value)?).filter(|name| !name.is_empty()))
}

fn show_expire_to(name: Option<Name>) -> String {
    quoted(&name.as_ref().map(Name::to_string).unwrap_or_default())
}

fn show_dead_letter(to: DeadLetter) -> String {
    match to {
        DeadLetter::Bury => quoted(""),
        DeadLetter::To(name) => quoted(&name.to_string()),
    }
}

fn groups_of(value: &toml::Value) -> Result<Groups, String> {
    let groups = Groups::of_word(word(value));
    groups.ok_or_else(|| takes("\"none\", \"ordered\" or \"fair\"", value))
}

fn scope_of(value: &toml::Value) -> Result<Scope, String> {
    let scope = Scope::of_word(word(value));
    scope.ok_or_else(|| takes("\"time\", \"waiting\", \"started\" or \"done\"", value))
}

fn repeat_of(value: &toml::Value) -> Result<OnRepeat, String> {
    let repeat = OnRepeat::of_word(word(value));
    repeat.ok_or_else(|| takes("\"refuse\", \"first\" or \"replace\"", value))
}

/// The causes of failures by name.
const CAUSES: [(&str, RetryOn); 3] = [
    ("release", RetryOn::RELEASE),
    ("timeout", RetryOn::TIMEOUT),
    ("lost", RetryOn::LOST),
];

fn retry_on_of(value: &toml::Value) -> Result<RetryOn, String> {
    let wrong = || takes("a list of \"release\", \"timeout\", \"lost\"", value);
    let mut causes = RetryOn::NONE;
    for name in value.as_array().ok_or_else(wrong)? {
        let known = CAUSES
            .iter()
            .find(|(known, _)| name.as_str() == Some(known));
        causes = causes.and(known.ok_or_else(wrong)?.1);
    }
    Ok(causes)
}

fn shown_causes(causes: RetryOn) -> String {
    let named = CAUSES.iter().filter(|(_, cause)| causes.has(*cause));
    let names: Vec<String> = named.map(|(name, _)| quoted(name)).collect();
    format!("[{}]", names.join(", "))
}

fn between(value: &toml::Value, least: u32, most: u32) -> Result<u32, String> {
    let supplied = number(value)
        .ok()
        .and_then(|supplied| u32::try_from(supplied).ok());
    let supplied = supplied.filter(|supplied| (least..=most).contains(supplied));
    supplied.ok_or_else(|| takes(&range(least.into(), most.into()), value))
}

fn rate(value: &toml::Value) -> Result<Rate, String> {
    let rate = match value.as_integer() {
        Some(0) => Some(Rate::default()),
        _ => parse_rate(word(value)),
    };
    let what = "a number per time, such as \"5/s\", \"5/m\" or \"1000/h\", or 0: no limit";
    rate.ok_or_else(|| takes(what, value))
}

/// The fastest aging: the clock of a queue lasts for 136 years.
const STEP_MS_MIN: u64 = 1000;

/// Steps in a time, such as "1 per 10m".
fn steps_of(value: &toml::Value) -> Result<Rate, String> {
    let steps = |text: &str| {
        let (count, time) = text.split_once("per")?;
        let count = count.trim().parse().ok().filter(|&count: &u32| count > 0)?;
        let per_ms = parse_duration_ms(time).ok()?;
        (per_ms / u64::from(count) >= STEP_MS_MIN).then_some(Rate { count, per_ms })
    };
    let rate = match (value.as_integer(), word(value).trim()) {
        (Some(0), _) | (_, "0") => Some(Rate::default()),
        (_, text) => steps(text),
    };
    let what = "steps per time, such as \"1 per 10m\", one per second at most, or 0: no aging";
    rate.ok_or_else(|| takes(what, value))
}

fn show_steps(rate: Rate) -> String {
    match rate.count {
        0 => "0".to_owned(),
        count => format!("{count} per {}", show_duration(rate.per_ms)),
    }
}

fn tags_of(value: &toml::Value) -> Result<Tags, String> {
    let wrong = || takes("names with texts, such as { team = \"mail\" }", value);
    let mut tags = Tags::default();
    for (name, text) in value.as_table().ok_or_else(wrong)? {
        let text = text.as_str().ok_or_else(wrong)?;
        tags.set(name.as_bytes(), Some(text.as_bytes()));
    }
    match tags.bytes() <= TAGS_BYTES_MAX {
        true => Ok(tags),
        false => Err(format!(
            "takes {TAGS_BYTES_MAX} bytes of names and texts at most"
        )),
    }
}

fn shown_tags(tags: Tags) -> String {
    let shown = |text: &[u8]| quoted(&String::from_utf8_lossy(text));
    let tags: Vec<String> = tags
        .iter()
        .filter(|(name, _)| !name.starts_with(SET_BY) && *name != Tags::PAUSED_BY)
        .map(|(name, value)| format!("{} = {}", shown(name), shown(value)))
        .collect();
    match tags.is_empty() {
        true => "{}".to_owned(),
        false => format!("{{ {} }}", tags.join(", ")),
    }
}

fn dead_letter_of(value: &toml::Value) -> Result<DeadLetter, String> {
    let name = name_of(value)?;
    Ok(if name.is_empty() {
        DeadLetter::Bury
    } else {
        DeadLetter::To(name)
    })
}

fn when_full_of(value: &toml::Value) -> Result<WhenFull, String> {
    let mut all = WhenFull::ALL.into_iter();
    let effect = all.find(|effect| effect.word() == word(value));
    effect.ok_or_else(|| takes("\"refuse\" or \"drop_oldest\"", value))
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::super::load::from_text;
    use super::super::schema::{Field, SETTINGS};
    use super::QUEUE_SETTINGS;

    /// Values of which no setting takes all.
    const GIVEN: [&str; 5] = ["-1", "1.5", "'abc'", "5", "[[7]]"];

    fn errors_of(key: &str, table: &str) -> Vec<(&'static str, String)> {
        let tried = GIVEN.iter().map(|supplied| {
            let error = from_text(&format!("{table}{key} = {supplied}")).err();
            error.map(|error| (*supplied, format!("{error:#}")))
        });
        tried.flatten().collect()
    }

    #[test]
    fn errors_of_every_queue_setting_name_its_values() {
        for spec in QUEUE_SETTINGS {
            let refused = errors_of(spec.key, "[defaults]\n");
            assert!(!refused.is_empty(), "{}", spec.key);
            for (supplied, why) in refused {
                let names = why.contains(&format!("in [defaults]: {} ", spec.key));
                let hints = ["such as", "\"", " to ", "true or false", "in quotes"];
                assert!(
                    names && hints.iter().any(|hint| why.contains(hint)),
                    "{why}"
                );
                let shown = supplied.trim_matches('\'');
                assert!(why.contains(shown) || why.ends_with("in quotes"), "{why}");
            }
        }
    }

    #[test]
    fn errors_of_every_number_of_the_server_have_a_range_or_an_example() {
        let mut numbers = 0;
        for spec in SETTINGS {
            let mut config = Config::default();
            let field = (spec.field)(&mut config);
            if !matches!(
                field,
                Field::Number(..) | Field::Bytes(..) | Field::Duration(..)
            ) {
                continue;
            }
            numbers += 1;
            let refused = errors_of(spec.key, "");
            assert!(refused.len() >= 4, "{}: {refused:?}", spec.key);
            for (supplied, why) in refused {
                let hints = ["such as", " to ", "write"];
                let shown = supplied.trim_matches('\'');
                assert!(
                    why.contains(spec.key)
                        && why.contains(shown)
                        && hints.iter().any(|hint| why.contains(hint)),
                    "{why}"
                );
            }
        }
        assert!(numbers > 20, "{numbers}");
    }

    #[test]
    fn a_bare_number_is_no_rate() {
        for key in ["take_rate", "key_take_rate"] {
            let [_, _, _, (_, why), _] = &errors_of(key, "[[queue]]\nname = 'a'\n")[..] else {
                panic!("{key}")
            };
            let what =
                "takes a number per time, such as \"5/s\", \"5/m\" or \"1000/h\", or 0: no limit";
            assert_eq!(why, &format!("line 3: in [[queue]] a: {key} {what}; not 5"));
            assert!(from_text(&format!("[defaults]\n{key} = 0")).is_ok());
        }
    }

    #[test]
    fn an_error_of_a_listener_option_names_its_values() {
        for (listen, says) in [
            (
                "http'\ntimeout = 5",
                "timeout takes text in quotes, such as \"30s\"",
            ),
            (
                "http'\nmax_streams = -5",
                "max_streams takes a whole number, such as ",
            ),
            ("http'\nidle = -5", "idle takes a duration such as"),
            ("http'\ninsecure = 5", "insecure takes true or false; not 5"),
        ] {
            let error = match from_text(&format!("[[listen]]\nprotocol = '{listen}")) {
                Ok(_) => panic!("accepted: {listen}"),
                Err(error) => format!("{error:#}"),
            };
            assert!(error.contains(says), "{error}");
        }
    }
}
