//! The lineup protocol: `PUSH` and `POP` on one priority queue per listener, with
//! replies in the manner of redis. What it maps to and where it differs from
//! the original is in `docs/protocols/lineup.md`.

mod reply;
mod request;
mod session;

use quintet_types::Name;

use crate::protocol::{Listener, OptionSpec, Options, Protocol, Value, sharing};

/// The protocol's registration.
pub(crate) const PROTOCOL: Protocol = Protocol {
    name: "lineup",
    port: 9876,
    about: "lineup: PUSH and POP on one priority queue per listener",
    options: OPTIONS,
    tally_names: TALLY_NAMES,
    listener,
};

const OPTIONS: &[OptionSpec] = crate::options! {
    "queue" Text("default")
        "the queue this listener serves, 1 to 1024 bytes; several listeners may serve different \
         ones";
    "max_line" Bytes(1024)
        "longest command line with its end, 64 bytes to 64KiB; a longer one is skipped and \
         answered with LINE_TOO_LONG";
    "max_message_size" Bytes(64 << 20)
        "longest message, 1 byte to 4GiB; a longer one is answered with MESSAGE_TOO_LARGE, and up \
         to 16 times as much is read and dropped before the connection is closed";
};

crate::tally::counters! {
    Push "cmd_push",
    Pop "cmd_pop",
    Hit "pop_hits",
    Miss "pop_misses",
    Ping "cmd_ping",
    Fault "protocol_errors",
}

/// State that one listener's sessions share.
#[derive(Debug)]
pub(crate) struct Shared {
    queue: Name,
    line_max: usize,
    message_max: u64,
}

fn listener(options: &Options) -> Result<Box<dyn Listener>, String> {
    let queue = options.text("queue");
    if queue.is_empty() || queue.len() > 1024 {
        return Err("queue takes a name of 1 to 1024 bytes".to_owned());
    }
    let shared = Shared {
        queue: Name::from(queue),
        line_max: options.within("max_line", 64, 64 << 10)?,
        message_max: options.within("max_message_size", 1, 4 << 30)?,
    };
    Ok(sharing(shared, session::LineupSession::new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked() {
        let long = "q".repeat(1025);
        for (name, value, good) in [
            ("queue", Value::Text(""), false),
            ("queue", Value::Text(&long[1..]), true),
            ("queue", Value::Text(&long), false),
            ("max_line", Value::Bytes(63), false),
            ("max_line", Value::Bytes(64), true),
            ("max_line", Value::Bytes(64 << 10), true),
            ("max_line", Value::Bytes((64 << 10) + 1), false),
            ("max_message_size", Value::Bytes(0), false),
            ("max_message_size", Value::Bytes(4 << 30), true),
            ("max_message_size", Value::Bytes((4 << 30) + 1), false),
        ] {
            let mut options = Options::new(OPTIONS);
            options.set(name, value).expect("an option");
            let why = listener(&options).err();
            assert_eq!(why.is_none(), good, "{value:?}: {why:?}");
            assert!(why.is_none_or(|why| why.starts_with(name)), "{value:?}");
        }
    }
}
