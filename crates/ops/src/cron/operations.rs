//! Telling of tables and steering them. Nobody is told of a mark that was not
//! read, or of one that is not durable.

use std::sync::Arc;

use quintet_client::{CronAct, CronDone, CronNo, TellCron, TellCrons};
use quintet_config::CronJob;
use quintet_host::locked;
use quintet_types::{CommandError, Ms};

use super::run::Runner;
use super::{Crons, Order};

/// Orders that wait at most; more are refused.
const ORDERS_MAX: usize = 1000;
/// How alike two names have to be that one may be meant by the other, of 1.
const ALIKE: f64 = 0.8;
/// Letters of a name that are compared.
const LETTERS: usize = 100;
/// Tries of an act whose mark somebody else changes meanwhile.
const TRIES: usize = 3;

impl Crons {
    /// Tells of every table.
    pub fn list(&self, tell: TellCrons, now: Ms) {
        let inside = locked(&self.inside);
        if inside.read == inside.version && !inside.closed {
            let seen = inside.all_seen(now);
            drop(inside);
            return tell(seen);
        }
        drop(inside);
        self.ask(Order::List(tell));
    }

    /// Has this done to the table of this name, and tells when it is durable.
    pub fn steer(&self, act: CronAct, name: &str, tell: TellCron) {
        self.ask(Order::Steer(act, name.to_owned(), tell));
    }

    fn ask(&self, order: Order) {
        let mut inside = locked(&self.inside);
        let order = if inside.closed {
            Some(order)
        } else if inside.orders.len() < ORDERS_MAX {
            inside.orders.push_back(order);
            None
        } else if let Order::Steer(_, _, tell) = order {
            drop(inside);
            return tell(Err(CronNo::Refused(CommandError::TooManyWaiters)));
        } else {
            Some(order)
        };
        // Who is not told any more learns it by this, without the lock.
        drop(inside);
        drop(order);
        self.work.raise();
    }

    /// Nobody is told anything from now on.
    pub(super) fn close(&self) {
        let mut inside = locked(&self.inside);
        inside.closed = true;
        let orders = std::mem::take(&mut inside.orders);
        drop(inside);
        drop(orders);
    }
}

impl Runner<'_> {
    /// Does what was ordered, if these tables, whose marks were read, still are
    /// those in force.
    pub(super) fn obey(&self, jobs: &[Arc<CronJob>], version: u64) {
        loop {
            let order = {
                let mut inside = locked(&self.crons.inside);
                if inside.version != version {
                    return;
                }
                inside.orders.pop_front()
            };
            match order {
                None => return,
                Some(Order::List(tell)) => {
                    let now = self.client_api.wall();
                    let seen = locked(&self.crons.inside).all_seen(now);
                    tell(seen);
                }
                Some(Order::Steer(act, name, tell)) => {
                    let done = match jobs.iter().find(|job| job.name == name) {
                        Some(job) => self.steer(job, act).map_err(CronNo::Refused),
                        None => Err(CronNo::None {
                            nearest: nearest(&name, jobs),
                            name,
                        }),
                    };
                    tell(done);
                }
            }
        }
    }

    /// Does something to a table.
    ///
    /// # Errors
    /// Why not; all is as it was.
    fn steer(&self, job: &CronJob, act: CronAct) -> Result<CronDone, CommandError> {
        let puts = act == CronAct::Run;
        let mut tries = 0;
        let message = loop {
            tries += 1;
            let before = self.mark_of(job);
            let mark = before.after(act, self.client_api.wall());
            if mark == before && !puts {
                return Ok(CronDone {
                    changed: false,
                    message: None,
                });
            }
            let due = puts.then(|| self.client_api.wall());
            match self.commit(job, &mark, due) {
                Ok(message) => break message,
                // It was read again.
                Err(CommandError::Conflict) if tries < TRIES => {}
                Err(command_error) if puts => return Err(self.failed(job, command_error)),
                Err(command_error) => return Err(command_error),
            }
        };
        if !puts {
            // What was due and refused is let go.
            let mut inside = locked(&self.crons.inside);
            if let Some(known) = inside.known.get_mut(&job.name) {
                known.error.clear();
            }
        }
        Ok(CronDone {
            changed: true,
            message,
        })
    }
}

/// The table whose name is most like this one, if one is like it.
fn nearest(name: &str, jobs: &[Arc<CronJob>]) -> Option<String> {
    let letters = |name: &str| -> String {
        let lower = name.chars().flat_map(char::to_lowercase);
        lower.take(LETTERS).collect()
    };
    let wanted = letters(name);
    let alike = jobs.iter().map(|job| {
        let alike = strsim::jaro_winkler(&wanted, &letters(&job.name));
        (alike, &job.name)
    });
    let nearest = alike
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    nearest.map(|(_, name)| name.clone())
}
