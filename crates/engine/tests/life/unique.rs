//! Deduplication of puts: by what, for how long, and with which effect.

use quintet_engine::*;
use quintet_sim::world::{World, plain, reserve};
use quintet_types::*;

fn unique(id: &str, scope: Scope, on_repeat: OnRepeat) -> Put {
    let dedupe = Dedupe {
        id: id.as_bytes().into(),
        window_ms: Some(0),
        scope: Some(scope),
        on_repeat: Some(on_repeat),
    };
    Put {
        queue: "q".into(),
        more: Some(Box::new(PutMore {
            dedupe: Some(dedupe),
            ..PutMore::default()
        })),
        ..Put::default()
    }
}

/// Whether a put of this id is a repeat now; it is not stored if it is.
fn repeats(w: &mut World, scope: Scope) -> bool {
    match w.ask(9, Command::Put(unique("x", scope, OnRepeat::Refuse))) {
        Some(Outcome::Put { fresh: true, .. }) => false,
        Some(Outcome::Refused(CommandError::Duplicate(_))) => true,
        other => panic!("{other:?}"),
    }
}

fn settle(w: &mut World, id: MessageId, how: How) {
    let by = By::Anyone;
    w.ask(1, Command::Settle { id, by, how });
}

fn release() -> How {
    How::Release {
        priority: None,
        due: When::Now,
        back_to: None,
    }
}

#[test]
fn while_it_waits_also_after_it_came_back() {
    let mut w = World::new();
    let id = w.put_as(unique("x", Scope::Waiting, OnRepeat::Refuse));
    assert!(repeats(&mut w, Scope::Waiting));
    w.take(1, reserve("q"));
    w.restart();
    settle(&mut w, id, release());
    assert!(repeats(&mut w, Scope::Waiting));
    w.take(1, reserve("q"));
    assert!(!repeats(&mut w, Scope::Waiting));
}

#[test]
fn until_it_is_taken_once() {
    let mut w = World::new();
    let id = w.put_as(unique("x", Scope::Started, OnRepeat::Refuse));
    assert!(repeats(&mut w, Scope::Started));
    w.take(1, reserve("q"));
    settle(&mut w, id, release());
    w.restart();
    assert!(!repeats(&mut w, Scope::Started));
}

#[test]
fn until_it_is_done_whatever_it_went_through() {
    let (priority, reason) = (None, Box::default());
    let archive = How::Archive {
        relayed: false,
        status: Box::default(),
    };
    for how in [How::Finish, archive, How::Bury { priority, reason }] {
        let mut w = World::new();
        let id = w.put_as(unique("x", Scope::Done, OnRepeat::Refuse));
        w.take(1, reserve("q"));
        assert!(repeats(&mut w, Scope::Done));
        settle(&mut w, id, release());
        w.restart();
        w.take(1, reserve("q"));
        assert!(repeats(&mut w, Scope::Done));
        settle(&mut w, id, how);
        w.restart();
        assert!(!repeats(&mut w, Scope::Done));
    }
}

#[test]
fn in_the_queue_it_was_put_to() {
    let mut w = World::new();
    let id = w.put_as(unique("x", Scope::Done, OnRepeat::Refuse));
    let to = "other".into();
    w.ask(1, Command::Move { id, to });
    assert!(!repeats(&mut w, Scope::Done));
    w.ask(
        1,
        Command::Flush {
            queue: "q".into(),
            reserved: false,
        },
    );
    assert!(!repeats(&mut w, Scope::Done));
    w.ask(1, Command::Drop("q".into()));
    assert!(!repeats(&mut w, Scope::Done));
}

#[test]
fn a_repeat_replaces_only_a_waiting_message() {
    let mut w = World::new();
    let again = || unique("x", Scope::Done, OnRepeat::Replace);
    let first = w.put_as(again());
    let second = w.put_as(Put {
        body: Body::new(b"newer"),
        ..again()
    });
    assert_ne!(first, second);
    w.restart();
    assert_eq!(w.take(1, reserve("q")), "newer");
    let refused = w.ask(1, Command::Put(again()));
    assert_eq!(
        refused,
        Some(Outcome::Refused(CommandError::Duplicate(second)))
    );
    settle(&mut w, second, How::Finish);
    w.put_as(again());
    assert_eq!(w.take(1, plain("q")), "");
    assert_eq!(w.pop("q"), "empty");
}

#[test]
fn a_full_queue_takes_a_replacement() {
    let mut w = World::new();
    let (queue, limits) = (
        "q".into(),
        Overrides {
            messages_max: Some(1),
            bytes_max: Some(2),
            ..Overrides::default()
        },
    );
    let overrides = Some(Box::new(limits));
    w.ask(
        9,
        Command::Configure {
            queue,
            overrides,
            must_exist: false,
        },
    );
    let put = |body: &str| Put {
        body: Body::new(body.as_bytes()),
        ..unique("x", Scope::Done, OnRepeat::Replace)
    };
    w.put_as(put("a"));
    w.put_as(put("bb"));
    let refused = w.ask(1, Command::Put(put("ccc")));
    assert_eq!(refused, Some(Outcome::Refused(CommandError::QueueFull)));
    assert_eq!(w.pop("q"), "bb");
}

#[test]
fn bodies_by_the_queues_own_rule() {
    let mut w = World::new();
    let (queue, rule) = (
        "q".into(),
        Overrides {
            unique_by_body: Some(true),
            unique_for_ms: Some(0),
            unique_until: Some(Scope::Waiting),
            unique_repeat: Some(OnRepeat::First),
            ..Overrides::default()
        },
    );
    let overrides = Some(Box::new(rule));
    w.ask(
        9,
        Command::Configure {
            queue,
            overrides,
            must_exist: false,
        },
    );
    let put = |body: &str| Put {
        queue: "q".into(),
        body: Body::new(body.as_bytes()),
        ..Put::default()
    };
    let id = w.put_as(put("a"));
    let many = Command::PutMany(vec![put("a"), put("b"), put("b")]);
    match w.ask(1, many) {
        Some(Outcome::PutMany(ids)) => assert!(ids[0] == id && ids[1] == ids[2] && ids[1] != id),
        other => panic!("{other:?}"),
    }
    assert_eq!((w.pop("q"), w.pop("q")), ("a".into(), "b".into()));
    assert_eq!(w.pop("q"), "empty");
    assert_ne!(w.put_as(put("a")), id);
}

/// A rule counts for puts from then on: what waited before is not remembered, and
/// what was put under it stays so.
#[test]
fn a_rule_that_changes_while_messages_wait_is_about_puts_from_then_on() {
    let mut w = World::new();
    let rule = |w: &mut World, on: bool| {
        let overrides = Overrides {
            unique_by_body: Some(on),
            unique_for_ms: Some(0),
            unique_until: Some(Scope::Waiting),
            ..Overrides::default()
        };
        let configure = Command::Configure {
            queue: "q".into(),
            overrides: Some(Box::new(overrides)),
            must_exist: false,
        };
        assert_eq!(w.ask(9, configure), Some(Outcome::Done));
    };
    let stored = |w: &mut World, body: &str| {
        let put = Put {
            queue: "q".into(),
            body: Body::new(body.as_bytes()),
            ..Put::default()
        };
        match w.ask(9, Command::Put(put)) {
            Some(Outcome::Put { fresh, .. }) => fresh,
            Some(Outcome::Refused(CommandError::Duplicate(_))) => false,
            other => panic!("{other:?}"),
        }
    };
    for number in 0..1000 {
        assert!(stored(&mut w, &(number % 2).to_string()));
    }
    rule(&mut w, true);
    assert!(stored(&mut w, "0"), "those before it are not remembered");
    assert!(!stored(&mut w, "0"));
    rule(&mut w, false);
    assert!(stored(&mut w, "0"), "nothing makes it a repeat any more");
    rule(&mut w, true);
    assert!(
        !stored(&mut w, "0"),
        "a message put under the rule still waits"
    );
    w.restart();
    assert!(!stored(&mut w, "0"));
    assert!(stored(&mut w, "1"));
}

/// The ids in a world's deduplication records.
fn kept(w: &World) -> Vec<DedupeId> {
    let image = w.engine.image().into_iter();
    let dedupe_records = image.filter_map(|fact| match fact {
        Fact::Remembered { dedupe_record, .. } => Some(dedupe_record),
        _ => None,
    });
    dedupe_records.collect()
}

fn by_token(token: &str) -> Put {
    Put {
        queue: "q".into(),
        more: Some(Box::new(PutMore {
            token: Some(token.as_bytes().into()),
            ..PutMore::default()
        })),
        ..Put::default()
    }
}

#[test]
fn an_id_is_kept_as_its_hash_by_a_key_that_outlives_the_process() {
    let mut w = World::new();
    w.restart();
    let long = "x".repeat(60_000);
    let before = w.engine.memory_bytes();
    let first = w.put_as(unique(&long, Scope::Waiting, OnRepeat::First));
    let token = w.put_as(by_token(&long));
    let kept_bytes = w.engine.memory_bytes() - before;
    assert!(kept_bytes < 3000, "{kept_bytes} bytes");
    let hashes = kept(&w);
    assert!(
        hashes
            .iter()
            .all(|dedupe_record| matches!(dedupe_record, DedupeId::Hash(_)))
    );
    assert_eq!(hashes.len(), 2);
    assert_eq!(hashes[0], hashes[1], "of the same bytes");
    // A later process has another number to offer, and keeps the key.
    let mut engine = w.replayed(SegmentRef(0));
    engine.begin_epoch(w.now, engine.epoch() + 1, [9; 16], &mut w.facts);
    w.engine = engine;
    let again = w.put_as(unique(&long, Scope::Waiting, OnRepeat::First));
    assert_eq!((again, w.put_as(by_token(&long))), (first, token));
    assert_eq!(kept(&w), hashes);
    // So does one that reads a snapshot alone.
    w.facts = w.engine.image();
    w.restart();
    assert_eq!(w.put_as(by_token(&long)), token);
    // Another server has another key.
    let mut other = World::new();
    other
        .engine
        .begin_epoch(other.now, 1, [8; 16], &mut other.facts);
    other.put_as(by_token(&long));
    assert_ne!(kept(&other), hashes[1..]);
}

/// As logs have them that were written before there was a key.
#[test]
fn whole_ids_of_an_older_log_refuse_repeats_and_become_hashes() {
    let mut w = World::new();
    let kinds = [Scope::Window, Scope::Waiting, Scope::Done];
    let put = |w: &mut World, scope| {
        let mut put = unique(&format!("{scope:?}"), scope, OnRepeat::First);
        let more = put.more.as_mut().expect("it is unique");
        more.dedupe.as_mut().expect("it is").window_ms = Some(60_000);
        w.put_as(put)
    };
    let ids = kinds.map(|scope| put(&mut w, scope));
    let token = w.put_as(by_token("t"));
    let whole = kept(&w);
    assert!(
        whole
            .iter()
            .all(|dedupe_record| matches!(dedupe_record, DedupeId::Whole(_)))
    );
    for _ in 0..2 {
        w.restart();
        w.verify();
        assert!(
            kept(&w)
                .iter()
                .all(|dedupe_record| matches!(dedupe_record, DedupeId::Hash(_)))
        );
        assert_eq!(kinds.map(|scope| put(&mut w, scope)), ids);
        assert_eq!(w.put_as(by_token("t")), token);
    }
    // They end as others do.
    w.ask(9, Command::Drop("q".into()));
    w.wait(0);
    assert_eq!(kept(&w), []);
}

/// The bound concerns only puts that would leave one more; a purge, a drop and time make room.
#[test]
fn records_have_a_bound_of_their_own_and_go_with_their_queue_and_its_purge() {
    let purge = |w: &mut World| {
        let (queue, reserved) = ("q".into(), true);
        w.ask(9, Command::Flush { queue, reserved });
    };
    let drop = |w: &mut World| {
        w.ask(9, Command::Drop("q".into()));
    };
    let time = |w: &mut World| w.now = w.now + 86_400_000;
    let ends: [fn(&mut World); 3] = [purge, drop, time];
    for end in ends {
        let mut w = World::with(Settings {
            dedupe_max: 600,
            ..Settings::default()
        });
        w.restart();
        let empty = w.engine.memory_bytes();
        for number in 0..600 {
            w.put_as(by_token(&number.to_string()));
        }
        let full = Some(Outcome::Refused(CommandError::DedupeFull));
        assert_eq!(w.ask(1, Command::Put(by_token("one more"))), full);
        assert_eq!(w.ask(1, Command::PutMany(vec![by_token("one more")])), full);
        // A repeat is answered as ever, and a plain put is stored.
        w.put_as(by_token("7"));
        w.put("q", "plain");
        w.put("other", "plain");
        end(&mut w);
        w.put_as(by_token("one more"));
        w.wait(0);
        assert_eq!(kept(&w).len(), 1);
        let left = w.engine.memory_bytes() - empty;
        // The messages that time left are counted, and nothing else.
        assert!(left < 602 * 200 + 2000, "{left} bytes");
        let bound = Some(Outcome::Refused(CommandError::DedupeFull));
        let many = |count: u32| (0..count).map(|n| by_token(&format!("many {n}"))).collect();
        assert_eq!(w.ask(1, Command::PutMany(many(600))), bound);
        assert!(matches!(
            w.ask(1, Command::PutMany(many(599))),
            Some(Outcome::PutMany(_))
        ));
    }
}

/// A put with this dedupe id, which replaces the first, and a token of its own.
fn replacing(queue: &str, token: &str) -> Put {
    let mut put = unique("x", Scope::Waiting, OnRepeat::Replace);
    put.queue = queue.into();
    put.more.as_mut().unwrap().token = Some(token.as_bytes().into());
    put
}

fn bounded(dedupe_max: u64) -> World {
    World::with(Settings {
        dedupe_max,
        ..Settings::default()
    })
}

const FULL: Option<Outcome> = Some(Outcome::Refused(CommandError::DedupeFull));

#[test]
fn a_put_that_replaces_the_first_adds_no_record_past_the_bound() {
    let mut w = bounded(3);
    w.put_as(replacing("q", "1"));
    w.put_as(replacing("q", "2"));
    assert_eq!(kept(&w).len(), 3);
    assert_eq!(w.ask(1, Command::Put(replacing("q", "3"))), FULL);
    let two = |a, b| Command::PutMany(vec![replacing("q", a), replacing("q", b)]);
    assert_eq!(w.ask(1, two("3", "4")), FULL);
    assert_eq!(kept(&w).len(), 3);
    // Those that add none are stored, one or several.
    let put = || unique("x", Scope::Waiting, OnRepeat::Replace);
    w.put_as(put());
    let many = w.ask(1, Command::PutMany(vec![put(), put()]));
    assert!(matches!(many, Some(Outcome::PutMany(_))), "{many:?}");
    assert_eq!(kept(&w).len(), 3);
}

/// Several in one list replace each other, and each leaves its token.
#[test]
fn puts_of_a_list_that_replace_each_other_add_no_record_past_the_bound() {
    let mut w = bounded(3);
    let list = |count: u32| {
        let put = |n: u32| replacing("q", &n.to_string());
        Command::PutMany((0..count).map(put).collect())
    };
    assert_eq!(w.ask(1, list(3)), FULL);
    assert_eq!(kept(&w), []);
    let stored = w.ask(1, list(2));
    assert!(matches!(stored, Some(Outcome::PutMany(_))), "{stored:?}");
    assert_eq!(kept(&w).len(), 3);
}

#[test]
fn a_put_with_copies_is_stored_with_all_of_them_or_refused_at_the_bound() {
    let mut w = bounded(5);
    for child in ["q+a", "q+b"] {
        let (parent, child) = ("q".into(), child.into());
        w.ask(1, Command::Join { parent, child });
    }
    w.put_as(by_token("1"));
    assert_eq!(kept(&w).len(), 3);
    assert_eq!(w.ask(1, Command::Put(by_token("2"))), FULL);
    assert_eq!(w.ask(1, Command::PutMany(vec![by_token("2")])), FULL);
    assert_eq!(kept(&w).len(), 3);
    for queue in ["q", "q+a", "q+b"] {
        assert_eq!((w.pop(queue), w.pop(queue)), ("".into(), "empty".into()));
    }
}

#[test]
fn a_copy_that_replaces_the_first_adds_no_record_past_the_bound() {
    let mut w = bounded(6);
    let (parent, child) = ("q".into(), "q+a".into());
    w.ask(1, Command::Join { parent, child });
    w.put_as(replacing("q", "1"));
    w.put_as(replacing("q", "2"));
    assert_eq!(kept(&w).len(), 6);
    assert_eq!(w.ask(1, Command::Put(replacing("q", "3"))), FULL);
    assert_eq!(kept(&w).len(), 6);
}
