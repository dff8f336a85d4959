//! The client API of a whole server, without a socket.

use std::sync::mpsc::channel;
use std::time::Duration;

use quintet_client::{BodyBytes, ClientApi as _, Operator as _, ScopedClient, ask};
use quintet_host::{ClientKey, Required};
use quintet_types::{
    BackTo, Body, ClientId, Command, CommandError, Delivery, Hold, LeaseOwner, LeaseRequest,
    LeaseTime, Message, Name, Outcome, Put, Take, Wait,
};

use super::*;

const PATIENCE: Duration = Duration::from_secs(120);

impl ServerThreads {
    fn start(dir: &std::path::Path, shards: u64, sync: SyncPolicy) -> Self {
        Self::by(Config {
            data: dir.to_owned(),
            shards,
            sync,
            ..Config::default()
        })
    }

    fn by(config: Config) -> Self {
        std::fs::create_dir_all(&config.data).expect("directory");
        let (requests, _inbox) = channel();
        let (server, polls, spares) = {
            let places = fit(&config);
            let auth = Auth::new(&config, None).expect("nobody");
            let quotas = Arc::new(Quotas::new(&config, Instant::now()).expect("none"));
            let audit = Arc::new(Audit::new(&config.data));
            let places = (places, auth, quotas, audit);
            open(
                config,
                CommandLine::default(),
                Vec::new(),
                requests,
                places,
                None,
                (Arc::default(), Arc::default()),
            )
            .expect("open")
        };
        let ends = Arc::default();
        let helpers = start_helpers(&server, spares, &ends).expect("helpers");
        let (io, dispatcher) = start_workers(&server, polls, Vec::new()).expect("workers");
        Self {
            server,
            io,
            dispatcher,
            helpers,
            ends,
        }
    }

    fn client_api(&self) -> Arc<Server> {
        Arc::clone(&self.server)
    }

    fn ask(&self, command: Command) -> Outcome {
        let client_api = self.client_api();
        ScopedClient::new(&*client_api).ask(command)
    }

    /// Ends all threads.
    fn end(self) -> Arc<Server> {
        let server = Arc::clone(&self.server);
        self.stop().expect("stop");
        server
    }
}

fn put(queue: &str, body: &[u8]) -> Command {
    Command::Put(Put {
        queue: Name::new(queue.as_bytes()),
        body: Body::new(body),
        ..Put::default()
    })
}

fn take(queues: &[&str], wait: Wait, lease: bool) -> Take {
    Take {
        queues: queues.iter().map(|q| Name::new(q.as_bytes())).collect(),
        wait,
        lease: lease.then_some(LeaseRequest {
            owner: LeaseOwner::Process,
            time: LeaseTime::Fixed(0),
            back_to: BackTo::Position,
            held_max: 0,
        }),
        ..Take::default()
    }
}

fn bodies(outcome: &Outcome) -> Vec<Vec<u8>> {
    let Outcome::Messages(messages) = outcome else {
        return Vec::new();
    };
    let body = |message: &Message| message.body.as_small().unwrap_or_default().to_vec();
    messages.iter().map(body).collect()
}

/// With each policy and one and four shards.
fn everywhere(test: impl Fn(&ServerThreads)) {
    for (shards, sync) in [
        (1, SyncPolicy::Always),
        (4, SyncPolicy::Always),
        (1, SyncPolicy::Never),
    ] {
        let dir = tempfile::tempdir().expect("directory");
        let running = ServerThreads::start(dir.path(), shards, sync);
        test(&running);
        running.stop().expect("stop");
    }
}

#[test]
fn the_thread_of_hooks_begins_with_the_first_hooks() {
    let dir = tempfile::tempdir().expect("directory");
    let mut running = ServerThreads::start(dir.path(), 1, SyncPolicy::Never);
    let server = Arc::clone(&running.server);
    let config = &server.operations.config;
    assert!(!running.helpers.has("hooks"));
    let file = dir.path().join("hooks.lua");
    let hooks = r#"function start() quintet.put("said", "hello") end"#;
    std::fs::write(&file, hooks).expect("written");
    locked(config).hooks = file.to_str().expect("text").to_owned();
    server.security.hooks.reload_by(&server.core, config);
    for _ in 0..2 {
        start_hooks(&mut running.helpers, &server, &running.ends).expect("started");
    }
    let client_api = running.client_api();
    let (sender, receiver) = channel();
    let client_id = client_api.enter(Box::new(|_, _| {}));
    let caller = quintet_types::Caller {
        client_id,
        ..Default::default()
    };
    let wait = Command::Take(take(&["said"], Wait::Forever, false));
    let reply = Box::new(move |outcome: Outcome, _| sender.send(bodies(&outcome)).expect("sent"));
    client_api.submit(caller, wait, reply);
    let said = receiver.recv_timeout(PATIENCE).expect("a message");
    assert_eq!(said, [b"hello".to_vec()]);
    client_api.leave(client_id);
    running.stop().expect("stop");
}

#[test]
fn the_client_api_takes_messages_that_it_put() {
    everywhere(|running| {
        let client_api = running.client_api();
        let client = ScopedClient::new(&*client_api);
        for body in [b"a", b"b"] {
            assert!(matches!(
                client.ask(put("work", body)),
                Outcome::Put { fresh: true, .. }
            ));
        }
        let got = client.ask(Command::Take(take(&["work"], Wait::No, false)));
        assert_eq!(bodies(&got), [b"a".to_vec()]);
    });
}

#[test]
fn a_take_that_waits_is_answered_by_a_later_put() {
    everywhere(|running| {
        let client_api = running.client_api();
        let (sender, receiver) = channel();
        let client_id = client_api.enter(Box::new(|_, _| {}));
        let caller = quintet_types::Caller {
            client_id,
            ..Default::default()
        };
        let wait = Command::Take(take(&["one", "two", "three"], Wait::Forever, false));
        client_api.submit(
            caller,
            wait,
            Box::new(move |outcome, name| sender.send((outcome, name)).expect("sent")),
        );
        ask(
            &*client_api,
            ScopedClient::new(&*client_api).client_id(),
            put("two", b"x"),
        );
        let (outcome, name) = receiver.recv_timeout(PATIENCE).expect("served");
        assert_eq!(bodies(&outcome), [b"x".to_vec()]);
        assert_eq!(name.as_bytes(), b"two");
        // Its next command finds it free again.
        assert!(matches!(
            ask(&*client_api, client_id, put("two", b"y")),
            Outcome::Put { .. }
        ));
        client_api.leave(client_id);
    });
}

#[test]
fn commands_behind_one_that_waits_come_in_their_turn() {
    everywhere(|running| {
        let client_api = running.client_api();
        let client_id = client_api.enter(Box::new(|_, _| {}));
        let caller = quintet_types::Caller {
            client_id,
            ..Default::default()
        };
        let (sender, receiver) = channel();
        for number in 0..3 {
            let sender = sender.clone();
            let wait = Command::Take(take(&["line"], Wait::Forever, false));
            let reply = Box::new(move |outcome: Outcome, _| {
                sender.send((number, bodies(&outcome))).expect("sent");
            });
            client_api.submit(caller, wait, reply);
        }
        let client = ScopedClient::new(&*client_api);
        for body in [b"a", b"b", b"c"] {
            client.ask(put("line", body));
        }
        let next = |_| receiver.recv_timeout(PATIENCE).expect("served");
        let got: Vec<_> = (0..3).map(next).collect();
        let expected = [b"a", b"b", b"c"].map(|body| vec![body.to_vec()]);
        assert_eq!(got, (0..).zip(expected).collect::<Vec<_>>());
        client_api.leave(client_id);
    });
}

#[test]
fn a_subscription_gets_messages_under_a_lease_that_ends_with_the_client() {
    everywhere(|running| {
        let client_api = running.client_api();
        let (sender, receiver) = channel();
        let arrive = Box::new(move |messages: quintet_types::Handed, _| {
            sender.send(Outcome::Messages(messages)).expect("sent");
        });
        let client_id = client_api.enter(arrive);
        let watch = Command::Watch(Some(Box::new(take(&["s1", "s2"], Wait::Forever, true))));
        ask(&*client_api, client_id, watch);
        let client = ScopedClient::new(&*client_api);
        client.ask(put("s2", b"x"));
        let got = receiver.recv_timeout(PATIENCE).expect("arrived");
        assert_eq!(bodies(&got), [b"x".to_vec()]);
        let empty = client.ask(Command::Take(take(&["s2"], Wait::No, false)));
        assert_eq!(empty, Outcome::Empty);
        client_api.leave(client_id);
        let back = client.ask(Command::Take(take(&["s2"], Wait::No, false)));
        assert_eq!(bodies(&back), [b"x".to_vec()]);
    });
}

#[test]
fn a_large_body_goes_through_the_log_and_comes_back_in_any_pieces() {
    everywhere(|running| {
        let client_api = running.client_api();
        let bytes: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
        let queue = Name::new(b"large");
        let body = client_api
            .store(&queue, bytes.len() as u64, &mut &bytes[..])
            .expect("stored");
        assert!(body.as_small().is_none());
        let client = ScopedClient::new(&*client_api);
        let stored = client.ask(Command::Put(Put {
            queue: queue.clone(),
            body,
            ..Put::default()
        }));
        assert!(matches!(stored, Outcome::Put { .. }));
        let Outcome::Messages(got) = client.ask(Command::Take(take(&["large"], Wait::No, true)))
        else {
            panic!("nothing was taken");
        };
        let mut read = Vec::new();
        std::io::Read::read_to_end(
            &mut BodyBytes::new(&*client_api, got[0].body.clone()),
            &mut read,
        )
        .expect("read");
        assert_eq!(read, bytes);
        let mut part = [0; 1000];
        let at: usize = (1 << 20) - 500;
        let count = client_api.read(&got[0].body, at as u64, &mut part);
        assert_eq!(count.expect("read"), 1000);
        assert_eq!(part[..], bytes[at..at + 1000]);
    });
}

#[test]
fn a_source_that_breaks_off_stores_nothing() {
    everywhere(|running| {
        let client_api = running.client_api();
        let queue = Name::new(b"large");
        let stored = client_api.store(&queue, 200_000, &mut &[0u8; 1000][..]);
        assert!(matches!(stored, Err(quintet_client::StoreError::Source(_))));
    });
}

#[test]
fn a_client_that_waits_when_the_server_stops_gets_an_answer() {
    let dir = tempfile::tempdir().expect("directory");
    let running = ServerThreads::start(dir.path(), 1, SyncPolicy::Always);
    let client_api = running.client_api();
    let (sender, receiver) = channel();
    let waits = std::thread::spawn({
        let client_api = running.client_api();
        move || {
            let client_id = client_api.enter(Box::new(|_, _| {}));
            sender.send(()).expect("sent");
            let take = Command::Take(take(&["never"], Wait::Forever, false));
            ask(&*client_api, client_id, take)
        }
    });
    receiver.recv().expect("started");
    let draining = Outcome::Refused(CommandError::Draining);
    let client_id = client_api.enter(Box::new(|_, _| {}));
    running.stop().expect("stop");
    assert_eq!(waits.join().expect("answered"), draining);
    // A command that comes later is not begun.
    let late = Command::Take(take(&["never"], Wait::Forever, false));
    assert_eq!(ask(&*client_api, client_id, late), draining);
    assert_eq!(
        ask(&*client_api, ClientId::default(), put("never", b"x")),
        draining
    );
}

/// Whether a task was woken.
#[derive(Default)]
struct Woken(AtomicBool);

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn the_first_dispatcher_goes_on_with_the_work_of_a_task_that_has_ended() {
    for (shards, sync) in [(1, SyncPolicy::Always), (4, SyncPolicy::Never)] {
        let dir = tempfile::tempdir().expect("directory");
        let running = ServerThreads::start(dir.path(), shards, sync);
        let client_api = running.client_api();
        let mut task = Box::pin(running.server.dispatchers.task().expect("one is free"));
        let woken = Arc::new(Woken::default());
        let waker = Arc::clone(&woken).into();
        let mut context = std::task::Context::from_waker(&waker);
        assert!(task.as_mut().poll(&mut context).is_pending());

        // The task is woken to write, and nobody else does.
        let (sender, receiver) = channel();
        let submit = |command| {
            let caller = quintet_types::Caller {
                client_id: client_api.enter_here(Box::new(|_, _| {})),
                ..Default::default()
            };
            let sender = sender.clone();
            let reply = Box::new(move |outcome, _| sender.send(outcome).expect("sent"));
            client_api.submit(caller, command, reply);
        };
        let began = Instant::now();
        loop {
            submit(put("work", b"x"));
            if woken.0.load(Ordering::SeqCst) {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "never woken");
            // A dispatcher was at work still, and did this too.
            let stored = receiver.recv_timeout(PATIENCE);
            assert!(matches!(stored, Ok(Outcome::Put { fresh: true, .. })));
        }
        assert!(receiver.try_recv().is_err());
        drop(task);
        let stored = receiver.recv_timeout(PATIENCE);
        assert!(matches!(stored, Ok(Outcome::Put { fresh: true, .. })));

        // The same for what comes later, and at a stop.
        submit(put("work", b"y"));
        let stored = receiver.recv_timeout(PATIENCE);
        assert!(matches!(stored, Ok(Outcome::Put { fresh: true, .. })));
        submit(Command::Take(take(&["never"], Wait::Forever, false)));
        running.stop().expect("stop");
        assert_eq!(
            receiver.try_recv(),
            Ok(Outcome::Refused(CommandError::Draining))
        );
    }
}

#[test]
fn a_take_that_gets_draining_took_nothing() {
    for shards in [1, 1, 1, 4, 4, 4] {
        let dir = tempfile::tempdir().expect("directory");
        let running = ServerThreads::start(dir.path(), shards, SyncPolicy::Never);
        let (sender, receiver) = channel();
        let threads: Vec<_> = (0..4)
            .map(|number| {
                let (client_api, sender) = (running.client_api(), sender.clone());
                std::thread::spawn(move || {
                    let client_id = client_api.enter(Box::new(|_, _| {}));
                    let (mut there, mut unknown) = (0, 0);
                    loop {
                        let outcome = if number % 2 == 0 {
                            ask(&*client_api, client_id, put("q", b"x"))
                        } else {
                            let queues = ["q", "q2", "q3", "q4"];
                            ask(
                                &*client_api,
                                client_id,
                                Command::Take(take(&queues, Wait::Forever, false)),
                            )
                        };
                        #[expect(clippy::wildcard_enum_match_arm, reason = "any other fails")]
                        match outcome {
                            Outcome::Put { .. } => there += 1,
                            Outcome::Messages(_) => there -= 1,
                            Outcome::Refused(CommandError::Unknown) => unknown += 1,
                            Outcome::Refused(CommandError::Draining) => return (there, unknown),
                            other => panic!("{other:?}"),
                        }
                        // Nobody listens after the first hundred.
                        sender.send(()).ok();
                    }
                })
            })
            .collect();
        for _ in 0..100 {
            receiver.recv_timeout(PATIENCE).expect("they go on");
        }
        running.stop().expect("stop");
        let done = threads
            .into_iter()
            .map(|thread| thread.join().expect("ended"));
        let (there, unknown) = done.fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
        let running = ServerThreads::start(dir.path(), shards, SyncPolicy::Never);
        let client_api = running.client_api();
        let client = ScopedClient::new(&*client_api);
        let take = || Command::Take(take(&["q"], Wait::No, false));
        let mut left = 0;
        while let Outcome::Messages(_) = client.ask(take()) {
            left += 1;
        }
        drop(client);
        drop(client_api);
        running.stop().expect("stop");
        assert!(
            i32::abs(left - there) <= unknown,
            "{left} are there, {there} were told, {unknown} are unknown"
        );
    }
}

#[test]
fn a_message_for_a_client_of_a_thread_that_has_ended_goes_back() {
    let dir = tempfile::tempdir().expect("directory");
    let next = || Command::Take(take(&["q"], Wait::No, false));
    let mut running = ServerThreads::start(dir.path(), 1, SyncPolicy::Always);
    running.ask(put("q", b"late"));
    let outcome = running.ask(next());
    assert_eq!(bodies(&outcome), [b"late"]);
    assert!(running.end_io(Instant::now() + PATIENCE));
    let key = ClientKey {
        thread: 0,
        slot: 0,
        generation: 1,
    };
    let delivery = Delivery {
        to: key.client_id(),
        standing: true,
        claimed: false,
        outcome,
        hold: Hold::Turn,
        queue: Name::new(b"q"),
        peeked: false,
    };
    running.server.core.hand(delivery, Required::default());
    running.stop().expect("stop");
    let running = ServerThreads::start(dir.path(), 1, SyncPolicy::Always);
    assert_eq!(bodies(&running.ask(next())), [b"late"]);
    running.stop().expect("stop");
}

#[test]
fn a_core_is_let_go_and_opened_again_while_another_serves() {
    let folder = || tempfile::tempdir().expect("directory");
    let (dir, elsewhere) = (folder(), folder());
    let other = ServerThreads::start(elsewhere.path(), 1, SyncPolicy::Always);
    let next = || Command::Take(take(&["work"], Wait::No, false));
    let mut before = Vec::new();
    let hooks = dir.path().join("hooks.lua");
    std::fs::write(&hooks, "function before_put(msg) end").expect("written");
    for round in 0..3_u8 {
        let running = ServerThreads::by(Config {
            data: dir.path().to_owned(),
            shards: 4,
            hooks: hooks.to_str().expect("text").to_owned(),
            ..Config::default()
        });
        assert_eq!(bodies(&running.ask(next())), before);
        running.ask(put("work", &[round]));
        before = vec![vec![round]];
        let core = Arc::downgrade(&running.server.core);
        let control = start_control(&running.server).expect("a thread");
        let (mut client, stream) = std::os::unix::net::UnixStream::pair().expect("a pair");
        stream.set_nonblocking(true).expect("set");
        let forwarded = quintet_http::ForwardedConnection {
            stream: quintet_http::Connected::Unix(stream),
            peer: None,
            identity: None,
            known: None,
            counted: None,
        };
        control.forwarding().take(0, forwarded);
        let request = b"GET /api/v1/queues HTTP/1.1\r\nhost: q\r\nconnection: close\r\n\r\n";
        std::io::Write::write_all(&mut client, request).expect("sent");
        let reply = std::io::read_to_string(client).expect("a reply");
        assert!(reply.starts_with("HTTP/1.1 "), "{reply}");
        assert!(control.stop(Duration::from_secs(1)));
        assert!(is_let_go(running.end(), Instant::now() + PATIENCE));
        assert!(core.upgrade().is_none());
        other.ask(put("work", &[round]));
        assert_eq!(bodies(&other.ask(next())), before);
    }
    other.stop().expect("stop");
}

#[test]
fn a_core_that_is_still_referred_to_is_not_let_go() {
    let dir = tempfile::tempdir().expect("directory");
    let running = ServerThreads::start(dir.path(), 1, SyncPolicy::Never);
    let held = Arc::clone(&running.server.core);
    let server = running.end();
    assert!(!is_let_go(Arc::clone(&server), Instant::now()));
    drop(held);
    assert!(is_let_go(server, Instant::now() + PATIENCE));
}

#[test]
fn a_webhook_that_does_not_answer_holds_no_core() {
    let dir = tempfile::tempdir().expect("directory");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let running = ServerThreads::by(Config {
        data: dir.path().to_owned(),
        webhooks: vec![quintet_config::WebhookTable {
            name: "w".to_owned(),
            url: format!("http://{}/", silent.local_addr().expect("its port")),
            ..Default::default()
        }],
        ..Config::default()
    });
    silent.set_nonblocking(true).expect("set");
    let by = Instant::now() + PATIENCE;
    let request = loop {
        // The first ones may come before the webhook has its position.
        running.ask(put("work", b"x"));
        match silent.accept() {
            Ok((request, _)) => break request,
            Err(error) => assert!(Instant::now() < by, "no request: {error}"),
        }
    };
    assert!(is_let_go(running.end(), Instant::now() + PATIENCE));
    // It waits for its answer still.
    request.set_nonblocking(true).expect("set");
    let mut bytes = [0; 1024];
    let end = loop {
        match std::io::Read::read(&mut &request, &mut bytes) {
            Ok(0) => panic!("the request was given up"),
            Ok(_) => {}
            Err(error) => break error.kind(),
        }
    };
    assert_eq!(end, std::io::ErrorKind::WouldBlock);
}

#[test]
fn protocols_are_told_the_limit_of_memory() {
    let dir = tempfile::tempdir().expect("directory");
    let running = ServerThreads::start(dir.path(), 1, SyncPolicy::Never);
    let limit = locked(&running.server.operations.config).memory;
    assert_eq!(running.server.stats().memory_limit, limit);
    running.stop().expect("stop");
}
