//! The running server: what all its threads share, and how it starts and ends.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use mio::{Poll, Waker};
use quintet_config::{Address, Config, Given, Places, Served, load};
use quintet_door::{ByteBudget, TellReload};
use quintet_host::{Core, Layout, Owner, Post, Room, SyncPolicy};
use quintet_log::{DirLock, LogError};
use quintet_otlp::Counts;
use quintet_tls::Secure;
use quintet_types::{Principal, Settings};
use quintet_wire::{Foreign, Listener, VOICES};

use crate::audit::Audit;
use crate::cluster::{self, Door, Node, Seat, StepsDown};
use crate::control::Control;
use crate::crew::Crew;
use crate::cron::Crons;
use crate::desk::Desk;
use crate::history::Looks;
use crate::hooks::Hooks;
use crate::http_counts::HttpCounts;
use crate::io::{Bound, Guests, IoThread, Mail, Mailbox, ThreadCounts, WAKE};
use crate::open_files::{fit, raise_file_limit};
use crate::quotas::Quotas;
use crate::scripts::Scripts;
use crate::sockets::{announce, bind, console, leave_out_taken, restrict, say};
use crate::spans::Tracing;
use crate::tails::Tails;
use crate::tls::{Tls, Watch};
use crate::trust::Trust;
use crate::{again, http, logging, modes, notify, scripts, sqs, stuck, watchdog};

/// What all threads share.
pub(crate) struct Server {
    pub(crate) core: Core,
    /// What this is in a cluster.
    pub(crate) node: Option<Arc<Node>>,
    /// One per I/O thread, and behind them the desk's.
    pub(crate) mail: Vec<Arc<Mailbox>>,
    /// Those who come in through the door.
    pub(crate) desk: Desk,
    pub(crate) hooks: Hooks,
    pub(crate) crons: Crons,
    /// What HTTP is told to have done.
    pub(crate) http: Arc<HttpCounts>,
    /// `/api/v1` on the control socket; nothing until it is served.
    pub(crate) control: OnceLock<Control>,
    /// Those of SQS, whose connections are among HTTP's.
    pub(crate) sqs: Arc<HttpCounts>,
    /// Spans that were made for a collector.
    pub(crate) spans: Arc<Counts>,
    /// What became of each queue's numbers.
    pub(crate) looks: Looks,
    pub(crate) tails: Tails,
    /// Who clients are and what they may do.
    pub(crate) trust: Trust,
    pub(crate) audit: Audit,
    /// What addresses and users use, and may.
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) listeners: Vec<Listening>,
    /// By number of the I/O thread.
    pub(crate) threads: Vec<ThreadCounts>,
    pub(crate) limits: Limits,
    /// As the engine has them.
    pub(crate) settings: Mutex<Settings>,
    pub(crate) config: Mutex<Config>,
    pub(crate) started: Instant,
    /// Random number of this process.
    pub(crate) instance: u64,
    pub(crate) draining: AtomicBool,
    pub(crate) guests: Guests,
    /// Times the system had no file or memory for a connection.
    pub(crate) accepts_failed: AtomicU64,
    /// Connections that spoke HTTP to a voice that is none.
    pub(crate) spoke_http: AtomicU64,
    /// Connections that spoke TLS where none is spoken.
    pub(crate) spoke_tls: AtomicU64,
    pub(crate) tls: Arc<Tls>,
    /// What all connections together hold for input, uploads and output.
    pub(crate) connection_memory: Arc<ByteBudget>,
    /// What large messages on their way in may take of the disk, together.
    pub(crate) uploads: Arc<ByteBudget>,
    /// True if a listener closes idle connections.
    pub(crate) idle_used: bool,
    pub(crate) orders: Sender<Order>,
    /// The command line, for reading the file again.
    pub(crate) given: Given,
}

/// One listener, as its connections know it.
pub(crate) struct Listening {
    pub(crate) opener: Box<dyn Listener>,
    /// Index of the voice's counters.
    pub(crate) tally: usize,
    /// Name of the voice.
    pub(crate) voice: &'static str,
    pub(crate) idle_ms: u64,
    /// Whoever gets here commands the server: a file's mode or certificates see to that.
    pub(crate) operator: bool,
    /// Clients may speak HTTP here, for [`Control`].
    pub(crate) api: bool,
    /// Whoever comes here is this one; empty: nobody in particular.
    pub(crate) user: String,
    /// Where it listens.
    pub(crate) address: String,
    /// How it speaks TLS, if it does.
    pub(crate) tls: Option<Secure>,
    /// What speaks something else has been told of, by kind.
    pub(crate) foreign_told: [AtomicBool; 3],
}

impl Listening {
    /// Says once that clients come here who speak something else; how many is
    /// among the counters.
    pub(crate) fn tell_foreign(&self, foreign: Foreign) {
        if !self.foreign_told[foreign as usize].swap(true, Ordering::Relaxed) {
            let (voice, address) = (self.voice, &self.address);
            tracing::warn!("{voice} at {address}: {}", foreign.text());
        }
    }
}

/// Limits that connections keep to; some change on reload.
pub(crate) struct Limits {
    pub(crate) output_bytes_max: usize,
    pub(crate) chunk_bytes: usize,
    pub(crate) stop_wait_ms: AtomicU64,
    pub(crate) log_bytes: AtomicU64,
    pub(crate) allow_shutdown: AtomicBool,
}

impl Limits {
    fn of(config: &Config) -> Self {
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let limits = Self {
            output_bytes_max: bytes(config.output_bytes_max),
            chunk_bytes: bytes(config.chunk_bytes),
            stop_wait_ms: AtomicU64::default(),
            log_bytes: AtomicU64::default(),
            allow_shutdown: AtomicBool::default(),
        };
        limits.reload(config);
        limits
    }

    pub(crate) fn reload(&self, config: &Config) {
        self.stop_wait_ms
            .store(config.stop_wait_ms, Ordering::Relaxed);
        self.log_bytes.store(config.log_bytes, Ordering::Relaxed);
        self.allow_shutdown
            .store(config.allow_shutdown, Ordering::Relaxed);
    }
}

/// What the main thread is told to do.
pub(crate) enum Order {
    /// End in good order.
    Stop,
    /// Read the configuration again, for a client if one asks, and tell what came of it.
    Reload(Option<Principal>, Option<TellReload>),
    /// Take no puts from now on, or take them again.
    Drain(bool),
    /// Something happened in the cluster.
    Look,
    /// Let another node own the queues.
    HandOver,
}

/// Why a server that owned its queues serves no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// It was told to stop.
    Stop,
    /// Another node is to own them; this one follows.
    HandOver,
}

/// Reads the configuration again for a node that owns nothing: what addresses
/// may use, as clients come in here too.
fn reload_limits(given: &Given, quotas: &Quotas) {
    let read = load(given).map_err(|error| format!("{error:#}"));
    match read.and_then(|config| config.limit_table().map_err(|wrong| wrong.join("; "))) {
        Ok(limits) => {
            quotas.reload(limits);
            tracing::info!("the limits are reloaded; the rest is by whoever owns the queues");
        }
        Err(why) => tracing::error!("not reloaded: {why}"),
    }
}

/// Starts the server, serves until it is told to stop, and stops it.
///
/// # Errors
/// It could not start; nothing was answered to anyone.
pub(crate) fn run(mut config: Config, given: Given) -> Result<()> {
    let level = logging::start(&config.log_level, &config.log_format)?;
    let watched = watchdog::start()?;
    if config.cluster.is_on() {
        // All listeners, the control socket, and where other nodes come in.
        again::reserve(config.listen.len() + 2)?;
    }
    scripts::check(&config)?;
    let trust = Trust::new(&config, given.config.as_deref())?;
    let quotas = Arc::new(Quotas::new(&config, Instant::now())?);
    raise_file_limit();
    let _lock = DirLock::acquire(&config.data)?;
    leave_out_taken(&mut config);
    let places = fit(&config);
    modes::tell_wider(&config.data);
    let (orders, inbox) = channel();
    let stops = crate::signals::listen(orders.clone())?;

    let is_open = !trust.is_used();
    let tls = Tls::load(&config)?;
    let _watch = Watch::start(&tls)?;
    // Ports first: a port in use should not cost a replay.
    let Opened {
        bound,
        listening,
        http,
        sqs,
        addresses,
        doors,
    } = open_listeners(&config, places, &tls)?;
    again::all_claimed()?;
    let console = console(&config, &addresses, &tls);
    let announce = || announce(&addresses, console.as_deref(), is_open);
    if config.cluster.is_on() {
        announce()?;
    }
    let seat = match config.cluster.is_on() {
        true => {
            let connections = places.connections;
            let again = |quotas: &Quotas| reload_limits(&given, quotas);
            let ours = (&orders, &inbox);
            match cluster::follow(&config, doors, connections, &quotas, &again, ours)? {
                Some(seat) => Some(seat),
                // Told to stop before it owned anything.
                None => return Ok(()),
            }
        }
        false => None,
    };
    let place = (places, trust, quotas);
    let spans = Arc::default();
    let traced = Tracing::start(&config, &spans)?;
    let (server, polls, spares) =
        open(config, given, listening, orders, place, seat, (tls, spans))?;
    if let Some(traced) = &traced {
        traced.follow(&server.core);
    }
    let starting = match &server.node {
        None => Some(stuck::watch_start(&server, stops)?),
        Some(_) => None,
    };
    let ends = Arc::new(Ends::default());
    let helpers = start_helpers(&server, spares, &ends)?;
    server.core.look_at_room();
    server.core.catch_up();
    if server.node.is_none() {
        // Before anybody is answered, so that `quintet wait` ends behind these lines.
        announce()?;
    }
    let control = Control::start(&server)?;
    let (io, desk) = start_workers(&server, polls, bound)?;
    let threads = Threads {
        io,
        desk,
        helpers,
        ends,
    };
    let mut scripts = Scripts::start(&server, http, sqs)?;
    drop(starting);
    // Nobody else sets it.
    let _first = watched.set(Arc::downgrade(&server));
    match &server.node {
        None => say("quintet ready")?,
        Some(node) => {
            node.serves(&server, scripts.links());
            say("quintet owner")?;
        }
    }
    notify::ready();

    let end = obey(&server, &inbox, &level, &mut scripts);

    match end {
        End::Stop => notify::stopping(),
        End::HandOver => again::hand_on(),
    }
    tracing::info!("stopping");
    server.audit.tell_all_steps();
    server.audit.note("", None, "stop", "", "ok");
    if server.node.is_none() {
        stuck::watch_stop(&server)?;
    }
    server.end_waits();
    // They ask through the door, so it closes after them.
    let grace = server.limits.stop_wait_ms.load(Ordering::Relaxed);
    if !control.stop(Duration::from_millis(grace)) | !scripts.stop(Duration::from_millis(grace)) {
        tracing::error!("the thread of http had ended before its time");
    }
    if let Some(traced) = traced {
        traced.stop();
    }
    match &server.node {
        None => stop(&server, threads),
        Some(node) => node.leave(&server, threads, end),
    }
}

/// What is listened on.
struct Opened {
    /// For the I/O threads.
    bound: Vec<Bound>,
    listening: Vec<Listening>,
    /// For HTTP's own thread.
    http: Vec<http::Open>,
    /// For that of SQS.
    sqs: Vec<sqs::Open>,
    /// All but the control socket, as configured.
    addresses: Vec<(&'static str, Address)>,
    /// In a cluster, all of them once more.
    doors: Vec<Door>,
}

fn open_listeners(config: &Config, places: Places, tls: &Tls) -> Result<Opened> {
    let mut bound = Vec::new();
    let mut listening = Vec::new();
    let mut http = Vec::new();
    let mut sqs_open = Vec::new();
    let mut addresses = Vec::new();
    let mut doors = Vec::new();
    for (number, listen) in config.listen.iter().enumerate() {
        let voice = match listen.served {
            Served::Voice(voice) => voice,
            Served::Control => &quintet_control::VOICE,
            Served::Http => {
                let open = http::Open::new(listen, &places, tls.of(number))?;
                keep(
                    config,
                    &mut doors,
                    Served::Http.name(),
                    &listen.address,
                    open.bound(),
                    tls.of(number),
                )?;
                addresses.push((Served::Http.name(), open.address().clone()));
                http.push(open);
                continue;
            }
            Served::Sqs => {
                let open = sqs::Open::new(listen, &places, tls.of(number))?;
                let (address, secure) = (&listen.address, tls.of(number));
                keep(
                    config,
                    &mut doors,
                    Served::Sqs.name(),
                    address,
                    open.bound(),
                    secure,
                )?;
                addresses.push((Served::Sqs.name(), open.address().clone()));
                sqs_open.push(open);
                continue;
            }
        };
        let opener = (voice.listener)(&listen.options).map_err(|why| anyhow!(why))?;
        let open = bind(voice.name, &listen.address)?;
        let address = open.address.to_string();
        addresses.push((voice.name, open.address.clone()));
        let secure = tls.of(number);
        keep(
            config,
            &mut doors,
            voice.name,
            &listen.address,
            &open,
            secure.clone(),
        )?;
        bound.push(open);
        let tally = VOICES
            .iter()
            .position(|known| known.name == voice.name)
            // The control channel has counters of its own.
            .unwrap_or(VOICES.len());
        listening.push(Listening {
            opener,
            tally,
            voice: voice.name,
            idle_ms: listen.idle_ms,
            operator: listen.served.is_control() && config.is_guarded(listen),
            api: false,
            user: listen.user.clone(),
            address,
            tls: secure,
            foreign_told: Default::default(),
        });
    }
    if let Some(path) = config.admin_path() {
        let voice = &quintet_control::VOICE;
        let opener = (voice.listener)(&quintet_wire::Options::new(voice.options))
            .map_err(|why| anyhow!(why))?;
        let address = Address::Unix(path.clone());
        let socket = bind(voice.name, &address)
            .context("admin_socket can name another path, or be \"none\"")?;
        keep(config, &mut doors, voice.name, &address, &socket, None)?;
        bound.push(socket);
        restrict(&path).with_context(|| format!("cannot protect {}", path.display()))?;
        listening.push(Listening {
            opener,
            tally: VOICES.len(),
            voice: voice.name,
            idle_ms: 0,
            operator: true,
            api: true,
            user: String::new(),
            address: path.display().to_string(),
            tls: None,
            foreign_told: Default::default(),
        });
    }
    Ok(Opened {
        bound,
        listening,
        http,
        sqs: sqs_open,
        addresses,
        doors,
    })
}

/// While a node does not own, clients that come to its sockets are brought to
/// the one that does; and when it is deposed, the process after it gets them.
fn keep(
    config: &Config,
    doors: &mut Vec<Door>,
    voice: &str,
    address: &Address,
    bound: &Bound,
    tls: Option<Secure>,
) -> Result<()> {
    if config.cluster.is_on() {
        again::keep(address.to_string(), bound.duplicate()?);
        let same = doors.iter().filter(|door| door.voice == voice);
        doors.push(Door {
            voice: voice.to_owned(),
            nth: u16::try_from(same.count()).unwrap_or(u16::MAX),
            socket: cluster::doors::socket(bound)?,
            tls,
        });
    }
    Ok(())
}

/// Opens the data directory and puts the shared parts together.
fn open(
    config: Config,
    given: Given,
    listeners: Vec<Listening>,
    orders: Sender<Order>,
    (places, trust, quotas): (Places, Trust, Arc<Quotas>),
    seat: Option<Seat>,
    (tls, spans): (Arc<Tls>, Arc<Counts>),
) -> Result<(Arc<Server>, Vec<Poll>, Option<quintet_log::Spares>)> {
    let settings = config.engine_settings();
    // Before the log is read: a mistake in them is better told at once.
    let hooks = Hooks::load(config.hooks_path().as_deref(), &config.hook_limits())
        .map_err(|error| anyhow!("hooks: {error}"))?;
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let layout = Layout {
        shards: size(config.shards),
        segment_bytes: config.segment_bytes,
        spares: size(config.spare_segments),
        memory: config.memory,
    };
    let began = Instant::now();
    let (opened, node) = match seat {
        None => (
            quintet_host::open_dir(&config.data, &layout, &settings)?,
            None,
        ),
        Some(seat) => {
            let (opened, node) = seat.take(&layout)?;
            (opened, Some(node))
        }
    };
    tracing::info!(
        "read {} frames, {} MiB of log in {} ms",
        opened.recovery.frames,
        opened.recovery.bytes >> 20,
        began.elapsed().as_millis()
    );
    let mut polls = Vec::new();
    let mut mail = Vec::new();
    // The last one is the desk's.
    for _ in 0..=config.io_threads() {
        let poll = Poll::new().context("cannot make a poll")?;
        let waker = Waker::new(poll.registry(), WAKE).context("cannot make a waker")?;
        mail.push(Mailbox::new(waker));
        polls.push(poll);
    }
    let threads = (0..config.io_threads())
        .map(|_| ThreadCounts::new(VOICES.len() + 1))
        .collect();
    let room = Room::new(config.data.clone(), config.segment_bytes);
    let spares = opened.spares.clone();
    let posts = mail.iter().map(|mail| Arc::clone(mail) as Arc<dyn Post>);
    let core = Core::new(
        opened,
        config.sync,
        posts.collect(),
        room,
        match node {
            None => Box::new(EndsWithItsLog),
            Some(_) => Box::new(StepsDown),
        },
    );
    core.share(config.cluster.sharing());
    let http = HttpCounts::new();
    let server = Server {
        core,
        mail,
        node,
        desk: Desk::default(),
        hooks,
        crons: Crons::new(&config)?,
        sqs: HttpCounts::beside(&http, Served::Sqs.name()),
        http,
        control: OnceLock::new(),
        spans,
        looks: Looks::default(),
        tails: Tails::default(),
        trust,
        audit: Audit::new(&config.data),
        quotas,
        connection_memory: ByteBudget::new(config.connection_memory_bytes()),
        uploads: ByteBudget::new(config.upload_bytes_max),
        idle_used: listeners.iter().any(Listening::ends_idle),
        listeners,
        threads,
        limits: Limits::of(&config),
        settings: Mutex::new(settings),
        config: Mutex::new(config),
        started: Instant::now(),
        // The standard library's hash keys are random.
        instance: std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0),
        draining: AtomicBool::new(false),
        guests: Guests::new(places.connections),
        accepts_failed: AtomicU64::new(0),
        spoke_http: AtomicU64::new(0),
        spoke_tls: AtomicU64::new(0),
        tls,
        orders,
        given,
    };
    server.trust.enforce(&server.core, &server.quotas);
    Ok((Arc::new(server), polls, spares))
}

/// A single server ends when its log fails: the next start reads what the disk
/// has.
struct EndsWithItsLog;

impl Owner for EndsWithItsLog {
    fn log_failed(&self, error: &LogError) {
        tracing::error!("stopping: {error}");
        eprintln!("quintet: stopping, since the log cannot be written: {error}");
        std::process::exit(1);
    }
}

/// What a helper thread does.
type Helper = Box<dyn FnOnce(&Arc<Server>, &Ends) + Send>;

/// How the helper threads are told to end.
#[derive(Default)]
pub(crate) struct Ends {
    pub(crate) stop: AtomicBool,
}

fn start_helpers(
    server: &Arc<Server>,
    spares: Option<quintet_log::Spares>,
    ends: &Arc<Ends>,
) -> Result<Crew> {
    let mut helpers = Crew::new();
    let mut start = |name: &str, body: Helper| {
        let (server, ends) = (Arc::clone(server), Arc::clone(ends));
        helpers.start(name, move || body(&server, &ends))
    };
    start("timer", Box::new(|server, _| server.core.run_timer()))?;
    start(
        "keeper",
        Box::new(|server, ends| server.core.run_keeper(&ends.stop)),
    )?;
    start(
        "hooks",
        Box::new(|server, ends| server.run_hooks(&ends.stop)),
    )?;
    start("cron", Box::new(|server, ends| server.run_crons(ends)))?;
    start(
        "history",
        Box::new(|server, ends| server.run_history(&ends.stop)),
    )?;
    start("logins", Box::new(|server, _| server.run_logins()))?;
    start(
        "fetch",
        Box::new(|server, ends| server.core.run_fetch(&ends.stop)),
    )?;
    start(
        "upkeep",
        Box::new(move |server, ends| {
            let log_bytes = || server.limits.log_bytes.load(Ordering::Relaxed);
            server
                .core
                .run_upkeep(spares.as_ref(), &log_bytes, &ends.stop);
        }),
    )?;
    let interval = match server.core.policy() {
        SyncPolicy::Always => {
            start(
                "log",
                Box::new(|server, ends| server.core.run_log(&ends.stop)),
            )?;
            return Ok(helpers);
        }
        SyncPolicy::EveryMs(ms) => Some(Duration::from_millis(ms)),
        SyncPolicy::Never => None,
    };
    start(
        "sync",
        Box::new(move |server, ends| server.core.run_sync(interval, &ends.stop)),
    )?;
    Ok(helpers)
}

/// Starts the I/O threads, among which listeners are shared out, and the
/// desk's, whose poll is the last one.
fn start_workers(
    server: &Arc<Server>,
    mut polls: Vec<Poll>,
    bound: Vec<Bound>,
) -> Result<(Crew, Crew)> {
    let poll = polls.pop().context("no poll was made")?;
    let (mut workers, mut desk) = (Crew::new(), Crew::new());
    let at_desk = Arc::clone(server);
    desk.start("desk", move || at_desk.run_desk(poll))?;
    let mut shares: Vec<Vec<(usize, Bound)>> = polls.iter().map(|_| Vec::new()).collect();
    let threads = shares.len();
    for (number, bound) in bound.into_iter().enumerate() {
        shares[number % threads].push((number, bound));
    }
    for (index, (poll, share)) in polls.into_iter().zip(shares).enumerate() {
        let worker = IoThread::new(index, Arc::clone(server), poll, share)
            .context("cannot watch a listener")?;
        workers.start(&format!("io-{index}"), || worker.run())?;
    }
    Ok((workers, desk))
}

/// Does what is ordered until that is to stop.
fn obey(
    server: &Arc<Server>,
    inbox: &Receiver<Order>,
    level: &logging::Level,
    scripts: &mut Scripts,
) -> End {
    while let Ok(order) = inbox.recv() {
        match order {
            Order::Stop => return End::Stop,
            Order::HandOver => return End::HandOver,
            Order::Reload(by, tell) => {
                let came = server.reload(by).map(|reloaded| {
                    level.set(&reloaded.log_level);
                    scripts.configure(server);
                    reloaded.notes
                });
                server.reloaded(came, tell);
            }
            // Whatever it was, it is over or not yet.
            Order::Look => {}
            Order::Drain(on) => {
                server.draining.store(on, Ordering::Relaxed);
                server.core.set_draining(on);
                let (act, says) = match on {
                    true => ("drain", "draining: puts are refused from now on"),
                    false => ("undrain", "puts are taken again"),
                };
                server.audit.note("", None, act, "", "ok");
                tracing::info!("{says}");
            }
        }
    }
    End::Stop
}

/// The threads of a server that serves.
pub(crate) struct Threads {
    io: Crew,
    desk: Crew,
    helpers: Crew,
    ends: Arc<Ends>,
}

impl Threads {
    /// Connections get what they are owed, and nothing more is decided for them. True: they have it
    /// all by then.
    pub(crate) fn end_io(&mut self, server: &Server, by: Instant) -> bool {
        if let Some((_, io)) = server.mail.split_last() {
            io.iter().for_each(|mailbox| mailbox.leave(Mail::Stop));
        }
        self.io.ends_by(by)
    }

    /// The rest ends as well, after the I/O threads, so that who comes in through the door is
    /// answered. True: all have ended by then.
    pub(crate) fn end(&mut self, server: &Server, by: Instant) -> bool {
        if let Some(desk) = server.mail.last() {
            desk.leave(Mail::Stop);
        }
        server.core.end_looks();
        let desk = self.desk.ends_by(by);
        self.ends.stop.store(true, Ordering::SeqCst);
        server.looks.stop();
        server.crons.stop();
        server.core.stop_threads();
        desk & self.helpers.ends_by(by) & self.io.ends_by(by)
    }

    /// False: one has panicked.
    fn join(self) -> bool {
        self.io.join() & self.desk.join() & self.helpers.join()
    }
}

/// Finishes what was decided and ends all threads.
fn stop(server: &Server, mut threads: Threads) -> Result<()> {
    // However long that takes.
    let forever = Instant::now() + Duration::from_secs(u64::from(u32::MAX));
    threads.end_io(server, forever);
    threads.end(server, forever);
    if !threads.join() {
        return Err(anyhow!("a thread ended before its time; see above"));
    }
    if !server.core.finish() {
        return Err(anyhow!(stuck::LOST));
    }
    Ok(())
}

impl Server {
    /// The server stops: no listener of an I/O thread accepts any more, and no put waits for memory.
    fn end_waits(&self) {
        if let Some((_, io)) = self.mail.split_last() {
            io.iter().for_each(|mailbox| mailbox.leave(Mail::Refuse));
        }
        self.core.end_room_waits();
    }

    /// True for a connection of the control socket: an operator gets in, and
    /// stays, when nobody else does.
    pub(crate) fn is_operator(&self, listener: usize) -> bool {
        self.listeners[listener].operator
    }
}

#[cfg(test)]
mod tests;
