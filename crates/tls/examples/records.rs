//! Cost of small requests over the two interfaces of rustls, and memory of connections at rest:
//! `cargo run --release -p quintet-tls --example records`.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Instant;

use quintet_tls::rustls::{ClientConfig, ClientConnection, ServerConnection};
use quintet_tls::{
    Acceptor, ClientChannel, ClientFiles, Scratch, Settings, Source, client_config, server_name,
};

const ROUNDS: u32 = 200_000;
const RESTING: usize = 2_000;
const REQUEST: &[u8] = &[b'x'; 100];

/// Both ways of a connection that never blocks.
#[derive(Default)]
struct Wire {
    up: Vec<u8>,
    down: Vec<u8>,
}

struct End<'a>(&'a mut Vec<u8>);

impl std::io::Read for End<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let count = into.len().min(self.0.len());
        if count == 0 {
            return Err(std::io::ErrorKind::WouldBlock.into());
        }
        into[..count].copy_from_slice(&self.0[..count]);
        self.0.drain(..count);
        Ok(count)
    }
}

impl std::io::Write for End<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn client(config: &Arc<ClientConfig>) -> ClientChannel {
    let name = server_name("localhost:1").expect("a name");
    ClientChannel::connect(Arc::clone(config), name).expect("begun")
}

fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("read");
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0usize) * 4096
}

fn show(what: &str, us: f64, bytes: usize) {
    std::io::stdout()
        .write_all(format!("{what:10} {us:.2} us a request, {bytes} bytes at rest\n").as_bytes())
        .expect("printed");
}

fn main() {
    let dir = tempfile::tempdir().expect("a folder");
    let source = Source::SelfSigned {
        dir: dir.path().to_owned(),
        names: vec!["localhost".to_owned()],
    };
    let acceptor = Acceptor::load(Settings {
        source,
        client_ca: None,
        protocols: Vec::new(),
    })
    .expect("made");
    let ca = Some(dir.path().join(quintet_tls::CERTIFICATE));
    let config = client_config(&ClientFiles { ca, shown: None }).expect("read");
    let (mut scratch, mut buffer) = (Scratch::new(64 << 10), vec![0; 64 << 10]);

    let before = resident();
    let mut resting = Vec::new();
    for _ in 0..RESTING {
        let (mut client, mut server) = (client(&config), acceptor.accept());
        let mut wire = Wire::default();
        while server.is_handshaking() || client.is_handshaking() {
            client.flush(&mut End(&mut wire.up)).expect("flushed");
            server
                .read(&mut End(&mut wire.up), &mut buffer, 1 << 20, &mut scratch)
                .ok();
            server.flush(&mut End(&mut wire.down)).expect("flushed");
            client
                .read(&mut End(&mut wire.down), &mut buffer, 1 << 20, &mut scratch)
                .ok();
        }
        resting.push((server, client));
    }
    let (mut server, mut client_side) = resting.pop().expect("one");
    // Clients are as large as servers, or larger: they go first.
    let servers: Vec<_> = resting.into_iter().map(|(server, _)| server).collect();
    let held = resident().saturating_sub(before) / RESTING / 2;
    drop(servers);
    let mut wire = Wire::default();
    let mut spent = std::time::Duration::ZERO;
    for _ in 0..ROUNDS {
        client_side
            .write(&mut End(&mut wire.up), REQUEST, &mut scratch)
            .expect("sent");
        let start = Instant::now();
        let read = server.read(&mut End(&mut wire.up), &mut buffer, 1 << 20, &mut scratch);
        let count = read.expect("read").bytes;
        server
            .write(&mut End(&mut wire.down), &buffer[..count], &mut scratch)
            .expect("sent");
        spent += start.elapsed();
        wire.down.clear();
    }
    show(
        "unbuffered",
        spent.as_secs_f64() * 1e6 / f64::from(ROUNDS),
        held,
    );

    let before = resident();
    let mut resting = Vec::new();
    for _ in 0..RESTING {
        let name = server_name("localhost:1").expect("a name");
        let mut client = ClientConnection::new(Arc::clone(&config), name).expect("begun");
        let mut server = ServerConnection::new(acceptor.config()).expect("begun");
        let mut wire = Wire::default();
        while server.is_handshaking() || client.is_handshaking() || client.wants_write() {
            client.write_tls(&mut End(&mut wire.up)).ok();
            server.read_tls(&mut End(&mut wire.up)).ok();
            server.process_new_packets().expect("understood");
            server.write_tls(&mut End(&mut wire.down)).ok();
            client.read_tls(&mut End(&mut wire.down)).ok();
            client.process_new_packets().expect("understood");
        }
        resting.push((server, client));
    }
    let held = resident().saturating_sub(before) / RESTING / 2;
    let (mut server, mut client_side) = resting.pop().expect("one");
    let mut wire = Wire::default();
    let mut spent = std::time::Duration::ZERO;
    for _ in 0..ROUNDS {
        client_side.writer().write_all(REQUEST).expect("taken");
        client_side.write_tls(&mut End(&mut wire.up)).expect("sent");
        let start = Instant::now();
        server.read_tls(&mut End(&mut wire.up)).expect("read");
        server.process_new_packets().expect("understood");
        let count = server.reader().read(&mut buffer).expect("read");
        server.writer().write_all(&buffer[..count]).expect("taken");
        server.write_tls(&mut End(&mut wire.down)).expect("sent");
        spent += start.elapsed();
        wire.down.clear();
    }
    show(
        "buffered",
        spent.as_secs_f64() * 1e6 / f64::from(ROUNDS),
        held,
    );
}
