//! A stop while requests wait for shards that do not answer.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use quintet_client::OnOutcome;
use quintet_http::{Settings, Socket, Web};
use quintet_sim::{Intercepted, client_api::SimApi};
use quintet_types::Settings as EngineSettings;
use quintet_web::Site;

use crate::common::PATIENCE;

/// Longer than a stop takes that waits for nothing.
const GRACE: Duration = Duration::from_secs(30);

/// All that a stop answers to a request, and how long the stop took.
fn stopped(request: &str, grace: Duration) -> (String, Duration) {
    let (sender, receiver) = mpsc::channel();
    // Shards that keep their answers.
    let kept: Mutex<Vec<OnOutcome>> = Mutex::default();
    let shards = SimApi::ticking(EngineSettings::default());
    let client_api = Intercepted::new(shards, move |_, _, _, reply| {
        kept.lock().expect("healthy").push(reply);
        sender.send(()).expect("somebody waits");
    });
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let site = Site::new(Settings::default(), None, client_api);
    let web = Web::start("http", 1, vec![(Socket::Tcp(listener), site)], || None).expect("served");
    let mut client = TcpStream::connect(address).expect("connected");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    client.write_all(request.as_bytes()).expect("sent");
    receiver
        .recv_timeout(PATIENCE)
        .expect("the shards are asked");
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
