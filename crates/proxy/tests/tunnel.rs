//! Proxies and owners over real sockets of this machine, in one process.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quintet_proxy::line::{Answer, Question, Tunnel};
use quintet_proxy::tls::{Files, PeerTls};
use quintet_proxy::{
    Client, DropGuard, Hint, Intake, Node, Owners, Proxy, ProxyListener, Settings, Socket, Stream,
    ask_node,
};
use quintet_tls::Secure;
use tokio::sync::watch;

const CLUSTER: u64 = 0xc0ffee;
/// Only a defect reaches it.
const PATIENCE: Duration = Duration::from_secs(120);

/// A node that tells each client's tunnel to the test and echoes the client's lines.
struct Echo {
    sender: Sender<Tunnel>,
    /// So many clients get first the end of their listener.
    ended: AtomicUsize,
}

impl Intake for Echo {
    fn admits(&self, tunnel: &Tunnel) -> Result<bool, String> {
        let left = |left: usize| left.checked_sub(1);
        let ended = self
            .ended
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, left);
        match tunnel.nth {
            0 => Ok(ended.is_err()),
            nth => Err(format!(
                "there is no listener {nth} for {}",
                tunnel.protocol
            )),
        }
    }

    fn take(&self, client: Client) {
        self.sender.send(client.tunnel).expect("the test listens");
        std::thread::spawn(move || match client.stream {
            Stream::Tcp(stream) => {
                stream.set_nonblocking(false).expect("a socket");
                echo(&stream, &stream)
            }
            Stream::Unix(stream) => {
                stream.set_nonblocking(false).expect("a socket");
                echo(&stream, &stream)
            }
        });
    }
}

/// Until the client closes its side, then says so and closes.
fn echo(from: impl io::Read, mut to: impl io::Write) {
    for line in BufReader::new(from).lines().map_while(Result::ok) {
        if line == "quit" {
            return;
        }
        if writeln!(to, "echo {line}").is_err() {
            return;
        }
    }
    writeln!(to, "end").ok();
}

struct Knows(&'static str);

impl Node for Knows {
    fn status(&self) -> String {
        format!("{{\"node\":\"{}\"}}", self.0)
    }

    fn order(&self, words: &[String]) -> String {
        format!("{} did {}", self.0, words.join(" "))
    }
}

/// A node of the cluster.
struct Running {
    proxy: Proxy,
    owners: watch::Sender<Owners>,
    proxy_listener: TcpListener,
    peer_address: String,
    taken: Receiver<Tunnel>,
    echo: Arc<Echo>,
}

fn settings() -> Settings {
    Settings {
        cluster: CLUSTER,
        wait: PATIENCE,
        connections_max: 100,
        tls: None,
    }
}

fn node(name: &'static str, nth: u16, settings: Settings) -> Running {
    node_after(name, nth, settings, Vec::new())
}

/// A node whose earlier process had accepted these connections.
fn node_after(name: &'static str, nth: u16, settings: Settings, earlier: Vec<Stream>) -> Running {
    let proxy_listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let peer_sockets = TcpListener::bind("127.0.0.1:0").expect("a port");
    // Certificates are for names.
    let port = peer_sockets.local_addr().expect("an address").port();
    let (owners, seen) = watch::channel(Owners::Nobody);
    let (sender, taken) = channel();
    let proxy_listeners = vec![ProxyListener {
        tls: None,
        protocol: "lineup".to_owned(),
        nth,
        socket: Socket::Tcp(proxy_listener.try_clone().expect("a socket")),
        earlier,
    }];
    let peer_sockets = vec![Socket::Tcp(peer_sockets)];
    let proxy = Proxy::start(proxy_listeners, seen, Arc::new(Knows(name)), settings);
    let proxy = proxy.expect("a front");
    proxy.listen(peer_sockets).expect("sockets");
    Running {
        proxy,
        owners,
        proxy_listener,
        peer_address: format!("localhost:{port}"),
        taken,
        echo: Arc::new(Echo {
            sender,
            ended: AtomicUsize::new(0),
        }),
    }
}

impl Running {
    fn hint(&self, epoch: u64) -> Hint {
        Hint {
            epoch,
            node: "owner".to_owned(),
            address: self.peer_address.clone(),
        }
    }

    fn owns(&self, epoch: u64) {
        self.proxy.serve_by(Arc::clone(&self.echo) as _);
        self.owners
            .send(Owners::Us(self.hint(epoch)))
            .expect("a front");
    }

    fn follows(&self, owner: &Running, epoch: u64) {
        let other = Owners::Other(owner.hint(epoch));
        self.owners.send(other).expect("a front");
    }

    /// Waits until so many peer connections were refused, which is counted after their error.
    fn refuses(&self, count: u64) {
        let began = Instant::now();
        while self.proxy.counts().refused.load(Ordering::Relaxed) < count {
            assert!(
                began.elapsed() < PATIENCE,
                "fewer than {count} were refused"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn client(&self) -> TcpStream {
        connect(
            &self
                .proxy_listener
                .local_addr()
                .expect("an address")
                .to_string(),
        )
    }
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("somebody listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

fn say(stream: &TcpStream, line: &str) -> String {
    let mut writer = stream;
    writer.write_all(line.as_bytes()).expect("it is open");
    let mut received = String::new();
    BufReader::new(stream)
        .read_line(&mut received)
        .expect("a line");
    received
}

/// Reads until the end; a reset is one.
fn rest(mut stream: &TcpStream) -> String {
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error}"),
    }
    String::from_utf8(all).expect("text")
}

#[test]
fn a_client_of_any_node_talks_to_the_owner() {
    let (owner, other) = (node("a", 0, settings()), node("b", 0, settings()));
    owner.owns(1);
    other.follows(&owner, 1);
    let client = other.client();
    assert_eq!(say(&client, "one\n"), "echo one\n");
    let tunnel = owner.taken.recv_timeout(PATIENCE).expect("a client");
    assert_eq!(tunnel.peer, client.local_addr().ok());
    assert_eq!((tunnel.protocol.as_str(), tunnel.nth), ("lineup", 0));
    assert_eq!(
        (
            other.proxy.counts().tunneled.load(Ordering::Relaxed),
            owner
                .proxy
                .counts()
                .peer_connections
                .load(Ordering::Relaxed)
        ),
        (1, 1)
    );
    // Closing one side is passed on, and what comes after it as well.
    client.shutdown(Shutdown::Write).expect("it is open");
    assert_eq!(rest(&client), "end\n");
    // The owner's end is the client's.
    let client = other.client();
    assert_eq!(say(&client, "two\n"), "echo two\n");
    (&client).write_all(b"quit\nmore\n").expect("it is open");
    assert_eq!(rest(&client), "");
}

/// Protocols that speak first do, and so does a client that may not come: it is there with the
/// answer.
#[test]
fn the_first_bytes_of_the_owner_reach_the_client() {
    let peer_sockets = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = peer_sockets.local_addr().expect("an address").port();
    let owner = std::thread::spawn(move || {
        let (mut peer_connection, _) = peer_sockets.accept().expect("a peer connection");
        let mut request = String::new();
        let mut from = BufReader::new(peer_connection.try_clone().expect("a socket"));
        from.read_line(&mut request).expect("a line");
        let both = format!("{}HI\r\n", Answer::Ok.line());
        peer_connection
            .write_all(both.as_bytes())
            .expect("it is open");
        let mut stated = String::new();
        from.read_line(&mut stated).expect("a line");
        peer_connection
            .write_all(stated.as_bytes())
            .expect("it is open");
    });
    let other = node("b", 0, settings());
    let hint = Hint {
        epoch: 1,
        node: "owner".to_owned(),
        address: format!("localhost:{port}"),
    };
    other.owners.send(Owners::Other(hint)).expect("a front");
    let client = other.client();
    let mut received = [0; 4];
    (&client)
        .read_exact(&mut received)
        .expect("it speaks first");
    assert_eq!(&received, b"HI\r\n");
    assert_eq!(say(&client, "one\n"), "one\n");
    assert_eq!(rest(&client), "");
    owner.join().expect("it has no complaint");
}

#[test]
fn bytes_wait_without_an_owner() {
    let (owner, other) = (node("a", 0, settings()), node("b", 0, settings()));
    let client = other.client();
    (&client).write_all(b"early\n").expect("it is open");
    while other.proxy.counts().waiting.load(Ordering::Relaxed) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    // Somebody is named who does not own yet; it is asked until it does.
    other.follows(&owner, 1);
    owner.owns(1);
    let mut received = String::new();
    BufReader::new(&client)
        .read_line(&mut received)
        .expect("a line");
    assert_eq!(received, "echo early\n");
}

#[test]
fn a_client_that_waited_at_the_new_owner_is_served() {
    let owner = node("a", 0, settings());
    let client = owner.client();
    (&client).write_all(b"early\n").expect("it is open");
    while owner.proxy.counts().waiting.load(Ordering::Relaxed) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    owner.owns(1);
    let mut received = String::new();
    BufReader::new(&client)
        .read_line(&mut received)
        .expect("a line");
    assert_eq!(received, "echo early\n");
    // As its own client, not over a peer connection to itself.
    let peers = &owner.proxy.counts().peer_connections;
    assert_eq!(peers.load(Ordering::Relaxed), 0);
    // From now on its own threads accept; the proxy may have begun to.
    let mut clients = Vec::new();
    owner
        .proxy_listener
        .set_nonblocking(true)
        .expect("a socket");
    let accepted = loop {
        clients.push(owner.client());
        match owner.proxy_listener.accept() {
            Ok((_, peer)) => break peer,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    };
    let mut ours = clients
        .iter()
        .map(|client| client.local_addr().expect("an address"));
    assert!(ours.any(|ours| ours == accepted));
}

#[test]
fn without_an_owner_a_client_is_closed_in_the_end() {
    let alone = node(
        "a",
        0,
        Settings {
            wait: Duration::from_millis(50),
            ..settings()
        },
    );
    let client = alone.client();
    assert_eq!(rest(&client), "");
    while alone.proxy.counts().given_up.load(Ordering::Relaxed) != 1 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_former_owner_names_the_owner() {
    let (old, new, other) = (
        node("a", 0, settings()),
        node("b", 0, settings()),
        node("c", 0, settings()),
    );
    old.follows(&new, 2);
    new.owns(2);
    other.follows(&old, 1);
    assert_eq!(say(&other.client(), "one\n"), "echo one\n");
}

#[test]
fn a_deposed_owner_is_left() {
    let (old, new, other) = (
        node("a", 0, settings()),
        node("b", 0, settings()),
        node("c", 0, settings()),
    );
    old.owns(1);
    other.follows(&old, 1);
    let client = other.client();
    assert_eq!(say(&client, "one\n"), "echo one\n");
    // The old one says nothing any more, as if its machine were gone.
    other.follows(&new, 2);
    assert_eq!(rest(&client), "");
}

#[test]
fn a_client_that_has_said_nothing_goes_on_with_the_next_owner() {
    let (old, new, other) = (
        node("a", 0, settings()),
        node("b", 0, settings()),
        node("c", 0, settings()),
    );
    old.owns(1);
    other.follows(&old, 1);
    let client = other.client();
    let peer = client.local_addr().ok();
    let taken_by = |node: &Running| node.taken.recv_timeout(PATIENCE).expect("a client").peer;
    assert_eq!(taken_by(&old), peer);
    new.owns(2);
    other.follows(&new, 2);
    assert_eq!(taken_by(&new), peer);
    // And with its own node, when that owns.
    other.owns(3);
    assert_eq!(taken_by(&other), peer);
    let long = "x".repeat(10_000);
    assert_eq!(say(&client, &format!("{long}\n")), format!("echo {long}\n"));
}

#[test]
fn a_connection_without_a_listener_at_the_owner_is_closed() {
    let (owner, other) = (node("a", 0, settings()), node("b", 1, settings()));
    owner.owns(1);
    other.follows(&owner, 1);
    assert_eq!(rest(&other.client()), "");
}

#[test]
fn a_client_waits_where_the_owners_listener_has_ended() {
    let (owner, other) = (node("a", 0, settings()), node("b", 0, settings()));
    owner.echo.ended.store(3, Ordering::SeqCst);
    owner.owns(1);
    other.follows(&owner, 1);
    assert_eq!(say(&other.client(), "one\n"), "echo one\n");
    assert_eq!(owner.echo.ended.load(Ordering::SeqCst), 0);
}

#[test]
fn there_are_no_more_than_so_many() {
    let (owner, other) = (
        node("a", 0, settings()),
        node(
            "b",
            0,
            Settings {
                connections_max: 1,
                ..settings()
            },
        ),
    );
    owner.owns(1);
    other.follows(&owner, 1);
    let first = other.client();
    assert_eq!(say(&first, "one\n"), "echo one\n");
    assert_eq!(rest(&other.client()), "");
    assert_eq!(other.proxy.counts().turned_away.load(Ordering::Relaxed), 1);
    assert_eq!(say(&first, "two\n"), "echo two\n");
}

#[test]
fn connections_without_a_peer_get_an_error() {
    let owner = node("a", 0, settings());
    owner.owns(1);
    let long = "x".repeat(2 * quintet_proxy::line::LINE_MAX);
    for (line, answer) in [
        (
            "GET / HTTP/1.1\r\n\r\n".to_owned(),
            "REFUSED this%20is%20no%20link\n",
        ),
        ("\u{0}\u{1}\n".to_owned(), "REFUSED this%20is%20no%20link\n"),
        (long, "REFUSED this%20is%20no%20link\n"),
        (
            "QUINTET-LINK 1 0000000000000001 status\n".to_owned(),
            "REFUSED it%20belongs%20to%20another%20cluster\n",
        ),
        (
            format!("QUINTET-LINK 1 {CLUSTER:016x} status\n"),
            "{\"node\":\"a\"}\n",
        ),
        (
            format!("QUINTET-LINK 1 {CLUSTER:016x} move b\n"),
            "a did move b\n",
        ),
    ] {
        let stream = connect(&owner.peer_address);
        (&stream).write_all(line.as_bytes()).expect("it is open");
        let received = rest(&stream);
        // What was sent and not read resets the connection, also before the answer was.
        assert!(
            received == answer
                || (line.len() > quintet_proxy::line::LINE_MAX && received.is_empty()),
            "{line}: {received}"
        );
    }
    // One that says nothing is closed.
    assert_eq!(rest(&connect(&owner.peer_address)), "");
    owner.refuses(5);
}

/// An authority and a node it signed, as files.
fn files(dir: &std::path::Path, name: &str) -> Files {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut authority = rcgen::CertificateParams::new(Vec::new()).expect("a name");
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let root = authority.self_signed(&key).expect("a certificate");
    let issuer = rcgen::Issuer::new(authority, key);
    let key = rcgen::KeyPair::generate().expect("a key");
    let node = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    let cert = node.signed_by(&key, &issuer).expect("a certificate");
    let write = |what: &str, text: String| -> PathBuf {
        let path = dir.join(format!("{name}-{what}.pem"));
        std::fs::write(&path, text).expect("a file");
        // A key that others can read is refused.
        let own = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, own).expect("ours");
        path
    };
    Files {
        ca: write("ca", root.pem()),
        cert: write("cert", cert.pem()),
        key: write("key", key.serialize_pem()),
    }
}

/// A node at which two clients' handshakes may fail, and one client at a time may be at it.
#[derive(Default)]
struct Strict {
    failed: AtomicUsize,
    shaking: Arc<AtomicUsize>,
}

/// Somebody at a handshake.
struct Shaking(Arc<AtomicUsize>);

impl Drop for Shaking {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Node for Strict {
    fn status(&self) -> String {
        String::new()
    }

    fn order(&self, _: &[String]) -> String {
        String::new()
    }

    fn arrive(&self, _: SocketAddr) -> Option<DropGuard> {
        if self.failed.load(Ordering::SeqCst) == 2 || self.shaking.load(Ordering::SeqCst) == 1 {
            return None;
        }
        self.shaking.fetch_add(1, Ordering::SeqCst);
        Some(Box::new(Shaking(Arc::clone(&self.shaking))))
    }

    fn handshake_failed(&self, _: SocketAddr) {
        self.failed.fetch_add(1, Ordering::SeqCst);
    }
}

fn self_signed(dir: &Path) -> Secure {
    let acceptor = quintet_tls::Acceptor::load(quintet_tls::Settings {
        source: quintet_tls::Source::SelfSigned {
            dir: dir.to_owned(),
            names: Vec::new(),
        },
        client_ca: None,
        protocols: Vec::new(),
    });
    Secure {
        acceptor: Arc::new(acceptor.expect("a certificate")),
        shared: Arc::default(),
    }
}

#[test]
fn clients_count_at_the_proxy_during_their_handshake_and_if_it_fails() {
    let dir = tempfile::tempdir().expect("a directory");
    let proxy_listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = proxy_listener.local_addr().expect("an address").to_string();
    let tls = self_signed(dir.path());
    // Only a defect waits for it.
    tls.shared.set_handshake_ms(PATIENCE.as_millis() as u64);
    let proxy_listeners = vec![ProxyListener {
        tls: Some(tls),
        protocol: "lineup".to_owned(),
        nth: 0,
        socket: Socket::Tcp(proxy_listener),
        earlier: Vec::new(),
    }];
    let node = Arc::new(Strict::default());
    let (_owners, seen) = watch::channel(Owners::Nobody);
    let proxy = Proxy::start(proxy_listeners, seen, Arc::clone(&node) as _, settings());
    let proxy = proxy.expect("a front");
    let until = |what: &str, is: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !is() {
            assert!(began.elapsed() < PATIENCE, "in vain: {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    for failed in 1..=2 {
        let client = connect(&address);
        until("a handshake", &|| node.shaking.load(Ordering::SeqCst) == 1);
        assert_eq!(rest(&connect(&address)), "", "one at a time");
        // What begins as TLS does, and is none.
        (&client)
            .write_all(b"\x16\x03\x01\x00\x05hello")
            .expect("it is open");
        until("a failure", &|| {
            node.failed.load(Ordering::SeqCst) == failed
        });
        until("its end", &|| node.shaking.load(Ordering::SeqCst) == 0);
    }
    assert_eq!(rest(&connect(&address)), "", "too many have failed");
    drop(proxy);
}

/// A connection of this machine: the client's end, and the one that was accepted.
fn accepted() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = connect(&listener.local_addr().expect("an address").to_string());
    let (server, _) = listener.accept().expect("a client");
    (client, server)
}

#[test]
fn connections_of_an_earlier_process_are_answered_by_the_new_owner() {
    let (asks, server) = accepted();
    // What its client has sent by now nobody has read.
    (&asks).write_all(b"one\n").expect("it is open");
    let (rests, other) = accepted();
    let (gone, third) = accepted();
    let (unix, fourth) = UnixStream::pair().expect("a pair");
    drop(gone);
    let streams = [server, other, third].map(Stream::Tcp);
    let earlier: Vec<_> = streams.into_iter().chain([Stream::Unix(fourth)]).collect();
    let owner = node("b", 0, settings());
    let before = node_after("a", 0, settings(), earlier);
    owner.owns(2);
    before.follows(&owner, 2);
    let mut line = String::new();
    let read = BufReader::new(&asks).read_line(&mut line);
    assert_eq!((read.expect("an answer"), &*line), (9, "echo one\n"));
    // One whose client says nothing is brought as well, one after the other.
    let peers: Vec<_> = (0..4)
        .map(|_| owner.taken.recv().expect("a tunnel").peer)
        .collect();
    let of_clients = [&asks, &rests].map(|client| client.local_addr().expect("an address"));
    assert!(peers.contains(&None), "{peers:?}");
    for peer in of_clients {
        assert!(peers.contains(&Some(peer)), "{peer}: {peers:?}");
    }
    assert_eq!(say(&rests, "two\n"), "echo two\n");
    drop(unix);
}

#[test]
fn a_plain_connection_of_an_earlier_process_is_closed_where_tls_is_spoken_now() {
    let dir = tempfile::tempdir().expect("a directory");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (client, server) = accepted();
    let proxy_listeners = vec![ProxyListener {
        tls: Some(self_signed(dir.path())),
        protocol: "lineup".to_owned(),
        nth: 0,
        socket: Socket::Tcp(listener),
        earlier: vec![Stream::Tcp(server)],
    }];
    let (_owners, seen) = watch::channel(Owners::Nobody);
    let proxy = Proxy::start(proxy_listeners, seen, Arc::new(Knows("a")), settings());
    assert_eq!(rest(&client), "");
    drop(proxy.expect("a front"));
}

#[test]
fn peer_connections_are_encrypted_and_both_sides_are_known() {
    let dir = tempfile::tempdir().expect("a directory");
    let tls = |name: &str| Settings {
        tls: Some(PeerTls::load(&files(dir.path(), name)).expect("good files")),
        ..settings()
    };
    let ours = tls("ours");
    let (owner, other) = (node("a", 0, ours.clone()), node("b", 0, ours));
    owner.owns(1);
    other.follows(&owner, 1);
    let client = other.client();
    assert_eq!(say(&client, "one\n"), "echo one\n");
    client.shutdown(Shutdown::Write).expect("it is open");
    assert_eq!(rest(&client), "end\n");
    // Another authority's node, and one without any certificate.
    for wrong in [tls("theirs"), settings()] {
        let stranger = node(
            "c",
            0,
            Settings {
                wait: Duration::from_secs(4),
                ..wrong
            },
        );
        stranger.follows(&owner, 1);
        assert_eq!(rest(&stranger.client()), "");
    }
    owner.refuses(2);
}

#[test]
fn files_that_do_not_go_together_are_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let good = files(dir.path(), "one");
    let other = files(dir.path(), "two");
    let absent = Files {
        ca: dir.path().join("absent.pem"),
        ..good.clone()
    };
    let mixed = Files {
        key: other.key,
        ..good.clone()
    };
    let swapped = Files {
        cert: good.key.clone(),
        ..good
    };
    for (files, says) in [
        (absent, "absent.pem"),
        (mixed, "go together"),
        (swapped, "one-key.pem"),
    ] {
        let error = PeerTls::load(&files).expect_err("bad files").to_string();
        assert!(error.contains(says), "{error}");
    }
}

/// A node whose order ends when the test says so.
struct Slow {
    began: Sender<()>,
    end: Mutex<Receiver<()>>,
}

impl Node for Slow {
    fn status(&self) -> String {
        String::new()
    }

    fn order(&self, words: &[String]) -> String {
        self.began.send(()).expect("the test listens");
        let end = self.end.lock().expect("nobody panics here");
        end.recv().expect("it may end");
        words.join(" ")
    }
}

#[test]
fn an_order_that_ends_the_proxy_is_answered() {
    let peer_socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = peer_socket.local_addr().expect("an address").to_string();
    let (began, begins) = channel();
    let (go_on, end) = channel();
    let end = Mutex::new(end);
    let (_owners, seen) = watch::channel(Owners::Nobody);
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("clients");
    let proxy_listeners = vec![ProxyListener {
        tls: None,
        protocol: "lineup".to_owned(),
        nth: 0,
        socket: Socket::Unix(UnixListener::bind(&path).expect("a socket")),
        earlier: Vec::new(),
    }];
    let slow = Arc::new(Slow { began, end });
    let proxy = Proxy::start(proxy_listeners, seen, slow, settings());
    let proxy = proxy.expect("a proxy");
    proxy
        .listen(vec![Socket::Tcp(peer_socket)])
        .expect("a socket");
    let order = Question::Order(vec!["move".to_owned()]);
    let asks = std::thread::spawn(move || ask_node(&settings(), &address, order));
    begins.recv().expect("an order");
    let ends = std::thread::spawn(move || proxy.end(PATIENCE));
    // A client would be cut off soon: it waits for the next listener.
    let by = Instant::now() + PATIENCE;
    while UnixStream::connect(&path).is_ok() {
        assert!(Instant::now() < by, "it still accepts clients");
    }
    go_on.send(()).expect("it waits");
    let answer = asks.join().expect("no panic").expect("an answer");
    assert_eq!(answer.trim_end(), "move");
    ends.join().expect("no panic");
}
