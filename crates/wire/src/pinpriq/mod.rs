//! The pinpriq protocol: push, pop and subscribe on priority queues whose packets
//! leave newest first and in groups of one key. What it maps to is in
//! `docs/protocols/pinpriq.md`.

mod frame;
mod session;

use quintet_types::{End, Expiry, GroupLimit, Take};

use crate::protocol::{OptionSpec, Options, Protocol, Value, sharing};

/// The protocol's registration.
pub(crate) const PROTOCOL: Protocol = Protocol {
    name: "pinpriq",
    port: 7050,
    about: "pinpriq: packets by priority, newest first, in groups of one key",
    options: OPTIONS,
    tally_names: TALLY_NAMES,
    listener: |options| Ok(sharing(Shared::new(options)?, session::PinpriqSession::new)),
};

const OPTIONS: &[OptionSpec] = crate::options! {
    "ttl_zero" Text("never")
        "a time to live of 0: \"never\" keeps the packet until it is taken, \"expire\" offers it \
         to a ready subscriber and drops it within 1 ms";
    "refused_push" Text("drop")
        "a push that the server rejects, without a reply: \"drop\" counts it, \"close\" counts it \
         and closes the connection";
    "max_packet_size" Bytes(2 * LENGTH_MAX)
        "longest packet, key and payload together, 1 byte to 131070; a longer one is read, dropped \
         and counted";
    "max_group_size" Bytes(64 << 20)
        "keys and payloads of one group together, 1 byte to 16GiB; the packets over it stay for \
         the next group, a single packet always leaves";
    "max_subscriptions" Number(1024)
        "queues one connection may subscribe to, 1 to 65535; one more closes it";
    "max_subscribed_bytes" Bytes(1 << 20)
        "names of a connection's subscriptions together, 64KiB to 64MiB; more closes it";
};

/// The largest value of a 16-bit length.
const LENGTH_MAX: u64 = u16::MAX as u64;

crate::tally::counters! {
    Push "cmd_push",
    Dropped "pushes_dropped",
    Pop "cmd_pop",
    Hit "pop_hits",
    Miss "pop_misses",
    Subscribe "cmd_subscribe",
    Unsubscribe "cmd_unsubscribe",
    Ready "cmd_ready",
    Delivered "groups_delivered",
    Fault "protocol_errors",
}

/// State that one listener's sessions share.
#[derive(Debug)]
pub(crate) struct Shared {
    ttl_zero: Expiry,
    close_on_command_error: bool,
    packet_max: usize,
    subscriptions_max: usize,
    subscribed_bytes_max: usize,
    /// A take of this protocol, but for its queues.
    take: Take,
}

impl Shared {
    fn new(options: &Options) -> Result<Self, String> {
        let expire = options.one_of("ttl_zero", ["never", "expire"])? == "expire";
        let group = GroupLimit {
            // The group's count is 16 bits wide.
            messages_max: u32::from(u16::MAX),
            bytes_max: options.within("max_group_size", 1, 16 << 30)?,
        };
        Ok(Self {
            // Those who wait are served in the step that stores the packet, so
            // one millisecond is long enough for them.
            ttl_zero: if expire { Expiry::In(1) } else { Expiry::Never },
            close_on_command_error: options.one_of("refused_push", ["drop", "close"])? == "close",
            packet_max: options.within("max_packet_size", 1, 2 * LENGTH_MAX)?,
            subscriptions_max: options.within("max_subscriptions", 1, 65_535)?,
            subscribed_bytes_max: options.within("max_subscribed_bytes", 64 << 10, 64 << 20)?,
            take: Take {
                end: End::Newest,
                group: Some(group),
                body_max: Some(LENGTH_MAX),
                ..Take::default()
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked() {
        let refused = |name, value| {
            let mut options = Options::new(OPTIONS);
            options.set(name, value).unwrap();
            Shared::new(&options).unwrap_err()
        };
        assert_eq!(
            refused("ttl_zero", Value::Text("now")),
            "ttl_zero takes \"never\" or \"expire\", not \"now\""
        );
        assert_eq!(
            refused("max_packet_size", Value::Bytes(131_071)),
            "max_packet_size takes 1 to 131070, not 131071"
        );
        assert_eq!(
            refused("max_subscriptions", Value::Number(0)),
            "max_subscriptions takes 1 to 65535, not 0"
        );
        Shared::new(&Options::new(OPTIONS)).unwrap();
    }
}
