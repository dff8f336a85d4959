//! Operations on a running server, the same for API, console, command line, protocols and hooks.

use std::io;

use quintet_types::{
    Attempt, Ending, MessageId, Name, Operation, Overrides, Principal, QueueSetup, QueueStats,
    ServerStats,
};

use crate::attention::Thresholds;
use crate::audit::AuditLine;
use crate::events::{EventsPage, EventsRequest, News, NoEvents};
use crate::followed::Followed;
use crate::history::{History, Rates, Recent, Series};
use crate::reports::{Change, ClusterSeen, HookEvent, NoChange, Parts, Setting, ThrottledClient};
use crate::schedules::{NotSteered, ScheduleAct, TellSchedules, TellSteered, WhichSchedules};
use crate::worker::WorkerAction;

/// The operations on a running server. Shared by all threads. The caller checks the right and
/// writes the line of the audit that [`Operation`] has for each.
#[expect(unused_variables, reason = "of defaults, which have nothing to tell")]
pub trait Operator: Send + Sync {
    /// Why no new work should be sent here now, though what is here is served:
    /// it is being drained, say. `None`: nothing speaks against it.
    fn unready(&self) -> Option<&'static str> {
        None
    }

    /// Clients that a `[[limit]]` throttled: `most` of them at most, the latest first.
    fn throttled(&self, most: usize) -> Vec<ThrottledClient> {
        Vec::new()
    }

    /// This server's role in its cluster, for operators. `None`: it is alone.
    fn role(&self) -> Option<String> {
        None
    }

    /// Every number this server tells, in this format; of these names alone, whole or with a `*`
    /// at the end, if there are any; with the series of single queues if `queues` says so. May take
    /// as long as there are queues. `None`: it has none.
    fn metrics(&self, exposition: Exposition, names: &[String], queues: bool) -> Option<String> {
        None
    }

    /// The numbers that protocols show, but for [`ServerStats::tally`].
    fn stats(&self) -> ServerStats {
        ServerStats::default()
    }

    /// Every number by name, and the server's texts, as an object in JSON.
    fn numbers(&self) -> String {
        "{}".to_owned()
    }

    /// The configuration in force, as a TOML file with its secrets hidden.
    fn config(&self) -> String {
        String::new()
    }

    /// History of a queue's numbers. `None`: it has not moved for a day, or too many others had.
    fn history(&self, queue: &Name) -> Option<History> {
        None
    }

    /// Adds the last hour of a queue, by the minute, to that of others. `None`: nobody looked yet.
    fn add_hour(&self, queue: &Name, sum: &mut Option<Series>) {}

    /// How fast a queue's messages came and left over the last minute that is over. `None`: as of
    /// [`Operator::history`].
    fn rates(&self, queue: &Name) -> Option<Rates> {
        None
    }

    /// The newest counts of a queue with these numbers. `None`: the server has not looked at it
    /// yet.
    fn recent(&self, queue: &QueueStats) -> Option<Recent> {
        None
    }

    /// The events of a queue's messages from number `after` on, 0: from now on; the queue is
    /// followed as long as somebody asks. `None`: too many others are.
    fn follow(&self, queue: &Name, after: u64, contains: &[u8]) -> Option<Followed> {
        None
    }

    /// Events of messages, from the log: a page of them. Reads files.
    ///
    /// # Errors
    /// [`NoEvents`].
    fn events(&self, request: &EventsRequest) -> Result<EventsPage, NoEvents> {
        Err(NoEvents::Failed("no log is kept".to_owned()))
    }

    /// Has `news` called, by any thread, when the log is durable for longer than up to a position
    /// of [`Operator::events`]; true: it is already. Nobody is called who was dropped.
    fn await_events(&self, next: &str, news: &News) -> bool {
        false
    }

    /// From what on a queue needs attention.
    fn thresholds(&self) -> Thresholds {
        Thresholds::default()
    }

    /// Where the trace of a message is shown, with `{trace_id}` and `{span_id}`; empty: nowhere.
    fn trace_url(&self) -> String {
        String::new()
    }

    /// The parts of the server that are configured.
    fn parts(&self) -> Parts {
        Parts::default()
    }

    /// The end of a message that is gone. `None`: that is not known.
    fn end_of(&self, id: MessageId) -> Option<Ending> {
        None
    }

    /// The newest attempts of a message that ended without success, by its first id or a later one,
    /// oldest first.
    fn attempts_of(&self, id: MessageId) -> Vec<Attempt> {
        Vec::new()
    }

    /// The newest purge to which a message belongs perhaps whose end is not known any more.
    fn purge_of(&self, id: MessageId) -> Option<Ending> {
        None
    }

    /// Every setting in force, and where it comes from. Empty: nobody tells.
    fn settings(&self) -> Vec<Setting> {
        Vec::new()
    }

    /// The settings of a queue in force, in the order of the documentation.
    /// Empty: nobody tells.
    fn queue_settings(&self, setup: &QueueSetup) -> Vec<Setting> {
        Vec::new()
    }

    /// A queue's own settings after these changes, which somebody of this name makes.
    ///
    /// # Errors
    /// One of them is not possible.
    fn change(
        &self,
        setup: &QueueSetup,
        changes: &[Change],
        name: &str,
    ) -> Result<Overrides, NoChange> {
        Ok(setup.own.clone())
    }

    /// Work of hooks, by event; those that were never called are left out.
    fn hook_events(&self) -> Vec<HookEvent> {
        Vec::new()
    }

    /// The newest lines of the audit, `most` of them, oldest first. Reads files.
    ///
    /// # Errors
    /// They cannot be read.
    fn audit(&self, most: usize) -> io::Result<Vec<AuditLine>> {
        Ok(Vec::new())
    }

    /// The cluster this server is a node of. Asks all nodes, which takes seconds where one is gone.
    /// `None`: it is alone.
    fn cluster(&self) -> Option<ClusterSeen> {
        None
    }

    /// Has a node of the cluster own ([`Operation::MoveGroup`]), own nothing if others can
    /// ([`Operation::DrainNode`]), or no longer so ([`Operation::UndrainNode`]). Waits for the
    /// nodes. Answers what came of it, in words.
    ///
    /// # Errors
    /// Why it was not done.
    fn order_node(&self, operation: Operation, node: &str) -> Result<String, String> {
        Err("this server is not a node of a cluster".to_owned())
    }

    /// Lists the connections behind the one of this number, as a page in JSON; perhaps later, from
    /// another thread. Dropped without a call where the server stops.
    fn clients(&self, after: Option<u64>, sender: TellPage) {
        sender("[]".to_owned(), None);
    }

    /// Closes a connection; told, perhaps later, whether there was one of this
    /// number.
    fn close_client(&self, id: u64, sender: Box<dyn FnOnce(bool) + Send>) {
        drop(sender);
    }

    /// Lists the workers behind `after`, as a page of a list in JSON; as [`Operator::clients`]
    /// does.
    fn workers(&self, after: Option<String>, sender: TellPage) {
        drop(sender);
    }

    /// Asks a worker of a client for more than it was asked so far; false: it is
    /// not known.
    fn steer_worker(&self, action: WorkerAction, wid: &str) -> bool {
        false
    }

    /// Lists schedules, in a page; perhaps later, from another thread. Dropped without a call where
    /// the server stops.
    fn schedules(&self, which: WhichSchedules, sender: TellSchedules) {
        sender(Ok((Vec::new(), None)));
    }

    /// Steers the schedule of this name; replies, perhaps later, when it is durable. Dropped
    /// without a call where the server stops.
    fn steer_schedule(&self, action: ScheduleAct, name: &str, sender: TellSteered) {
        let name = name.to_owned();
        sender(Err(NotSteered::None {
            name,
            nearest: None,
        }));
    }

    /// Refuses puts in a moment, or takes them again; false: the server is stopping.
    fn drain(&self, on: bool) -> bool {
        false
    }

    /// Reads the configuration again, for this principal or for nobody in particular. `sender` is
    /// called later, from another thread; dropped where the server stops.
    fn reload(&self, principal: Option<Principal>, sender: TellReload) {
        drop(sender);
    }

    /// Has the server stop.
    ///
    /// # Errors
    /// The settings do not allow it, or it is stopping.
    fn shutdown(&self) -> Result<(), String> {
        Err("this server stops by itself".to_owned())
    }
}

/// Receives a page of a list in JSON, and the name of its last row if more follow.
pub type TellPage = Box<dyn FnOnce(String, Option<String>) + Send>;

/// Told the effects of reading the configuration again that nobody asked for, a sentence each; or
/// why nothing changed.
pub type TellReload = Box<dyn FnOnce(Result<Vec<String>, String>) + Send>;

/// How numbers are written for those who scrape them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exposition {
    /// Prometheus' text format, version 0.0.4.
    Prometheus,
    /// OpenMetrics, version 1.0.
    OpenMetrics,
}
