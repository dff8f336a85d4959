use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use quintet_control::{Standing, Text};

use super::*;

type Messages = Vec<(Head, Vec<u8>)>;

/// Written by another program after `docs/export-format.md`: each field, each state, several
/// queues, and a large body in three pieces.
const BINARY: &[u8] = include_bytes!("../../tests/fixtures/export.qx");

/// Its messages.
fn messages_of_binary() -> Messages {
    const FAR: u64 = 4_000_000_000_000;
    let head = |queue: &str, id, state| Head {
        queue: queue.to_owned(),
        id,
        state,
        priority: Some(1024),
        created_ms: Some(1_700_000_000_000),
        ..Head::default()
    };
    let text = |text: &[u8]| Text(text.to_vec());
    let large = (0..70_000_u32).map(|at| u8::try_from((at * 7 + 3) % 251).unwrap());
    let large = large.collect();
    let mut all: Messages = vec![
        (
            Head {
                priority: Some(0),
                place: -3,
                ..head("a", 1, Standing::Ready)
            },
            Vec::new(),
        ),
        (
            Head {
                priority: Some(7),
                place: 300,
                not_selectable: true,
                flags: 9,
                expires_ms: Some(FAR),
                ttr_ms: Some(0),
                changed_ms: 10,
                reserves: 4,
                timeouts: 3,
                releases: 2,
                buries: 5,
                kicks: 6,
                key: Some(text(b"k")),
                name: Some(text(b"n\xff")),
                attrs: vec![(text(b"a"), text(b"b")), (text(b"c"), text(b"\x80"))],
                status: text(b"again"),
                ..head("a", 2, Standing::Ready)
            },
            b"\xff\0\n".to_vec(),
        ),
        (
            Head {
                priority: Some(7),
                place: 301,
                ..head("a", 3, Standing::Ready)
            },
            large,
        ),
        (
            Head {
                priority: Some(7),
                place: 299,
                key: Some(text(b"")),
                ..head("a", 4, Standing::Reserved)
            },
            b"held".to_vec(),
        ),
        (
            Head {
                due_ms: Some(FAR),
                ..head("a", 5, Standing::Delayed)
            },
            b"later".to_vec(),
        ),
        (
            Head {
                changed_ms: 11,
                bury_order: 8,
                buries: 1,
                status: text(b"why"),
                ..head("b\\x00c", 6, Standing::Buried)
            },
            b"bad".to_vec(),
        ),
        (head("b\\x00c", 7, Standing::Prepared), b"almost".to_vec()),
        (
            Head {
                changed_ms: FAR,
                ..head("d", 8, Standing::Done)
            },
            b"was".to_vec(),
        ),
        (
            Head {
                changed_ms: FAR,
                status: text(b"ok"),
                ..head("d", 9, Standing::Relayed)
            },
            b"went".to_vec(),
        ),
    ];
    for (head, body) in &mut all {
        head.bytes = body.len() as u64;
    }
    all
}

/// Reads until the end, or until an error.
fn read(bytes: &[u8]) -> (Messages, Option<String>) {
    let mut all = Vec::new();
    let mut source = match source(Box::new(Cursor::new(bytes.to_vec()))) {
        Ok(source) => source,
        Err(error) => return (all, Some(format!("{error:#}"))),
    };
    loop {
        match source.next() {
            Ok(None) => return (all, None),
            Err(error) => return (all, Some(format!("{error:#}"))),
            Ok(Some(entry)) => {
                let mut body = Vec::new();
                match entry.body {
                    Some(small) => body = small,
                    None => {
                        if let Err(error) = source.pieces(&mut body) {
                            return (all, Some(format!("{error:#}")));
                        }
                    }
                }
                all.push((entry.head, body));
            }
        }
    }
}

#[test]
fn a_file_in_the_old_binary_form_is_read() {
    let (read, why) = read(BINARY);
    assert_eq!(why, None);
    let messages = messages_of_binary();
    assert_eq!(read.len(), messages.len());
    for (read, message) in read.iter().zip(&messages) {
        assert_eq!(read.0, message.0);
        assert!(read.1 == message.1, "the body of {}", read.0.id);
    }
}

#[test]
fn a_binary_file_cut_anywhere_gives_whole_messages_and_says_where_it_ends() {
    let messages = messages_of_binary();
    let len = BINARY.len();
    for len in (1..len).step_by(41).chain(len - 60..len) {
        let (read, why) = read(&BINARY[..len]);
        assert!(messages.starts_with(&read));
        assert!(why.expect("an error").starts_with("byte "));
    }
}

#[test]
fn a_flipped_bit_anywhere_in_a_binary_file_is_found() {
    let messages = messages_of_binary();
    for at in (0..BINARY.len()).step_by(97).chain(0..120) {
        let mut bytes = BINARY.to_vec();
        bytes[at] ^= 4;
        let (read, why) = read(&bytes);
        assert!(messages.starts_with(&read) && why.is_some(), "byte {at}");
    }
}

/// Messages with these bodies.
fn numbered(bodies: impl IntoIterator<Item = Vec<u8>>) -> Messages {
    let bodies = bodies.into_iter().zip(1..);
    let message = |(body, id): (Vec<u8>, u64)| {
        let head = Head {
            queue: "q".to_owned(),
            id,
            created_ms: Some(1),
            bytes: body.len() as u64,
            ..Head::default()
        };
        (head, body)
    };
    bodies.map(message).collect()
}

/// Some members of small messages, and a large one.
fn several() -> Messages {
    let small = (0..100).map(|number| vec![b'0' + number % 10; 6_000]);
    numbered(small.chain([vec![0; 200_000], b"last".to_vec()]))
}

fn compressed(messages: &[(Head, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut sink = GzipSink::new(&mut out, 0);
    for (head, body) in messages {
        sink.message(head, &mut &body[..]).unwrap();
    }
    sink.finish().unwrap();
    drop(sink);
    out
}

/// Where the members begin.
fn members(bytes: &[u8]) -> Vec<usize> {
    let comment = b"quintet export";
    let begins = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(comment));
    begins.map(|at| at - 10).collect()
}

#[test]
fn compressed_lines_come_back() {
    let large = [65_536, 65_537, 3_000_001].map(|len| vec![0xff; len]);
    for messages in [Vec::new(), several(), numbered(large)] {
        let bytes = compressed(&messages);
        assert!(read(&bytes) == (messages.clone(), None));
        // As gzip itself joins files.
        let twice = [messages.clone(), messages].concat();
        assert!(read(&[bytes.clone(), bytes].concat()) == (twice, None));
    }
    let bytes = compressed(&several());
    assert_eq!(members(&bytes).len(), 5, "four, and the end");
}

#[test]
fn a_compressed_file_cut_anywhere_gives_whole_messages_and_says_that_it_is_cut() {
    let messages = several();
    let bytes = compressed(&messages);
    let len = bytes.len();
    let cut = (1..len).step_by(41).chain(len - 60..len);
    for len in cut.chain(members(&bytes).into_iter().skip(1)) {
        let (read, why) = read(&bytes[..len]);
        assert!(messages.starts_with(&read));
        let why = why.expect("an error");
        assert!(
            why.starts_with("line ") && why.contains("cut short"),
            "{why}"
        );
    }
}

/// What gzip does not look at may change: times, names.
#[test]
fn a_flipped_bit_in_a_compressed_file_changes_no_message() {
    let messages = several();
    let bytes = compressed(&messages);
    let mut found = 0;
    for at in (0..bytes.len()).step_by(31).chain(0..30) {
        let mut bytes = bytes.clone();
        bytes[at] ^= 4;
        let (read, why) = read(&bytes);
        assert!(messages.starts_with(&read), "byte {at}");
        assert!(why.is_some() || read.len() == messages.len(), "byte {at}");
        found += usize::from(why.is_some());
    }
    assert!(found > bytes.len() / 40, "{found} of {}", bytes.len());
}

#[test]
fn a_member_that_is_missing_is_noticed() {
    let bytes = compressed(&several());
    let members = members(&bytes);
    let without = [&bytes[..members[1]], &bytes[members[2]..]].concat();
    let why = read(&without).1.expect("an error");
    assert!(why.contains("damaged"), "{why}");
}

#[test]
fn lines_that_gzip_compressed_are_read() {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    let line = format!("{{\"queue\":\"q\",\"body\":\"{}\"}}\n", "x".repeat(9_000));
    gzip.write_all(line.repeat(500).as_bytes()).unwrap();
    let bytes = gzip.finish().unwrap();
    let (all, why) = read(&bytes);
    assert_eq!((all.len(), why), (500, None));
    // Longer than what is verified first: whole lines up to the cut.
    let (some, why) = read(&bytes[..bytes.len() - 20]);
    assert!(why.is_some_and(|why| why.contains("cut short")));
    assert!(all.starts_with(&some) && some.len() > 200, "{}", some.len());
}

#[test]
fn a_small_file_that_unpacks_to_much_takes_no_more_memory_than_a_line() {
    let spaces = vec![b' '; 16 << 20];
    let bomb = |member: GzBuilder| {
        let mut gzip = member.write(Vec::new(), Compression::fast());
        gzip.write_all(&spaces).unwrap();
        gzip.finish().unwrap()
    };
    let why = read(&bomb(GzBuilder::new())).1.expect("an error");
    assert!(why.contains("a line over 2 MiB"), "{why}");
    let bomb = bomb(GzBuilder::new().comment("quintet export"));
    let why = read(&bomb).1.expect("an error");
    assert!(why.starts_with("line 0: the compressed lines"), "{why}");
    let mut given = Vec::new();
    Members::new(&bomb[..]).read_to_end(&mut given).unwrap_err();
    assert!(given.is_empty(), "a member is longer than any of an export");
}
