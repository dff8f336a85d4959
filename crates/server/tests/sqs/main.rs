//! The numbered conformance cases of the protocol `sqs`, over sockets: each with one shard and with
//! four.

#[path = "../common/mod.rs"]
mod common;

mod attributes;
mod cancelled;
mod client;
mod edges;
mod faults;
mod fifo;
mod letters;
mod many;
mod receiving;
mod requests;
mod sending;
mod trusted;

/// Cases, each a function that gets a fresh server.
macro_rules! cases {
    ($($name:ident($sqs:ident) $body:block)*) => {
        $(
            #[test]
            fn $name() {
                for shards in [1, 4] {
                    let $sqs = &crate::client::Sqs::start(shards, "");
                    $body
                }
            }
        )*
    };
}
pub(crate) use cases;
