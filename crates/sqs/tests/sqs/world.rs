//! The protocol on a free port, over a client API that a test has.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quintet_client::ClientApi;
use quintet_http::{Settings, Socket, Web};
use quintet_sim::client_api::SimApi;
use quintet_sqs::{Keys, Options, Secrets, Sqs};
use quintet_types::{Ms, QueueSettings, Settings as EngineSettings};
use serde_json::Value;

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
pub(crate) const BEGIN: Ms = Ms(1_800_000_000_000);

/// A client API over a bare engine, whose time stands.
pub(crate) fn sim() -> Arc<SimApi> {
    SimApi::new(EngineSettings::default(), BEGIN)
}

/// A service, until it is dropped.
pub(crate) struct Served {
    address: SocketAddr,
    web: Mutex<Option<Web>>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

impl Served {
    pub(crate) fn new(client_api: Arc<dyn ClientApi>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let options = Options {
            account: "000000000000".to_owned(),
            region: "us-east-1".to_owned(),
            url: String::new(),
            keys: Keys::default(),
            auto_create: false,
            open: false,
            message_bytes_max: 1 << 20,
            retry_window: Duration::ZERO,
            purge_interval: Duration::ZERO,
            recreate_after: Duration::ZERO,
        };
        let sqs = Sqs::new(
            Settings::default(),
            options,
            Secrets::new(&[7; Secrets::BYTES]),
            Arc::new(|_| QueueSettings::default()),
            client_api,
        );
        let web =
            Web::start("sqs", 2, vec![(Socket::Tcp(listener), sqs)], || None).expect("served");
        Self {
            address,
            web: Mutex::new(Some(web)),
        }
    }

    /// Stops it, if that was not done. Requests that came before have so long.
    pub(crate) fn stop(&self, grace: Duration) {
        let web = self
            .web
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(web) = web {
            web.stop(grace);
        }
    }

    /// The status, and what came.
    pub(crate) fn ask(&self, action: &str, input: &Value) -> (u16, Value) {
        let body = input.to_string();
        let request = format!(
            "POST / HTTP/1.1\r\nHost: {}\r\nContent-Type: application/x-amz-json-1.0\r\n\
             X-Amz-Target: AmazonSQS.{action}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n\
             {body}",
            self.address,
            body.len()
        );
        let mut socket = TcpStream::connect(self.address).expect("connected");
        socket.set_read_timeout(Some(PATIENCE)).expect("set");
        socket.write_all(request.as_bytes()).expect("sent");
        let mut reader = BufReader::new(socket);
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line");
        let status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
        let mut rest = String::new();
        reader.read_to_string(&mut rest).expect("all of it");
        let (_, body) = rest.split_once("\r\n\r\n").expect("a head");
        let body = serde_json::from_str(body).expect("JSON");
        (status.expect("a status"), body)
    }

    pub(crate) fn yes(&self, action: &str, input: &Value) -> Value {
        let (status, body) = self.ask(action, input);
        assert_eq!(status, 200, "{action}: {body}");
        body
    }
}
