//! The shard's engine.

use crate::command::{Caller, Command, Party};
use crate::fact::Journal;
use crate::outcome::{Answer, Delivery};
use crate::settings::Settings;
use crate::time::Ms;

/// One shard: durable state and those who wait.
#[derive(Debug, Default)]
pub struct Engine {}

#[allow(unused_variables, missing_docs, clippy::todo)]
impl Engine {
    pub fn new(shard: u8, shards: u8, settings: Settings) -> Self {
        todo!()
    }
    /// Replaces the configured settings (start, SIGHUP).
    pub fn configure(&mut self, settings: Settings) {
        todo!()
    }
    /// Decides and applies one command; facts go to `journal`, outcomes for others that waited to `deliveries`.
    pub fn submit(
        &mut self,
        now: Ms,
        caller: Caller,
        command: Command,
        journal: &mut impl Journal,
        deliveries: &mut Vec<Delivery>,
    ) -> Answer {
        todo!()
    }
    /// Does what is due by `now`: ends leases, promotes delayed messages, expires, ends waits and pauses.
    pub fn tick(&mut self, now: Ms, journal: &mut impl Journal, deliveries: &mut Vec<Delivery>) {
        todo!()
    }
    /// When `tick` should be called next; `Ms::NEVER` if nothing is pending.
    pub fn next_deadline(&self) -> Ms {
        todo!()
    }
    /// The party is gone: drops its waits, ends leases bound to it.
    pub fn disconnect(
        &mut self,
        now: Ms,
        party: Party,
        journal: &mut impl Journal,
        deliveries: &mut Vec<Delivery>,
    ) {
        todo!()
    }
}
