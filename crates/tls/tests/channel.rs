//! Both sides of a connection over pipes that take what they like.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;

use quintet_tls::rustls::{CipherSuite, ProtocolVersion};
use quintet_tls::{
    Acceptor, Channel, ClientChannel, ClientFiles, Failure, Reason, Scratch, ServerChannel,
    Settings, Source, client_config, server_name,
};

const BUFFER: usize = 64 << 10;

/// One way of a connection.
struct Pipe {
    bytes: VecDeque<u8>,
    /// Bytes it takes before it blocks; given again by the reader.
    room: usize,
    /// Bytes a read brings at most.
    piece: usize,
}

impl Pipe {
    fn new(room: usize, piece: usize) -> Self {
        let bytes = VecDeque::new();
        Self { bytes, room, piece }
    }
}

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = into.len().min(self.piece).min(self.bytes.len());
        if count == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        for (at, byte) in into.iter_mut().zip(self.bytes.drain(..count)) {
            *at = byte;
        }
        self.room += count;
        Ok(count)
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.room);
        if count == 0 && !bytes.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.bytes.extend(&bytes[..count]);
        self.room -= count;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn acceptor(dir: &Path) -> Acceptor {
    let source = Source::SelfSigned {
        dir: dir.to_owned(),
        names: vec!["localhost".to_owned()],
    };
    Acceptor::load(Settings {
        source,
        client_ca: None,
        protocols: Vec::new(),
    })
    .expect("made")
}

struct Pair {
    client: ClientChannel,
    server: ServerChannel,
    up: Pipe,
    down: Pipe,
    scratch: Scratch,
    buffer: Vec<u8>,
}

impl Pair {
    fn new(room: usize, piece: usize) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let acceptor = acceptor(dir.path());
        let ca = Some(dir.path().join(quintet_tls::CERTIFICATE));
        let config = client_config(&ClientFiles { ca, shown: None }).expect("read");
        let name = server_name("localhost:1").expect("a name");
        Self {
            client: ClientChannel::connect(config, name).expect("begun"),
            server: acceptor.accept(),
            up: Pipe::new(room, piece),
            down: Pipe::new(room, piece),
            scratch: Scratch::new(BUFFER),
            buffer: vec![0; BUFFER],
        }
    }

    /// Lets bytes through until neither side has more to say.
    fn settle(&mut self) -> (Vec<u8>, Vec<u8>) {
        let (mut at_server, mut at_client) = (Vec::new(), Vec::new());
        loop {
            self.client.flush(&mut self.up).expect("flushed");
            let up = pull(
                &mut self.server,
                &mut self.up,
                &mut self.buffer,
                &mut self.scratch,
            );
            at_server.extend_from_slice(&self.buffer[..up.unwrap_or(0)]);
            self.server.flush(&mut self.down).expect("flushed");
            let down = pull(
                &mut self.client,
                &mut self.down,
                &mut self.buffer,
                &mut self.scratch,
            );
            at_client.extend_from_slice(&self.buffer[..down.unwrap_or(0)]);
            if up.is_none() && down.is_none() {
                return (at_server, at_client);
            }
        }
    }
}

/// One read; `None`: there was nothing.
fn pull<C: quintet_tls::Side>(
    channel: &mut Channel<C>,
    pipe: &mut Pipe,
    buffer: &mut [u8],
    scratch: &mut Scratch,
) -> Option<usize> {
    match channel.read(pipe, buffer, usize::MAX, scratch) {
        Ok(read) => Some(read.bytes),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn bytes_arrive_however_they_are_cut_and_count_when_their_record_has_left() {
    let sent: Vec<u8> = (0..150_000u32).map(|at| (at % 251) as u8).collect();
    for (room, piece) in [
        (7, 3),
        (1, 1),
        (100, 5_000),
        (20_000, 1 << 20),
        (1 << 20, 1 << 20),
    ] {
        let mut pair = Pair::new(room, piece);
        assert!(pair.server.is_handshaking());
        pair.settle();
        assert!(!pair.server.is_handshaking() && !pair.client.is_handshaking());
        let (mut left, mut came) = (0, Vec::new());
        while came.len() < sent.len() {
            // What is offered grows in between, as replies do.
            let end = sent.len().min(left + 70_000);
            match pair
                .server
                .write(&mut pair.down, &sent[left..end], &mut pair.scratch)
            {
                Ok(count) => left += count,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            if !pair.server.is_pending() {
                assert!(pair.server.footprint() == 0, "what rests holds nothing");
            }
            while let Some(count) = pull(
                &mut pair.client,
                &mut pair.down,
                &mut pair.buffer,
                &mut pair.scratch,
            ) {
                came.extend_from_slice(&pair.buffer[..count]);
            }
            assert!(came.len() >= left, "{} of {left} have come", came.len());
            assert!(pair.server.footprint() < 3 * BUFFER);
        }
        assert_eq!(came, sent);
    }
}

#[test]
fn a_close_notify_is_read_and_the_other_direction_stays_open() {
    let mut pair = Pair::new(1 << 20, 1 << 20);
    pair.settle();
    let (up, scratch) = (&mut pair.up, &mut pair.scratch);
    assert_eq!(pair.client.write(up, b"last", scratch).expect("sent"), 4);
    pair.client.close(up, scratch).expect("closed");
    let read = pair
        .server
        .read(up, &mut pair.buffer, usize::MAX, scratch)
        .expect("read");
    assert!(read.ended && read.bytes == 4, "{read:?}");
    let down = &mut pair.down;
    assert_eq!(pair.server.write(down, b"reply", scratch).expect("sent"), 5);
    assert_eq!(pair.settle().1, b"reply");
}

#[test]
fn bytes_that_are_no_tls_or_were_changed_are_named_and_the_peer_gets_an_alert() {
    let mut pair = Pair::new(1 << 20, 1 << 20);
    pair.up.write_all(b"get x\r\n").expect("room");
    let plain = pair.server.read(
        &mut pair.up,
        &mut pair.buffer,
        usize::MAX,
        &mut pair.scratch,
    );
    let error = plain.expect_err("refused");
    assert_eq!(Failure::of(&error), Some(&Failure::Plain));
    assert_eq!(pair.server.take_rest(), b"get x\r\n");

    let mut pair = Pair::new(1 << 20, 1 << 20);
    pair.settle();
    let sent = pair.client.write(&mut pair.up, b"hello", &mut pair.scratch);
    assert_eq!(sent.expect("sent"), 5);
    *pair.up.bytes.back_mut().expect("a record") ^= 1;
    let broken = pair.server.read(
        &mut pair.up,
        &mut pair.buffer,
        usize::MAX,
        &mut pair.scratch,
    );
    assert_eq!(Reason::of(&broken.expect_err("refused")), Reason::Record);
    assert!(pair.server.is_pending(), "an alert");
    pair.server.flush(&mut pair.down).expect("flushed");
    let result = pair.client.read(
        &mut pair.down,
        &mut pair.buffer,
        usize::MAX,
        &mut pair.scratch,
    );
    assert_eq!(Reason::of(&result.expect_err("an alert")), Reason::Alert);
}

/// Any input, cut anywhere, is an error at most, and later calls do no harm.
#[test]
fn nonsense_is_an_error_at_most() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..300 {
        let mut pair = Pair::new(1 << 20, 1 << 20);
        if round % 2 == 0 {
            pair.settle();
            pair.client
                .write(&mut pair.up, b"something", &mut pair.scratch)
                .expect("sent");
        } else {
            pair.client.flush(&mut pair.up).expect("flushed");
        }
        let mut bytes: Vec<u8> = pair.up.bytes.drain(..).collect();
        // Headers of records are kept mostly, so that what is in them is looked at.
        for _ in 0..=next() % 4 {
            let len = bytes.len() as u64;
            let at = usize::try_from(next() % len).expect("small");
            bytes[at] = next().to_le_bytes()[0];
        }
        if next() % 3 == 0 {
            let record = [
                0x16,
                3,
                1,
                0,
                5,
                next().to_le_bytes()[0],
                0x6f,
                0x6e,
                0x73,
                0x65,
            ];
            bytes.splice(..0, record);
        }
        pair.up.piece = 1 + usize::try_from(next() % 300).expect("small");
        pair.up.bytes.extend(bytes);
        let (buffer, scratch) = (&mut pair.buffer[..], &mut pair.scratch);
        while !pair.up.bytes.is_empty() {
            if pair
                .server
                .read(&mut pair.up, buffer, 1 << 20, scratch)
                .is_err()
            {
                break;
            }
            pair.server.write(&mut pair.down, b"reply", scratch).ok();
        }
        pair.server.flush(&mut pair.down).ok();
        pair.server.write(&mut pair.down, b"", scratch).ok();
        pair.server.close(&mut pair.down, scratch).ok();
        pair.server
            .read(&mut pair.up, buffer, 1 << 20, scratch)
            .ok();
    }
}

/// The offered versions and suites are a decision: they change here when they change.
#[test]
fn versions_and_suites_are_these() {
    let dir = tempfile::tempdir().expect("a folder");
    let config = acceptor(dir.path()).config();
    let suites: Vec<_> = config.crypto_provider().cipher_suites.iter().collect();
    let of = |version| {
        let of_version = suites
            .iter()
            .filter(|suite| suite.version().version == version);
        of_version.map(|suite| suite.suite()).collect::<Vec<_>>()
    };
    assert_eq!(
        of(ProtocolVersion::TLSv1_3),
        [
            CipherSuite::TLS13_AES_256_GCM_SHA384,
            CipherSuite::TLS13_AES_128_GCM_SHA256,
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
        ]
    );
    assert_eq!(
        of(ProtocolVersion::TLSv1_2),
        [
            CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
            CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
            CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        ]
    );
    assert_eq!(suites.len(), 9);
    assert_eq!(config.max_early_data_size, 0);
}

#[test]
fn a_bad_new_file_keeps_the_old_and_a_good_one_counts() {
    let dir = tempfile::tempdir().expect("a folder");
    let acceptor = acceptor(dir.path());
    let (before, config) = (acceptor.fingerprint(), acceptor.config());
    assert!(!acceptor.has_changed());
    let file = dir.path().join(quintet_tls::CERTIFICATE);
    std::fs::write(&file, "nonsense").expect("written");
    assert!(acceptor.has_changed());
    let error = acceptor.reload(None).expect_err("refused").to_string();
    assert!(error.contains(quintet_tls::CERTIFICATE), "{error}");
    assert!(!acceptor.has_changed(), "it is reported once");
    assert!(acceptor.fingerprint() == before && Arc::ptr_eq(&config, &acceptor.config()));
    std::fs::remove_file(&file).expect("removed");
    assert!(acceptor.has_changed());
    acceptor.reload(None).expect("read again");
    assert_ne!(acceptor.fingerprint(), before);
}
