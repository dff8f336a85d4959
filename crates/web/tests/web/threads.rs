//! Several threads that serve connections: which one serves what, and their end.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use hyper::body::Incoming;
use hyper::{Request, Response};
use quintet_web::{Answering, Serve, Settings, Socket, Web};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Answers with the thread that serves it; of `/never`, never.
struct Who(Settings);

impl Serve for Who {
    fn voice(&self) -> &'static str {
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
    let web = Web::start("who", threads, vec![(Socket::Tcp(listener), who)]).expect("served");
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

    /// Who serves it.
    fn asked(&mut self) -> String {
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
        let who = one.asked();
        assert_eq!(one.asked(), who, "it stays there");
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
        let whose = both.map(|mut one| one.asked());
        if whose == [left.clone(), left.clone()] {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{left} gets none");
    }
    assert!(web.stop(Duration::from_secs(1)));
}

#[test]
fn what_any_thread_serves_is_cut_in_the_end() {
    let (web, address) = serve(2);
    let mut waiting: Vec<Kept> = (0..4).map(|_| Kept::open(address)).collect();
    for one in &mut waiting {
        // It is being served once it has answered.
        one.asked();
        one.send("/never");
    }
    assert!(web.stop(Duration::ZERO), "a thread failed");
    for one in &mut waiting {
        let mut rest = Vec::new();
        // Cut, with a reset or without.
        let _reset = one.0.read_to_end(&mut rest);
        assert!(rest.is_empty());
    }
    assert!(TcpStream::connect(address).is_err(), "nobody listens");
}
