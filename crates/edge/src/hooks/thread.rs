//! The thread for what no client asked for: timers, what happens by itself,
//! start and stop; and the eye on the files.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quintet_config::Config;
use quintet_hooks::{Event, Who};
use quintet_host::{Core, locked};
use quintet_types::Caller;

use super::{Hooks, Runner, stamp};

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(1);

impl Hooks {
    /// The hooks thread: runs until `stop`.
    pub fn run(&self, core: &Arc<Core>, config: &Mutex<Config>, stop: &AtomicBool) {
        let hooks_path = || locked(config).hooks_path();
        let client_id = core.own_client();
        let who = Who {
            caller: Caller::server(client_id),
            ..Who::default()
        };
        let mut runner: Option<Runner> = None;
        let mut checked = Instant::now();
        let mut seen = hooks_path().map(|path| stamp(&path));
        let mut version = 0;
        loop {
            self.renew(&mut runner, core);
            if let Some(runner) = &mut runner {
                if version != self.version() {
                    version = self.version();
                    core.want_pending_decisions(runner.state.pending_decisions(client_id));
                    runner.state.notify(&who, Event::Start);
                }
                decide(core, runner, &who);
                runner.state.run_timers(&who);
                runner.take_did().see_to(core);
            }
            if stop.load(Ordering::SeqCst) {
                if let Some(runner) = &mut runner {
                    runner.state.notify(&who, Event::Stop);
                    runner.take_did().see_to(core);
                }
                return;
            }
            core.hooks_work.wait_for(rest(core, runner.as_ref()));
            if checked.elapsed() >= LOOK {
                checked = Instant::now();
                for line in self.shared.overdue(core.clock.now()) {
                    tracing::error!(target: "hooks", "{line}");
                }
                let now = hooks_path().map(|path| stamp(&path));
                if now != seen {
                    seen = now;
                    self.reload_by(core, config);
                }
            }
        }
    }

    /// Reads the hooks again; says so, or why not.
    pub fn reload_by(&self, core: &Core, config: &Mutex<Config>) {
        let (path, limits) = {
            let config = locked(config);
            (config.hooks_path(), config.hook_limits())
        };
        match self.reload(path.as_deref(), &limits) {
            Ok(()) => {
                core.hooks_work.raise();
                if path.is_some() {
                    tracing::info!("hooks reloaded");
                }
            }
            Err(error) => tracing::error!("hooks not reloaded, the old ones stay: {error}"),
        }
    }
}

/// Has the hooks decide about the events that wait for it. If the server cannot keep a decision,
/// that one and those after it are asked for again later.
fn decide(core: &Core, runner: &mut Runner, who: &Who) {
    let mut pending = core.take_pending_decisions().into_iter();
    while let Some(pending_decision) = pending.next() {
        let kept = runner.state.pending_decision(who, &pending_decision);
        runner.take_did().see_to(core);
        if !kept {
            core.give_back_pending_decisions(std::iter::once(pending_decision).chain(pending));
            return;
        }
    }
}

/// How long the thread may sleep.
fn rest(core: &Core, runner: Option<&Runner>) -> Duration {
    let Some(runner) = runner else { return LOOK };
    let next = runner.state.next_timer().since(core.clock.now());
    Duration::from_millis(next).clamp(Duration::from_millis(1), LOOK)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc::channel;

    use quintet_hooks::{Decided as Hooked, HookState, Host, Level, Limits, Program};
    use quintet_host::{Decided, Layout, Owner, Room, SyncPolicy, open_dir};
    use quintet_log::LogError;
    use quintet_types::{
        BackTo, Body, ClientId, Command, CommandError, DeadLetter, LeaseOwner, LeaseRequest,
        LeaseTime, Ms, Name, Outcome, Overrides, Pattern, Peek, Permits, Principal, Put, Settings,
        StatsOf, Take, Verb,
    };

    use super::super::{Did, Shards};
    use super::*;
    use crate::dispatcher::Dispatcher;
    use crate::io::Mailbox;

    struct Panics;

    impl Owner for Panics {
        fn log_failed(&self, error: &LogError) {
            panic!("stopped for {error}");
        }
    }

    /// The shards, whose quorum is lost just before the first decision.
    struct Losing {
        shards: Shards,
        lost: bool,
    }

    impl Host for Losing {
        fn now(&self) -> Ms {
            self.shards.now()
        }

        fn wall(&self) -> Ms {
            self.shards.wall()
        }

        fn ask(&mut self, caller: Caller, command: Command) -> (Option<Outcome>, Name) {
            if matches!(command, Command::Transaction(_)) && !self.lost {
                self.lost = true;
                self.shards.core.set_available(false);
            }
            self.shards.ask(caller, command)
        }

        fn log(&mut self, level: Level, text: &str) {
            self.shards.log(level, text);
        }
    }

    fn ask(core: &Core, command: Command) -> Outcome {
        let caller = Caller {
            client_id: ClientId(1),
            ..Caller::default()
        };
        match core.with_access(|access| access.submit(caller, command)) {
            Decided::Now(outcome, ..) => outcome,
            Decided::Later => panic!("nothing here waits"),
        }
    }

    fn take(queue: &str) -> Take {
        Take {
            queues: std::iter::once(Name::from(queue)).collect(),
            ..Take::default()
        }
    }

    fn open(dir: &Path, settings: &Settings) -> Arc<Core> {
        let layout = Layout {
            shards: 1,
            segment_bytes: 1 << 20,
            spares: 0,
            memory: 256 << 20,
        };
        let opened = open_dir(dir, &layout, settings).expect("it opens");
        let room = Room::new(dir.to_owned(), 1 << 20);
        let mail = Vec::new();
        let core = Core::new(opened, SyncPolicy::Never, mail, room, Box::new(Panics));
        Arc::new(core)
    }

    fn program(text: &str) -> Arc<Program> {
        Program::from_text("hooks.lua", text, &Limits::default(), Arc::default())
            .expect("they load")
    }

    fn put(core: &Core, body: &[u8]) {
        let put = Put {
            queue: "work".into(),
            body: Body::new(body),
            ..Put::default()
        };
        assert!(matches!(ask(core, Command::Put(put)), Outcome::Put { .. }));
    }

    /// The server may do everything, others nothing.
    struct ServerAlone;

    impl Permits for ServerAlone {
        fn may(&mut self, principal: Principal, _verb: Verb, _queue: &Name) -> bool {
            principal == Principal::SERVER
        }

        fn may_all(&mut self, principal: Principal, _verb: Verb) -> bool {
            principal == Principal::SERVER
        }
    }

    #[test]
    fn a_client_sees_no_more_where_a_hook_is_set_on_its_commands() {
        let dir = tempfile::tempdir().expect("a directory");
        let core = open(dir.path(), &Settings::default());
        put(&core, b"secret");
        core.set_permits(|| Some(Box::new(ServerAlone)));
        let shards = Box::new(Shards {
            core: Arc::clone(&core),
            did: Arc::default(),
        });
        let text = "function command(line) end";
        let mut state = HookState::new(program(text), shards).expect("a state");
        let mut submit = |principal, command| {
            let who = Who {
                caller: Caller {
                    client_id: ClientId(1),
                    principal,
                },
                ..Who::default()
            };
            match state.submit(&who, command) {
                Hooked::Now(outcome, _) => outcome,
                Hooked::Later | Hooked::Denied(_) | Hooked::Answer(_) => panic!("no outcome"),
            }
        };
        let refused = Outcome::Refused(CommandError::NotPermitted);
        for command in [
            Command::Peek(Peek::Ready("work".into())),
            Command::Stats(StatsOf::Queue("work".into())),
        ] {
            assert_eq!(submit(Principal::FIRST, command.clone()), refused);
            assert_ne!(submit(Principal::SERVER, command), refused);
        }
    }

    /// Without users a client is as the server: its long browse would hold up all others.
    #[test]
    fn a_clients_own_peek_does_not_keep_the_thread_and_one_of_a_hook_does() {
        let dir = tempfile::tempdir().expect("a directory");
        let core = open(dir.path(), &Settings::default());
        put(&core, b"a");
        // One that keeps a thread is refused from here on.
        core.end_peeks();
        let peek = |text: &str| {
            let shards = Box::new(Shards {
                core: Arc::clone(&core),
                did: Arc::default(),
            });
            let mut state = HookState::new(program(text), shards).expect("a state");
            let who = Who {
                caller: Caller::server(ClientId(1)),
                ..Who::default()
            };
            state.submit(&who, Command::Peek(Peek::Ready("work".into())))
        };
        let own = peek("function command(line) end");
        assert!(
            matches!(own, Hooked::Now(Outcome::Messages(_), _)),
            "{own:?}"
        );
        let hooks = peek("function command(line) return 'queues: ' .. #quintet.queues() end");
        assert!(
            matches!(&hooks, Hooked::Answer(text) if text == b"queues: 0"),
            "{hooks:?}"
        );
    }

    #[test]
    fn a_decision_refused_without_quorum_is_requested_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let rule = Overrides {
            attempts_max: Some(1),
            dead_letter: Some(DeadLetter::To("dead".into())),
            ..Overrides::default()
        };
        let settings = Settings {
            rules: vec![(Pattern::new("work"), rule)],
            ..Settings::default()
        };
        let core = open(dir.path(), &settings);
        let did = Arc::new(Mutex::new(Did::default()));
        let shards = Shards {
            core: Arc::clone(&core),
            did: Arc::clone(&did),
        };
        let lost = false;
        let host = Box::new(Losing { shards, lost });
        let program = program("function dead_letter(msg) end");
        let state = HookState::new(program, host).expect("a state");
        let mut runner = Runner {
            state,
            did,
            version: 1,
        };
        let client_id = core.own_client();
        core.want_pending_decisions(runner.state.pending_decisions(client_id));
        let who = Who {
            caller: Caller::server(client_id),
            ..Who::default()
        };

        for body in [b"a", b"b"] {
            put(&core, body);
            let leased = Take {
                lease: Some(LeaseRequest {
                    owner: LeaseOwner::Connection,
                    time: LeaseTime::OwnTtr,
                    back_to: BackTo::Position,
                    held_max: 0,
                }),
                ..take("work")
            };
            let taken = ask(&core, Command::Take(leased));
            assert!(matches!(taken, Outcome::Messages(_)), "{taken:?}");
        }
        core.with_access(|access| access.disconnect(ClientId(1)));

        decide(&core, &mut runner, &who);
        assert!(!core.is_available(), "a decision was made");
        core.set_available(true);
        assert_eq!(ask(&core, Command::Take(take("dead"))), Outcome::Empty);
        decide(&core, &mut runner, &who);
        for _ in 0..2 {
            let taken = ask(&core, Command::Take(take("dead")));
            assert!(matches!(taken, Outcome::Messages(_)), "{taken:?}");
        }
        assert!(core.take_pending_decisions().is_empty());
    }

    #[test]
    fn nothing_goes_past_hooks_that_could_not_be_loaded_and_they_are_loaded_later() {
        let dir = tempfile::tempdir().expect("a directory");
        let core = open(dir.path(), &Settings::default());
        let hooks = Arc::new(Hooks::load(None, &Limits::default()).expect("there are none"));
        assert!(matches!(hooks.at_dispatcher(&core, |_| ()), Ok(None)));
        assert_eq!(hooks.may_log_in(&core, "ann", b""), None);
        // Each load makes a metric of its own, for which there is no room after the trial.
        let text = "quintet.metric('m' .. quintet.time.now(), 1)";
        let shared = Arc::clone(&hooks.shared);
        let bad = Program::from_text("hooks.lua", text, &Limits::default(), shared);
        let tried = core.clock.now() + 10;
        while core.clock.now() <= tried {
            std::hint::spin_loop();
        }
        let mut metrics = 0;
        while hooks.shared.metrics.add(&format!("x{metrics}"), 1.0) {
            metrics += 1;
        }
        *locked(&hooks.current) = Some(bad.expect("they load on trial"));
        hooks.version.fetch_add(1, Ordering::Release);
        assert!(hooks.at_dispatcher(&core, |_| ()).is_err());
        assert_eq!(hooks.may_log_in(&core, "ann", b""), Some(false));
        let (_poll, mailbox) = Mailbox::open().expect("a mailbox");
        let dispatcher = Dispatcher::new(Arc::clone(&core), Arc::clone(&hooks), mailbox, 0, false);
        let client_id = dispatcher.enter(Box::new(|_, _| {}));
        let (sender, replies) = channel();
        // Who waits since before may leave.
        for command in [Command::BurnId, Command::StopWaiting] {
            let sender = sender.clone();
            let reply =
                move |outcome: Outcome, _: Name| sender.send(outcome).expect("it is received");
            dispatcher.decide(Caller::server(client_id), command, Box::new(reply), false);
        }
        let refused = Outcome::Refused(CommandError::NoMemory);
        let replies: Vec<Outcome> = replies.try_iter().collect();
        assert_eq!(replies, [refused, Outcome::Done]);
        *locked(&hooks.current) = Some(program("function before_put(msg) end"));
        assert!(matches!(hooks.at_dispatcher(&core, |_| ()), Ok(Some(()))));
        assert_eq!(hooks.may_log_in(&core, "ann", b""), None);
    }
}
