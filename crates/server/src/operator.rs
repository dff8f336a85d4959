//! Operations on the running server.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Instant;

use quintet_client::{
    AuditLine, Change, ClientApi as _, ClusterSeen, EventsPage, EventsRequest, Exposition,
    Followed, History, HookEvent, News, NoChange, NoEvents, Operator, Parts, Rates, Recent,
    ScheduleAct, Series, SetBy, Setting, TellPage, TellReload, TellSchedules, TellSteered,
    Thresholds, ThrottledClient, WhichSchedules, WorkerAction,
};
use quintet_config::{Secrets, changed, print};
use quintet_host::{locked, wall_ms};
use quintet_ops::audit;
use quintet_ops::metrics::{samples, survey_queues, text};
use quintet_process::MainRequest;
use quintet_types::{
    Attempt, Ending, MessageId, Name, Operation, Overrides, Principal, QueueSetup, QueueStats,
    ServerStats,
};
use quintet_wire::WorkerState;
use serde_json::{Map, Value};

use crate::server::Server;
use crate::stats::{machine, number};

impl Operator for Server {
    fn throttled(&self, most: usize) -> Vec<ThrottledClient> {
        self.security.quotas.throttled(Instant::now(), most)
    }

    fn unready(&self) -> Option<&'static str> {
        if self.edge.draining.load(Ordering::Relaxed) {
            return Some("draining");
        }
        if !self.core.is_available() {
            return Some("no quorum");
        }
        self.core.is_full().then_some("the disk is full")
    }

    fn role(&self) -> Option<String> {
        Some(self.node.as_ref()?.role())
    }

    fn trace_url(&self) -> String {
        let url = locked(&self.operations.config).trace_url.clone();
        let leads = ["http://", "https://"]
            .iter()
            .any(|way| url.starts_with(way));
        if leads { url } else { String::new() }
    }

    fn parts(&self) -> Parts {
        let config = locked(&self.operations.config);
        let mut served = config.listen.iter().map(|listen| listen.served.name());
        Parts {
            hooks: !config.hooks.is_empty(),
            cluster: self.node.is_some(),
            workers: served.any(|name| name == "faktory"),
        }
    }

    fn cluster(&self) -> Option<ClusterSeen> {
        self.node.as_ref()?.seen()
    }

    fn order_node(&self, operation: Operation, node: &str) -> Result<String, String> {
        match &self.node {
            Some(ours) => ours.order(operation, node),
            None => Err("this server is not a node of a cluster".to_owned()),
        }
    }

    fn metrics(&self, exposition: Exposition, names: &[String], queues: bool) -> Option<String> {
        let queues = queues.then(|| {
            let most = locked(&self.operations.config).metrics_queues;
            survey_queues(self, usize::try_from(most).unwrap_or(usize::MAX))
        });
        let shard = self.shard_stats();
        let reading = self.reading(&shard);
        Some(text(&reading, queues.as_ref(), exposition, names))
    }

    fn stats(&self) -> ServerStats {
        let shard = self.shard_stats();
        // Not below, where it would be locked while all else is read.
        let (segment_bytes, memory_limit) = {
            let config = locked(&self.operations.config);
            (config.segment_bytes, config.memory)
        };
        ServerStats {
            version: env!("CARGO_PKG_VERSION"),
            time_s: wall_ms() / 1000,
            memory_limit,
            log_segments: self.core.log_span(),
            segment_bytes,
            instance: self.operations.instance,
            machine: machine(),
            draining: self.edge.draining.load(Ordering::Relaxed),
            numbers: samples(&self.reading(&shard)),
            shard,
            ..ServerStats::default()
        }
    }

    fn history(&self, queue: &Name) -> Option<History> {
        self.operations.histories.of(queue)
    }

    fn add_hour(&self, queue: &Name, sum: &mut Option<Series>) {
        self.operations.histories.add_hour(queue, sum);
    }

    fn recent(&self, queue: &QueueStats) -> Option<Recent> {
        self.operations.histories.recent(queue, self.now())
    }

    fn follow(&self, queue: &Name, after: u64, contains: &[u8]) -> Option<Followed> {
        let memory = locked(&self.operations.config).tail_memory;
        let memory = usize::try_from(memory).unwrap_or(usize::MAX);
        let tails = &self.operations.tails;
        tails.follow(&self.core, queue, (after, contains), memory)
    }

    fn events(&self, request: &EventsRequest) -> Result<EventsPage, NoEvents> {
        self.operations.events.page(&self.core, request)
    }

    fn await_events(&self, next: &str, news: &News) -> bool {
        self.operations.events.wait(&self.core, next, news)
    }

    fn thresholds(&self) -> Thresholds {
        locked(&self.operations.config).attention.clone()
    }

    fn rates(&self, queue: &Name) -> Option<Rates> {
        self.operations.histories.rates(queue)
    }

    fn numbers(&self) -> String {
        let stats = self.stats();
        let mut map = Map::new();
        map.insert("version".into(), stats.version.into());
        map.insert("draining".into(), stats.draining.into());
        let numbers = stats.numbers.into_iter();
        map.extend(numbers.map(|(name, value)| (name.into_owned(), number(value))));
        let texts = self.texts().into_iter();
        map.extend(texts.map(|(name, text)| (name, text.into())));
        Value::Object(map).to_string()
    }

    fn config(&self) -> String {
        print(&locked(&self.operations.config), Secrets::Hidden)
    }

    fn settings(&self) -> Vec<Setting> {
        locked(&self.operations.config).settings_in_force(&self.operations.command_line)
    }

    fn queue_settings(&self, setup: &QueueSetup) -> Vec<Setting> {
        locked(&self.operations.config).settings_of_queue(setup)
    }

    fn change(
        &self,
        setup: &QueueSetup,
        changes: &[Change],
        name: &str,
    ) -> Result<Overrides, NoChange> {
        let name = name.to_owned();
        let at_ms = self.wall().0;
        changed(setup, changes, &SetBy { name, at_ms })
    }

    fn end_of(&self, id: MessageId) -> Option<Ending> {
        self.core.end_of(id)
    }

    fn attempts_of(&self, id: MessageId) -> Vec<Attempt> {
        self.core.attempts_of(id)
    }

    fn purge_of(&self, id: MessageId) -> Option<Ending> {
        self.core.purge_of(id)
    }

    fn hook_events(&self) -> Vec<HookEvent> {
        let events = self.security.hooks.shared().stats().into_iter();
        let events = events.map(|stats| HookEvent {
            name: stats.event.name().to_owned(),
            calls: stats.calls,
            errors: stats.errors,
            ns: stats.ns,
            last_error: stats.last.map(|error| error.to_string()),
        });
        events.collect()
    }

    fn audit(&self, most: usize) -> io::Result<Vec<AuditLine>> {
        let data = locked(&self.operations.config).data.clone();
        audit::newest(&data, most)
    }

    fn clients(&self, after: Option<u64>, notify: TellPage) {
        self.edge.list_clients(after, notify);
    }

    fn close_client(&self, id: u64, notify: Box<dyn FnOnce(bool) + Send>) {
        self.edge.close_client(id, notify);
    }

    fn workers(&self, after: Option<String>, notify: TellPage) {
        self.edge.list_workers(after, notify);
    }

    fn steer_worker(&self, action: WorkerAction, wid: &str) -> bool {
        let state = match action {
            WorkerAction::Quiet => WorkerState::Quiet,
            WorkerAction::Terminate => WorkerState::Terminate,
        };
        self.edge.steer_worker(state, wid)
    }

    fn schedules(&self, which: WhichSchedules, notify: TellSchedules) {
        self.operations.schedules.list(which, notify);
    }

    fn steer_schedule(&self, action: ScheduleAct, name: &str, notify: TellSteered) {
        self.operations.schedules.steer(action, name, notify);
    }

    fn drain(&self, on: bool) -> bool {
        self.operations.request(MainRequest::Drain(on)).is_ok()
    }

    fn reload(&self, principal: Option<Principal>, notify: TellReload) {
        // A reload must not lock out the user that asks for it. The operator gets in all the same.
        let by = principal.filter(|by| *by != Principal::SERVER);
        // Where the server stops, `notify` is dropped with the request.
        let _stopping = self
            .operations
            .request(MainRequest::Reload(by, Some(notify)));
    }

    fn shutdown(&self) -> Result<(), String> {
        match self.edge.limits.allow_shutdown.load(Ordering::Relaxed) {
            true => self.operations.request(MainRequest::Stop),
            false => Err("shutdown is not allowed: set allow_shutdown = true".to_owned()),
        }
    }
}
