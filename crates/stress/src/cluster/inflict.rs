//! Each kind of fault: done, and mended.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use quintet_sim::Random;
use rustix::process::Signal;
use serde_json::Value;

use super::fleet::{Fleet, Process};
use super::kinds::Kind;
use super::links::{Links, Off};
use super::stores::{copy, damage, empty, fill};
use super::{COUNT, Campaign, SHORT, View};
use crate::ledger::body;
use crate::load::{LOOSE, Load, STRICT};
use crate::protocols::{Addresses, Client, MEMCACHE};
use crate::server::PATIENCE;

/// A pause of one thread of many.
const MOMENT: Duration = Duration::from_millis(100);
/// A pause shorter than a lease, and one longer than a takeover.
const PAUSE: Duration = Duration::from_secs(1);
const FREEZE: Duration = Duration::from_secs(6);
/// Longer than it takes until the owner has asked each server for its copy again.
const LOOK: Duration = Duration::from_secs(11);
/// Less than any stream takes that was written to.
const STORE_FULL: u64 = 64 << 10;
/// Bodies by which a log grows past what it keeps: the longest there are.
const LARGE: usize = 400_000;
/// By how much a wall clock is set, ms.
const STEPS_MS: [i64; 5] = [3_000, 60_000, 3_600_000, 86_400_000, 31_536_000_000];

/// One of the others, by chance.
pub(super) fn other(than: usize, random: &mut Random) -> usize {
    (than + 1 + random.index(COUNT - 1)) % COUNT
}

fn one_way(random: &mut Random) -> Off {
    [Off::Mute, Off::Deaf][random.index(2)]
}

impl Campaign<'_> {
    /// Does it, and mends it. For how long nothing was acknowledged, each time.
    pub(super) fn inflict(&mut self, load: &Load, kind: Kind, view: View) -> Result<Vec<Duration>> {
        let View { owner, leader } = view;
        let took = match kind {
            Kind::KillOwner => self.kill(load, &[], &[owner])?,
            Kind::KillStandby => {
                let standby = other(owner, &mut self.random);
                self.kill(load, &[], &[standby])?
            }
            Kind::KillLeader => self.kill(load, &[leader], &[])?,
            Kind::KillBoth => self.kill(load, &[leader], &[owner])?,
            Kind::KillNodes => kill_all(&mut self.fleet.nodes, load)?,
            Kind::KillServers => kill_all(&mut self.fleet.servers, load)?,
            Kind::PauseOwner => pause(&self.fleet.nodes[owner], PAUSE, load)?,
            Kind::PauseLeader => pause(&self.fleet.servers[leader], PAUSE, load)?,
            Kind::FreezeLeader => pause(&self.fleet.servers[leader], FREEZE, load)?,
            Kind::FreezeOwner => {
                let addresses = &self.fleet.addresses[owner];
                freeze(&self.fleet.nodes[owner], addresses, load)?
            }
            Kind::FreezeNodes => {
                let all = |signal| self.fleet.nodes.iter().try_for_each(|n| n.signal(signal));
                all(Signal::STOP)?;
                std::thread::sleep(FREEZE);
                all(Signal::CONT)?;
                load.await_put();
                acknowledged(load)?
            }
            Kind::TermOwner | Kind::MoveOwner | Kind::DrainOwner => {
                self.hand_over(load, kind, owner)?
            }
            Kind::Rolling => return self.restart_nodes(load),
            Kind::LoseStore => self.lose_store(load, leader)?,
            Kind::BreakOwner => self.cut(load, None, &|l| l.cut_node(owner, Off::Broken))?,
            Kind::SilenceOwner => self.cut(load, None, &|l| l.cut_node(owner, Off::Silent))?,
            Kind::HalveOwner => {
                let off = one_way(&mut self.random);
                self.cut(load, None, &|l| l.cut_node(owner, off))?
            }
            Kind::BlinkOwner => self.cut(load, Some(PAUSE), &|l| l.cut_node(owner, Off::Silent))?,
            Kind::BreakLeader => self.cut(load, None, &|l| l.cut_routes(leader, Off::Broken))?,
            Kind::SilenceLeader => self.cut(load, None, &|l| l.cut_routes(leader, Off::Silent))?,
            Kind::HalveLeader => {
                let off = one_way(&mut self.random);
                // While it is heard and hears nothing its votes may keep others from leading.
                self.cut(load, Some(FREEZE), &|l| l.cut_routes(leader, off))?
            }
            Kind::BlinkLeader => {
                self.cut(load, Some(PAUSE), &|l| l.cut_routes(leader, Off::Silent))?
            }
            Kind::BreakLink => self.cut(load, Some(PAUSE), &|l| l.cut_link(owner, Off::Broken))?,
            Kind::SilenceLink => {
                self.cut(load, Some(FREEZE), &|l| l.cut_link(owner, Off::Silent))?
            }
            Kind::SilenceMachine => {
                let server = other(leader, &mut self.random);
                self.cut(load, None, &|l| l.cut_machine(owner, server))?
            }
            Kind::SilenceBoth => self.cut(load, None, &|l| l.cut_machine(owner, leader))?,
            Kind::FillStore => self.fill_store(load, leader, owner)?,
            Kind::ReplaceServers => return self.replace_servers(load),
            Kind::PurgePast => self.purge_past(load, owner)?,
            Kind::ClockForward => self.set_clock(load, owner, 1)?,
            Kind::ClockBack => self.set_clock(load, owner, -1)?,
            Kind::DamageStore => self.damage_store(load, leader)?,
            Kind::DamageTwo => self.damage_two(load, leader)?,
            Kind::OldStore => self.bring_old_store(load, leader)?,
            Kind::CutPower => {
                let server = self.random.index(COUNT);
                self.cut_power(load, server..server + 1)?
            }
            Kind::CutAllPower => self.cut_power(load, 0..COUNT)?,
            Kind::HoldThreads => self.hold_threads(load, owner, usize::MAX, MOMENT)?,
            Kind::HoldThread => self.hold_threads(load, owner, 1, FREEZE)?,
            Kind::ReplacePeer => self.replace_peer(load, leader)?,
            Kind::Reseed => self.reseed(load, owner)?,
            Kind::Adopt => self.adopt(load, owner)?,
        };
        Ok(vec![took])
    }

    /// Kills these, and starts them again after the next acknowledged put.
    fn kill(&mut self, load: &Load, servers: &[usize], nodes: &[usize]) -> Result<Duration> {
        let fleet = &mut self.fleet;
        for server in servers {
            fleet.servers[*server].kill()?;
        }
        for node in nodes {
            fleet.nodes[*node].kill()?;
        }
        load.await_put();
        let took = acknowledged(load)?;
        for server in servers {
            fleet.servers[*server].start()?;
        }
        for node in nodes {
            fleet.nodes[*node].start()?;
        }
        Ok(took)
    }

    fn restart_nodes(&mut self, load: &Load) -> Result<Vec<Duration>> {
        let mut all = Vec::new();
        for node in 0..COUNT {
            all.push(stop(&mut self.fleet.nodes[node], load)?);
            self.fleet.nodes[node].start()?;
            self.is_well_again()?;
        }
        Ok(all)
    }

    fn lose_store(&mut self, load: &Load, leader: usize) -> Result<Duration> {
        // Not the leader's: with what it had acknowledged and only one follower has, two of three
        // would have to be trusted that know nothing of it.
        let server = other(leader, &mut self.random);
        self.fleet.servers[server].kill()?;
        self.begin_with(load, server, |_, store| empty(store))
    }

    /// Starts a server again over its store, to which something was done.
    pub(super) fn begin_with(
        &mut self,
        load: &Load,
        server: usize,
        done: impl FnOnce(&mut Self, &Path) -> Result<()>,
    ) -> Result<Duration> {
        let store = self.fleet.store(server);
        done(self, &store)?;
        load.await_put();
        let took = acknowledged(load)?;
        self.fleet.servers[server].start()?;
        Ok(took)
    }

    /// A block of the log is damaged where one server keeps it.
    fn damage_store(&mut self, load: &Load, leader: usize) -> Result<Duration> {
        let stream = self.stream()?;
        let server = other(leader, &mut self.random);
        self.fleet.servers[server].kill()?;
        let took = self.begin_with(load, server, |campaign, _| campaign.damage(server, &stream))?;
        self.mend_store(server)?;
        Ok(took)
    }

    fn damage(&mut self, server: usize, stream: &str) -> Result<()> {
        let did = damage(&self.fleet.store(server), stream, &mut self.random)?;
        self.note(&format!("  n{server}: {did}"))
    }

    fn stream(&self) -> Result<String> {
        let report = self.fleet.status(0).context("no status")?;
        let stream = report["groups"][0]["stream"]["name"].as_str();
        Ok(stream.context("no stream")?.to_owned())
    }

    /// Blocks of the log are damaged where the leader and another server keep it. Then the first is
    /// asked to lead.
    fn damage_two(&mut self, load: &Load, leader: usize) -> Result<Duration> {
        let stream = self.stream()?;
        let servers = [leader, other(leader, &mut self.random)];
        let all = |fleet: &Fleet, signal| fleet.nodes.iter().try_for_each(|n| n.signal(signal));
        // The third server gets all that was acknowledged: nobody else has it then.
        all(&self.fleet, Signal::STOP)?;
        std::thread::sleep(PAUSE);
        for server in servers {
            self.fleet.servers[server].kill()?;
            self.damage(server, &stream)?;
        }
        for server in servers {
            self.fleet.servers[server].start()?;
        }
        all(&self.fleet, Signal::CONT)?;
        load.await_put();
        let mut took = acknowledged(load)?;
        self.fleet.lead(&stream, leader)?;
        load.await_put();
        took = took.max(acknowledged(load)?);
        servers
            .into_iter()
            .try_for_each(|server| self.mend_store(server))?;
        Ok(took)
    }

    /// A server goes on with what it had a while ago.
    fn bring_old_store(&mut self, load: &Load, leader: usize) -> Result<Duration> {
        let server = other(leader, &mut self.random);
        let old = self.fleet.store(server).with_extension("old");
        self.fleet.servers[server].signal(Signal::STOP)?;
        copy(&self.fleet.store(server), &old)?;
        self.fleet.servers[server].signal(Signal::CONT)?;
        load.await_put();
        acknowledged(load)?;
        std::thread::sleep(PAUSE);
        self.fleet.servers[server].kill()?;
        let took = self.begin_with(load, server, |_, store| {
            empty(store)?;
            copy(&old.join("jetstream"), store)?;
            Ok(std::fs::remove_dir_all(&old)?)
        })?;
        self.mend_store(server)?;
        Ok(took)
    }

    /// Waits until the copy of this server is whole again: repaired by itself, or, where `status`
    /// calls it damaged for long, emptied as the manual says.
    pub(super) fn mend_store(&mut self, server: usize) -> Result<()> {
        // The owner has asked it by then.
        std::thread::sleep(LOOK);
        let name = self.fleet.server_name(server);
        let began = Instant::now();
        let mut emptied = false;
        while began.elapsed() < PATIENCE {
            let report = self.fleet.status(0).unwrap_or_default();
            let stores = report["groups"][0]["stream"]["stores"].as_array();
            let store = stores.and_then(|all| all.iter().find(|one| one["server"] == *name));
            let is = |what: &str| store.is_some_and(|store| !store[what].is_null());
            let is_bad = is("damage") || is("frozen");
            if store.is_some() && !is_bad && !is("silent") {
                return Ok(());
            }
            if is_bad && !emptied && began.elapsed() > LOOK {
                // It may be whole by now.
                if !self.names_remedy(&name) {
                    continue;
                }
                self.note(&format!("  emptied, as status says: {store:?}"))?;
                self.fleet.servers[server].kill()?;
                empty(&self.fleet.store(server))?;
                self.fleet.servers[server].start()?;
                emptied = true;
            }
            std::thread::sleep(SHORT * 5);
        }
        bail!("the copy on {name} is not whole within {PATIENCE:?}")
    }

    /// Whether `status`, as people see it, names the server and what to do with it.
    fn names_remedy(&self, server: &str) -> bool {
        let remedies = ["empty its JetStream directory", "restart that nats-server"];
        let state = self.fleet.status_text(0);
        let mut lines = state.lines().filter(|line| line.contains(server));
        lines.any(|line| remedies.iter().any(|remedy| line.contains(remedy)))
    }

    /// Cuts the power of these servers at one moment; they go on with what their file systems had
    /// written.
    fn cut_power(&mut self, load: &Load, servers: Range<usize>) -> Result<Duration> {
        let fleet = &mut self.fleet;
        for server in servers.clone() {
            fleet.servers[server].signal(Signal::STOP)?;
        }
        for server in servers.clone() {
            fleet.disks[server].copy()?;
        }
        for server in servers.clone() {
            fleet.servers[server].kill()?;
            fleet.disks[server].back()?;
        }
        for server in servers {
            fleet.servers[server].start()?;
        }
        load.await_put();
        acknowledged(load)
    }

    /// Cuts links for so long, or until a put is acknowledged all the same.
    fn cut(
        &mut self,
        load: &Load,
        time: Option<Duration>,
        cut: &dyn Fn(&Links),
    ) -> Result<Duration> {
        cut(&self.fleet.links);
        load.await_put();
        let took = match time {
            Some(time) => {
                std::thread::sleep(time);
                None
            }
            None => Some(acknowledged(load)?),
        };
        self.fleet.links.mend(self.random.chance(1, 2));
        took.map_or_else(|| acknowledged(load), Ok)
    }

    /// Stops so many of a node's threads, each for so long, one after the other.
    fn hold_threads(
        &mut self,
        load: &Load,
        node: usize,
        most: usize,
        time: Duration,
    ) -> Result<Duration> {
        let mut threads = self.fleet.nodes[node].threads()?;
        let (all, mut held) = (threads.len(), 0);
        let faults = &self.fleet.faults[node];
        load.await_put();
        while held < most && !threads.is_empty() {
            let thread = threads.swap_remove(self.random.index(threads.len()));
            faults.hold(thread);
            let began = Instant::now();
            while faults.held() != thread && began.elapsed() < PAUSE {
                std::thread::sleep(SHORT);
            }
            // Else it has ended, or lets no signal come.
            if faults.held() == thread {
                std::thread::sleep(time);
                held += 1;
            }
            faults.hold(0);
        }
        self.note(&format!("  {held} of {all} threads stood still"))?;
        ensure!(held >= most.min(all / 2), "few threads could be stopped");
        acknowledged(load)
    }

    /// A server may keep nothing more for a while.
    fn fill_store(&mut self, load: &Load, server: usize, owner: usize) -> Result<Duration> {
        if !self.fleet.disks.is_empty() {
            return self.fill_disk(load, server);
        }
        let took = self.limit_store(load, server, Some(STORE_FULL))?;
        std::thread::sleep(FREEZE);
        let report = self.fleet.status(owner).context("no status")?;
        let replicas = report["groups"][0]["stream"]["replicas"].as_array();
        let name = self.fleet.server_name(server);
        let replica =
            replicas.and_then(|all| all.iter().find(|one| one["server"] == name.as_str()));
        let current = replica.is_none_or(|one| one["current"] == true);
        ensure!(!current, "a full store keeps more: {report}");
        self.limit_store(load, server, None)?;
        Ok(took)
    }

    /// The disk of a server is full until `status` says what to do.
    fn fill_disk(&mut self, load: &Load, server: usize) -> Result<Duration> {
        let filled = fill(&self.fleet.store(server))?;
        load.await_put();
        let took = acknowledged(load)?;
        let began = Instant::now();
        let name = format!("{} ", self.fleet.server_name(server));
        while !self.names_remedy(&name) {
            let state = || self.fleet.status_text(0);
            ensure!(
                began.elapsed() < PATIENCE,
                "a full disk is not named: {}",
                state()
            );
            std::thread::sleep(PAUSE);
        }
        std::fs::remove_file(filled)?;
        self.fleet.servers[server].kill()?;
        self.fleet.servers[server].start()?;
        self.mend_store(server)?;
        Ok(took)
    }

    /// Has a server begin again with so much room, or as much as there is.
    fn limit_store(&mut self, load: &Load, server: usize, bytes: Option<u64>) -> Result<Duration> {
        self.fleet.servers[server].kill()?;
        self.fleet.limit_store(server, bytes)?;
        load.await_put();
        let took = acknowledged(load)?;
        self.fleet.servers[server].start()?;
        Ok(took)
    }

    /// An upgrade, server by server; later ones only begin again.
    fn replace_servers(&mut self, load: &Load) -> Result<Vec<Duration>> {
        let mut all = Vec::new();
        for server in 0..COUNT {
            let process = &mut self.fleet.servers[server];
            process.signal(Signal::TERM)?;
            process.end()?;
            if let Some(next) = &self.args.nats_server_next {
                process.replace(next);
            }
            load.await_put();
            all.push(acknowledged(load)?);
            self.fleet.servers[server].start()?;
            self.is_well_again()?;
        }
        Ok(all)
    }

    /// A standby stands still until what it would read next is purged, and catches up.
    fn purge_past(&mut self, load: &Load, owner: usize) -> Result<Duration> {
        let standby = other(owner, &mut self.random);
        let entry = |report: &Value, node: usize| {
            let nodes = report["nodes"].as_array()?;
            let name = super::NODES[node];
            let found = nodes.iter().find(|response| response["node"] == name)?;
            found["report"]["entry"].as_u64()
        };
        let report = self.fleet.status(owner).context("no status")?;
        let last = entry(&report, owner).context("an owner without entries")?;
        self.fleet.nodes[standby].signal(Signal::STOP)?;
        load.await_put();
        let took = acknowledged(load)?;
        let began = Instant::now();
        let first = loop {
            ensure!(began.elapsed() < PATIENCE, "nothing is purged: {last}");
            self.write_much(load, owner);
            let report = self.fleet.status(owner);
            let first = report.and_then(|r| r["groups"][0]["stream"]["first"].as_u64());
            match first {
                Some(first) if first > last => break first,
                _ => {}
            }
        };
        self.fleet.nodes[standby].signal(Signal::CONT)?;
        // What it had read is older than the stream.
        while began.elapsed() < PATIENCE {
            let report = self.fleet.status(standby).unwrap_or_default();
            if entry(&report, standby).is_some_and(|entry| entry >= first) {
                return Ok(took);
            }
            std::thread::sleep(SHORT * 5);
        }
        bail!("the standby has not caught up with entry {first}")
    }

    /// Some megabytes; errors are those of other requests.
    fn write_much(&mut self, load: &Load, node: usize) {
        let Ok(mut client) = Client::open(&self.fleet.addresses[node], MEMCACHE) else {
            return;
        };
        for _ in 0..20 {
            let (queue, random) = (LOOSE[1], &mut self.random);
            let put = load.put_of(&mut client, MEMCACHE, queue, LARGE, random);
            let taken = put.and_then(|()| load.take(&mut client, MEMCACHE, queue, true, random));
            if taken.is_err() {
                return;
            }
        }
    }

    /// The owner's wall clock is set, and back.
    fn set_clock(&mut self, load: &Load, owner: usize, sign: i64) -> Result<Duration> {
        let step = STEPS_MS[self.random.index(STEPS_MS.len())];
        self.fleet.faults[owner].shift_clock(sign * step);
        load.await_put();
        let took = acknowledged(load)?;
        std::thread::sleep(PAUSE);
        self.fleet.faults[owner].shift_clock(0);
        load.await_put();
        Ok(took.max(acknowledged(load)?))
    }
}

fn kill_all(all: &mut [Process], load: &Load) -> Result<Duration> {
    all.iter_mut().try_for_each(Process::kill)?;
    all.iter_mut().try_for_each(Process::start)?;
    load.await_put();
    acknowledged(load)
}

fn pause(process: &Process, time: Duration, load: &Load) -> Result<Duration> {
    process.signal(Signal::STOP)?;
    load.await_put();
    std::thread::sleep(time);
    process.signal(Signal::CONT)?;
    acknowledged(load)
}

/// After how long a put was acknowledged that was sent after [`Load::await_put`].
pub(super) fn acknowledged(load: &Load) -> Result<Duration> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if let Some(took) = load.first_put() {
            return Ok(took);
        }
        std::thread::sleep(SHORT);
    }
    bail!("no put was acknowledged within {PATIENCE:?}")
}

/// Stops a node in good order.
fn stop(node: &mut Process, load: &Load) -> Result<Duration> {
    node.signal(Signal::TERM)?;
    let status = node.end()?;
    // Until then it may have served.
    load.await_put();
    ensure!(status.success(), "SIGTERM ended it with {status}");
    acknowledged(load)
}

/// Freezes the owner until another has taken over; what it is asked meanwhile it must not answer.
fn freeze(node: &Process, addresses: &Addresses, load: &Load) -> Result<Duration> {
    let mut stream = TcpStream::connect(&addresses.of[MEMCACHE])?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // Once it has answered, the connection is its own.
    stream.write_all(b"version\r\n")?;
    let mut reply = [0; 200];
    let len = stream.read(&mut reply)?;
    ensure!(reply[..len].ends_with(b"\r\n"), "half an answer");
    node.signal(Signal::STOP)?;
    load.await_put();
    let began = Instant::now();
    let number = load.ledger().begin_put(MEMCACHE, STRICT[0]);
    let bytes = String::from_utf8(body(number, 0)).context("a head is text")?;
    let (queue, len) = (STRICT[0], bytes.len());
    let requested = format!("get {queue}/peek\r\nstats\r\nset {queue} 0 0 {len}\r\n{bytes}\r\n");
    stream.write_all(requested.as_bytes())?;
    // Nobody else acknowledges before there is another owner.
    let took = acknowledged(load);
    std::thread::sleep(FREEZE.saturating_sub(began.elapsed()));
    node.signal(Signal::CONT)?;
    load.ledger().end_put(number, MEMCACHE, None);
    let took = took?;
    let mut rest = Vec::new();
    let read = stream.read_to_end(&mut rest);
    ensure!(
        rest.is_empty(),
        "an owner that another had succeeded answered: {:?}",
        String::from_utf8_lossy(&rest)
    );
    match read {
        // Closed with requests unread.
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => {
            Err(error).context("the connection to a deposed owner")
        }
        _ => Ok(took),
    }
}
