//! Three NATS servers and three nodes over them, on this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use quintet_bench::Target;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::peers::{Ground, Process, free_port, json_of};

const NODES: [&str; 3] = ["a", "b", "c"];
/// Everything is well within this time.
const START: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// All of them; killed when it goes.
pub(crate) struct Fleet {
    program: PathBuf,
    /// Each with where clients reach it.
    nodes: Vec<(Process, Target)>,
    _servers: Vec<Process>,
    /// Where the server is reached that is first for each node.
    pub(crate) ports: Vec<u16>,
    dir: TempDir,
}

impl Fleet {
    /// Starts them, and waits until the loss of one would be survived.
    ///
    /// # Errors
    /// A program cannot be started; it takes longer than a minute.
    pub(crate) fn start(ground: &Ground, nats_server: &Path) -> Result<Self> {
        let dir = ground.dir()?;
        let own: Vec<(u16, u16)> = NODES
            .iter()
            .map(|_| Ok((free_port()?, free_port()?)))
            .collect::<Result<_>>()?;
        let mut fleet = Self {
            program: ground.quintet.clone(),
            nodes: Vec::new(),
            _servers: servers(nats_server, dir.path(), &own)?,
            ports: own.into_iter().map(|(port, _)| port).collect(),
            dir,
        };
        for at in 0..NODES.len() {
            let node = fleet.node(at)?;
            fleet.nodes.push(node);
        }
        let began = Instant::now();
        while fleet.status(0)?["survives"] != true {
            ensure!(
                began.elapsed() < START,
                "the cluster is not well: {}",
                fleet.status(0)?
            );
            std::thread::sleep(LOOK);
        }
        Ok(fleet)
    }

    fn data(&self, node: usize) -> PathBuf {
        self.dir.path().join(NODES[node]).join("data")
    }

    fn node(&self, at: usize) -> Result<(Process, Target)> {
        let folder = self.dir.path().join(NODES[at]);
        fs::create_dir(&folder)?;
        // Each has another server first.
        let count = self.ports.len();
        let nats = (0..count).map(|more| self.ports[(at + more) % count]);
        let nats: Vec<String> = nats
            .map(|port| format!("nats://127.0.0.1:{port}"))
            .collect();
        let config = format!(
            "memory = \"1GiB\"\nlog_bytes = \"1GiB\"\n\
             [cluster]\nnats = {nats:?}\nname = \"bench\"\nnode = {:?}\nlisten = \"127.0.0.1:0\"\n",
            NODES[at]
        );
        let mut command = Command::new(&self.program);
        let command = command.arg("serve");
        let (process, mut targets) = Process::quintet(command, &folder, &config, &["memcache"])?;
        let target = targets.remove("memcache");
        Ok((process, target.context("it does not listen")?))
    }

    /// The report of `quintet cluster status`.
    ///
    /// # Errors
    /// The node does not answer.
    pub(crate) fn status(&self, node: usize) -> Result<Value> {
        json_of(&self.program, &["cluster", "status"], &self.data(node))
    }

    /// The number of the node that owns.
    ///
    /// # Errors
    /// None does.
    pub(crate) fn owner(&self) -> Result<usize> {
        let status = self.status(0)?;
        let nodes = status["nodes"].as_array().context("no nodes")?;
        let owner = nodes.iter().find(|node| node["report"]["role"] == "owner");
        let name = owner.context("nobody owns")?["node"].as_str();
        let at = NODES.iter().position(|node| Some(*node) == name);
        at.context("a node of another name")
    }

    /// Where clients reach the node.
    pub(crate) fn target(&self, node: usize) -> Target {
        self.nodes[node].1.clone()
    }
}

/// Servers on these ports: for clients, and for each other.
fn servers(program: &Path, dir: &Path, ports: &[(u16, u16)]) -> Result<Vec<Process>> {
    let routes = ports
        .iter()
        .map(|(_, port)| format!("nats://127.0.0.1:{port}"));
    let routes: Vec<String> = routes.collect();
    let each = ports.iter().enumerate().map(|(at, (port, route))| {
        let folder = dir.join(format!("n{at}"));
        fs::create_dir(&folder)?;
        let config = format!(
            "server_name: n{at}\nlisten: \"127.0.0.1:{port}\"\n\
             jetstream {{ store_dir: {:?}, sync_interval: always }}\n\
             cluster {{ name: bench, listen: \"127.0.0.1:{route}\", routes: {routes:?} }}\n",
            folder.join("store")
        );
        let path = folder.join("nats.conf");
        fs::write(&path, config)?;
        let mut command = Command::new(program);
        Process::spawn(command.arg("-c").arg(path).stdout(Stdio::null()), &folder)
    });
    each.collect()
}
