//! The reply to INFO, gathered page by page.

use std::fmt::Write as _;

use quintet_types::{Command, Outcome, QueueStats, ServerStats};

use super::{Shared, job, json, moment};
use crate::session::{page, page_of};

/// INFO in its middle.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Info {
    server: Box<ServerStats>,
    /// Members of `queues`.
    queues: String,
    count: u64,
    enqueued: u64,
    working: u64,
    delayed: u64,
    retries: u64,
    dead: u64,
    finished: u64,
    failed: u64,
}

impl Info {
    pub(super) fn new(server: Box<ServerStats>) -> Self {
        Self {
            server,
            ..Self::default()
        }
    }

    /// Goes on; `None`: all is known.
    pub(super) fn go_on(&mut self, outcome: &Outcome) -> Option<Command> {
        if let Some(queues) = page_of(outcome) {
            queues.queues.iter().for_each(|queue| self.add(queue));
            if let Some(from) = queues.next {
                return Some(page(from));
            }
        }
        None
    }

    fn add(&mut self, queue: &QueueStats) {
        let held = &queue.gauges;
        let jobs = held.ready + held.delayed + held.reserved + held.buried;
        let totals = &queue.totals;
        // One that somebody only waits for is none.
        let is_known = jobs + totals.puts + totals.moved_in > 0;
        if !job::is_queue(queue.name.as_bytes()) || !is_known {
            return;
        }
        if !self.queues.is_empty() {
            self.queues.push(',');
        }
        json::quote(&json::text_of(queue.name.as_bytes()), &mut self.queues);
        write!(self.queues, ":{}", held.ready).expect("strings take all");
        self.count += 1;
        self.enqueued += held.ready;
        self.working += held.reserved;
        self.delayed += held.delayed;
        self.retries += held.retrying;
        self.dead += held.buried;
        self.finished += totals.finished;
        self.failed += totals.failures;
    }

    pub(super) fn capacity(&self) -> usize {
        self.queues.capacity()
    }

    pub(super) fn text(&self, shared: &Shared, now: quintet_types::Ms) -> String {
        let mut out = "{\"now\":\"".to_owned();
        moment::write(now, &mut out);
        let clock = out[out.len() - 13..out.len() - 5].to_owned();
        let Self {
            server,
            queues,
            count,
            enqueued,
            working,
            retries,
            dead,
            failed,
            ..
        } = self;
        let scheduled = self.delayed.saturating_sub(*retries);
        let processed = self.finished + failed;
        let task =
            |size| format!("{{\"cycles\":0,\"enqueued\":0,\"size\":{size},\"wall_time_sec\":0}}");
        let (of_dead, of_retries, of_scheduled) = (task(dead), task(retries), task(&scheduled));
        let workers = server.number("workers");
        let commands: u64 = server.tally.iter().sum();
        // Clients look for the word before they use what is sold.
        let description = match shared.ent {
            true => "Quintet, Enterprise commands on",
            false => "Quintet",
        };
        write!(
            out,
            "\",\"server_utc_time\":\"{clock} UTC\",\"faktory\":{{\"queues\":{{{queues}}},\
             \"sets\":{{\"dead\":{dead},\"retries\":{retries},\"scheduled\":{scheduled},\
             \"working\":{working}}},\"tasks\":{{\"Busy\":{{\"reaped\":0,\"size\":{working}}},\
             \"Dead\":{of_dead},\"Retries\":{of_retries},\"Scheduled\":{of_scheduled},\
             \"Workers\":{{\"reaped\":0,\"size\":{workers}}}}},\"total_failures\":{failed},\
             \"total_processed\":{processed},\"total_enqueued\":{enqueued},\
             \"total_queues\":{count}}},\"server\":{{\"description\":\"{description}\",\
             \"faktory_version\":\"{}\",\"uptime\":{},\"connections\":{},\
             \"command_count\":{commands},\"used_memory_mb\":{}}}}}",
            shared.version,
            server.number("uptime_s"),
            server.number("connections"),
            server.shard.memory_bytes >> 20,
        )
        .expect("strings take all");
        out
    }
}
