//! The found messages, compared with the acknowledged ones.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use quintet_sim::Random;

use crate::load::{LOOSE, Load, OWN, SCRIPTED, STRICT, one_of};
use crate::protocols::{Addresses, Client, HTTP, LEASE_S};
use crate::server;

/// How long what is missing is still looked for.
const PATIENCE: Duration = Duration::from_secs(20);

/// Every queue that is emptied.
fn all() -> impl Iterator<Item = &'static &'static str> {
    STRICT.iter().chain(&LOOSE).chain(&OWN)
}

/// Compares; knows what scripts had run when they were last compared.
#[derive(Default)]
pub(crate) struct Checker {
    /// How often each message's script had run when it was done.
    ran: HashMap<String, u64>,
}

impl Checker {
    /// Takes out everything there is, by `nodes` by chance, and compares; `ran`: the messages that
    /// a script was run with. What is wrong is in the ledger.
    ///
    /// # Errors
    /// Not everything can be taken out.
    pub(crate) fn compare(
        &mut self,
        load: &Load,
        nodes: &[Addresses],
        ran: &dyn Fn() -> Vec<String>,
        random: &mut Random,
    ) -> Result<()> {
        // Leases of before are over by then.
        let began = Instant::now();
        let over = Duration::from_secs(LEASE_S + 1);
        loop {
            let mut taken = 0;
            for queue in all() {
                taken += match load.drain(one_of(nodes, random), queue, random) {
                    // The owner of a cluster changes when its machine is slow enough, too.
                    Err(_) if nodes.len() > 1 && began.elapsed() < server::PATIENCE => 1,
                    drained => drained.with_context(|| format!("{queue} cannot be emptied"))?,
                };
            }
            let passed = began.elapsed();
            let ledger = load.ledger();
            let missing: u64 = all()
                .map(|queue| ledger.missing(queue))
                .map(|(missing, unknown)| (missing.len() as u64).saturating_sub(unknown))
                .sum();
            drop(ledger);
            if taken == 0 && passed > over && (missing == 0 || passed > PATIENCE) {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        for queue in all() {
            load.ledger().close(queue);
        }
        // One server also meets cuts that undo what is not synced, and other clocks.
        match nodes.len() {
            1 => load.ledger().history = Default::default(),
            _ => load.ledger().close_history(Duration::from_secs(LEASE_S)),
        }
        self.compare_script(load, one_of(nodes, random), ran)
    }

    /// Every message put by HTTP has run; none that was done runs again.
    fn compare_script(
        &mut self,
        load: &Load,
        node: &Addresses,
        ran: &dyn Fn() -> Vec<String>,
    ) -> Result<()> {
        let began = Instant::now();
        let failed = loop {
            let requested = Client::open(node, HTTP)
                .and_then(|mut client| client.page(&format!("GET /q/{SCRIPTED}.txt"), ""));
            let page = requested.unwrap_or_default();
            let number = |key: &str| {
                let mut lines = page.lines();
                let value = lines.find_map(|line| line.strip_prefix(key));
                value.and_then(|value| value.trim().parse::<u64>().ok())
            };
            let waiting = [number("prep:"), number("que:"), number("run:")];
            let waiting: Option<u64> = waiting.into_iter().sum();
            match waiting {
                Some(0) => break number("err:").unwrap_or(0),
                _ if began.elapsed() > server::PATIENCE => {
                    bail!("queue {SCRIPTED} is not done:\n{page}")
                }
                _ => std::thread::sleep(Duration::from_millis(100)),
            }
        };
        let mut counts: HashMap<String, u64> = HashMap::new();
        for name in ran() {
            *counts.entry(name).or_default() += 1;
        }
        let mut ledger = load.ledger();
        for (name, before) in &self.ran {
            let now = counts.get(name).copied().unwrap_or(0);
            if now > *before {
                ledger.twice += 1;
                let text = format!("{name}: its script ran again after it was done");
                ledger.violations.push(text);
            }
        }
        ledger.scripts_ran(SCRIPTED, &counts, failed);
        drop(ledger);
        self.ran = counts;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use crate::ledger::{Ledger, body};
    use crate::protocols::{LEASE_S, MEMCACHE};

    const QUEUE: &str = "q";

    fn put(ledger: &mut Ledger) -> u64 {
        let number = ledger.begin_put(MEMCACHE, QUEUE);
        ledger
            .history
            .put(number, QUEUE, Some((MEMCACHE, 0)), false);
        ledger.end_put(number, MEMCACHE, Some(true));
        ledger.history.stored(number);
        later();
        number
    }

    fn take(ledger: &mut Ledger, number: u64, removes: bool) {
        let requested = later();
        ledger.taken(&body(number, 50), MEMCACHE, QUEUE, requested, removes);
        ledger.history.taken(number, requested, later(), true);
        later();
    }

    fn finish(ledger: &mut Ledger, number: u64) {
        ledger.begin_finish(number, MEMCACHE);
        ledger.end_finish(number, MEMCACHE, Some(true));
        later();
    }

    /// After everything before: two moments may be the same.
    fn later() -> Instant {
        let before = Instant::now();
        loop {
            let now = Instant::now();
            if now > before {
                return now;
            }
        }
    }

    /// Effects on clients of a cluster when one of the fences around its log is missing.
    #[test]
    fn each_missing_fence_is_seen_by_what_it_does_to_clients() {
        type LedgerStep = fn(&mut Ledger);
        let cases: [(&str, LedgerStep, &str); 6] = [
            (
                "no expected sequence: a deposed owner's removal is acknowledged beside its \
                 successor's log",
                |ledger| {
                    let number = put(ledger);
                    take(ledger, number, true);
                    take(ledger, number, true);
                },
                "came again",
            ),
            (
                "no expected sequence: so is its put, which the successor has not",
                |ledger| {
                    put(ledger);
                },
                "lost",
            ),
            (
                "answers before acks: the owner goes before its entry is stored",
                |ledger| {
                    let number = put(ledger);
                    take(ledger, number, false);
                    finish(ledger, number);
                    // The finish was not stored.
                    take(ledger, number, false);
                },
                "came again",
            ),
            (
                "lease ignored: a deposed owner answers from old state",
                |ledger| {
                    let number = put(ledger);
                    let requested = later();
                    ledger.history.empty(QUEUE, requested, later());
                    take(ledger, number, true);
                },
                "an empty reply",
            ),
            (
                "purge too far: what lives in the purged segment is gone with the next owner",
                |ledger| {
                    let kept = (0..3).map(|_| put(ledger)).last();
                    take(ledger, kept.unwrap_or(0), true);
                },
                "lost: 2 messages",
            ),
            (
                "padding removed: a late entry of a deposed owner stands where an acknowledged \
                 one should, and the lease in it is another's",
                |ledger| {
                    let number = put(ledger);
                    let requested = later();
                    ledger.taken(&body(number, 50), MEMCACHE, QUEUE, requested, false);
                    ledger.history.taken(number, requested, later(), true);
                    take(ledger, number, false);
                    ledger.history.held(number, requested, later());
                    finish(ledger, number);
                },
                "while another held it",
            ),
        ];
        for (fence, seen, found) in cases {
            let mut ledger = Ledger::new();
            seen(&mut ledger);
            ledger.close(QUEUE);
            ledger.close_history(Duration::from_secs(LEASE_S));
            let listed = ledger.violations.join("\n");
            assert!(listed.contains(found), "{fence}: {listed}");
        }
    }
}
