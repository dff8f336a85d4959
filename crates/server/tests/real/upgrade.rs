//! Nodes of an older build, replaced one by one by this one.

use std::io;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use quintet_sim::history::{Answer, ClientRequest, History};

use crate::common::{Connection, PATIENCE, text};
use crate::node::{Cluster, first_to_say};
use crate::servers::until;

/// Puts that are acknowledged between two replacements.
const PUTS: u64 = 100;
/// Between two puts of a client: the check looks at every pair of messages.
const PAUSE: Duration = Duration::from_millis(20);

/// Clients of all nodes, and their history.
#[derive(Default)]
struct Load {
    history: Mutex<History>,
    addresses: Mutex<Vec<String>>,
    /// Of connections and bodies; rises.
    number: AtomicU64,
    stored: AtomicU64,
    over: AtomicBool,
}

impl Load {
    fn next(&self) -> u64 {
        self.number.fetch_add(1, Ordering::SeqCst)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    fn history(&self) -> std::sync::MutexGuard<'_, History> {
        self.history.lock().expect("nobody panics with it")
    }

    /// A client that goes to another node when its connection breaks.
    fn client(&self, ask: impl Fn(&mut Connection, u64) -> io::Result<()>) {
        while !self.is_over() {
            let connection = self.next();
            let address = {
                let addresses = self.addresses.lock().expect("nobody panics with it");
                let at = usize::try_from(connection).expect("few") % addresses.len();
                addresses[at].clone()
            };
            let Ok(mut stream) = Connection::tcp(&address, PATIENCE) else {
                std::thread::sleep(PAUSE);
                continue;
            };
            while !self.is_over() && ask(&mut stream, connection).is_ok() {}
            self.history().closed(connection);
        }
    }

    fn put(&self, stream: &mut Connection, connection: u64) -> io::Result<()> {
        std::thread::sleep(PAUSE);
        let (body, call) = {
            let mut history = self.history();
            let body = self.next();
            (
                body,
                history.begin_call(connection, 0, ClientRequest::Put(body)),
            )
        };
        let bytes = body.to_string();
        stream.send(format!("set q 0 0 {}\r\n{bytes}\r\n", bytes.len()).as_bytes())?;
        let line = stream.line()?;
        if line != "STORED" {
            return Err(io::Error::other(line));
        }
        // Its id is told by no reply; bodies rise as ids do.
        self.history().answered(call, 0, Answer::Stored(body));
        self.stored.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// Takes a message under a lease, and finishes it.
    fn take(&self, stream: &mut Connection, connection: u64) -> io::Result<()> {
        let ask = ClientRequest::Take { removes: false };
        let call = self.history().begin_call(connection, 0, ask);
        stream.send(b"get q/open/t=200\r\n")?;
        let Some(bytes) = stream.value()? else {
            self.history().answered(call, 0, Answer::Empty);
            return Ok(());
        };
        let body = number(&text(&bytes));
        self.history().answered(call, 0, Answer::Got(body));
        let ask = ClientRequest::Finish(body);
        let call = self.history().begin_call(connection, 0, ask);
        stream.send(b"get q/close\r\n")?;
        if let Some(other) = stream.value()? {
            return Err(io::Error::other(text(&other)));
        }
        self.history().answered(call, 0, Answer::Done);
        Ok(())
    }

    /// Waits until clients are served again.
    fn goes_on(&self) {
        let before = self.stored.load(Ordering::SeqCst);
        until("puts are acknowledged", || {
            (self.stored.load(Ordering::SeqCst) >= before + PUTS).then_some(())
        });
    }
}

fn number(body: &str) -> u64 {
    body.parse().expect("a body of ours")
}

/// Ends the clients, also after a panic.
struct Ends<'a>(&'a Load);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::SeqCst);
    }
}

#[test]
#[ignore = "needs nats-server, and QUINTET_OLD"]
fn nodes_of_an_older_build_are_replaced_one_by_one_under_load() {
    let old = std::env::var_os("QUINTET_OLD").expect("QUINTET_OLD: the program of an older build");
    let old = PathBuf::from(old);
    let cluster = Cluster::start("upgrade");
    let names = ["a", "b", "c"];
    let mut nodes: Vec<_> = names.map(|name| cluster.old_node(&old, name)).into();
    let owner = first_to_say(&mut nodes, "quintet owner");
    for at in [owner + 1, owner + 2] {
        nodes[at % 3].wait_for("quintet standby of");
    }
    let load = Load {
        addresses: Mutex::new(nodes.iter().map(|node| node.address().to_owned()).collect()),
        ..Load::default()
    };
    std::thread::scope(|scope| {
        let _ends = Ends(&load);
        for _ in 0..2 {
            scope.spawn(|| load.client(|stream, connection| load.put(stream, connection)));
        }
        scope.spawn(|| load.client(|stream, connection| load.take(stream, connection)));
        load.goes_on();
        // The owner last: an older node reads no entries of a newer one.
        for at in (owner + 1..owner + 3).chain([owner]).map(|at| at % 3) {
            assert!(nodes[at].terminate().success(), "{}", names[at]);
            nodes[at] = cluster.node(names[at], "");
            nodes[at].wait_for("quintet standby of");
            load.addresses.lock().expect("no panic")[at] = nodes[at].address().to_owned();
            load.goes_on();
        }
    });
    let mut client = nodes[0].client();
    let mut history = load.history();
    loop {
        let call = history.begin_call(u64::MAX, 0, ClientRequest::Take { removes: true });
        let Some(body) = client.take() else {
            history.answered(call, 0, Answer::Empty);
            break;
        };
        history.answered(call, 0, Answer::Got(number(&body)));
    }
    eprintln!("{} acknowledged", history.acknowledged());
    if let Err(broken) = history.check() {
        panic!("{broken}");
    }
}
