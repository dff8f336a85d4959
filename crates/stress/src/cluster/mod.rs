//! `cargo xtask cluster`: three nodes over three NATS servers, their clients at any of them,
//! processes killed and stopped and links cut meanwhile, and the same check of what was
//! acknowledged.

mod fleet;
mod handover;
mod inflict;
mod kinds;
mod links;
mod proxy;
mod stores;
mod tls;
mod ways;

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use quintet_sim::Random;
use serde_json::Value;

use crate::Args;
use crate::campaign::mixed;
use crate::check::Checker;
use crate::deck::Deck;
use crate::ledger::{PROTOCOLS, body};
use crate::load::{Load, STRICT};
use crate::protocols::{Client, MEMCACHE};
use crate::server::{Generation, PATIENCE};
use crate::table::Sums;
use fleet::{Fleet, Made, NODES};
use inflict::acknowledged;
use kinds::{KINDS, Kind, Outages, left_out};

/// Servers, and nodes.
const COUNT: usize = 3;
/// Between two looks at something without a notification.
const SHORT: Duration = Duration::from_millis(10);
/// Faults between two checks.
const FAULTS: u64 = 4;
/// Messages that are there before consumers outweigh putters: less than memory holds.
const BACKLOG: u64 = 300;
struct Campaign<'a> {
    args: &'a Args,
    seed: u64,
    random: Random,
    load: Arc<Load>,
    sums: Sums,
    outages: Outages,
    deck: Deck,
    fleet: Fleet,
    generation: Generation,
    checker: Checker,
}

/// A cluster that is well: who is what.
#[derive(Clone, Copy)]
struct View {
    owner: usize,
    /// The server that leads the stream.
    leader: usize,
}

/// Runs it as `args` say.
///
/// # Errors
/// A promise was broken; something did not come often enough; it cannot run.
pub(crate) fn run(args: &Args) -> Result<()> {
    let seed = args.seed();
    let (minutes, command) = (args.minutes, &args.command);
    let only = args.only.as_deref();
    let only = only.map_or_else(String::new, |kind| format!(" --only {kind:?}"));
    let repeat = format!("{command} --minutes {minutes} --seed {seed}{only}");
    println!("cluster: seed {seed}, {minutes} minutes; to repeat: {repeat}");
    let folder = args
        .scratch
        .join(format!("cluster-{seed}-{}", std::process::id()));
    let mut random = Random::new(seed);
    let generation = Generation::new(&folder, &mut random)?;
    let wanted = kinds(args, args.power)?;
    let any = |is: fn(Kind) -> bool| wanted.iter().any(|kind| is(KINDS[*kind].0));
    let made = Made {
        power: any(Kind::needs_disks),
        peers: any(Kind::replaces_peers),
        tls: seed.is_multiple_of(2),
    };
    let between = if made.tls { "under TLS" } else { "without TLS" };
    println!("cluster: links between nodes {between}, as the seed is even or odd");
    let fleet = Fleet::start(args, &generation, made)?;
    let kinds = wanted;
    let mut campaign = Campaign {
        args,
        seed,
        random,
        load: Arc::new(Load::new()),
        sums: Sums::new(kinds.iter().map(|kind| KINDS[*kind].1)),
        outages: Outages::default(),
        deck: Deck::of(kinds),
        fleet,
        generation,
        checker: Checker::default(),
    };
    campaign.load.backlog.store(BACKLOG, Relaxed);
    let began = Instant::now();
    let result = campaign.go(began);
    campaign.sums.seconds = began.elapsed().as_secs();
    campaign.sums.script_runs = campaign.generation.ran().len() as u64;
    let ledger = campaign.load.ledger();
    println!("\n{}", campaign.sums.counts(&ledger));
    println!("{}", campaign.outages.table());
    if args.plain {
        println!("{}", left_out());
    }
    println!("to repeat: {repeat}");
    if let Err(error) = result {
        println!("kept: {}", folder.display());
        return Err(error.context(format!("seed {seed}, fault {}", ledger.round)));
    }
    let few = campaign.sums.too_few(&ledger, args.at_least);
    drop(ledger);
    // The processes end with it, and so does the use of the folder.
    drop(campaign);
    std::fs::remove_dir_all(&folder)?;
    ensure!(
        few.is_empty(),
        "less than {} times: {}",
        args.at_least,
        few.join(", ")
    );
    Ok(())
}

/// The numbers of the kinds that are wanted, and can be had where there is such `power`.
///
/// # Errors
/// There is no such kind.
fn kinds(args: &Args, power: bool) -> Result<Vec<usize>> {
    let all = (0..KINDS.len()).filter(|kind| power || !KINDS[*kind].0.needs_disks());
    let all = all.filter(|kind| !(args.plain && KINDS[*kind].0.is_long()));
    let Some(name) = &args.only else {
        return Ok(all.collect());
    };
    let found: Vec<usize> = all.filter(|kind| KINDS[*kind].1.contains(name)).collect();
    ensure!(
        !found.is_empty(),
        "no kind of fault is called {name:?} here"
    );
    Ok(found)
}

impl Campaign<'_> {
    fn is_over(&self, load: &Load, began: Instant) -> bool {
        self.sums
            .are_enough(&load.ledger(), self.args, began.elapsed())
    }

    fn go(&mut self, began: Instant) -> Result<()> {
        let mut view = self.is_well_again()?;
        loop {
            view = self.stretch(view, began)?;
            self.check(began)?;
            if self.is_over(&self.load, began) {
                break;
            }
        }
        self.plant()
    }

    /// Some faults under load.
    fn stretch(&mut self, mut view: View, began: Instant) -> Result<View> {
        let load = Arc::clone(&self.load);
        load.stop.store(false, Relaxed);
        let mut random = Random::new(mixed(self.seed, self.sums.rounds));
        let nodes = self.fleet.addresses.clone();
        let result = std::thread::scope(|scope| {
            for protocol in 0..PROTOCOLS.len() {
                let (seed, load, nodes) = (random.next_u64(), &load, &nodes);
                scope.spawn(move || load.work(nodes, protocol, seed));
            }
            for node in &nodes {
                let (seed, load) = (random.next_u64(), &load);
                scope.spawn(move || load.probe(node, seed));
            }
            let result = (0..FAULTS).try_for_each(|_| {
                if !self.is_over(&load, began) {
                    view = self.round(&load, view)?;
                }
                Ok(())
            });
            load.stop.store(true, Relaxed);
            // What is frozen or waits for nobody would keep its clients.
            if result.is_err() {
                self.fleet.end();
            }
            result
        });
        result.map(|()| view)
    }

    /// One fault, until all is well again.
    fn round(&mut self, load: &Load, view: View) -> Result<View> {
        let round = {
            let mut ledger = load.ledger();
            ledger.round += 1;
            ledger.round
        };
        self.sums.rounds += 1;
        self.random = Random::new(mixed(self.seed, (1 << 20) + round));
        let at = self.deck.next(&mut self.random);
        let (kind, name, _) = KINDS[at];
        let what = || {
            let View { owner, leader } = view;
            format!(
                "fault {round}: {name} (owner {}, leader n{leader})",
                NODES[owner]
            )
        };
        self.note(&what())?;
        // So that there is something to lose, and no kind comes at the same moment of everything.
        load.await_put();
        acknowledged(load).with_context(what)?;
        std::thread::sleep(Duration::from_millis(200 + self.random.below(1300)));
        let took = self.inflict(load, kind, view).with_context(what)?;
        for took in took {
            self.outages.add(at, took);
            self.note(&format!(
                "  a put was acknowledged after {} ms",
                took.as_millis()
            ))?;
        }
        self.sums.add(name, 1);
        let view = self.is_well_again().with_context(what)?;
        load.ledger().settled().with_context(what)?;
        Ok(view)
    }

    /// Waits until one node owns, the others are standbys, and the loss of any machine would be
    /// survived.
    fn is_well_again(&mut self) -> Result<View> {
        let began = Instant::now();
        let mut seen = Value::Null;
        let mut requested = 0;
        while began.elapsed() < PATIENCE {
            self.fleet.is_well()?;
            requested += 1;
            if let Some(report) = self.fleet.status(requested % COUNT) {
                if let Some(view) = view(&report, &self.fleet) {
                    let ms = began.elapsed().as_millis();
                    self.note(&format!("  all well after {ms} ms"))?;
                    return Ok(view);
                }
                seen = report;
            }
            std::thread::sleep(SHORT * 5);
        }
        bail!("not well within {PATIENCE:?}: {seen}");
    }

    /// Takes out everything there is and compares.
    fn check(&mut self, began: Instant) -> Result<()> {
        self.sums.checks += 1;
        self.note("a check")?;
        self.compare()?;
        self.fleet.is_well()?;
        let ledger = self.load.ledger();
        ledger.settled().context("at a check")?;
        let puts: u64 = ledger.counts.iter().map(|counts| counts.puts).sum();
        println!(
            "cluster: {:>5} s  fault {:>4}: {puts} acknowledged, lost {}, twice {}",
            began.elapsed().as_secs(),
            ledger.round,
            ledger.lost,
            ledger.twice
        );
        Ok(())
    }

    fn compare(&mut self) -> Result<()> {
        let ran = || self.generation.ran();
        let nodes = &self.fleet.addresses;
        let compared = self
            .checker
            .compare(&self.load, nodes, &ran, &mut self.random);
        compared.context("at a check")
    }

    /// Takes a message and puts another one twice behind the ledger's back: a check that does not
    /// see both is worth nothing.
    fn plant(&mut self) -> Result<()> {
        self.note("a message is taken, and another put twice, behind the ledger's back")?;
        let mut client = Client::open(&self.fleet.addresses[0], MEMCACHE)?;
        let mut put = |queue, times| -> Result<()> {
            let number = self.load.ledger().begin_put(MEMCACHE, queue);
            for _ in 0..times {
                let stored = client.put(queue, &body(number, 100), 0, Default::default())?;
                ensure!(stored, "a put was refused");
            }
            self.load.ledger().end_put(number, MEMCACHE, Some(true));
            Ok(())
        };
        put(STRICT[0], 1)?;
        put(STRICT[1], 2)?;
        let taken = client.take(STRICT[0], true)?;
        ensure!(taken.is_some(), "the put message is missing");
        let found = |load: &Load| {
            let ledger = load.ledger();
            (ledger.lost, ledger.twice)
        };
        let (lost, twice) = found(&self.load);
        self.compare()?;
        let seen = found(&self.load);
        ensure!(
            seen == (lost + 1, twice + 1),
            "planted were one lost and one doubled message, and the check found {} and {}",
            seen.0 - lost,
            seen.1 - twice
        );
        let mut ledger = self.load.ledger();
        let failed = ledger.settled().is_err();
        ensure!(failed, "the planted defect did not fail the check");
        (ledger.lost, ledger.twice) = (lost, twice);
        ledger.violations.clear();
        println!("cluster: a lost and a doubled message were planted, and found");
        Ok(())
    }

    fn note(&self, line: &str) -> Result<()> {
        Ok(writeln!(self.fleet.log()?, "{line}")?)
    }
}

/// Roles of the nodes, if all is well.
fn view(report: &Value, fleet: &Fleet) -> Option<View> {
    let nodes = report["nodes"].as_array()?;
    let of_role = |role: &'static str| {
        let roles = nodes
            .iter()
            .filter(move |node| node["report"]["role"] == role);
        roles.filter_map(|node| NODES.iter().position(|name| node["node"] == *name))
    };
    let owner = of_role("owner").next()?;
    let leader = report["groups"][0]["stream"]["leader"].as_str()?;
    let leader = (0..COUNT).find(|at| leader == fleet.server_name(*at))?;
    let all = of_role("owner").count() == 1 && of_role("standby").count() == COUNT - 1;
    (all && report["survives"] == true).then_some(View { owner, leader })
}
