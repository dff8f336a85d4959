//! Several threads that serve connections: which one serves what, and their end.

use std::collections::{HashMap, HashSet};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::body::Body;
use hyper::body::Incoming;
use hyper::{Request, Response};
use quintet_http::{
    Answering, Clients, Connected, ForwardedConnection, Limits, Serve, Settings, Socket, Task, Web,
};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Answers with the thread that serves it; of `/never`, never.
struct Who(Settings);

impl Serve for Who {
    fn protocol(&self) -> &'static str {
        "who"
    }

    fn settings(&self) -> &Settings {
        &self.0
    }

    fn ends(&self) {}

    fn answer(self: Arc<Self>, _: Option<IpAddr>, request: Request<Incoming>) -> Answering {
        let never = request.uri().path() == "/never";
        Box::pin(async move {
            if never {
                std::future::pending::<()>().await;
            }
            Response::new(Body::from(format!("{:?};", std::thread::current().id())))
        })
    }
}

fn serve(threads: usize) -> (Web, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let who: Arc<dyn Serve> = Arc::new(Who(Settings::default()));
    let web =
        Web::start("who", threads, vec![(Socket::Tcp(listener), who)], || None).expect("served");
    (web, address)
}

/// A connection that is kept.
struct Kept(TcpStream);

impl Kept {
    fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Self(stream)
    }

    fn send(&mut self, path: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        self.0.write_all(request.as_bytes()).expect("sent");
    }

    /// The thread that serves it.
    fn request_thread(&mut self) -> String {
        self.send("/");
        let mut text = Vec::new();
        while text.last() != Some(&b';') {
            let mut byte = [0];
            self.0.read_exact(&mut byte).expect("a reply");
            text.push(byte[0]);
        }
        let text = String::from_utf8(text).expect("text");
        text.rsplit("\r\n").next().unwrap_or_default().to_owned()
    }
}

#[test]
fn a_connection_is_served_by_the_thread_with_the_fewest() {
    let (web, address) = serve(3);
    let mut by_thread: HashMap<String, Vec<Kept>> = HashMap::new();
    for _ in 0..6 {
        let mut one = Kept::open(address);
        let who = one.request_thread();
        assert_eq!(one.request_thread(), who, "it stays there");
        by_thread.entry(who).or_default().push(one);
    }
    let counts: Vec<usize> = by_thread.values().map(Vec::len).collect();
    assert_eq!(counts, [2, 2, 2]);
    // The next ones go where some have ended.
    let left = by_thread.keys().next().cloned().expect("a thread");
    by_thread.remove(&left);
    let began = Instant::now();
    loop {
        // The server learns of their ends a moment later.
        let both = [(); 2].map(|()| Kept::open(address));
        let whose = both.map(|mut one| one.request_thread());
        if whose == [left.clone(), left.clone()] {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{left} gets none");
    }
    assert!(web.stop(Duration::from_secs(1)));
}

#[test]
fn a_further_thread_begins_with_a_connection_that_finds_none_idle() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let who: Arc<dyn Serve> = Arc::new(Who(Settings::default()));
    let begun = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&begun);
    // Each thread is given a task, which runs until the thread ends.
    let task = move || -> Option<Task> {
        let running = Arc::clone(&counted);
        running.fetch_add(1, Ordering::SeqCst);
        Some(Box::pin(async move {
            std::future::pending::<()>().await;
            drop(running);
        }))
    };
    let web = Web::start("who", 3, vec![(Socket::Tcp(listener), who)], task).expect("served");
    assert_eq!(begun.load(Ordering::SeqCst), 1, "nobody has come");
    let mut kept = Vec::new();
    let mut threads = HashSet::new();
    for expected in [1, 2, 3, 3] {
        let mut one = Kept::open(address);
        threads.insert(one.request_thread());
        kept.push(one);
        assert_eq!(begun.load(Ordering::SeqCst), expected);
        assert_eq!(threads.len(), expected);
    }
    assert!(web.stop(Duration::ZERO), "a thread failed");
    assert_eq!(Arc::strong_count(&begun), 1, "all threads have ended");
}

#[test]
fn connections_of_every_thread_are_closed_at_the_end() {
    let (web, address) = serve(2);
    let mut waiting: Vec<Kept> = (0..4).map(|_| Kept::open(address)).collect();
    for one in &mut waiting {
        // It is being served once it has answered.
        one.request_thread();
        one.send("/never");
    }
    let forwarding = web.forwarding();
    assert_eq!(
        (forwarding.serves(0), forwarding.serves(1)),
        (Some(true), None)
    );
    assert!(web.stop(Duration::ZERO), "a thread failed");
    assert_eq!(
        (forwarding.serves(0), forwarding.serves(1)),
        (Some(false), None)
    );
    for one in &mut waiting {
        let mut rest = Vec::new();
        // Cut, with a reset or without.
        let _reset = one.0.read_to_end(&mut rest);
        assert!(rest.is_empty());
    }
    assert!(TcpStream::connect(address).is_err(), "nobody listens");
}

/// A connection of a client at this address, as a node of a cluster hands it over.
fn come(web: &Web, listener: &TcpListener, peer: &str) -> Kept {
    let address = listener.local_addr().expect("an address");
    let kept = Kept::open(address);
    let (stream, _) = listener.accept().expect("accepted");
    stream.set_nonblocking(true).expect("set");
    let forwarded = ForwardedConnection {
        stream: Connected::Tcp(stream),
        peer: Some(SocketAddr::new(peer.parse().expect("an address"), 5)),
        identity: None,
        known: None,
        counted: None,
    };
    web.forwarding().take(0, forwarded);
    kept
}

/// The first line of its reply, or of the bytes before it.
fn first_line(kept: &mut Kept) -> String {
    // It may have been closed behind its error.
    let _sent = kept
        .0
        .write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        let mut byte = [0];
        kept.0.read_exact(&mut byte).expect("a reply");
        line.push(byte[0]);
    }
    String::from_utf8(line).expect("text").trim().to_owned()
}

#[test]
fn one_address_has_three_quarters_of_the_places() {
    const PLACES: usize = 8;
    let (ok, refused) = ("HTTP/1.1 200 OK", "HTTP/1.1 429 Too Many Requests");
    let clients = Arc::new(Clients::default());
    let settings = Settings {
        trusted_proxies: vec!["198.51.100.0/24".parse().expect("a network")],
        clients: Arc::clone(&clients),
        limits: Limits {
            connections_max: PLACES,
            ..Limits::default()
        },
        ..Settings::default()
    };
    let own = TcpListener::bind("127.0.0.1:0").expect("a port");
    let who: Arc<dyn Serve> = Arc::new(Who(settings));
    let web = Web::start("who", 1, vec![(Socket::Tcp(own), who)], || None).expect("served");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let reported = |peer: &str| {
        let mut kept = come(&web, &listener, peer);
        (first_line(&mut kept), kept)
    };
    // Bound by address: the mapped form is the same one, and of IPv6 a network is.
    for (peer, same, other) in [
        ("192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"),
        ("2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:1::1"),
    ] {
        let before = clients.crowded();
        let mut there: Vec<Kept> = Vec::new();
        for _ in 0..PLACES / 4 * 3 {
            let (line, kept) = reported(peer);
            assert_eq!(line, ok, "{peer}");
            there.push(kept);
        }
        assert_eq!(reported(peer).0, refused, "{peer}");
        assert_eq!(reported(same).0, refused, "{same}");
        assert_eq!(clients.crowded() - before, 2);
        assert_eq!(reported(other).0, ok, "{other}");
        // One that ends gives its part back.
        drop(there.pop());
        let since = Instant::now();
        while reported(peer).0 != ok {
            assert!(since.elapsed() < PATIENCE, "in vain");
        }
    }
    // These may take all places.
    for trusted in ["127.0.0.2", "::1", "198.51.100.7"] {
        let since = Instant::now();
        while clients.count() > 0 {
            assert!(since.elapsed() < PATIENCE, "in vain");
            std::thread::sleep(Duration::from_millis(1));
        }
        let there: Vec<_> = (0..PLACES).map(|_| reported(trusted)).collect();
        assert!(there.iter().all(|(line, _)| line == ok), "{trusted}");
    }
    assert!(web.stop(PATIENCE));
}
