//! Rounds of load and trouble on one data directory, checks between them.

use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use quintet_faults::{Action, Call, Faults, Rule, Undo, errno, files};
use quintet_sim::Random;
use rustix::process::Signal;

use crate::Args;
use crate::check::Checker;
use crate::deck::Deck;
use crate::ledger::PROTOCOLS;
use crate::load::Load;
use crate::operations::{ACTS, Act, ENDINGS, Ending, cut_at_call};
use crate::server::{Generation, Server, Started};
use crate::table::Sums;

/// Of the tally of starts that a cut ended.
const CUT_AT_START: &str = "power cut at a start";
/// Rounds between two checks, and checks of one data directory.
const ROUNDS: u64 = 6;
const CHECKS: u64 = 2;

struct Campaign<'a> {
    args: &'a Args,
    seed: u64,
    random: Random,
    load: Load,
    sums: Sums,
    endings: Deck,
    operations: Deck,
    checker: Checker,
}

/// Another seed for each round.
pub(crate) fn mixed(seed: u64, round: u64) -> u64 {
    Random::new(seed ^ (round << 32)).next_u64()
}

/// Runs it as `args` say.
///
/// # Errors
/// A promise was broken; something did not come often enough; it cannot run.
pub(crate) fn run(args: &Args) -> Result<()> {
    let seed = args.seed();
    let repeat = format!("{} --minutes {} --seed {seed}", args.command, args.minutes);
    println!(
        "stress: seed {seed}, {} minutes; to repeat: {repeat}",
        args.minutes
    );
    let kinds = ENDINGS.iter().map(|(_, name)| *name);
    let kinds = kinds.chain([CUT_AT_START]);
    let kinds = kinds.chain(ACTS.iter().map(|act| act.name));
    let mut campaign = Campaign {
        args,
        seed,
        random: Random::new(seed),
        load: Load::new(),
        sums: Sums::new(kinds),
        endings: Deck::new(ENDINGS.len()),
        operations: Deck::new(ACTS.len()),
        checker: Checker::default(),
    };
    let began = Instant::now();
    let folder = args
        .scratch
        .join(format!("stress-{seed}-{}", std::process::id()));
    let result = campaign.go(&folder, began);
    campaign.sums.seconds = began.elapsed().as_secs();
    campaign.sums.longest_us = campaign.load.longest_us.load(Relaxed);
    let ledger = campaign.load.ledger();
    println!("\n{}", campaign.sums.table(&ledger));
    println!("to repeat: {repeat}");
    if let Err(error) = result {
        println!("kept: {}", folder.display());
        return Err(error.context(format!("seed {seed}, round {}", ledger.round)));
    }
    let missed = campaign.sums.missed(&ledger, args);
    if !missed.is_empty() {
        println!("the time ended before its minimum: {}", missed.join(", "));
    }
    let few = campaign.sums.too_few(&ledger, args.at_least);
    if !few.is_empty() {
        bail!("less than {} times: {}", args.at_least, few.join(", "));
    }
    Ok(())
}

impl Campaign<'_> {
    fn is_over(&self, began: Instant) -> bool {
        self.sums
            .are_enough(&self.load.ledger(), self.args, began.elapsed())
    }

    fn go(&mut self, folder: &Path, began: Instant) -> Result<()> {
        let mut era_at = 0;
        while !self.is_over(began) {
            era_at += 1;
            let home = folder.join(era_at.to_string());
            let chance = mixed(self.seed, self.sums.rounds + (1 << 20));
            let generation = Generation::new(&home, &mut Random::new(chance))?;
            println!(
                "stress: {:>5} s  directory {era_at}: {}",
                began.elapsed().as_secs(),
                generation.settings()
            );
            let faults = Faults::new(&self.args.scratch, &home.join("control"), &generation.data)
                .context("the library of faults")?;
            faults.skip_syncs();
            for _ in 0..CHECKS {
                for _ in 0..ROUNDS {
                    if self.is_over(began) {
                        break;
                    }
                    self.round(&generation, &faults)?;
                }
                self.check(&generation, &faults)?;
                let ledger = self.load.ledger();
                let puts: u64 = ledger.counts.iter().map(|counts| counts.puts).sum();
                println!(
                    "stress: {:>5} s  round {:>4}: {puts} acknowledged, lost {}, twice {}",
                    began.elapsed().as_secs(),
                    ledger.round,
                    ledger.lost,
                    ledger.twice
                );
            }
            self.sums.undone += faults.undone();
            self.sums.script_runs += generation.ran().len() as u64;
            self.load.ledger().forget();
            self.checker = Checker::default();
            // It was right to the end: nobody needs it.
            std::fs::remove_dir_all(&home)?;
        }
        std::fs::remove_dir_all(folder)?;
        Ok(())
    }

    /// Starts without faults; that must go well.
    fn start(&self, generation: &Generation, sync: &str, faults: &Faults) -> Result<Server> {
        faults.end_rules();
        match Server::start(&self.args.quintet, generation, sync, faults)? {
            Started::Ready(server) => {
                if !faults.is_attached() {
                    bail!("the library of faults was not loaded");
                }
                Ok(*server)
            }
            Started::Ended(status, output) => bail!("it does not start ({status}):\n{output}"),
        }
    }

    fn round(&mut self, generation: &Generation, faults: &Faults) -> Result<()> {
        let round = {
            let mut ledger = self.load.ledger();
            ledger.round += 1;
            ledger.round
        };
        self.sums.rounds += 1;
        // Its own chance: how long the one before took must not matter.
        self.random = Random::new(mixed(self.seed, round));
        let (ending, name) = ENDINGS[self.endings.next(&mut self.random)];
        let operations: Vec<&Act> = (0..3)
            .map(|_| &ACTS[self.operations.next(&mut self.random)])
            .collect();
        let survives = matches!(ending, Ending::Kill | Ending::Term);
        let sync = match survives && self.random.chance(1, 3) {
            true => ["50ms", "never"][self.random.index(2)],
            false => "always",
        };
        let undo = [Undo::Pages, Undo::PagesAndNames, Undo::SomePages][self.random.index(3)];
        faults.undo(undo);
        faults.seed(self.random.next_u64());
        // The clock stays where it was set once in a while.
        let mut clock = 0;
        if self.random.chance(1, 6) {
            clock = [-86_400_000, 7_200_000][self.random.index(2)];
        }
        faults.shift_clock(clock);
        if self.random.chance(1, 3) {
            self.cut_start(generation, faults)?;
        }
        let mut server = self.start(generation, sync, faults)?;
        let what = || {
            let operations: Vec<&str> = operations.iter().map(|act| act.name).collect();
            format!(
                "round {round} (sync {sync}, {}, then {name})",
                operations.join(", ")
            )
        };
        log(
            generation,
            &format!("{}, undo {undo:?}, clock {clock} ms", what()),
        )?;
        let load = &self.load;
        let sums = &mut self.sums;
        let random = &mut self.random;
        load.stop.store(false, Relaxed);
        let seeds: Vec<u64> = PROTOCOLS.iter().map(|_| random.next_u64()).collect();
        let addresses = server.addresses.clone();
        std::thread::scope(|scope| {
            for (protocol, seed) in seeds.into_iter().enumerate() {
                let addresses = &addresses;
                scope.spawn(move || load.work(std::slice::from_ref(addresses), protocol, seed));
            }
            let result = trouble(
                &mut server,
                faults,
                load,
                sums,
                random,
                &operations,
                &mut clock,
            )
            .and_then(|()| finish(&mut server, faults, ending, name, sums, random));
            load.stop.store(true, Relaxed);
            // Clients that still wait for a reply get the end of the connection.
            if result.is_err() {
                server.signal(Signal::KILL);
            }
            result
        })
        .with_context(what)?;
        self.load.ledger().settled().with_context(what)
    }

    /// The power fails while it starts, if it comes to the call.
    fn cut_start(&mut self, generation: &Generation, faults: &Faults) -> Result<()> {
        let calls = [
            Call::Write,
            Call::Sync,
            Call::Rename,
            Call::Create,
            Call::Unlink,
        ];
        let cuts = faults.cuts();
        faults.end_rules();
        let rule = cut_at_call(&mut self.random, &calls, 6);
        faults.rule(1, rule);
        log(generation, &format!("a start with {rule:?}"))?;
        match Server::start(&self.args.quintet, generation, "always", faults)? {
            Started::Ready(mut server) => {
                log(generation, "it was ready, then cut")?;
                faults.cut();
                server.end()?;
                self.sums.add(CUT_AT_START, 0);
            }
            Started::Ended(_, output) if faults.cuts() == cuts => {
                bail!("it does not start, and there was no cut:\n{output}");
            }
            Started::Ended(..) => self.sums.add(CUT_AT_START, 1),
        }
        Ok(())
    }

    /// Takes out everything there is and compares.
    fn check(&mut self, generation: &Generation, faults: &Faults) -> Result<()> {
        self.sums.checks += 1;
        log(generation, "a check")?;
        faults.shift_clock(0);
        let server = self
            .start(generation, "always", faults)
            .context("at a check")?;
        let nodes = std::slice::from_ref(&server.addresses);
        let result = self
            .checker
            .compare(&self.load, nodes, &|| generation.ran(), &mut self.random)
            .and_then(|()| self.load.ledger().settled());
        if let Err(error) = result {
            let text = format!("at a check; the server said:\n{}", server.stderr_text());
            return Err(error.context(text));
        }
        stop(server)
    }
}

/// The acts of a round, one after the other.
fn trouble(
    server: &mut Server,
    faults: &Faults,
    load: &Load,
    sums: &mut Sums,
    random: &mut Random,
    operations: &[&Act],
    clock: &mut i64,
) -> Result<()> {
    std::thread::sleep(Duration::from_millis(150));
    for act in operations {
        load.epoch.fetch_add(1, Relaxed);
        load.hostile.store(act.is_client(), Relaxed);
        let time = Duration::from_millis(300 + random.below(300));
        let mut own = Random::new(random.next_u64());
        let happened = act.run(server, faults, load, clock, &mut own, time);
        load.hostile.store(false, Relaxed);
        load.epoch.fetch_add(1, Relaxed);
        sums.add(act.name, happened);
        // A thread that is gone may leave all others waiting.
        if server.stderr_text().contains("panicked") {
            bail!("it panicked under {}:\n{}", act.name, server.stderr_text());
        }
        if let Some(status) = server.ended()? {
            if act.may_end && happened > 0 {
                return Ok(());
            }
            bail!(
                "{} ended it ({status}):\n{}",
                act.name,
                server.stderr_text()
            );
        }
    }
    Ok(())
}

/// Ends the server.
fn finish(
    server: &mut Server,
    faults: &Faults,
    ending: Ending,
    name: &'static str,
    sums: &mut Sums,
    random: &mut Random,
) -> Result<()> {
    if server.ended()?.is_some() {
        // An act was the end already.
        return Ok(());
    }
    let cuts = faults.cuts();
    match ending {
        Ending::Kill => {
            server.signal(Signal::KILL);
            server.end()?;
            sums.add(name, 1);
        }
        Ending::Term => {
            server.signal(Signal::TERM);
            let status = server.end()?;
            if !status.success() {
                bail!("SIGTERM ended it with {status}:\n{}", server.stderr_text());
            }
            sums.add(name, 1);
        }
        Ending::Cut => {
            faults.cut();
            server.end()?;
            sums.add(name, faults.cuts() - cuts);
        }
        Ending::CutAtCall => {
            let calls = [
                Call::Write,
                Call::Sync,
                Call::Send,
                Call::Recv,
                Call::Rename,
            ];
            faults.rule(1, cut_at_call(random, &calls, 60));
            ends_soon(server, Duration::from_secs(2))?;
            let cut = faults.cuts() > cuts;
            if !cut {
                faults.cut();
            }
            server.end()?;
            sums.add(name, u64::from(cut));
        }
        Ending::Sync => {
            let fail = Rule::every(Call::Sync, Action::Fail(errno::EIO)).on(files::SEGMENT);
            faults.rule(1, fail.after(random.below(20)));
            let ended = ends_soon(server, Duration::from_secs(20))?;
            let fired = faults.fired(1).1;
            if !ended && fired > 0 {
                bail!(
                    "a sync failed {fired} times and it goes on:\n{}",
                    server.stderr_text()
                );
            }
            sums.add(name, fired);
        }
        Ending::Write => {
            let fail = Rule::every(Call::Write, Action::Fail(errno::EIO)).on(files::SEGMENT);
            faults.rule(1, fail.after(random.below(20)));
            ends_soon(server, Duration::from_secs(2))?;
            sums.add(name, faults.fired(1).1);
        }
    }
    faults.end_rules();
    if server.ended()?.is_none() {
        server.signal(Signal::KILL);
        server.end()?;
    }
    if server.stderr_text().contains("panicked") {
        bail!("it panicked:\n{}", server.stderr_text());
    }
    Ok(())
}

/// Whether it ends within this time.
fn ends_soon(server: &mut Server, time: Duration) -> Result<bool> {
    let began = Instant::now();
    while began.elapsed() < time {
        if server.ended()?.is_some() {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(false)
}

/// A line of what was done, kept with the directory of a violation.
fn log(generation: &Generation, line: &str) -> Result<()> {
    let mut log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(generation.folder().join("rounds.log"))?;
    Ok(writeln!(log, "{line}")?)
}

/// An orderly stop.
fn stop(mut server: Server) -> Result<()> {
    server.signal(Signal::TERM);
    let status = server.end()?;
    if !status.success() {
        bail!("SIGTERM ended it with {status}:\n{}", server.stderr_text());
    }
    Ok(())
}
