//! The log moved elsewhere while clients ask on: a peer replaced, reseed, detach and adopt.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::process::Signal;

use super::fleet::{Fleet, NODES, Process};
use super::inflict::{acknowledged, other};
use super::stores::empty;
use super::{COUNT, Campaign, SHORT};
use crate::load::Load;
use crate::server::PATIENCE;

impl Campaign<'_> {
    /// A server that is gone is removed from JetStream's peers. One of another name begins in its
    /// place, with nothing: JetStream does not let the same name come back for minutes.
    pub(super) fn replace_peer(&mut self, load: &Load, leader: usize) -> Result<Duration> {
        let server = other(leader, &mut self.random);
        self.fleet.servers[server].kill()?;
        let name = self.fleet.server_name(server);
        let began = Instant::now();
        while !self.fleet.remove_peer(leader, &name)? {
            ensure!(began.elapsed() < PATIENCE, "{name} stays a peer");
            std::thread::sleep(SHORT * 50);
        }
        self.fleet.rename_server(server)?;
        let took = self.begin_with(load, server, |_, store| empty(store))?;
        self.mend_store(server)?;
        Ok(took)
    }

    /// All nodes are killed, and the log is made again from the owner's mirror, which has all that
    /// was acknowledged.
    pub(super) fn reseed(&mut self, load: &Load, owner: usize) -> Result<Duration> {
        self.fleet.nodes.iter_mut().try_for_each(Process::kill)?;
        let config = self.fleet.node_file(owner).display().to_string();
        self.fleet
            .command(&["reseed", "--force", "--config", &config])?;
        self.begin_nodes(load)
    }

    /// The cluster becomes a single server's directory, and that the log of another cluster.
    pub(super) fn adopt(&mut self, load: &Load, owner: usize) -> Result<Duration> {
        // The owner's directory has all messages if it stops last.
        for at in (0..COUNT).filter(|at| *at != owner).chain([owner]) {
            let node = &mut self.fleet.nodes[at];
            node.signal(Signal::TERM)?;
            let status = node.end()?;
            ensure!(status.success(), "SIGTERM ended it with {status}");
        }
        self.fleet.adopt(owner)?;
        self.begin_nodes(load)
    }

    fn begin_nodes(&mut self, load: &Load) -> Result<Duration> {
        self.fleet.nodes.iter_mut().try_for_each(Process::start)?;
        load.await_put();
        acknowledged(load)
    }
}

impl Fleet {
    /// All nodes are stopped: detaches the directory of the one that owned last, and makes it the
    /// log of a cluster of another name. Nobody needs the old one's any more.
    fn adopt(&mut self, owner: usize) -> Result<()> {
        let data = |node: usize| self.folder.join(NODES[node]);
        let alone = self.folder.join("alone");
        let [from, to] = [data(owner), alone.clone()].map(|path| path.display().to_string());
        self.command(&["detach", "--data", &from, "--to", &to])?;
        let name = format!("{}x", self.cluster);
        let line = |name: &str| format!("\nname = {name:?}\nnode = ");
        for node in 0..COUNT {
            let path = self.node_file(node);
            let text = fs::read_to_string(&path)?;
            fs::write(path, text.replace(&line(&self.cluster), &line(&name)))?;
            fs::remove_dir_all(data(node))?;
        }
        let config = self.node_file(owner).display().to_string();
        self.command(&["adopt", "--config", &config, "--data", &to])?;
        let old = std::mem::replace(&mut self.cluster, name);
        for (start, end) in [("Q", ""), ("OBJ_Q", "_runs"), ("OBJ_Q", "_files")] {
            let subject = format!("$JS.API.STREAM.DELETE.{start}_{old}_0{end}");
            self.request(0, "{}", &subject, "")?;
        }
        Ok(fs::remove_dir_all(alone)?)
    }
}
