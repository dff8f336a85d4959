//! A service over a simulated client API, and scripts for it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quintet_client::ScopedClient;
use quintet_scripts::{Fault, Limits, Method, NewMessage, Options, QueueConfig, Rq};
use quintet_sim::client_api::SimApi;
use quintet_types::{Body, Command, Name, Outcome, Put, Settings};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A service that stops with the test.
pub(crate) struct World {
    pub(crate) rq: Arc<Rq>,
    pub(crate) client_api: Arc<SimApi>,
    pub(crate) folder: TempDir,
}

impl Drop for World {
    fn drop(&mut self) {
        self.rq.stop();
    }
}

/// Options with short times.
pub(crate) fn options(root: &Path) -> Options {
    let mut options = Options::new(
        root.join("rq"),
        "http://127.0.0.1:3333/".to_owned(),
        vec![env!("CARGO_BIN_EXE_quintet-launch").into()],
    );
    options.allow_new_queue = true;
    options.limits = Limits {
        grace: Duration::from_millis(300),
        look_every: Duration::from_millis(50),
        ..Limits::default()
    };
    options
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Options)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut options = options(folder.path());
        change(&mut options);
        let settings = Settings {
            ends_max: 100,
            ..Settings::default()
        };
        Self::start(SimApi::ticking(settings), options, folder)
    }

    /// A service behind this client API.
    pub(crate) fn start(client_api: Arc<SimApi>, options: Options, folder: TempDir) -> Self {
        let rq = Rq::start(client_api.clone(), options, Vec::new()).expect("started");
        Self {
            rq,
            client_api,
            folder,
        }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("rq")
    }

    /// Writes an executable script.
    pub(crate) fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(format!("{name}.sh"));
        write_script(&path, text);
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

    /// Puts a message with these fields.
    pub(crate) fn put(&self, queue: &str, fields: Value) -> String {
        let new = NewMessage::from_json(&fields).expect("a message");
        self.rq.create(queue, new, Method::Commit).expect("made")
    }

    pub(crate) fn state(&self, queue: &str, id: &str) -> &'static str {
        self.rq.state(queue, id).expect("a message")
    }

    pub(crate) fn status(&self, queue: &str, id: &str) -> String {
        self.rq.status(queue, id).expect("a message")
    }

    pub(crate) fn json(&self, queue: &str, id: &str) -> Value {
        self.rq.message(queue, id).expect("a message")
    }

    /// Waits for a message to be done, relayed or in err; answers its status.
    pub(crate) fn end(&self, queue: &str, id: &str) -> String {
        eventually(&format!("{queue} {id} ends"), || {
            let status = self.status(queue, id);
            let state = status.split(' ').next().unwrap_or_default();
            ["done", "relayed", "err"]
                .contains(&state)
                .then_some(status)
        })
    }

    /// Puts a message and waits for its end.
    pub(crate) fn run(&self, queue: &str, fields: Value) -> (String, String) {
        let id = self.put(queue, fields);
        let status = self.end(queue, &id);
        (id, status)
    }

    /// Asks the shard as any other protocol does.
    pub(crate) fn ask(&self, command: Command) -> Outcome {
        ScopedClient::new(&*self.client_api).ask(command)
    }

    /// Puts a body as any other protocol does; answers the message's full id.
    pub(crate) fn put_body(&self, queue: &str, body: &[u8]) -> String {
        let before = self.ids(queue);
        let outcome = self.ask(Command::Put(Put {
            queue: Name::from(queue),
            body: Body::new(body),
            ..Put::default()
        }));
        let Outcome::Put { id, .. } = outcome else {
            panic!("{outcome:?}");
        };
        let own = format!(".{}", id.0);
        let after = self.ids(queue);
        let new = after
            .iter()
            .find(|id| id.ends_with(&own) && !before.contains(id));
        new.expect("it is there").clone()
    }

    fn ids(&self, queue: &str) -> Vec<String> {
        let states = ["prep", "que", "run", "err", "done", "relayed"];
        let lists = states.map(|state| self.rq.list(queue, state, 1000).unwrap_or_default());
        lists.concat()
    }

    /// A pipe with a name: a script that reads from it waits.
    pub(crate) fn gate(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(format!("gate-{name}"));
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0)
            .expect("a named pipe");
        path
    }

    /// Lets a script that waits at the gate go on.
    pub(crate) fn open(&self, gate: &Path) {
        fs::write(gate, "\n").expect("somebody waits");
    }

    /// A day's folder of a queue with a folder without a message, which has
    /// this file. It comes whole: a cleanup may look at any moment.
    pub(crate) fn orphan(&self, queue: &str, file: &str) -> PathBuf {
        let day = self.folder.path().join("20200101");
        let file = day.join("20200101.0000.00.000.99").join(file);
        fs::create_dir_all(file.parent().expect("its folder")).expect("made");
        fs::write(file, "a").expect("written");
        let messages = self.root().join("queue").join(queue).join("msg");
        fs::create_dir_all(&messages).expect("made");
        let there = messages.join("20200101");
        fs::rename(day, &there).expect("put there");
        there
    }

    /// Waits for a cleanup that begins from now on.
    pub(crate) fn await_cleanup(&self, queue: &str) {
        let orphan = self.orphan(queue, "job/stdio.log");
        eventually("a cleanup", || {
            (!fs::exists(&orphan).expect("readable")).then_some(())
        });
    }

    /// Content of a file beside a message.
    pub(crate) fn job_file(&self, queue: &str, id: &str, name: &str) -> Result<String, Fault> {
        let path = self.rq.log_path(queue, id, name)?;
        Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
    }
}

pub(crate) fn write_script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("made executable");
}

/// So many things at once of which each takes `files` of this process, 200 at most.
pub(crate) fn many(files: u64) -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    // Other tests need some as well.
    let half = limit.current.unwrap_or(u64::MAX) / 2;
    usize::try_from(half / files).unwrap_or(usize::MAX).min(200)
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

/// Children of this process that have ended and were not waited for.
pub(crate) fn zombies() -> usize {
    let own = std::process::id().to_string();
    let stats = fs::read_dir("/proc").expect("read").flatten();
    let stats = stats.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    stats
        .filter(|stat| {
            let (_, rest) = stat.rsplit_once(')').unwrap_or_default();
            let mut fields = rest.split_whitespace();
            fields.next() == Some("Z") && fields.next() == Some(&own)
        })
        .count()
}
