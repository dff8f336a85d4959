//! The processes: three NATS servers and three nodes, on ports that stay theirs.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use quintet_faults::{Faults, Undo};
use quintet_sim::Random;
use quintet_testkit::stands_still;
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use super::links::Links;
use super::stores::Disk;
use super::{COUNT, SHORT};
use crate::Args;
use crate::ledger::PROTOCOLS;
use crate::protocols::{Addresses, CONTROL};
use crate::server::{Generation, PATIENCE, listeners, pid_of};

pub(super) const NODES: [&str; COUNT] = ["a", "b", "c"];

/// A setting of every server.
const ALWAYS: &str = "sync_interval: always";

/// A process that is started again and again with the same arguments.
pub(super) struct Process {
    name: String,
    program: PathBuf,
    args: Vec<String>,
    log: PathBuf,
    faults: Option<Arc<Faults>>,
    child: Option<Child>,
}

impl Process {
    fn new(name: &str, program: &Path, args: &[&str], log: PathBuf) -> Self {
        Self {
            name: name.to_owned(),
            program: program.to_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            log,
            faults: None,
            child: None,
        }
    }

    /// The next start is of this program.
    pub(super) fn replace(&mut self, program: &Path) {
        program.clone_into(&mut self.program);
    }

    pub(super) fn start(&mut self) -> Result<()> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        if let Some(faults) = &self.faults {
            faults.attach(&mut command);
        }
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        self.child = Some(child);
        Ok(())
    }

    /// Sends a signal; after SIGSTOP this returns when all threads stand still.
    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        let child = self.child.as_ref().context("it does not run")?;
        kill_process(pid_of(child)?, signal)
            .with_context(|| format!("{} is not there to get {signal:?}", self.name))?;
        let began = Instant::now();
        while signal == Signal::STOP && !stands_still(child.id()) {
            ensure!(began.elapsed() < PATIENCE, "{} goes on", self.name);
            std::thread::sleep(SHORT);
        }
        Ok(())
    }

    /// Its threads.
    pub(super) fn threads(&self) -> Result<Vec<u64>> {
        let child = self.child.as_ref().context("it does not run")?;
        let threads = std::fs::read_dir(format!("/proc/{}/task", child.id()))?;
        let threads = threads.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        Ok(threads.collect())
    }

    /// `kill -9`; it need not run.
    pub(super) fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Waits for its end, which something has caused.
    pub(super) fn end(&mut self) -> Result<ExitStatus> {
        let mut child = self.child.take().context("it does not run")?;
        let began = Instant::now();
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            if began.elapsed() > PATIENCE {
                child.kill()?;
                child.wait()?;
                bail!("{} does not end within {PATIENCE:?}", self.name);
            }
            std::thread::sleep(super::SHORT);
        }
    }

    /// Whether it runs, as it should, and has not panicked.
    fn is_well(&mut self) -> Result<()> {
        if let Some(child) = &mut self.child
            && let Some(status) = child.try_wait()?
        {
            bail!("{} ended ({status}):\n{}", self.name, self.stderr_text());
        }
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        if let Some(at) = text.find("panicked") {
            let from = text[..at].rfind('\n').unwrap_or(0);
            let shown: String = text[from..].chars().take(1000).collect();
            bail!("{} panicked:{shown}", self.name);
        }
        Ok(())
    }

    fn stderr_text(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Errors: it is gone already. One that is stopped is killed all the same.
        self.kill().ok();
    }
}

/// Ports nobody has, below those that the system gives to clients: one of those could take one
/// while its node is away, or even be connected to itself.
struct Ports {
    random: Random,
    /// Nobody listens there yet.
    assigned: BTreeSet<u16>,
}

impl Ports {
    fn another(&mut self) -> Result<u16> {
        for _ in 0..1000 {
            let port = 11_000 + self.random.below(21_000) as u16;
            if TcpListener::bind(("127.0.0.1", port)).is_ok() && self.assigned.insert(port) {
                return Ok(port);
            }
        }
        bail!("no port is free")
    }
}

/// The options of a fleet.
#[derive(Clone, Copy)]
pub(super) struct Made {
    /// Each server has a file system of its own.
    pub(super) power: bool,
    /// Servers have a user who may remove a peer.
    pub(super) peers: bool,
    /// The links between nodes are under TLS.
    pub(super) tls: bool,
}

pub(super) struct Fleet {
    pub(super) servers: Vec<Process>,
    pub(super) nodes: Vec<Process>,
    /// Where each node's clients go.
    pub(super) addresses: Vec<Addresses>,
    pub(super) links: Links,
    /// Each node's wall clock, among others.
    pub(super) faults: Vec<Arc<Faults>>,
    /// Where servers take clients, and where they tell how they are.
    ports: Vec<u16>,
    monitors: Vec<u16>,
    pub(super) folder: PathBuf,
    made: Made,
    /// How often each server was replaced by one of another name.
    replaced: [usize; COUNT],
    /// The name of the cluster, which is another after each `adopt`.
    pub(super) cluster: String,
    /// The servers' stores, where their power can be cut. Behind the processes that use them.
    pub(super) disks: Vec<Disk>,
}

impl Fleet {
    /// Starts all in the folder of `generation`.
    pub(super) fn start(args: &Args, generation: &Generation, made: Made) -> Result<Self> {
        let (quintet, build) = (&args.quintet, &args.scratch);
        let folder = generation.folder().to_owned();
        // Ports are no matter of the seed: others have theirs.
        let time = std::time::UNIX_EPOCH.elapsed()?.as_nanos() as u64;
        let mut ports = Ports {
            random: Random::new(time ^ u64::from(std::process::id())),
            assigned: BTreeSet::new(),
        };
        let mut three = || (0..COUNT).map(|_| ports.another()).collect::<Result<_>>();
        let (clients, routes, joints): (Vec<u16>, Vec<u16>, Vec<u16>) =
            (three()?, three()?, three()?);
        let monitors = three()?;
        let links = Links::start(&clients, &routes, &joints)?;
        let mut fleet = Self {
            servers: Vec::new(),
            nodes: Vec::new(),
            addresses: Vec::new(),
            links,
            faults: Vec::new(),
            ports: clients,
            monitors,
            folder,
            made,
            replaced: [0; COUNT],
            cluster: "stress".to_owned(),
            disks: Vec::new(),
        };
        if made.tls {
            super::tls::write(&fleet.folder).context("certificates")?;
        }
        if made.power {
            let stores: Vec<PathBuf> = (0..COUNT).map(|server| fleet.store(server)).collect();
            fleet.disks = Disk::all(&stores).context("file systems of their own")?;
        }
        for (at, route) in routes.into_iter().enumerate() {
            fleet.write_server(at, route)?;
            let name = format!("n{at}");
            let path = fleet.server_file(at).display().to_string();
            let log = fleet.folder.join(format!("{name}.log"));
            let server = Process::new(&name, &args.nats_server, &["-c", &path], log);
            fleet.servers.push(server);
        }
        for (at, joint) in joints.into_iter().enumerate() {
            let mut port = || ports.another();
            fleet.add_node(at, joint, quintet, generation, build, &mut port)?;
        }
        let processes = fleet.servers.iter_mut().chain(&mut fleet.nodes);
        for process in processes {
            process.start()?;
        }
        Ok(fleet)
    }

    fn server_file(&self, server: usize) -> PathBuf {
        self.folder.join(format!("n{server}.conf"))
    }

    fn write_server(&self, server: usize, route: u16) -> Result<()> {
        let store = self.store(server);
        let routes = self.links.routes_of(server).into_iter();
        let routes: Vec<String> = routes
            .map(|port| format!("nats://127.0.0.1:{port}"))
            .collect();
        let user = match self.made.peers {
            true => "accounts { $SYS { users: [ { user: sys, password: sys } ] } }\n",
            false => "",
        };
        // What servers tell each other and clients of where they are would lead past the proxies.
        let config = format!(
            "server_name: n{server}\nlisten: \"127.0.0.1:{}\"\nhttp: \"127.0.0.1:{}\"\n\
             jetstream {{ store_dir: {store:?}, {ALWAYS} }}\n\
             cluster {{ name: stress, listen: \"127.0.0.1:{route}\", no_advertise: true, \
             advertise: \"127.0.0.1:1\", routes: {routes:?} }}\n{user}",
            self.ports[server], self.monitors[server]
        );
        Ok(std::fs::write(self.server_file(server), config)?)
    }

    fn add_node(
        &mut self,
        at: usize,
        joint: u16,
        quintet: &Path,
        generation: &Generation,
        build: &Path,
        port: &mut dyn FnMut() -> Result<u16>,
    ) -> Result<()> {
        let name = NODES[at];
        let data = self.folder.join(name);
        let mut addresses = Addresses::new(quintet, &data);
        for protocol in (0..PROTOCOLS.len()).filter(|protocol| *protocol != CONTROL) {
            addresses.of[protocol] = format!("127.0.0.1:{}", port()?);
        }
        let nats = self.links.servers_of(at).into_iter();
        let nats: Vec<String> = nats
            .map(|port| format!("nats://127.0.0.1:{port}"))
            .collect();
        let monitors = self.monitors.iter();
        let monitors: Vec<String> = monitors.map(|port| format!("127.0.0.1:{port}")).collect();
        let tls = match self.made.tls {
            true => super::tls::settings(&self.folder),
            false => String::new(),
        };
        let config = format!(
            "{}data = {data:?}\nsegment_bytes = \"4MiB\"\nlog_bytes = \"16MiB\"\n\
             memory = \"256MiB\"\nchunk_bytes = \"64KiB\"\n{}{}\
             [cluster]\nnats = {nats:?}\nmonitor = {monitors:?}\nname = {:?}\nnode = {name:?}\n\
             listen = \"127.0.0.1:{joint}\"\nadvertise = \"127.0.0.1:{}\"\n{tls}",
            generation.shared(),
            generation.queues(),
            listeners(|protocol| addresses.of[protocol].clone()),
            self.cluster,
            self.links.of_node(at),
        );
        let path = self.node_file(at);
        std::fs::write(&path, config)?;
        let control = self.folder.join(format!("{name}.control"));
        let faults = Faults::new(build, &control, &data).context("the library of faults")?;
        faults.undo(Undo::Nothing);
        let faults = Arc::new(faults);
        let (path, log) = (path.display().to_string(), format!("{name}.log"));
        let args = ["serve", "--config", &path];
        let mut node = Process::new(name, quintet, &args, self.folder.join(log));
        node.faults = Some(Arc::clone(&faults));
        self.nodes.push(node);
        self.faults.push(faults);
        self.addresses.push(addresses);
        Ok(())
    }

    /// The node's configuration.
    pub(super) fn node_file(&self, node: usize) -> PathBuf {
        self.folder.join(format!("{}.toml", NODES[node]))
    }

    /// The server's name.
    pub(super) fn server_name(&self, server: usize) -> String {
        match self.replaced[server] {
            0 => format!("n{server}"),
            times => format!("n{server}-{times}"),
        }
    }

    /// From its next start on the server has another name.
    pub(super) fn rename_server(&mut self, server: usize) -> Result<()> {
        let line = |name: &str| format!("server_name: {name}\n");
        let before = line(&self.server_name(server));
        self.replaced[server] += 1;
        let path = self.server_file(server);
        let text = std::fs::read_to_string(&path)?;
        Ok(std::fs::write(
            path,
            text.replace(&before, &line(&self.server_name(server))),
        )?)
    }

    /// Where the server keeps what it has.
    pub(super) fn store(&self, server: usize) -> PathBuf {
        self.folder.join(format!("n{server}"))
    }

    /// From its next start on the server may keep so many bytes; or, with none, as many as there is
    /// room for.
    pub(super) fn limit_store(&self, server: usize, bytes: Option<u64>) -> Result<()> {
        let path = self.server_file(server);
        let text = std::fs::read_to_string(&path)?;
        let (start, rest) = text.split_once(ALWAYS).context("its configuration")?;
        let (_, end) = rest.split_once(" }").context("its configuration")?;
        let limit = bytes.map_or_else(String::new, |bytes| format!(", max_file_store: {bytes}"));
        Ok(std::fs::write(
            path,
            format!("{start}{ALWAYS}{limit} }}{end}"),
        )?)
    }

    /// A node's report about all nodes.
    pub(super) fn status(&self, node: usize) -> Option<Value> {
        serde_json::from_str(&self.status_output(node, &["--json"])).ok()
    }

    /// The same as text.
    pub(super) fn status_text(&self, node: usize) -> String {
        self.status_output(node, &[])
    }

    fn status_output(&self, node: usize, options: &[&str]) -> String {
        let addresses = &self.addresses[node];
        let output = Command::new(&addresses.binary)
            .args(["cluster", "status", "--data"])
            .arg(&addresses.data)
            .args(options)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output();
        let reported = output.map_or_else(|_| Vec::new(), |output| output.stdout);
        String::from_utf8_lossy(&reported).into_owned()
    }

    /// Asks that this server leads the stream. Nobody may answer while there is no leader.
    pub(super) fn lead(&self, stream: &str, server: usize) -> Result<()> {
        let name = self.server_name(server);
        let subject = format!("$JS.API.STREAM.LEADER.STEPDOWN.{stream}");
        let ask = format!("{{\"placement\":{{\"preferred\":{name:?}}}}}");
        let reported = self.request(server, "{}", &subject, &ask)?;
        Ok(writeln!(self.log()?, "  {name} is to lead: {reported}")?)
    }

    /// Asks that the server of this name is no peer of the others any more, by one of those;
    /// whether it is so. Nobody may answer while they have no leader.
    pub(super) fn remove_peer(&self, by: usize, name: &str) -> Result<bool> {
        let user = "{\"user\":\"sys\",\"pass\":\"sys\"}";
        let ask = format!("{{\"peer\":{name:?}}}");
        let reported = self.request(by, user, "$JS.API.SERVER.REMOVE", &ask)?;
        writeln!(self.log()?, "  {name} is to be no peer: {reported}")?;
        Ok(reported.contains("\"success\":true"))
    }

    /// Asks JetStream through this server, as `user`; the answer, if one comes.
    pub(super) fn request(
        &self,
        server: usize,
        user: &str,
        subject: &str,
        ask: &str,
    ) -> Result<String> {
        let mut socket = TcpStream::connect(("127.0.0.1", self.ports[server]))?;
        socket.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(
            socket,
            "CONNECT {user}\r\nSUB answer 1\r\nPUB {subject} answer {}\r\n{ask}\r\n",
            ask.len()
        )?;
        let lines = BufReader::new(socket).lines().map_while(Result::ok);
        let reported = lines.skip_while(|line| !line.starts_with("MSG")).nth(1);
        Ok(reported.unwrap_or_else(|| "no answer".to_owned()))
    }

    /// All that should run does.
    pub(super) fn is_well(&mut self) -> Result<()> {
        let mut all = self.servers.iter_mut().chain(&mut self.nodes);
        all.try_for_each(Process::is_well)
    }

    /// Kills all; errors: one is gone already.
    pub(super) fn end(&mut self) {
        for process in self.servers.iter_mut().chain(&mut self.nodes) {
            process.kill().ok();
        }
    }

    /// A file for lines of what was done.
    pub(super) fn log(&self) -> Result<File> {
        let path = self.folder.join("rounds.log");
        Ok(OpenOptions::new().create(true).append(true).open(path)?)
    }
}
