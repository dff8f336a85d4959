//! Messages queues put to themselves at times (`schedule` in their config).

use std::collections::BTreeMap;

use chrono::Local;
use quintet_policy::Cron;
use quintet_types::Ms;

use crate::admin::Admin;
use crate::config::ScheduleEntry;
use crate::messages::PutAs;
use crate::new::NewMessage;
use crate::service::Rq;

/// How long before its time a message is put, ms (RQ's).
const EARLY_MS: u64 = 60_000;

/// A wall clock that is set back by more than this begins its times anew, ms
/// (cron(8) has the same three hours).
const BACK_MS: u64 = 3 * 3_600_000;

/// The last puts, by queue and entry.
#[derive(Default)]
pub(crate) struct Schedules {
    put: BTreeMap<(String, usize), Ms>,
}

impl Schedules {
    /// Puts what is due within the next minute and was not put yet.
    pub(crate) fn check(&mut self, rq: &Rq) {
        // A calendar is about the wall clock. Times it jumps over do not come;
        // when it is set back by little, times that were do not come again.
        let now = rq.client_api.wall();
        for queue in rq.all_scripted() {
            let config = queue.config();
            if config.schedule.is_empty() || rq.admin_files(&queue.name) != Admin::Up {
                continue;
            }
            for (n, entry) in config.schedule.iter().enumerate() {
                let Ok(cron) = Cron::of_script(&entry.cron) else {
                    continue;
                };
                let at = cron.after_in(now, &Local);
                let key = (queue.name.clone(), n);
                let last = self.put.get(&key).copied();
                if at.since(now) > EARLY_MS || last.is_some_and(|last| was_put(last, at)) {
                    continue;
                }
                match put(rq, &queue.name, entry, n, at) {
                    Ok(()) => {
                        self.put.insert(key, at);
                    }
                    Err(fault) => {
                        tracing::warn!(queue = queue.name, %fault, "scheduled put failed")
                    }
                }
            }
        }
    }
}

/// True if `at` was put, when `last` was the last that was.
fn was_put(last: Ms, at: Ms) -> bool {
    at <= last && last.since(at) <= BACK_MS
}

fn put(rq: &Rq, queue: &str, entry: &ScheduleEntry, n: usize, at: Ms) -> Result<(), crate::Fault> {
    let new = NewMessage {
        src: Some("cron".to_owned()),
        params: entry.params.clone(),
        due_ms: Some(at.0),
        ..NewMessage::default()
    };
    // A restart within the minute puts the same again: it is the same message.
    let token = format!("cron {queue} {n} {} {}", entry.cron, at.0);
    let put_as = PutAs {
        token: Some(token.into_bytes().into()),
        ..PutAs::default()
    };
    rq.put(queue, &new, put_as).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_set_back_repeats_nothing_unless_it_was_far_ahead() {
        let last = Ms(100 * 3_600_000);
        assert!(was_put(last, last) && was_put(last, Ms(last.0 - BACK_MS)));
        assert!(!was_put(last, Ms(last.0 - BACK_MS - 1)) && !was_put(last, last + 1));
    }
}
