//! Clients that mean no good, or that are broken.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use quintet_sim::Random;

use crate::ledger::body;
use crate::load::{LOOSE, Load};
use crate::protocols::{Addresses, BEANSTALK, CONTROL, HTTP, JOBQUEUE, LINEUP, MEMCACHE, PINPRIQ};

/// Protocols with a socket of their own.
const SOCKETS: [usize; 6] = [MEMCACHE, LINEUP, JOBQUEUE, PINPRIQ, BEANSTALK, HTTP];

fn connect(addresses: &Addresses, protocol: usize) -> Option<TcpStream> {
    debug_assert_ne!(protocol, CONTROL, "it has no address");
    let stream = TcpStream::connect(&addresses.of[protocol]).ok()?;
    let timeout = Some(Duration::from_millis(50));
    stream.set_read_timeout(timeout).ok()?;
    stream.set_write_timeout(timeout).ok()?;
    Some(stream)
}

fn until(end: Instant) {
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
}

/// Requests that end in the middle of their bodies; some hang up, some stay.
pub(crate) fn halves(load: &Load, addresses: &Addresses, random: &mut Random, end: Instant) {
    let mut held = Vec::new();
    for at in 0..12 {
        let protocol = SOCKETS[at % 5];
        let queue = LOOSE[if protocol == LINEUP {
            0
        } else {
            random.index(LOOSE.len())
        }];
        let number = load.ledger().half_put(protocol, queue);
        let len = 1000 + random.index(60_000);
        let whole = body(number, len);
        let mut request = match protocol {
            MEMCACHE => format!("set {queue} 0 0 {len}\r\n").into_bytes(),
            LINEUP => format!("PUSH 0 {len}\r\n").into_bytes(),
            BEANSTALK => format!("use {queue}\r\nput 0 0 9 {len}\r\n").into_bytes(),
            JOBQUEUE => {
                let mut head = [b"ADD\0", queue.as_bytes(), b"\0"].concat();
                for number in [0, 9, len as u32] {
                    head.extend_from_slice(&number.to_le_bytes());
                }
                head
            }
            _ => {
                let mut head = vec![0x70];
                head.extend_from_slice(&(queue.len() as u16).to_be_bytes());
                head.extend_from_slice(&[0, 0, 5, 0, 0]);
                head.extend_from_slice(&(len as u16).to_be_bytes());
                head
            }
        };
        request.extend_from_slice(&whole[..random.index(len - 1)]);
        let Some(mut stream) = connect(addresses, protocol) else {
            continue;
        };
        // Whatever becomes of it.
        stream.write_all(&request).ok();
        match random.below(3) {
            0 => drop(stream),
            1 => {
                stream.shutdown(Shutdown::Write).ok();
                held.push(stream);
            }
            _ => held.push(stream),
        }
    }
    until(end);
}

/// Asks for much and reads none of it.
pub(crate) fn unread(_: &Load, addresses: &Addresses, random: &mut Random, end: Instant) {
    let mut held = Vec::new();
    for _ in 0..6 {
        let queue = LOOSE[random.index(LOOSE.len())];
        let (protocol, ask) = match random.below(4) {
            0 => (MEMCACHE, format!("get {queue}/peek\r\n")),
            1 => (MEMCACHE, "stats\r\n".to_owned()),
            2 => (BEANSTALK, format!("use {queue}\r\npeek-ready\r\n")),
            _ => (BEANSTALK, "stats\r\nlist-tubes\r\n".to_owned()),
        };
        let Some(mut stream) = connect(addresses, protocol) else {
            continue;
        };
        for _ in 0..20 {
            // Until the server reads no more.
            if stream.write_all(ask.repeat(100).as_bytes()).is_err() {
                break;
            }
        }
        held.push(stream);
    }
    until(end);
}

/// Bytes by chance. A word of the protocol in front makes some look right.
pub(crate) fn garbage(_: &Load, addresses: &Addresses, random: &mut Random, end: Instant) {
    while Instant::now() < end {
        let protocol = SOCKETS[random.index(SOCKETS.len())];
        let Some(mut stream) = connect(addresses, protocol) else {
            continue;
        };
        let starts: &[&[u8]] = &[
            b"",
            b"set ",
            b"PUSH 1 ",
            b"put 1 0 ",
            b"ADD\0",
            b"reserve-with-timeout ",
            b"POST /q/rq/new_message HTTP/1.1\r\nhost: localhost\r\ncontent-length: ",
        ];
        let mut bytes = starts[random.index(starts.len())].to_vec();
        let len = random.index(3000);
        // Never a byte that pops or pushes: nothing here may touch a message.
        let noise = std::iter::repeat_with(|| random.next_u64() as u8);
        bytes.extend(noise.filter(|byte| !b"Pp".contains(byte)).take(len));
        if protocol == PINPRIQ && bytes.first() == Some(&b'P') {
            bytes.remove(0);
        }
        stream.write_all(&bytes).ok();
        let mut reply = [0; 4096];
        // What it says is of no matter.
        let _: Option<usize> = stream.read(&mut reply).ok();
    }
}

/// Many connections at once, most of them silent.
pub(crate) fn flood(_: &Load, addresses: &Addresses, random: &mut Random, end: Instant) {
    let mut held = Vec::new();
    for at in 0..400 {
        if Instant::now() >= end {
            break;
        }
        let protocol = SOCKETS[random.index(SOCKETS.len())];
        if let Some(mut stream) = connect(addresses, protocol) {
            if at % 4 == 0 {
                stream.write_all(b"g").ok();
            }
            held.push(stream);
        }
    }
    until(end);
}

/// The requests of a web page to a port that is not meant for browsers.
pub(crate) fn pages(_: &Load, addresses: &Addresses, random: &mut Random, end: Instant) {
    while Instant::now() < end {
        let protocol = SOCKETS[random.index(5)];
        let Some(mut stream) = connect(addresses, protocol) else {
            continue;
        };
        let put = "use loose-a\r\nput 0 0 9 7\r\nforeign\r\nset loose-a 0 0 7\r\nforeign\r\nPUSH 1 7\r\nforeign\r\n";
        let request = format!("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n{put}");
        stream.write_all(request.as_bytes()).ok();
        let mut reply = [0; 4096];
        // What it says is of no matter.
        let _: Option<usize> = stream.read(&mut reply).ok();
    }
}

/// Ones that say little, a byte at a time.
pub(crate) fn slow(_: &Load, addresses: &Addresses, random: &mut Random, end: Instant) {
    let mut held: Vec<TcpStream> = (0..60)
        .filter_map(|_| connect(addresses, SOCKETS[random.index(SOCKETS.len())]))
        .collect();
    while Instant::now() < end {
        for stream in &mut held {
            stream.write_all(b"a").ok();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
