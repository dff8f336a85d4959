//! A stop while requests wait for shards that do not answer.

use std::io::{self, Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use quintet_client::{Arrive, ClientApi, OnOutcome, StoreError};
use quintet_http::{Settings, Socket, Web};
use quintet_sim::client_api::SimApi;
use quintet_types::{Body, Caller, ClientId, Command, Ms, Name, Settings as EngineSettings};
use quintet_web::Site;

use crate::common::PATIENCE;

/// Longer than a stop takes that waits for nothing.
const GRACE: Duration = Duration::from_secs(30);

/// Shards that keep their answers.
struct Mute {
    client_api: Arc<SimApi>,
    kept: Mutex<Vec<OnOutcome>>,
    tell: mpsc::Sender<()>,
}

impl ClientApi for Mute {
    fn now(&self) -> Ms {
        self.client_api.now()
    }

    fn wall(&self) -> Ms {
        self.client_api.wall()
    }

    fn epoch(&self) -> u64 {
        self.client_api.epoch()
    }

    fn enter(&self, arrive: Arrive) -> ClientId {
        self.client_api.enter(arrive)
    }

    fn leave(&self, client_id: ClientId) {
        self.client_api.leave(client_id);
    }

    fn submit(&self, _: Caller, _: Command, reply: OnOutcome) {
        self.kept.lock().expect("healthy").push(reply);
        self.tell.send(()).expect("somebody waits");
    }

    fn read(&self, body: &Body, from: u64, into: &mut [u8]) -> io::Result<usize> {
        self.client_api.read(body, from, into)
    }

    fn store(&self, queue: &Name, len: u64, source: &mut dyn Read) -> Result<Body, StoreError> {
        self.client_api.store(queue, len, source)
    }
}

/// All that a stop answers to a request, and how long the stop took.
fn stopped(request: &str, grace: Duration) -> (String, Duration) {
    let (tell, asked) = mpsc::channel();
    let client_api = Arc::new(Mute {
        client_api: SimApi::ticking(EngineSettings::default()),
        kept: Mutex::default(),
        tell,
    });
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let site = Site::of_api(Settings::default(), client_api);
    let web = Web::start("http", 1, vec![(Socket::Tcp(listener), site)], || None).expect("served");
    let mut client = TcpStream::connect(address).expect("connected");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    client.write_all(request.as_bytes()).expect("sent");
    asked.recv_timeout(PATIENCE).expect("the shards are asked");
    let began = Instant::now();
    assert!(web.stop(grace));
    let took = began.elapsed();
    let mut reply = String::new();
    // One that is cut may be reset.
    let _reset = client.read_to_string(&mut reply);
    (reply, took)
}

#[test]
fn a_read_under_way_is_answered_by_a_stop() {
    for path in ["/api/v1/queues", "/api/v1/queues/q"] {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        let (reply, took) = stopped(&request, GRACE);
        assert!(reply.starts_with("HTTP/1.1 503 "), "{path}: {reply}");
        assert!(reply.contains("stopping"), "{path}: {reply}");
        assert!(took < GRACE / 2, "{path}: {took:?}");
    }
}

/// It may be done: nobody says that it was not.
#[test]
fn a_change_under_way_is_not_refused_by_a_stop() {
    let body = r#"{"messages":[{"body":"x"}]}"#;
    let request = format!(
        "POST /api/v1/queues/q/messages HTTP/1.1\r\nhost: localhost\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let (reply, _) = stopped(&request, Duration::from_secs(1));
    assert_eq!(reply, "");
}
