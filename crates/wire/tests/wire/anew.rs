//! Sessions that are as just opened: a new one could go on in their place.

use std::collections::BTreeMap;

use quintet_sim::transcript::{Chunking, Link as _};

use crate::common::Host;
use crate::transcripts::{open, protocol_name, transcripts};

/// Transcripts of foreign protocols, which a connection's first byte shows, and of counts that end
/// with a session.
const TELL_APART: [&str; 4] = [
    "tls.txt",
    "other_protocols.txt",
    "24_stats.txt",
    "24_version.txt",
];

#[test]
fn transcripts_are_answered_alike_where_new_sessions_go_on() {
    let (mut failures, mut renewed) = (Vec::new(), BTreeMap::<String, usize>::new());
    for path in transcripts() {
        if TELL_APART.iter().any(|name| path.ends_with(name)) {
            continue;
        }
        for chunking in [Chunking::Whole, Chunking::Bytes] {
            let (transcript, mut host) = open(&path, 0).expect("a transcript");
            host.renew_sessions();
            if let Err(error) = transcript.run(&mut host, chunking) {
                failures.push(format!("{}: {chunking:?}: {error}", path.display()));
            }
            *renewed.entry(protocol_name(&path).to_owned()).or_default() += host.renewed();
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n\n"));
    for protocol in quintet_wire::PROTOCOLS {
        // Faktory's server speaks first.
        let some = renewed.get(protocol.name).is_some_and(|count| *count > 0);
        assert_eq!(some, protocol.name != "faktory", "{}", protocol.name);
    }
}

#[test]
fn a_session_is_as_opened_unless_its_client_has_set_something_up() {
    for (protocol, sent, expected) in [
        ("beanstalk", "", true),
        (
            "beanstalk",
            "put 5 0 60 1\r\na\r\nstats-tube default\r\n",
            true,
        ),
        ("beanstalk", "put 5 0 60 2\r\na", false),
        ("beanstalk", "use other\r\n", false),
        ("beanstalk", "use other\r\nuse default\r\n", true),
        ("beanstalk", "watch other\r\n", false),
        ("beanstalk", "watch other\r\nignore default\r\n", false),
        ("beanstalk", "watch other\r\nignore other\r\n", true),
        ("beanstalk", "reserve\r\n", false),
        ("memcache", "set q 0 0 1\r\na\r\nget q\r\nget q\r\n", true),
        ("memcache", "set q 0 0 2\r\na", false),
        ("memcache", "get q/t=1000\r\n", false),
        ("pinpriq", "", true),
        ("pinpriq", "A", false),
        ("pinpriq", "s\0\u{1}q", false),
        ("pinpriq", "s\0\u{1}qu\0\u{1}q", true),
        ("faktory", "", false),
    ] {
        let of = quintet_wire::protocol(protocol).expect("a protocol");
        let mut host = Host::new(of, &[], 0).expect("a server");
        host.send(1, sent.as_bytes());
        assert_eq!(host.is_as_opened(1), expected, "{protocol} {sent:?}");
    }
}
