//! The client API of the running server.

use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use quintet_client::{
    Arrive, AuditLine, Change, ClientApi, ClusterSeen, EventsPage, EventsRequest, Exposition,
    Followed, History, HookEvent, News, NoChange, NoEvents, NodeOrder, OnOutcome, Parts, Rates,
    Recent, ScheduleAct, Series, SetBy, Setting, StoreError, TellPage, TellReload, TellSchedules,
    TellSteered, Thresholds, ThrottledClient, WhichSchedules, WorkerAction,
};
use quintet_config::{Secrets, changed, print};
use quintet_edge::Upload;
use quintet_host::locked;
use quintet_ops::{audit, metrics};
use quintet_process::Order;
use quintet_types::{
    Attempt, Body, Caller, ClientId, Command, Ending, Message, MessageId, Ms, Name, Overrides,
    Principal, QueueSetup, QueueStats,
};
use quintet_wire::{STREAM_OVER, WorkerState};

use crate::server::Server;

/// The client API to a running server.
pub(crate) struct ServerApi(pub(crate) Arc<Server>);

impl ClientApi for ServerApi {
    fn now(&self) -> Ms {
        self.0.core.clock.now()
    }

    fn wall(&self) -> Ms {
        self.0.core.clock.wall()
    }

    fn epoch(&self) -> u64 {
        self.0.core.epoch
    }

    fn throttled(&self, most: usize) -> Vec<ThrottledClient> {
        self.0.security.quotas.throttled(Instant::now(), most)
    }

    fn unready(&self) -> Option<&'static str> {
        let server = &self.0;
        if server.edge.draining.load(Ordering::Relaxed) {
            return Some("draining");
        }
        if !server.core.is_available() {
            return Some("no quorum");
        }
        server.core.is_full().then_some("the disk is full")
    }

    fn role(&self) -> Option<String> {
        Some(self.0.node.as_ref()?.role())
    }

    fn trace_url(&self) -> String {
        let url = locked(&self.0.operations.config).trace_url.clone();
        let leads = ["http://", "https://"]
            .iter()
            .any(|way| url.starts_with(way));
        if leads { url } else { String::new() }
    }

    fn parts(&self) -> Parts {
        let config = locked(&self.0.operations.config);
        let mut served = config.listen.iter().map(|listen| listen.served.name());
        Parts {
            hooks: !config.hooks.is_empty(),
            cluster: self.0.node.is_some(),
            workers: served.any(|name| name == "faktory"),
        }
    }

    fn cluster(&self) -> Option<ClusterSeen> {
        self.0.node.as_ref()?.seen()
    }

    fn order_node(&self, order: NodeOrder, node: &str) -> Result<String, String> {
        match &self.0.node {
            Some(ours) => ours.order(order, node),
            None => Err("this server is not a node of a cluster".to_owned()),
        }
    }

    fn metrics(&self, exposition: Exposition, names: &[String], queues: bool) -> Option<String> {
        if !queues {
            return Some(self.0.metrics(None, exposition, names));
        }
        let most = locked(&self.0.operations.config).metrics_queues;
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let queues = metrics::survey_queues(self, most);
        Some(self.0.metrics(Some(&queues), exposition, names))
    }

    fn history(&self, queue: &Name) -> Option<History> {
        self.0.operations.histories.of(queue)
    }

    fn add_hour(&self, queue: &Name, sum: &mut Option<Series>) {
        self.0.operations.histories.add_hour(queue, sum);
    }

    fn recent(&self, queue: &QueueStats) -> Option<Recent> {
        self.0.operations.histories.recent(queue, self.now())
    }

    fn follow(&self, queue: &Name, after: u64, contains: &[u8]) -> Option<Followed> {
        let memory = locked(&self.0.operations.config).tail_memory;
        let memory = usize::try_from(memory).unwrap_or(usize::MAX);
        let tails = &self.0.operations.tails;
        tails.follow(&self.0.core, queue, (after, contains), memory)
    }

    fn events(&self, request: &EventsRequest) -> Result<EventsPage, NoEvents> {
        self.0.operations.events.page(&self.0.core, request)
    }

    fn await_events(&self, next: &str, news: &News) -> bool {
        self.0.operations.events.wait(&self.0.core, next, news)
    }

    fn thresholds(&self) -> Thresholds {
        locked(&self.0.operations.config).attention.clone()
    }

    fn rates(&self, queue: &Name) -> Option<Rates> {
        self.0.operations.histories.rates(queue)
    }

    fn numbers(&self) -> String {
        self.0.to_json().to_string()
    }

    fn config(&self) -> String {
        print(&locked(&self.0.operations.config), Secrets::Hidden)
    }

    fn settings(&self) -> Vec<Setting> {
        locked(&self.0.operations.config).settings_in_force(&self.0.operations.command_line)
    }

    fn queue_settings(&self, setup: &QueueSetup) -> Vec<Setting> {
        locked(&self.0.operations.config).settings_of_queue(setup)
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
        self.0.core.end_of(id)
    }

    fn attempts_of(&self, id: MessageId) -> Vec<Attempt> {
        self.0.core.attempts_of(id)
    }

    fn purge_of(&self, id: MessageId) -> Option<Ending> {
        self.0.core.purge_of(id)
    }

    fn hook_events(&self) -> Vec<HookEvent> {
        let events = self.0.security.hooks.shared().stats().into_iter();
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
        let data = locked(&self.0.operations.config).data.clone();
        audit::newest(&data, most)
    }

    fn clients(&self, after: Option<u64>, notify: TellPage) {
        self.0.edge.list_clients(after, notify);
    }

    fn close_client(&self, id: u64, notify: Box<dyn FnOnce(bool) + Send>) {
        self.0.edge.close_client(id, notify);
    }

    fn workers(&self, after: Option<String>, notify: TellPage) {
        self.0.edge.list_workers(after, notify);
    }

    fn steer_worker(&self, action: WorkerAction, wid: &str) -> bool {
        let state = match action {
            WorkerAction::Quiet => WorkerState::Quiet,
            WorkerAction::Terminate => WorkerState::Terminate,
        };
        self.0.edge.steer_worker(state, wid)
    }

    fn schedules(&self, which: WhichSchedules, notify: TellSchedules) {
        self.0.operations.schedules.list(which, notify);
    }

    fn steer_schedule(&self, action: ScheduleAct, name: &str, notify: TellSteered) {
        self.0.operations.schedules.steer(action, name, notify);
    }

    fn drain(&self, on: bool) -> bool {
        self.0.operations.order(Order::Drain(on)).is_ok()
    }

    fn reload(&self, principal: Option<Principal>, notify: TellReload) {
        let principal = principal.unwrap_or(Principal::SERVER);
        self.0.operations.reload(principal, notify);
    }

    fn enter(&self, arrive: Arrive) -> ClientId {
        self.0.dispatchers.enter(arrive)
    }

    fn enter_here(&self, arrive: Arrive) -> ClientId {
        self.0.dispatchers.enter_here(arrive)
    }

    fn leave(&self, client_id: ClientId) {
        self.0.dispatchers.leave(client_id);
    }

    fn submit(&self, caller: Caller, command: Command, reply: OnOutcome) {
        self.0.dispatchers.submit(caller, command, reply);
    }

    fn restore(&self, client_id: ClientId, messages: Vec<Message>) {
        let caller = Caller::server(client_id);
        self.0
            .core
            .with_access(|access| access.restore(caller, messages));
    }

    fn read(&self, body: &Body, from: u64, into: &mut [u8]) -> io::Result<usize> {
        match body {
            Body::Small(bytes) => {
                let from = usize::try_from(from).unwrap_or(usize::MAX).min(bytes.len());
                let count = into.len().min(bytes.len() - from);
                into[..count].copy_from_slice(&bytes[from..from + count]);
                Ok(count)
            }
            Body::Large(large) => self.0.dispatchers.read_large(large, from, into),
        }
    }

    fn store(&self, queue: &Name, len: u64, source: &mut dyn Read) -> Result<Body, StoreError> {
        if len <= STREAM_OVER {
            let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
            source.read_exact(&mut bytes).map_err(StoreError::Source)?;
            return Ok(Body::new(&bytes));
        }
        if let Some(command_error) = self.0.edge.refuses_body(Principal::SERVER, queue, len) {
            return Err(StoreError::Refused(command_error));
        }
        let (core, chunk) = (&self.0.core, self.0.edge.limits.chunk_bytes);
        let mut upload = Upload::new(core, &self.0.edge.uploads, len, None);
        let mut buffer = vec![0; 64 << 10];
        let mut left = len;
        while left > 0 {
            let most = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(buffer.len());
            let read = match source.read(&mut buffer[..most]) {
                Ok(0) => return Err(StoreError::Source(ErrorKind::UnexpectedEof.into())),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(StoreError::Source(error)),
            };
            left -= read as u64;
            let mut fed = 0;
            while fed < read {
                fed += upload.feed(core, chunk, &buffer[fed..read]).0;
            }
        }
        upload
            .finish()
            .map(Body::Large)
            .map_err(StoreError::Refused)
    }
}
