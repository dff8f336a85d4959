//! The processes: three NATS servers and three nodes, on ports that stay theirs.

use std::fs::{File, OpenOptions};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use quintet_sim::Random;
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::ledger::VOICES;
use crate::server::{Era, PATIENCE, listeners, pid_of};
use crate::voices::{Addresses, CONTROL};

/// Servers, and nodes.
pub(super) const COUNT: usize = 3;
pub(super) const NODES: [&str; COUNT] = ["a", "b", "c"];

/// A process that is started again and again with the same arguments.
pub(super) struct Process {
    name: String,
    program: PathBuf,
    args: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
}

impl Process {
    fn new(name: &str, program: &Path, args: &[&str], log: PathBuf) -> Self {
        Self {
            name: name.to_owned(),
            program: program.to_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            log,
            child: None,
        }
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
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        self.child = Some(child);
        Ok(())
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        let child = self.child.as_ref().context("it does not run")?;
        kill_process(pid_of(child)?, signal)
            .with_context(|| format!("{} is not there to get {signal:?}", self.name))
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
            bail!("{} ended ({status}):\n{}", self.name, self.said());
        }
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        if let Some(at) = text.find("panicked") {
            let from = text[..at].rfind('\n').unwrap_or(0);
            let shown: String = text[from..].chars().take(1000).collect();
            bail!("{} panicked:{shown}", self.name);
        }
        Ok(())
    }

    fn said(&self) -> String {
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

/// A port nobody has, below those that the system gives to clients: one of those could take it
/// while its node is away, or even be connected to itself.
fn free_port(random: &mut Random) -> Result<u16> {
    for _ in 0..1000 {
        let port = 11_000 + random.below(21_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port is free")
}

/// All of them.
pub(super) struct Fleet {
    pub(super) servers: Vec<Process>,
    pub(super) nodes: Vec<Process>,
    /// Where each node's clients go.
    pub(super) addresses: Vec<Addresses>,
    folder: PathBuf,
}

impl Fleet {
    /// Starts all in `era`'s folder.
    pub(super) fn start(quintet: &Path, nats_server: &Path, era: &Era) -> Result<Self> {
        let folder = era.folder().to_owned();
        // Ports are no matter of the seed: others have theirs.
        let time = std::time::UNIX_EPOCH.elapsed()?.as_nanos() as u64;
        let mut ports = Random::new(time ^ u64::from(std::process::id()));
        let mut port = || free_port(&mut ports);
        let own: Vec<(u16, u16)> = (0..COUNT)
            .map(|_| Ok((port()?, port()?)))
            .collect::<Result<_>>()?;
        let servers = servers(nats_server, &folder, &own)?;
        let nats = own
            .iter()
            .map(|(port, _)| format!("nats://127.0.0.1:{port}"));
        let nats: Vec<String> = nats.collect();
        let (mut nodes, mut addresses) = (Vec::new(), Vec::new());
        for (at, name) in NODES.iter().enumerate() {
            let data = folder.join(name);
            let mut at_node = Addresses {
                of: Default::default(),
                binary: quintet.to_owned(),
                data: data.clone(),
            };
            for voice in (0..VOICES.len()).filter(|voice| *voice != CONTROL) {
                at_node.of[voice] = format!("127.0.0.1:{}", port()?);
            }
            // Each has another of the servers first.
            let nats: Vec<&String> = (0..COUNT).map(|more| &nats[(at + more) % COUNT]).collect();
            let config = format!(
                "{}data = {data:?}\nsegment_bytes = \"4MiB\"\nlog_bytes = \"16MiB\"\n\
                 memory = \"256MiB\"\nchunk_bytes = \"64KiB\"\n{}{}\
                 [cluster]\nnats = {nats:?}\nname = \"torment\"\nnode = {name:?}\n\
                 listen = \"127.0.0.1:{}\"\n",
                era.shared(),
                era.queues(),
                listeners(|voice| at_node.of[voice].clone()),
                port()?,
            );
            let path = folder.join(format!("{name}.toml"));
            std::fs::write(&path, config)?;
            let path = path.display().to_string();
            let log = folder.join(format!("{name}.log"));
            nodes.push(Process::new(
                name,
                quintet,
                &["serve", "--config", &path],
                log,
            ));
            addresses.push(at_node);
        }
        let mut fleet = Self {
            servers,
            nodes,
            addresses,
            folder,
        };
        for process in fleet.servers.iter_mut().chain(&mut fleet.nodes) {
            process.start()?;
        }
        Ok(fleet)
    }

    /// Where the server keeps what it has.
    pub(super) fn store(&self, server: usize) -> PathBuf {
        self.folder.join(format!("n{server}"))
    }

    /// What a node says of all.
    pub(super) fn status(&self, node: usize) -> Option<Value> {
        let addresses = &self.addresses[node];
        let output = Command::new(&addresses.binary)
            .args(["cluster", "status", "--json", "--data"])
            .arg(&addresses.data)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output();
        serde_json::from_slice(&output.ok()?.stdout).ok()
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

/// NATS servers on these ports: for clients, and for each other.
fn servers(program: &Path, folder: &Path, ports: &[(u16, u16)]) -> Result<Vec<Process>> {
    let routes = ports
        .iter()
        .map(|(_, port)| format!("nats://127.0.0.1:{port}"));
    let routes: Vec<String> = routes.collect();
    let each = ports.iter().enumerate().map(|(at, (port, route))| {
        let name = format!("n{at}");
        let store = folder.join(&name);
        let config = format!(
            "server_name: {name}\nlisten: \"127.0.0.1:{port}\"\n\
             jetstream {{ store_dir: {store:?}, sync_interval: always }}\n\
             cluster {{ name: torment, listen: \"127.0.0.1:{route}\", routes: {routes:?} }}\n"
        );
        let path = folder.join(format!("{name}.conf"));
        std::fs::write(&path, config)?;
        let path = path.display().to_string();
        let log = folder.join(format!("{name}.log"));
        Ok(Process::new(&name, program, &["-c", &path], log))
    });
    each.collect()
}
