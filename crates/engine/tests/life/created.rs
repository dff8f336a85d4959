//! Queues that are made, or found, by a command of their own: those that must exist, what they say
//! of puts, and their tags.

use quintet_sim::world::{World, plain, waiting};
use quintet_types::*;

fn create(w: &mut World, queue: &str, overrides: Overrides) -> Option<Outcome> {
    let (queue, overrides) = (queue.into(), Box::new(overrides));
    w.ask(9, Command::Create { queue, overrides })
}

fn tags(values: &[(&str, Option<&str>)]) -> Overrides {
    let mut tags = Tags::default();
    for (name, value) in values {
        tags.set(name.as_bytes(), value.map(str::as_bytes));
    }
    Overrides {
        tags: Some(tags),
        ..Overrides::default()
    }
}

fn shown_tags(w: &mut World, queue: &str) -> Vec<(String, String)> {
    let Some(Outcome::Stats(stats)) = w.ask(9, Command::Stats(StatsOf::Setup(queue.into()))) else {
        panic!("the queue is there");
    };
    let StatsReply::Setup(setup) = *stats else {
        panic!("another reply came");
    };
    let word = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let all = setup.settings.tags.iter();
    all.map(|(name, value)| (word(name), word(value))).collect()
}

const NO_QUEUE: Option<Outcome> = Some(Outcome::Refused(CommandError::QueueNotFound));

#[test]
fn a_queue_is_made_once_and_is_there_after_a_restart() {
    let mut w = World::new();
    assert_eq!(
        create(&mut w, "q", Overrides::default()),
        Some(Outcome::Done)
    );
    let again = Some(Outcome::Refused(CommandError::QueueExists));
    assert_eq!(create(&mut w, "q", tags(&[("a", Some("1"))])), again);
    assert_eq!(shown_tags(&mut w, "q"), []);
    w.restart();
    assert_eq!(create(&mut w, "q", Overrides::default()), again);
}

#[test]
fn a_queue_that_must_exist_is_not_created_by_use() {
    let mut w = World::new();
    let must = |queue: &str| Put {
        must_exist: true,
        ..Put::new(queue.into(), Body::new(b"x"))
    };
    let take = |queue: &str| Take {
        must_exist: true,
        ..waiting(queue)
    };
    assert_eq!(w.ask(1, Command::Put(must("q"))), NO_QUEUE);
    let both = vec![Put::new("r".into(), Body::new(b"x")), must("q")];
    assert_eq!(w.ask(1, Command::PutMany(both)), NO_QUEUE);
    assert_eq!(w.ask(1, Command::Take(take("q"))), NO_QUEUE);
    // One that is only waited on is none.
    assert_eq!(w.take(2, waiting("q")), "waits");
    assert_eq!(w.ask(1, Command::Put(must("q"))), NO_QUEUE);
    assert_eq!(w.ask(1, Command::Take(take("q"))), NO_QUEUE);
    create(&mut w, "q", Overrides::default());
    assert!(matches!(
        w.ask(1, Command::Put(must("q"))),
        Some(Outcome::Put { .. })
    ));
    assert_eq!(w.delivered(), [(2, "x".to_owned())]);
}

/// Others go on waiting for the name.
#[test]
fn a_wait_for_a_queue_that_must_exist_ends_when_it_is_dropped() {
    let mut w = World::new();
    create(&mut w, "q", Overrides::default());
    let must = Take {
        must_exist: true,
        ..waiting("q")
    };
    assert_eq!(w.take(1, waiting("q")), "waits");
    assert_eq!(w.take(2, must), "waits");
    w.ask(9, Command::Drop("q".into()));
    assert_eq!(w.delivered(), [(2, "queue not found".to_owned())]);
    w.put("q", "x");
    assert_eq!(w.delivered(), [(1, "x".to_owned())]);
}

#[test]
fn a_put_without_a_delay_has_that_of_its_queue() {
    let mut w = World::new();
    let delay = Overrides {
        default_delay_ms: Some(1000),
        ..Overrides::default()
    };
    create(&mut w, "q", delay);
    w.put("q", "late");
    let now = Put {
        due: When::Now,
        ..Put::new("q".into(), Body::new(b"now"))
    };
    w.put_as(now);
    assert_eq!(w.pop("q"), "now");
    assert_eq!(w.pop("q"), "empty");
    // What is given back is ready at once.
    w.wait(1000);
    let leased = w.take(1, quintet_sim::world::open("q"));
    assert_eq!(leased, "late");
    w.hang_up(1);
    assert_eq!(w.take(2, plain("q")), "late");
}

#[test]
fn a_change_of_a_queue_that_must_exist_makes_none() {
    let mut w = World::new();
    let change = |must_exist| Command::Configure {
        queue: "q".into(),
        overrides: Some(Box::new(tags(&[("a", Some("1"))]))),
        must_exist,
    };
    let before = w.facts.len();
    let refused = Some(Outcome::Refused(CommandError::QueueNotFound));
    assert_eq!(w.ask(9, change(true)), refused);
    assert_eq!(w.facts.len(), before);
    assert_eq!(w.ask(9, change(false)), Some(Outcome::Done));
    assert_eq!(w.ask(9, change(true)), Some(Outcome::Done));
    w.ask(9, Command::Drop("q".into()));
    assert_eq!(w.ask(9, change(true)), refused);
}

#[test]
fn tags_are_changed_one_by_one_survive_restarts_and_go_with_the_queue() {
    let mut w = World::new();
    create(&mut w, "q", tags(&[("a", Some("1")), ("b", Some(""))]));
    let change = tags(&[("a", None), ("c", Some("3")), ("z", None)]);
    let configure = |overrides| Command::Configure {
        queue: "q".into(),
        overrides: Some(Box::new(overrides)),
        must_exist: false,
    };
    w.ask(9, configure(change));
    // Other settings leave them alone.
    let other = Overrides {
        ttl_ms: Some(5000),
        ..Overrides::default()
    };
    w.ask(9, configure(other));
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let all = vec![pair("b", ""), pair("c", "3")];
    assert_eq!(shown_tags(&mut w, "q"), all);
    w.restart();
    assert_eq!(shown_tags(&mut w, "q"), all);
    let long = "x".repeat(TAGS_BYTES_MAX);
    let refused = w.ask(9, configure(tags(&[("b", Some(&long))])));
    assert_eq!(refused, Some(Outcome::Refused(CommandError::TagsFull)));
    assert_eq!(shown_tags(&mut w, "q"), all);
    let fits = "x".repeat(TAGS_BYTES_MAX - 3);
    let done = w.ask(9, configure(tags(&[("b", Some(&fits))])));
    assert_eq!(done, Some(Outcome::Done));
    w.ask(9, Command::Drop("q".into()));
    create(&mut w, "q", Overrides::default());
    assert_eq!(shown_tags(&mut w, "q"), []);
}

/// Pages of names, by prefix and by where dead letters go; what is only waited on has no name yet.
#[test]
fn names_of_queues_are_listed_in_order_by_pages() {
    let mut w = World::new();
    for queue in ["b", "a2", "a1", "a10"] {
        create(&mut w, queue, Overrides::default());
    }
    let to_b = Overrides {
        dead_letter: Some(DeadLetter::To("b".into())),
        ..Overrides::default()
    };
    create(&mut w, "a3", to_b);
    w.take(1, waiting("a0"));
    let mut page = |prefix: &str, after: Option<&str>, dead_letter: Option<&str>, max| {
        let names = StatsOf::Names {
            shard: 0,
            prefix: prefix.as_bytes().into(),
            after: after.map(Name::from),
            dead_letter: dead_letter.map(Name::from),
            max,
        };
        let Some(Outcome::Stats(stats)) = w.ask(9, Command::Stats(names)) else {
            panic!("another reply came");
        };
        let StatsReply::Names(page) = *stats else {
            panic!("of names");
        };
        let word = |name: &Name| String::from_utf8_lossy(name.as_bytes()).into_owned();
        let names: Vec<String> = page.names.iter().map(word).collect();
        (names.join(" "), page.next.as_ref().map(word))
    };
    let reported = |names: &str, next: Option<&str>| (names.to_owned(), next.map(str::to_owned));
    assert_eq!(page("", None, None, 100), reported("a1 a10 a2 a3 b", None));
    assert_eq!(page("a", None, None, 2), reported("a1 a10", Some("a10")));
    assert_eq!(page("a", Some("a10"), None, 2), reported("a2 a3", None));
    assert_eq!(page("a1", Some("b"), None, 2), reported("", None));
    assert_eq!(page("", None, Some("b"), 100), reported("a3", None));
    w.ask(9, Command::Drop("a2".into()));
    w.restart();
    w.verify();
}
