//! Hooks over an engine in memory.

mod batches;
mod clock;
mod decided;
mod loading;
mod recipes;
mod unique;

use std::sync::Arc;

use quintet_engine::Engine;
use quintet_hooks::{
    Decided, Event, Events, HookReply, HookState, Host, Level, Limits, Program, Shared,
};
use quintet_trial::{Trial, World, client};
use quintet_types::{
    Body, By, ByName, Caller, Cancel, Command, Effect, How, LeaseOwner, LeaseRequest, LeaseTime,
    MessageId, Ms, Name, NamedAction, Outcome, Put, SegmentRef, Settings, Take, Transaction, Wait,
};

fn trial(text: &str) -> Trial {
    trial_with(text, Limits::default(), Settings::default())
}

fn trial_with(text: &str, limits: Limits, settings: Settings) -> Trial {
    let program = Program::from_text("hooks.lua", text, &limits, Arc::default()).unwrap();
    Trial::new(program, settings, Ms(1_000_000)).unwrap()
}

fn put_as(trial: &mut Trial, put: Put) -> String {
    match trial.submit(&client(1), Command::Put(put)) {
        Decided::Now(Outcome::Put { id, .. }, _) => id.0.to_string(),
        other => described(other),
    }
}

fn put(trial: &mut Trial, queue: &str, body: &str) -> String {
    put_as(
        trial,
        Put {
            queue: queue.into(),
            body: Body::new(body.as_bytes()),
            ..Put::default()
        },
    )
}

fn from(queue: &str) -> Take {
    Take {
        queues: [queue.into()].into_iter().collect(),
        ..Take::default()
    }
}

fn take(trial: &mut Trial, queue: &str) -> String {
    described(trial.submit(&client(2), Command::Take(from(queue))))
}

fn described(decided: Decided) -> String {
    match decided {
        Decided::Later => "waits".into(),
        Decided::Denied(text) => format!("denied: {text}"),
        Decided::Answer(bytes) => format!("answer: {}", bytes.escape_ascii()),
        Decided::Now(Outcome::Messages(messages), _) => messages
            .iter()
            .map(|message| String::from_utf8_lossy(message.body.as_small().unwrap()).into_owned())
            .collect::<Vec<_>>()
            .join("+"),
        Decided::Now(Outcome::Empty, _) => "empty".into(),
        Decided::Now(Outcome::Refused(command_error), _) => {
            format!("refused: {}", command_error.text())
        }
        Decided::Now(other, _) => format!("{other:?}"),
    }
}

fn log(trial: &Trial) -> Vec<String> {
    let log = trial.world.take_log();
    log.into_iter().map(|(_, text)| text).collect()
}

#[test]
fn a_put_is_changed_refused_redirected_and_split() {
    let mut t = trial(
        "function before_put(msg, conn)
           if msg.body == 'bad' then return false, 'no ' .. conn.protocol end
           if msg.body == 'other' then return 'b' end
           if msg.body == 'many' then return {{body = 'x'}, {body = 'y', queue = 'b'}} end
           if msg.body == 'lost' then return {} end
           if msg.body == 'plain' then return end
           msg.body, msg.priority = msg.body:upper(), 5
         end",
    );
    assert_eq!(put(&mut t, "a", "bad"), "denied: no trial");
    assert_eq!(put(&mut t, "a", "lost"), "0");
    assert_eq!(put(&mut t, "a", "plain"), "1");
    assert_eq!(put(&mut t, "a", "up"), "2");
    assert_eq!(put(&mut t, "a", "other"), "3");
    assert_eq!(put(&mut t, "a", "many"), "4");
    assert_eq!(take(&mut t, "a"), "UP");
    assert_eq!(take(&mut t, "a"), "plain");
    assert_eq!(take(&mut t, "a"), "x");
    assert_eq!(take(&mut t, "a"), "empty");
    assert_eq!(take(&mut t, "b"), "other");
    assert_eq!(take(&mut t, "b"), "y");
    assert_eq!(log(&t), [""; 0]);
}

#[test]
fn an_error_harms_nothing_and_says_where() {
    let mut t = trial(
        "function before_put(msg)\n msg.body = 'half'\n quintet.put('b', 'x')\n error('broken') end",
    );
    assert_eq!(put(&mut t, "a", "whole"), "1");
    assert_eq!(take(&mut t, "a"), "whole");
    assert_eq!(take(&mut t, "b"), "empty");
    assert_eq!(log(&t), ["hook before_put: hooks.lua:4: broken"]);
    let stats = t.state.program().shared().stats();
    assert_eq!(
        (stats[0].event, stats[0].calls, stats[0].errors),
        (Event::BeforePut, 1, 1)
    );
    assert_eq!(stats[0].last.as_ref().unwrap().line, 4);

    let limits = Limits {
        refuse_on_error: Events::NONE.with(Event::BeforePut),
        ..Limits::default()
    };
    let mut t = trial_with(
        "function before_put(msg) msg.priority = 'x' end",
        limits,
        Settings::default(),
    );
    assert_eq!(put(&mut t, "a", "whole"), "denied: refused: a hook failed");
    assert_eq!(
        log(&t),
        [
            "hook before_put: hooks.lua:1: msg.priority: a whole number from 0 to 4294967295 expected, got string"
        ]
    );
}

#[test]
fn an_old_name_is_an_error_that_names_the_new_one() {
    let mut t = trial("function before_put(msg, conn) msg.body = conn.voice end");
    assert_eq!(put(&mut t, "a", "whole"), "1");
    assert_eq!(
        log(&t),
        ["hook before_put: hooks.lua:1: voice is called protocol now"]
    );
    for (field, why) in [
        ("msg.body = msg.rank", "rank is called priority now"),
        ("msg.rank = 1", "msg.rank is called priority now"),
    ] {
        let mut t = trial(&format!("function before_put(msg) {field} end"));
        assert_eq!(put(&mut t, "a", "whole"), "1");
        assert_eq!(log(&t), [format!("hook before_put: hooks.lua:1: {why}")]);
    }
}

#[test]
fn an_endless_hook_is_stopped_and_the_next_call_has_its_own_budget() {
    let mut t = trial(
        "function before_put(msg)
           if msg.body == 'loop' then pcall(function() while true do end end) end
         end",
    );
    assert_eq!(put(&mut t, "a", "loop"), "1");
    let spent = "used up its budget of 1000000 instructions";
    let caught = format!("hook before_put: hooks.lua:2: before_put {spent}");
    assert_eq!(log(&t), [caught]);
    assert_eq!(put(&mut t, "a", "fine"), "2");
    assert_eq!(log(&t), [""; 0]);
    let mut t = trial("function before_put()\n while true do end\nend");
    put(&mut t, "a", "x");
    assert_eq!(
        log(&t),
        [format!("hook before_put: hooks.lua:2: before_put {spent}")]
    );
}

#[test]
fn memory_that_ran_out_leaves_a_state_as_after_a_start() {
    let mut t = trial(
        "local seen = 0
         function before_put(msg)
           seen = seen + 1
           if msg.body == 'eat' then local t, s = {}, ('x'):rep(100000) while true do t[#t + 1] = s .. #t end end
           msg.body = tostring(seen)
         end",
    );
    for body in ["a", "eat", "a"] {
        put(&mut t, "q", body);
    }
    assert_eq!(take(&mut t, "q"), "1");
    assert_eq!(take(&mut t, "q"), "eat");
    assert_eq!(take(&mut t, "q"), "1");
}

#[test]
fn wrong_return_values_are_named() {
    for (text, wanted) in [
        (
            "function before_put() return 5 end",
            "before_put must return nothing, false and a text, a queue's name, or a table of messages, got 5",
        ),
        (
            "function before_put() return {{bodi = 1}} end",
            "before_put: a message to be put has no field \"bodi\" that can be set",
        ),
        (
            "function before_put() return false, {} end",
            "before_put: false and a text expected, got false and table",
        ),
        (
            "function before_put(m) return m.nothing end",
            "a message has no field \"nothing\"",
        ),
    ] {
        let mut t = trial(text);
        assert_eq!(put(&mut t, "q", "x"), "1");
        let lines = log(&t);
        let wanted = format!("hook before_put: hooks.lua:1: {wanted}");
        assert!(lines[0].starts_with(&wanted), "{text}: {lines:?}");
    }
}

#[test]
fn reads_and_writes_of_a_hook_are_one_step_with_its_command() {
    let mut t = trial(
        "function before_put(msg)
           local seen = quintet.table('seen')
           if seen:get(msg.body) then return false, 'twice' end
           seen:set(msg.body, true, {ttl_ms = 1000})
           assert(seen:get(msg.body) == true)
         end",
    );
    assert_eq!(put(&mut t, "q", "x"), "1");
    assert_eq!(put(&mut t, "q", "x"), "denied: twice");
    t.pass(1001);
    assert_eq!(put(&mut t, "q", "x"), "2");
    assert_eq!(log(&t), [""; 0]);
}

#[test]
fn messages_are_taken_moved_and_deleted_by_hooks() {
    let mut t = trial(
        "function before_put(msg)
           if msg.body == 'swap' then
             local one, two = quintet.take('q'), quintet.take('q')
             assert(quintet.get(one) == nil)
             msg.body = two.body .. one.body .. tostring(quintet.take('q'))
             quintet.move(quintet.peek('r'), 's')
           end
         end",
    );
    for body in ["a", "b"] {
        put(&mut t, "q", body);
    }
    put(&mut t, "r", "r");
    put(&mut t, "q", "swap");
    assert_eq!(log(&t), [""; 0]);
    assert_eq!(take(&mut t, "q"), "banil");
    assert_eq!(take(&mut t, "r"), "empty");
    assert_eq!(take(&mut t, "s"), "r");
}

#[test]
fn puts_of_after_put_stop_at_a_depth() {
    let mut t = trial("function after_put(msg) quintet.put(msg.queue, msg.body .. '+') end");
    put(&mut t, "q", "x");
    let lines = log(&t);
    assert_eq!(lines.len(), 1);
    assert!(lines[0].contains("more than 8 deep"), "{lines:?}");
    let mut count = 0;
    while take(&mut t, "q") != "empty" {
        count += 1;
    }
    assert_eq!(count, 9);
}

#[test]
fn takes_are_refused_and_sent_elsewhere() {
    let mut t = trial(
        "function before_take(take, conn)
           if take.queue == 'no' then return false, 'not you' end
           if take.queue == 'a' then return {'b', 'c'} end
         end",
    );
    put(&mut t, "c", "x");
    assert_eq!(take(&mut t, "no"), "denied: not you");
    assert_eq!(take(&mut t, "a"), "x");
    assert_eq!(take(&mut t, "c"), "empty");
}

#[test]
fn a_taken_message_is_changed_put_back_or_moved() {
    let mut t = trial(
        "function after_take(msg)
           if msg.body == 'back' and msg.age_ms < 500 then return false, 500 end
           if msg.body == 'away' and msg.queue == 'q' then return 'other' end
           msg.body = msg.body .. '!'
         end",
    );
    for body in ["back", "away", "x"] {
        put(&mut t, "q", body);
    }
    assert_eq!(take(&mut t, "q"), "empty");
    assert_eq!(take(&mut t, "q"), "empty");
    assert_eq!(take(&mut t, "q"), "x!");
    assert_eq!(take(&mut t, "q"), "empty");
    assert_eq!(take(&mut t, "other"), "away!");
    t.pass(500);
    assert_eq!(take(&mut t, "q"), "back!");
    assert_eq!(take(&mut t, "q"), "empty");
    assert_eq!(log(&t), [""; 0]);
}

#[test]
fn a_message_taken_for_good_is_gone_after_the_hook_and_a_wait_is_served() {
    let mut t = trial("function after_take(msg) msg.body = '<' .. msg.body .. '>' end");
    let waits = Take {
        wait: Wait::For(1000),
        ..from("q")
    };
    assert_eq!(
        described(t.submit(&client(2), Command::Take(waits))),
        "waits"
    );
    assert_eq!(put(&mut t, "q", "x"), "1");
    let arrived = t.take_arrived();
    assert_eq!(arrived.len(), 1);
    assert_eq!(described(arrived.into_iter().next().unwrap().1), "<x>");
    t.pass(10_000);
    assert_eq!(take(&mut t, "q"), "empty");
    assert_eq!(log(&t), [""; 0]);
}

#[test]
fn an_empty_queue_is_supplied_and_a_full_one_overflows() {
    let mut settings = Settings::default();
    settings.defaults.messages_max = 1;
    let mut t = trial_with(
        "function empty(queue) if queue == 'seq' then return tostring(quintet.table('n'):add('n')) end end
         function full(msg) if msg.queue == 'q' then return 'overflow' end end",
        Limits::default(),
        settings,
    );
    assert_eq!(take(&mut t, "seq"), "1");
    assert_eq!(take(&mut t, "seq"), "2");
    assert_eq!(take(&mut t, "q"), "empty");
    for _ in 0..2 {
        put(&mut t, "q", "x");
    }
    assert_eq!(take(&mut t, "overflow"), "x");
    put(&mut t, "r", "x");
    assert_eq!(put(&mut t, "r", "x"), "refused: queue full");
    assert_eq!(log(&t), [""; 0]);
}

fn reserve(t: &mut Trial, queue: &str, ms: u64) -> String {
    let lease = LeaseRequest {
        owner: LeaseOwner::Connection,
        time: LeaseTime::Fixed(ms),
        back_to: Default::default(),
        held_max: 0,
    };
    let take = Take {
        lease: Some(lease),
        ..from(queue)
    };
    described(t.submit(&client(2), Command::Take(take)))
}

#[test]
fn hooks_decide_about_expiry_and_ends_of_leases() {
    let mut settings = Settings::default();
    settings.defaults.ttl_ms = 1000;
    let mut t = trial_with(
        "function expire(msg)
           if msg.body == 'route' then return 'late' end
           if msg.body == 'drop' then quintet.put('told', msg.body) end
         end
         function lease_end(msg) if msg.reserves == 2 then return 'slow' end end",
        Limits::default(),
        settings,
    );
    put(&mut t, "a", "route");
    put(&mut t, "a", "drop");
    t.pass(1000);
    assert_eq!(take(&mut t, "late"), "route");
    assert_eq!(take(&mut t, "told"), "drop");
    assert_eq!(take(&mut t, "a"), "empty");
    put(&mut t, "b", "x");
    assert_eq!(reserve(&mut t, "b", 100), "x");
    t.pass(100);
    assert_eq!(reserve(&mut t, "b", 100), "x");
    t.pass(100);
    assert_eq!(reserve(&mut t, "b", 100), "empty");
    assert_eq!(take(&mut t, "slow"), "x");
    assert_eq!(log(&t), [""; 0]);
}

#[test]
fn timers_run_and_commands_are_added() {
    let mut t = trial(
        "local n = 0
         quintet.every(100, function() n = n + 1 quintet.put('ticks', tostring(n)) end)
         quintet.command('STATS', function(args) return 'ready ' .. quintet.stats(args[1]).ready end)
         quintet.command('NO', function() return false, 'never' end)",
    );
    t.pass(250);
    assert_eq!(take(&mut t, "ticks"), "1");
    let stats = t.state.added(&client(1), b"stats ticks");
    assert_eq!(stats, Some(HookReply::Text(b"ready 1".to_vec())));
    assert_eq!(
        t.state.added(&client(1), b"NO"),
        Some(HookReply::Refused("never".into()))
    );
    assert_eq!(t.state.added(&client(1), b"PUSH 1 1"), None);
    let mut t =
        trial("quintet.at('1 0 * * *', function() quintet.put('cron', quintet.time.iso()) end)");
    t.pass(24 * 3600 * 1000);
    assert_eq!(take(&mut t, "cron"), "1970-01-02T00:01:00.000Z");
    assert_eq!(take(&mut t, "cron"), "empty");
}

#[test]
fn a_list_of_events_refuses_for_these_alone() {
    let limits = Limits {
        refuse_on_error: Events::NONE.with(Event::Settle),
        ..Limits::default()
    };
    let mut t = trial_with(
        "function before_put(msg) error('x') end
         function settle() error('y') end",
        limits,
        Settings::default(),
    );
    assert_eq!(put(&mut t, "a", "whole"), "1");
    let delete = Command::Delete {
        id: MessageId(1),
        by: By::Anyone,
    };
    let deleted = described(t.submit(&client(1), delete));
    assert_eq!(deleted, "denied: refused: a hook failed");
}

#[test]
fn an_error_of_loading_has_its_place() {
    for (text, line, wanted) in [
        ("\nfunction before_put(\n", 3, "expected"),
        ("\nerror('at load')", 2, "at load"),
        ("while true do end", 1, "budget"),
        ("quintet.put('q', 'x')", 1, "not while the file is loaded"),
        (
            "quintet.on('nothing', function() end)",
            1,
            "there is no event",
        ),
        ("\u{1b}Lua", 0, "binary"),
    ] {
        let loaded = Program::from_text("hooks.lua", text, &Limits::default(), Arc::default());
        let error = loaded.err().unwrap_or_else(|| panic!("{text} was loaded"));
        assert_eq!(
            (error.file.as_str(), error.line),
            ("hooks.lua", line),
            "{error}"
        );
        assert!(error.text.contains(wanted), "{error}");
    }
}

#[test]
fn messages_are_not_kept_beyond_their_event() {
    let mut t = trial(
        "function before_put(msg) kept = kept or msg end
         function before_take() return kept.body end",
    );
    put(&mut t, "q", "secret");
    take(&mut t, "q");
    let lines = log(&t);
    assert!(lines[0].contains("valid only while"), "{lines:?}");
}

#[test]
fn json_survives_a_round_trip() {
    let mut t = trial(
        r#"function before_put(msg)
           local value, why = quintet.json.decode(msg.body)
           if why then return false, 'not json' end
           msg.body = quintet.json.encode(value)
         end"#,
    );
    assert_eq!(
        put(&mut t, "q", r#"{"b":[1,2.5,"x",null,true],"a":{}}"#),
        "1"
    );
    assert_eq!(take(&mut t, "q"), r#"{"a":{},"b":[1,2.5,"x",null,true]}"#);
    assert_eq!(put(&mut t, "q", "{"), "denied: not json");
}

#[test]
fn two_clients_that_race_past_a_guard_cannot_both_win() {
    const KEYS: usize = 500;
    let text = "function before_put(msg)
           local seen = quintet.table('seen')
           if seen:get(msg.body) then return false, 'twice' end
           seen:set(msg.body, true)
         end";
    let program =
        Program::from_text("hooks.lua", text, &Limits::default(), Arc::default()).unwrap();
    let world = World::new(Settings::default(), Ms(1_000_000));
    let start = std::sync::Barrier::new(2);
    let won: Vec<usize> = std::thread::scope(|scope| {
        let racers: Vec<_> = (1..=2)
            .map(|number| {
                let (program, world, start) = (Arc::clone(&program), world.clone(), &start);
                scope.spawn(move || {
                    let mut state = HookState::new(program, Box::new(world)).unwrap();
                    let mut won = 0;
                    for key in 0..KEYS {
                        start.wait();
                        let put = Put {
                            queue: "q".into(),
                            body: Body::new(key.to_string().as_bytes()),
                            ..Put::default()
                        };
                        match state.submit(&client(number), Command::Put(put)) {
                            Decided::Now(Outcome::Put { .. }, _) => won += 1,
                            other => assert_eq!(described(other), "denied: twice"),
                        }
                    }
                    won
                })
            })
            .collect();
        racers
            .into_iter()
            .map(|racer| racer.join().unwrap())
            .collect()
    });
    assert_eq!(won.iter().sum::<usize>(), KEYS);
}

/// Changes a table before every transaction, so that its guards never hold.
struct Meddler(World);

impl Host for Meddler {
    fn now(&self) -> Ms {
        self.0.now()
    }

    fn wall(&self) -> Ms {
        self.0.wall()
    }

    fn ask(&mut self, caller: Caller, command: Command) -> (Option<Outcome>, Name) {
        if matches!(command, Command::Transaction(_)) {
            let set = Effect::Set {
                table: "t".into(),
                key: b"k".as_slice().into(),
                value: Some(b"s1".as_slice().into()),
                ttl_ms: None,
            };
            let transaction = Transaction {
                effects: vec![set],
                ..Transaction::default()
            };
            self.0
                .ask(caller, Command::Transaction(Box::new(transaction)));
        }
        self.0.ask(caller, command)
    }

    fn log(&mut self, level: Level, text: &str) {
        self.0.log(level, text);
    }
}

#[test]
fn a_hook_whose_reads_never_hold_gives_up_and_counts_nothing() {
    let text = "function before_put(msg)
           quintet.counter('tries'):add(1)
           quintet.metric('runs')
           quintet.table('t'):get('k')
         end";
    let shared = Arc::new(Shared::default());
    let limits = Limits::default();
    let program = Program::from_text("hooks.lua", text, &limits, Arc::clone(&shared)).unwrap();
    let world = World::new(Settings::default(), Ms(1_000_000));
    let mut state = HookState::new(program, Box::new(Meddler(world.clone()))).unwrap();
    let put = Put {
        queue: "q".into(),
        ..Put::default()
    };
    let decided = described(state.submit(&client(1), Command::Put(put)));
    assert_eq!(decided, "denied: busy: the data of a hook changes too fast");
    assert_eq!(shared.counters.get(b"tries", Ms(1_000_000)), 0);
    assert_eq!(shared.metrics.all(), [("runs".into(), 8.0)]);
}

#[test]
fn replay_of_decisions_of_hooks_needs_no_hooks() {
    let mut settings = Settings::default();
    settings.defaults.ttl_ms = 500;
    let mut t = trial_with(
        "function before_put(msg)
           quintet.table('n'):add(msg.queue)
           if msg.body == 'two' then return {{}, {queue = 'copy'}} end
         end
         function after_put(msg) if msg.queue == 'q' then quintet.put('audit', msg.body) end end
         function after_take(msg) if msg.body == 'no' then return false, 100 end end
         function expire(msg) return 'late' end
         quintet.every(300, function() quintet.table('n'):set('t', {at = quintet.time.now()}) end)",
        Limits::default(),
        settings.clone(),
    );
    for body in ["one", "two", "no", "four"] {
        put(&mut t, "q", body);
    }
    for _ in 0..3 {
        take(&mut t, "q");
    }
    t.pass(1000);
    assert_eq!(log(&t), [""; 0]);
    let mut engine = Engine::new(0, 1, settings);
    for fact in t.world.facts() {
        engine.replay(fact, SegmentRef(0));
    }
    assert_eq!(engine.image(), t.world.image());
    assert!(take(&mut t, "late") != "empty");
}

#[test]
fn several_puts_of_one_command_are_one_step() {
    let mut t = trial(
        "function before_put(msg)
           if msg.body == 'bad' then return false, 'bad one' end
           if msg.body == 'two' then return {{body = '2a'}, {body = '2b'}} end
           if msg.body == 'none' then return {} end
         end",
    );
    let puts = |bodies: &[&str]| {
        let puts = bodies.iter().map(|body| Put {
            queue: "q".into(),
            body: Body::new(body.as_bytes()),
            ..Put::default()
        });
        Command::PutMany(puts.collect())
    };
    let refused = t.submit(&client(1), puts(&["x", "bad"]));
    assert_eq!(described(refused), "denied: bad one");
    let stored = t.submit(&client(1), puts(&["one", "two", "none", "four"]));
    let Decided::Now(Outcome::PutMany(ids), _) = stored else {
        panic!("{stored:?}");
    };
    assert_eq!(ids.iter().map(|id| id.0).collect::<Vec<_>>(), [1, 2, 0, 4]);
    for body in ["one", "2a", "2b", "four", "empty"] {
        assert_eq!(take(&mut t, "q"), body);
    }
}

#[test]
fn an_auth_hook_that_fails_rejects_the_login() {
    let mut t = trial("function auth() error('oops') end");
    assert_eq!(t.state.auth(&client(8), "me", b"x"), Some(false));
    let mut t = trial("");
    assert_eq!(t.state.auth(&client(8), "me", b"x"), None);
}

#[test]
fn one_call_has_a_bound_of_changes() {
    let mut t = trial("function before_put() for i = 1, 2000 do quintet.put('q', 'x') end end");
    put(&mut t, "r", "x");
    assert!(log(&t)[0].contains("one call can make at most 1000 requests"));
    assert_eq!(take(&mut t, "q"), "empty");
    let limits = Limits {
        effect_bytes_max: 1000,
        ..Limits::default()
    };
    let mut t = trial_with(
        "function before_put() for i = 1, 11 do quintet.put('q', ('x'):rep(90)) end end",
        limits,
        Settings::default(),
    );
    put(&mut t, "r", "x");
    assert!(log(&t)[0].contains("one call can store at most 1000 bytes"));
}

#[test]
fn a_take_belongs_to_its_client_although_its_hook_changed_data() {
    let mut t = trial(
        "function before_take(take) quintet.table('t'):add('takes') quintet.put('log', take.queue) end",
    );
    put(&mut t, "q", "x");
    assert_eq!(reserve(&mut t, "q", 0), "x");
    let finish = Command::Settle {
        id: MessageId(1),
        by: By::Owner,
        how: How::Finish,
    };
    assert_eq!(described(t.submit(&client(2), finish)), "Done");
    assert_eq!(take(&mut t, "log"), "q");
}

#[test]
fn a_subscription_is_changed_and_served_through_the_hook() {
    let mut t = trial("function after_take(msg) msg.body = msg.body .. '!' end");
    let watch = Command::Watch(Some(Box::new(from("a"))));
    assert_eq!(described(t.submit(&client(2), watch)), "Done");
    let rewatch = Command::Rewatch(Box::new(from("b")));
    t.submit(&client(2), rewatch);
    put(&mut t, "a", "x");
    assert!(t.take_arrived().is_empty());
    put(&mut t, "b", "y");
    let arrived = t.take_arrived();
    assert_eq!(described(arrived.into_iter().next().unwrap().1), "y!");
    t.pass(1000);
    assert_eq!(take(&mut t, "b"), "empty");
    assert_eq!(take(&mut t, "a"), "x!");
    assert_eq!(log(&t), [""; 0]);
}

#[test]
fn a_reserve_by_id_goes_through_after_take() {
    let mut t = trial(
        "function after_take(msg) if msg.body == 'no' then return false end msg.body = msg.body .. '!' end",
    );
    put(&mut t, "q", "no");
    put(&mut t, "q", "x");
    let reserve = |id| Command::ReserveId {
        id: MessageId(id),
        lease: LeaseRequest {
            owner: LeaseOwner::Connection,
            time: LeaseTime::Fixed(0),
            back_to: Default::default(),
            held_max: 0,
        },
    };
    let refused = described(t.submit(&client(2), reserve(1)));
    assert_eq!(refused, "refused: message not found");
    assert_eq!(described(t.submit(&client(2), reserve(2))), "x!");
    assert_eq!(reserve_count(&mut t), 1);
}

fn reserve_count(t: &mut Trial) -> u64 {
    let stats = t.submit(&client(1), Command::Stats(quintet_types::StatsOf::Shard));
    match stats {
        Decided::Now(Outcome::Stats(stats), _) => match *stats {
            quintet_types::StatsReply::Shard(shard) => shard.gauges.reserved,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}
