//! The memcache protocol: the memcached protocols as Darner and Kestrel bend the
//! first of them into queues. What it maps to what, and where it differs from the
//! originals, is in `docs/protocols/memcache.md`.

mod about;
mod answer;
mod answer_binary;
mod binary;
mod binary_reply;
mod line;
mod login;
mod meta;
mod meta_reply;
mod opcode;
mod reply;
mod request;
mod session;
mod stats;

use std::sync::atomic::{AtomicU8, Ordering};

use quintet_types::{BackTo, LeaseOwner, LeaseRequest, LeaseTime};

use crate::protocol::{OptionSpec, Options, Protocol, Value, sharing};

/// The protocol's registration.
pub(crate) const PROTOCOL: Protocol = Protocol {
    name: "memcache",
    port: 22133,
    about: "Darner and Kestrel: queues over memcached's protocols",
    options: OPTIONS,
    tally_names: TALLY_NAMES,
    listener: |options| {
        let shared = Shared::new(options)?;
        Ok(sharing(shared, session::MemcacheSession::new))
    },
};

const OPTIONS: &[OptionSpec] = crate::options! {
    "max_line" Bytes(2048)
        "longest command line with its end, 64 bytes to 64KiB; a longer one closes the connection";
    "max_name" Number(250)
        "longest queue name, 1 to 4096 bytes";
    "max_item_size" Bytes(64 << 20)
        "longest item, 1 byte to 4GiB; a longer one is read, dropped and answered with NOT_STORED";
    "max_open_reads" Number(1)
        "open reads of one connection in one queue, 1 to 1000000";
    "single_open_read" Bool(false)
        "Darner's rule: one open read per connection over all queues, closed or aborted under any \
         name";
    "flags" Text("store")
        "\"store\" keeps the flags of a set and returns them, \"zero\" always returns 0 as Darner \
         and Kestrel do";
    "flush_all_reply" Text("ok")
        "\"ok\" answers flush_all with \"OK\" as memcached does, \"kestrel\" with \"Flushed all \
         queues.\"";
    "version" Text(concat!("1.0.0-quintet-", env!("CARGO_PKG_VERSION")))
        "version in the version command and statistics, printable and without spaces; libmemcached \
         wants a leading number other than 0";
};

crate::tally::counters! {
    Get "cmd_get",
    Set "cmd_set",
    Peek "cmd_peek",
    Hit "get_hits",
    Miss "get_misses",
    Settle "cmd_settle",
    Remove "cmd_remove",
    Other "cmd_other",
    Fault "protocol_errors",
}

/// State that one listener's sessions share.
#[derive(Debug)]
pub(crate) struct Shared {
    line_max: usize,
    name_max: usize,
    item_max: u64,
    open_reads_max: u32,
    single_open_read: bool,
    keep_flags: bool,
    flush_all_ok: bool,
    version: Box<str>,
    status: AtomicU8,
}

quintet_types::named! {
    /// Kestrel's server states, set by the `status` command for the listener it
    /// came in on. They end with the process.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) enum Status, word {
        /// Everything is served.
        Up = "up",
        /// No new items, nothing flushed or deleted.
        ReadOnly = "readonly",
        /// Nothing is fetched either; open reads can still be settled.
        Quiescent = "quiescent",
    }
}

impl Shared {
    fn new(options: &Options) -> Result<Self, String> {
        Ok(Self {
            line_max: options.within("max_line", 64, 64 << 10)?,
            name_max: options.within("max_name", 1, 4096)?,
            item_max: options.within("max_item_size", 1, 4 << 30)?,
            open_reads_max: options.within("max_open_reads", 1, 1_000_000)?,
            single_open_read: options.flag("single_open_read"),
            keep_flags: options.one_of("flags", ["store", "zero"])? == "store",
            flush_all_ok: options.one_of("flush_all_reply", ["kestrel", "ok"])? == "ok",
            version: options.word("version", "")?.into(),
            status: AtomicU8::new(Status::Up as u8),
        })
    }

    /// A lease that ends with the connection; its message goes back to the head of the queue.
    fn open_read(&self) -> LeaseRequest {
        LeaseRequest {
            owner: LeaseOwner::Connection,
            time: LeaseTime::OwnTtr,
            back_to: BackTo::Head,
            held_max: if self.single_open_read {
                1
            } else {
                self.open_reads_max
            },
        }
    }

    fn status(&self) -> Status {
        match self.status.load(Ordering::Relaxed) {
            1 => Status::ReadOnly,
            2 => Status::Quiescent,
            _ => Status::Up,
        }
    }

    fn set_status(&self, status: Status) {
        self.status.store(status as u8, Ordering::Relaxed);
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
            refused("max_line", Value::Bytes(10)),
            "max_line takes 64 to 65536, not 10"
        );
        assert_eq!(
            refused("flags", Value::Text("keep")),
            "flags takes \"store\" or \"zero\", not \"keep\""
        );
        assert_eq!(
            refused("max_open_reads", Value::Number(0)),
            "max_open_reads takes 1 to 1000000, not 0"
        );
        assert_eq!(
            refused("version", Value::Text("1 2")),
            "version takes printable ASCII without spaces"
        );
        Shared::new(&Options::new(OPTIONS)).unwrap();
    }
}
