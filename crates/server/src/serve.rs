//! How the server starts, serves and ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use mio::Poll;
use quintet_client::Entry;
use quintet_config::{CommandLine, Config, Places, RESERVE, load};
use quintet_edge::{
    Auth, Control, Dispatchers, Edge, ForwardingByProtocol, Hooks, HttpGate, IoThread, LOGINS_LOOK,
    Listening, Mailbox, Quotas, Security, Tls, Watch,
};
use quintet_host::{Core, Layout, Owner, Post, Room, SyncPolicy, locked};
use quintet_http::{Serve, Settings, Socket, Web};
use quintet_log::{DirLock, LogError};
use quintet_ops::audit::Audit;
use quintet_ops::history::Surroundings;
use quintet_ops::{EventLog, Tracing, stuck};
use quintet_otlp::Counts;
use quintet_process::{Bound, Crew, End, MainRequest, again, fit, modes, notify, raise_file_limit};
use quintet_types::Operation;
use quintet_web::Site;

use crate::cluster::{self, Node, Ownership, ProxyListener, Threads};
use crate::listeners::{Opened, open_listeners};
use crate::running::task_of;
use crate::scripts::Scripts;
use crate::server::{Operations, Server};
use crate::sockets::{announce, console, leave_out_taken, say};
use crate::{logging, scripts, watchdog};

/// Event streams of the control socket at once.
const STREAMS_MAX: usize = 16;

/// Reads the configuration again for a node that owns nothing: what addresses
/// may use, as clients come in here too.
fn reload_limits(command_line: &CommandLine, quotas: &Quotas) {
    let read = load(command_line).map_err(|error| format!("{error:#}"));
    match read.and_then(|config| config.limit_table().map_err(|wrong| wrong.join("; "))) {
        Ok(limits) => {
            quotas.reload(limits);
            tracing::info!("the limits are reloaded; the owner of the queues applies the rest");
        }
        Err(why) => tracing::error!("not reloaded: {why}"),
    }
}

/// Starts the server, serves until it has to stop, and stops it. A node of a cluster follows, owns
/// the queues and follows again, as often as that comes.
///
/// # Errors
/// It could not start; nothing was answered to anyone.
pub(crate) fn run(mut config: Config, command_line: CommandLine) -> Result<()> {
    let level = logging::start(&config.log_level, &config.log_format)?;
    let watched = watchdog::start()?;
    if config.cluster.is_on() {
        // All listeners, the control socket, and where other nodes and tools come in.
        again::reserve(config.listen.len() + 3)?;
    }
    scripts::check(&config)?;
    raise_file_limit();
    let _lock = DirLock::acquire(&config.data)?;
    leave_out_taken(&mut config)?;
    let places = fit(&config);
    modes::warn_wider(&config.data);
    let (requests, inbox) = channel();
    let stops = quintet_process::signals::listen(requests.clone())?;
    let tls = Tls::load(&config)?;
    let _watch = Watch::start(&tls)?;
    let process = Process {
        level,
        watched,
        audit: Arc::new(Audit::new(&config.data)),
        command_line,
        places,
        tls,
        requests,
        inbox,
        stops,
    };
    let mut next = Some(config);
    while let Some(config) = next {
        next = process.serve(config)?;
    }
    Ok(())
}

/// The parts of a process that stay while its node follows, owns and follows again.
struct Process {
    level: logging::Level,
    watched: watchdog::Watched,
    audit: Arc<Audit>,
    command_line: CommandLine,
    places: Places,
    tls: Arc<Tls>,
    requests: Sender<MainRequest>,
    inbox: Receiver<MainRequest>,
    /// Set by the first signal to stop.
    stops: Arc<AtomicBool>,
}

impl Process {
    /// Serves until it has to stop, or until another node is to own the queues: then the answer is
    /// the configuration to follow by.
    ///
    /// # Errors
    /// As [`run`].
    fn serve(&self, config: Config) -> Result<Option<Config>> {
        let (places, tls) = (self.places, Arc::clone(&self.tls));
        let auth = Auth::new(&config, self.command_line.config.as_deref())?;
        let quotas = Arc::new(Quotas::new(&config, Instant::now())?);
        let is_open = !auth.is_used();
        // Ports first: a port in use should not cost a replay.
        let Opened {
            bound,
            listening,
            http,
            sqs,
            addresses,
            proxy_listeners,
        } = open_listeners(&config, places, &tls)?;
        again::all_claimed()?;
        let console = console(&config, &addresses, &tls);
        let announce = || announce(&addresses, console.as_deref(), is_open);
        if config.cluster.is_on() {
            announce();
        }
        let ownership = match config.cluster.is_on() {
            true => match self.follow(&config, proxy_listeners, &quotas)? {
                // Told to stop before it owned anything.
                None => return Ok(None),
                ownership => ownership,
            },
            false => None,
        };
        let place = (places, auth, quotas, Arc::<Audit>::clone(&self.audit));
        let spans = Arc::default();
        let traced = Tracing::start(&config, &spans)?;
        let (server, polls, spares) = open(
            config,
            self.command_line.clone(),
            listening,
            self.requests.clone(),
            place,
            ownership,
            (tls, spans),
        )?;
        if let Some(traced) = &traced {
            traced.follow(&server.core);
        }
        let starting = match &server.node {
            None => Some(stuck::watch_start(&server.core, Arc::clone(&self.stops))?),
            Some(_) => None,
        };
        let ends = Arc::new(AtomicBool::new(false));
        server.security.hooks.begin(&server.core);
        let helpers = start_helpers(&server, spares, &ends)?;
        server.core.check_room();
        server.core.catch_up();
        if server.node.is_none() {
            // Before anybody is answered, so that `quintet wait` ends behind these lines.
            announce();
        }
        let control = start_control(&server)?;
        let (io, dispatcher) = start_workers(&server, polls, bound)?;
        let threads = ServerThreads {
            server,
            io,
            dispatcher,
            helpers,
            ends,
        };
        let scripts = Scripts::start(&threads.server, http, sqs)?;
        drop(starting);
        self.serve_with(threads, control, scripts, traced)
    }

    /// Follows until this node owns the queues. `None`: told to stop before.
    fn follow(
        &self,
        config: &Config,
        listeners: Vec<ProxyListener>,
        quotas: &Arc<Quotas>,
    ) -> Result<Option<Ownership>> {
        let arrivals = Arc::<Quotas>::clone(quotas);
        let log = Arc::<Audit>::clone(&self.audit);
        let reload = || reload_limits(&self.command_line, quotas);
        let (connections, ours) = (self.places.connections, (&self.requests, &self.inbox));
        cluster::follow(config, listeners, connections, arrivals, log, &reload, ours)
    }

    /// Serves with all that is started, until a request ends it.
    fn serve_with(
        &self,
        mut threads: ServerThreads,
        control: Web,
        mut scripts: Scripts,
        traced: Option<Tracing>,
    ) -> Result<Option<Config>> {
        let server = Arc::clone(&threads.server);
        *locked(&self.watched) = Arc::downgrade(&server.edge);
        match &server.node {
            None => say("quintet ready"),
            Some(node) => {
                node.serves(&server.core, intake(&server, scripts.forwarding()));
                say("quintet owner");
            }
        }
        notify::ready();

        let end = obey(&mut threads, &self.inbox, &self.level, &mut scripts);

        // It asks I/O threads, which end.
        *locked(&self.watched) = Weak::new();
        let next = locked(&server.operations.config).clone();
        let is_alone = server.node.is_none();
        stop(threads, control, scripts, traced, end)?;
        if is_alone || end == End::Stop {
            return Ok(None);
        }
        if !is_let_go(server, Instant::now() + LET_GO) {
            again::begin();
        }
        again::stay();
        Ok(Some(next))
    }
}

/// Ends all that serves, as `end` says; what clients are owed they still get.
///
/// # Errors
/// A thread has panicked, or what was decided last cannot be written.
fn stop(
    mut threads: ServerThreads,
    control: Web,
    scripts: Scripts,
    traced: Option<Tracing>,
    end: End,
) -> Result<()> {
    let server = Arc::clone(&threads.server);
    match end {
        End::Stop => {
            // Also if a client has ordered it.
            again::stops();
            notify::stopping();
        }
        End::HandOver => again::hand_on(true),
        End::Deposed => {
            again::hand_on(false);
            server.edge.limits.cut();
        }
    }
    tracing::info!("stopping");
    server.operations.audit.report_all_steps();
    server.security.audit.write(&Entry::of(Operation::Stop));
    let grace = server.edge.limits.stop_wait();
    if server.node.is_none() {
        // Clients and scripts have had their time by then.
        let grace_ms = locked(&server.operations.config).script_grace_ms;
        let scripts = Duration::from_millis(grace_ms);
        stuck::watch_stop(&server.core, grace.saturating_add(scripts))?;
    }
    end_waits(&server);
    // They ask through the client API, so it closes after them.
    if !control.stop(grace) | !scripts.stop(grace) {
        tracing::error!("the HTTP thread has ended too early");
    }
    if let Some(traced) = traced {
        traced.stop();
    }
    match &server.node {
        None => threads.stop(),
        Some(node) => node.leave(&server.core, grace, &mut threads, end),
    }
}

/// Time for threads that nobody waits for to let go of a core. Clients wait meanwhile.
const LET_GO: Duration = Duration::from_secs(1);

/// Drops a server whose threads have ended. False: its core is still referred to then.
fn is_let_go(server: Arc<Server>, by: Instant) -> bool {
    let (core, whole) = (Arc::downgrade(&server.core), Arc::downgrade(&server));
    let edge = Arc::downgrade(&server.edge);
    // It may take long to free all messages. Where there is no thread for it this one does.
    let thread = std::thread::Builder::new().name("free".to_owned());
    thread.spawn(move || drop(server)).ok();
    while core.strong_count() > 0 {
        if Instant::now() >= by {
            tracing::warn!(
                core = core.strong_count(),
                server = whole.strong_count(),
                edge = edge.strong_count(),
                "the process is replaced, as the core of the queues is still referred to"
            );
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Opens the log: the data directory's, or the one that a node has claimed.
///
/// # Errors
/// The log cannot be read or written.
fn open_log(
    config: &Config,
    ownership: Option<Ownership>,
) -> Result<(quintet_host::Opened, Option<Arc<Node>>)> {
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let layout = Layout {
        shards: size(config.shards),
        segment_bytes: config.segment_bytes,
        spares: size(config.spare_segments),
        memory: config.memory,
    };
    let began = Instant::now();
    let (opened, node) = match ownership {
        None => {
            let settings = config.engine_settings();
            let opened = quintet_host::open_dir(&config.data, &layout, &settings)?;
            (opened, None)
        }
        Some(ownership) => {
            let (opened, node) = ownership.take(&layout)?;
            (opened, Some(node))
        }
    };
    tracing::info!(
        group = owner_of(node.as_ref()).group(),
        "read {} frames, {} MiB of log in {} ms",
        opened.recovery.frames,
        opened.recovery.bytes >> 20,
        began.elapsed().as_millis()
    );
    Ok((opened, node))
}

/// The receiver of a failure of the log.
fn owner_of(node: Option<&Arc<Node>>) -> Box<dyn Owner> {
    match node {
        None => Box::new(EndsWithItsLog),
        Some(node) => node.owner(),
    }
}

/// Opens the data directory and puts the shared parts together.
fn open(
    config: Config,
    command_line: CommandLine,
    listeners: Vec<Listening>,
    requests: Sender<MainRequest>,
    (places, auth, quotas, audit): (Places, Auth, Arc<Quotas>, Arc<Audit>),
    ownership: Option<Ownership>,
    (tls, spans): (Arc<Tls>, Arc<Counts>),
) -> Result<(Arc<Server>, Polls, Option<quintet_log::Spares>)> {
    for doubt in config.together().unwrap_or_default() {
        tracing::warn!("{doubt}");
    }
    // Before the log is read: a mistake in them is better told at once.
    let hooks = Hooks::load(config.hooks_path().as_deref(), &config.hook_limits())
        .map_err(|error| anyhow!("hooks: {error}"))?;
    let (opened, node) = open_log(&config, ownership)?;
    let owner = owner_of(node.as_ref());
    let mut polls = Vec::new();
    let mut mail = Vec::new();
    for _ in 0..config.io_threads() {
        let (poll, mailbox) = Mailbox::open()?;
        polls.push(poll);
        mail.push(mailbox);
    }
    let (dispatcher_poll, first) = Mailbox::open()?;
    // For the threads of http, of sqs, and of the control socket.
    let tasks = (0..2 * config.http_threads() + 1).map(|_| Mailbox::of_task(&first));
    let dispatching: Vec<_> = std::iter::once(&first).cloned().chain(tasks).collect();
    let room = Room::new(config.data.clone(), config.segment_bytes);
    let spares = opened.spares.clone();
    let posts = mail.iter().chain(&dispatching);
    let posts = posts.map(|mail| Arc::clone(mail) as Arc<dyn Post>);
    let events = Arc::new(EventLog::default());
    // The last one, as those before have clients.
    let posts = posts.chain([Arc::clone(&events) as Arc<dyn Post>]);
    let core = Core::new(opened, config.sync, posts.collect(), room, owner);
    core.share(config.cluster.sharing());
    core.set_events_keep(config.events_keep);
    let (core, hooks) = (Arc::new(core), Arc::new(hooks));
    let security = Arc::new(Security {
        core: Arc::clone(&core),
        hooks: Arc::clone(&hooks),
        auth,
        quotas,
        audit: Arc::<Audit>::clone(&audit),
    });
    security.enforce();
    let dispatchers = Dispatchers::new(&core, &hooks, dispatching, mail.len());
    let (shards, guards) = (Arc::clone(&core), Arc::clone(&security));
    let edge = Edge::new(&config, shards, guards, listeners, mail, tls, &places);
    let server = Server {
        core,
        edge: Arc::new(edge),
        security,
        dispatchers: Arc::new(dispatchers),
        node,
        operations: Operations::new(config, command_line, (audit, events), spans, requests)?,
    };
    let polls = Polls {
        io: polls,
        dispatcher: dispatcher_poll,
    };
    Ok((Arc::new(server), polls, spares))
}

/// The polls of the I/O threads, and the first dispatcher's.
struct Polls {
    io: Vec<Poll>,
    dispatcher: Poll,
}

/// Time for which a connection of the control socket may rest, or leave a reply unread.
const AT_REST: Duration = Duration::from_secs(24 * 3600);

/// Serves `/api/v1` on the control socket.
///
/// # Errors
/// The system has no thread or file to give.
fn start_control(server: &Arc<Server>) -> Result<Web> {
    let edge = &server.edge;
    let at = edge.listeners.iter().find(|listener| listener.api);
    let settings = Settings {
        gate: Some(HttpGate::of_account(&server.security, None)),
        memory: Some(Arc::clone(&edge.connection_memory)),
        stream_counts: Arc::clone(&edge.http.streams),
        clients: Arc::clone(&edge.http.clients),
        address: at.map(|at| at.address.as_str()).unwrap_or_default().into(),
        limits: quintet_http::Limits {
            connections_max: usize::try_from(RESERVE).unwrap_or(usize::MAX),
            apart_max: 0,
            streams_max: STREAMS_MAX,
            // A command may wait for its user, and for the reader of its output.
            idle: AT_REST,
            unread: Some(AT_REST),
            ..quintet_http::Limits::default()
        },
        ..Settings::default()
    };
    let site: Arc<dyn Serve> = Site::new(settings, None, Arc::<Server>::clone(server));
    let dispatchers = Arc::clone(&server.dispatchers);
    let web = Web::start("api", 1, vec![(Socket::Elsewhere, site)], move || {
        task_of(&dispatchers)
    });
    let web = web.context("cannot serve the API on the control socket")?;
    // Nobody else sets it.
    let _first = edge.control.set(Control::new(&web));
    Ok(web)
}

/// The service for the clients that other nodes bring.
#[cfg(feature = "cluster")]
fn intake(server: &Server, http: ForwardingByProtocol) -> Arc<dyn quintet_proxy::Intake> {
    let certified = !locked(&server.operations.config).cluster.peer_insecure;
    let edge = Arc::clone(&server.edge);
    Arc::new(crate::forwarded::PeerIntake::new(edge, certified, http))
}

#[cfg(not(feature = "cluster"))]
fn intake(_: &Server, _: ForwardingByProtocol) -> cluster::Intake {
    cluster::Intake
}

/// A single server ends when its log fails: the next start reads what the disk
/// has.
struct EndsWithItsLog;

impl Owner for EndsWithItsLog {
    fn log_failed(&self, error: &LogError) {
        tracing::error!(group = self.group(), "stopping: {error}");
        eprintln!("quintet: stopping: cannot write the log: {error}");
        std::process::exit(1);
    }
}

/// Work of a helper thread.
type Helper = Box<dyn FnOnce(&Arc<Server>, &AtomicBool) + Send>;

fn start_helpers(
    server: &Arc<Server>,
    spares: Option<quintet_log::Spares>,
    ends: &Arc<AtomicBool>,
) -> Result<Crew> {
    let mut helpers = Crew::default();
    start_hooks(&mut helpers, server, ends)?;
    let mut start = |name: &str, body: Helper| {
        let (server, ends) = (Arc::clone(server), Arc::clone(ends));
        helpers.start(name, move || body(&server, &ends))
    };
    start("timer", Box::new(|server, _| server.core.run_timer()))?;
    start(
        "compactor",
        Box::new(|server, stop| server.core.run_compactor(stop)),
    )?;
    start(
        "schedules",
        Box::new(|server, stop| {
            server.operations.schedules.run(&**server, stop);
        }),
    )?;
    for index in 0..server.operations.webhooks.count() {
        start(
            "webhook",
            Box::new(move |server, _| server.operations.webhooks.run(index, &**server)),
        )?;
    }
    start(
        "history",
        Box::new(|server, stop| {
            let surroundings = Surroundings {
                core: &server.core,
                client_api: &**server,
                config: &server.operations.config,
                audit: &server.operations.audit,
            };
            server.operations.histories.run(&surroundings, stop);
        }),
    )?;
    start(
        "fetch",
        Box::new(|server, stop| server.core.run_fetch(stop)),
    )?;
    start(
        "upkeep",
        Box::new(move |server, stop| {
            let log_bytes = || server.edge.limits.log_bytes.load(Ordering::Relaxed);
            server.core.run_upkeep(spares.as_ref(), &log_bytes, stop);
        }),
    )?;
    let interval = match server.core.policy() {
        SyncPolicy::Always => {
            start("log", Box::new(|server, stop| server.core.run_log(stop)))?;
            return Ok(helpers);
        }
        SyncPolicy::EveryMs(ms) => Some(Duration::from_millis(ms)),
        SyncPolicy::Never => None,
    };
    start(
        "sync",
        Box::new(move |server, stop| server.core.run_sync(interval, stop)),
    )?;
    Ok(helpers)
}

/// Starts the thread of hooks if there are any, unless it runs.
fn start_hooks(helpers: &mut Crew, server: &Arc<Server>, ends: &Arc<AtomicBool>) -> Result<()> {
    const NAME: &str = "hooks";
    let has_hooks = locked(&server.operations.config).hooks_path().is_some();
    if !has_hooks || helpers.has(NAME) {
        return Ok(());
    }
    let (server, ends) = (Arc::clone(server), Arc::clone(ends));
    helpers.start(NAME, move || {
        let (core, config) = (&server.core, &server.operations.config);
        server.security.hooks.run(core, config, &ends);
    })
}

/// Starts the I/O threads, among which listeners are shared out, and the first dispatcher's.
fn start_workers(server: &Arc<Server>, polls: Polls, bound: Vec<Bound>) -> Result<(Crew, Crew)> {
    let (mut workers, mut dispatcher) = (Crew::default(), Crew::default());
    let dispatchers = Arc::clone(&server.dispatchers);
    dispatcher.start("dispatcher", move || dispatchers.run(polls.dispatcher))?;
    let mut shares: Vec<Vec<(usize, Bound)>> = polls.io.iter().map(|_| Vec::new()).collect();
    let threads = shares.len();
    for (number, bound) in bound.into_iter().enumerate() {
        shares[number % threads].push((number, bound));
    }
    for (index, (poll, share)) in polls.io.into_iter().zip(shares).enumerate() {
        let (edge, operator) = (Arc::clone(&server.edge), Arc::<Server>::clone(server));
        let worker =
            IoThread::new(index, edge, operator, poll, share).context("cannot watch a listener")?;
        workers.start(&format!("io-{index}"), || worker.run())?;
    }
    Ok((workers, dispatcher))
}

/// Does what is ordered until that is to stop, and ends logins.
fn obey(
    threads: &mut ServerThreads,
    inbox: &Receiver<MainRequest>,
    level: &logging::Level,
    scripts: &mut Scripts,
) -> End {
    let server = Arc::clone(&threads.server);
    let mut end_logins = server.edge.watch_logins();
    let mut looked = Instant::now();
    loop {
        if looked.elapsed() >= LOGINS_LOOK {
            looked = Instant::now();
            end_logins();
        }
        let request = match inbox.recv_timeout(LOGINS_LOOK.saturating_sub(looked.elapsed())) {
            Ok(request) => request,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return End::Stop,
        };
        match request {
            MainRequest::Stop => return End::Stop,
            MainRequest::HandOver => return End::HandOver,
            MainRequest::StepDown => return End::Deposed,
            MainRequest::Reload(by, sender) => {
                let came = server.read_again(by).map(|reloaded| {
                    level.set(&reloaded.log_level);
                    let begun = start_hooks(&mut threads.helpers, &server, &threads.ends);
                    if let Err(error) = begun {
                        tracing::error!("hooks have no thread for timers: {error:#}");
                    }
                    scripts.configure(&locked(&server.operations.config).clone());
                    reloaded.notes
                });
                server.reloaded(came, sender);
            }
            // Whatever it was, it is over or not yet.
            MainRequest::ClusterChanged => {}
            MainRequest::Drain(on) => {
                server.edge.draining.store(on, Ordering::Relaxed);
                server.core.set_draining(on);
                let (operation, says) = match on {
                    true => (
                        Operation::Drain,
                        "draining: the server rejects puts from now on",
                    ),
                    false => (Operation::Undrain, "the server accepts puts again"),
                };
                server.security.audit.write(&Entry::of(operation));
                tracing::info!("{says}");
            }
        }
    }
}

/// A server that serves, and its threads.
struct ServerThreads {
    server: Arc<Server>,
    io: Crew,
    dispatcher: Crew,
    helpers: Crew,
    /// Tells the helper threads to end.
    ends: Arc<AtomicBool>,
}

impl Threads for ServerThreads {
    fn connections(&self) -> u64 {
        self.server.edge.guests.open.load(Ordering::Relaxed)
    }

    fn end_io(&mut self, by: Instant) -> bool {
        self.server.edge.stop();
        self.io.ends_by(by)
    }

    fn end(&mut self, by: Instant) -> bool {
        let server = &self.server;
        server.dispatchers.stop();
        server.core.end_peeks();
        let dispatcher = self.dispatcher.ends_by(by);
        self.ends.store(true, Ordering::SeqCst);
        server.operations.histories.stop();
        server.operations.schedules.stop();
        server.operations.webhooks.stop();
        server.core.stop_threads();
        dispatcher & self.helpers.ends_by(by) & self.io.ends_by(by)
    }
}

impl ServerThreads {
    /// Finishes what was decided and ends all threads.
    ///
    /// # Errors
    /// A thread has panicked, or what was decided last cannot be written.
    fn stop(mut self) -> Result<()> {
        // However long that takes.
        let forever = Instant::now() + Duration::from_secs(u64::from(u32::MAX));
        self.end_io(forever);
        self.end(forever);
        if !(self.io.join() & self.dispatcher.join() & self.helpers.join()) {
            return Err(anyhow!("a thread ended too early: see the log above"));
        }
        // Others had decided it for a subscription that ended with its thread.
        self.server.edge.give_back_late();
        if !self.server.core.finish() {
            return Err(anyhow!(stuck::LOST));
        }
        Ok(())
    }
}

/// The server stops: no listener of an I/O thread accepts any more, and no put waits for memory.
fn end_waits(server: &Server) {
    server.edge.refuse();
    server.core.end_room_waits();
}

#[cfg(test)]
mod tests;
