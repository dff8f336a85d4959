//! A link that a test cuts where it likes.

#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than a server takes to start again on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// No more of a request come if none do for so long. If more would have come,
/// the cut is in another place, which is as good.
const QUIET: Duration = Duration::from_millis(100);

/// Fate of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Nothing happens to it.
    Pass,
    /// Cut after so many bytes of the request, or when no more of it come.
    Request(usize),
    /// Cut when the reply begins: the request has arrived, and nobody knows.
    Reply,
}

/// Asked once for each connection, with the request's first line.
type Rule = Box<dyn FnMut(&str) -> Cut + Send>;

/// A link to a server. Its connections end with the test's process.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    rule: Arc<Mutex<Rule>>,
}

impl Proxy {
    pub(crate) fn start(to: SocketAddr, rule: impl FnMut(&str) -> Cut + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let rule: Arc<Mutex<Rule>> = Arc::new(Mutex::new(Box::new(rule)));
        let requested = Arc::clone(&rule);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let requested = Arc::clone(&requested);
                // What breaks, breaks: that is what it is for.
                thread::spawn(move || link(client, to, &requested).ok());
            }
        });
        Self { address, rule }
    }

    pub(crate) fn set(&self, rule: impl FnMut(&str) -> Cut + Send + 'static) {
        *self.rule.lock().expect("no panic") = Box::new(rule);
    }
}

fn link(mut client: TcpStream, to: SocketAddr, rule: &Mutex<Rule>) -> std::io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    let mut begin = Vec::new();
    let mut piece = [0; 4096];
    while !begin.contains(&b'\n') {
        match client.read(&mut piece)? {
            0 => return Ok(()),
            read => begin.extend_from_slice(&piece[..read]),
        }
    }
    let line = String::from_utf8_lossy(&begin);
    let cut = (rule.lock().expect("no panic"))(line.lines().next().unwrap_or_default());
    let mut server = connect(to)?;
    if let Cut::Request(bytes) = cut {
        client.set_read_timeout(Some(QUIET))?;
        let mut left = bytes;
        loop {
            let now = left.min(begin.len());
            server.write_all(&begin[..now])?;
            left -= now;
            if left == 0 {
                break;
            }
            match client.read(&mut piece) {
                Ok(read) if read > 0 => begin = piece[..read].to_vec(),
                _ => break,
            }
        }
        server.shutdown(Shutdown::Both)?;
        return client.shutdown(Shutdown::Both);
    }
    server.write_all(&begin)?;
    let (mut up_from, mut up_to) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        let copied = std::io::copy(&mut up_from, &mut up_to);
        up_to.shutdown(Shutdown::Write).and(copied.map(drop))
    });
    if cut == Cut::Reply {
        // Its first byte says that the request was done.
        let first = server.read(&mut piece[..1]);
        client.shutdown(Shutdown::Both)?;
        return first.and(server.shutdown(Shutdown::Both));
    }
    // Also if the server dies: the other thread holds the client's end too.
    let copied = std::io::copy(&mut server, &mut client);
    client.shutdown(Shutdown::Both)?;
    copied.map(drop)
}

/// Waits for a server that is down.
fn connect(to: SocketAddr) -> std::io::Result<TcpStream> {
    let until = Instant::now() + PATIENCE;
    loop {
        match TcpStream::connect(to) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(error) if Instant::now() > until => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}
