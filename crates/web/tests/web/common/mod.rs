//! RQ behind HTTP on a free port, over a simulated client API, and a client that
//! writes requests by hand.

#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod console;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quintet_http::{Settings, Socket, Web};
use quintet_scripts::{Limits, Options, QueueConfig, Rq};
use quintet_sim::client_api::SimApi;
use quintet_types::Settings as EngineSettings;
use quintet_web::Site;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct World {
    pub(crate) rq: Arc<Rq>,
    pub(crate) client_api: Arc<SimApi>,
    pub(crate) folder: TempDir,
    pub(crate) address: SocketAddr,
    pub(crate) web: Option<Web>,
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(web) = self.web.take() {
            web.stop(Duration::ZERO);
        }
        self.rq.stop();
    }
}

impl World {
    /// Queues may be made; everything else as by default.
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Settings)) -> Self {
        Self::asking("*", change)
    }

    /// One whose built-in scripts may ask these hosts.
    pub(crate) fn asking(hosts: &'static str, change: impl FnOnce(&mut Settings)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut settings = Settings {
            allow_new_queue: true,
            ..Settings::default()
        };
        change(&mut settings);
        let mut options = Options::new(
            folder.path().join("rq"),
            format!("http://{address}{}", settings.relative_root),
            vec![
                env!("CARGO_BIN_EXE_quintet-web-child").into(),
                "launch".into(),
            ],
        );
        options.allow_new_queue = true;
        options.builtin = Arc::new(move |name| {
            let child = env!("CARGO_BIN_EXE_quintet-web-child");
            Some(vec![
                child.into(),
                "script".into(),
                name.into(),
                hosts.into(),
            ])
        });
        options.limits = Limits {
            grace: Duration::from_millis(300),
            look_every: Duration::from_millis(50),
            ..Limits::default()
        };
        let client_api = SimApi::ticking(EngineSettings::default());
        let rq = Rq::start(client_api.clone(), options, Vec::new()).expect("started");
        let site = Site::new(settings, Some(Arc::clone(&rq)), client_api.clone());
        let web =
            Web::start("http", 2, vec![(Socket::Tcp(listener), site)], || None).expect("served");
        Self {
            rq,
            client_api,
            folder,
            address,
            web: Some(web),
        }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("rq")
    }

    pub(crate) fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(format!("{name}.sh"));
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
        path
    }

    /// A queue of `/bin/sh` scripts.
    pub(crate) fn queue(&self, name: &str, text: &str) {
        self.queue_with(name, text, json!({}));
    }

    pub(crate) fn queue_with(&self, name: &str, text: &str, more: Value) {
        let script = self.script(name, text);
        let mut config = json!({"name": name, "script": script, "exec_prefix": ""});
        for (key, value) in more.as_object().expect("an object") {
            config[key] = value.clone();
        }
        let config = QueueConfig::from_json(&config, None).expect("a config");
        self.rq.create_queue(config).expect("a queue");
    }

    /// A paused queue: what is put stays in `que`.
    pub(crate) fn paused_queue(&self, name: &str) {
        self.queue(name, "echo done ok >&3");
        fs::write(self.root().join(format!("config/{name}.pause")), "").expect("written");
        eventually("it is paused", || {
            let text = self.get(&format!("/q/{name}.txt")).text();
            text.contains("status: PAUSE").then_some(())
        });
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, form: &str) -> Reply {
        let kind = ("content-type", "application/x-www-form-urlencoded");
        self.ask("POST", path, &[kind], form.as_bytes())
    }

    pub(crate) fn post_json(&self, path: &str, value: &Value) -> Reply {
        let kind = ("content-type", "application/json");
        self.ask("POST", path, &[kind], value.to_string().as_bytes())
    }

    /// A multipart form as curl sends it: a field whose name begins with `@`
    /// is a file, `@NAME=FILE`.
    pub(crate) fn post_parts(&self, path: &str, parts: &[(&str, &[u8])]) -> Reply {
        let kind = ("content-type", "multipart/form-data; boundary=---x");
        self.ask("POST", path, &[kind], &multipart(parts))
    }

    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Reply {
        let mut stream = self.connect();
        let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "host") {
            head += &format!("host: {}\r\n", self.address);
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("content-length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).expect("sent");
        // A server that has answered already may read no more.
        let _cut = stream.write_all(body);
        Reply::read(&mut stream)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        stream
    }

    /// Makes a message and answers its short id.
    pub(crate) fn message(&self, queue: &str, fields: Value) -> String {
        let reply = self.post_json(&format!("/q/{queue}/new_message"), &fields);
        let value = reply.json();
        assert_eq!(value[0], "ok", "{value}");
        let full = value[1].as_str().expect("an id");
        full.rsplit('/').next().expect("a short id").to_owned()
    }

    pub(crate) fn state(&self, queue: &str, id: &str) -> String {
        let state = self.get(&format!("/q/{queue}/{id}/state.json")).json();
        state[0].as_str().expect("a state").to_owned()
    }

    pub(crate) fn json(&self, queue: &str, id: &str) -> Value {
        self.get(&format!("/q/{queue}/{id}.json")).json()
    }

    /// Waits for a message's end; answers its status.
    pub(crate) fn end(&self, queue: &str, id: &str) -> String {
        eventually(&format!("{queue}/{id} ends"), || {
            let state = self.state(queue, id);
            let over = ["done", "relayed", "err"].contains(&state.as_str());
            over.then(|| {
                self.json(queue, id)["status"]
                    .as_str()
                    .expect("text")
                    .to_owned()
            })
        })
    }
}

pub(crate) fn multipart(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, value) in parts {
        let (name, file) = match name.strip_prefix('@').and_then(|n| n.split_once('=')) {
            Some((name, file)) => (name, format!("; filename=\"{file}\"")),
            None => (*name, String::new()),
        };
        let head =
            format!("-----x\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(value);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"-----x--\r\n");
    body
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// Reads to the end of the connection.
    pub(crate) fn read(stream: &mut TcpStream) -> Self {
        let mut bytes = Vec::new();
        // A reset behind the reply is no matter.
        let _reset = stream.read_to_end(&mut bytes);
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no reply: {:?}", String::from_utf8_lossy(&bytes)));
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1));
        let status = status.and_then(|code| code.parse().ok()).expect("a status");
        let header = |line: &str| {
            let (name, value) = line.split_once(": ")?;
            Some((name.to_ascii_lowercase(), value.to_owned()))
        };
        Self {
            status,
            headers: lines.filter_map(header).collect(),
            body: bytes[end + 4..].to_vec(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find_map(|(known, value)| (known == name).then_some(value.as_str()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("text")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.text()))
    }

    /// Where a redirect leads.
    pub(crate) fn leads_to(&self) -> &str {
        assert_eq!(self.status, 303, "{}", self.text());
        self.header("location").expect("a location")
    }
}

/// Asks until there is an answer.
pub(crate) fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
