use proptest::prelude::*;

use super::*;
use crate::credential::{NewToken, Token};
use crate::permits::ShardPermits;
use crate::rights::Needs;
use quintet_engine::Permits as _;

fn user(name: &str, groups: &[&str]) -> User {
    User {
        name: name.to_owned(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        ..User::default()
    }
}

fn grant(to: Holder, queues: &[&str], rights: &[Right]) -> Grant {
    Grant {
        to,
        queues: queues.iter().map(|queue| Pattern::new(queue)).collect(),
        rights: rights.iter().copied().collect(),
    }
}

fn to(name: &str) -> Holder {
    Holder::User(name.to_owned())
}

#[test]
fn without_users_everybody_may_do_everything() {
    let table = Register::default().table(&[], &[], false).expect("a table");
    assert!(!table.is_used() && table.lets_anonymous());
    assert!(table.may(Principal::ANONYMOUS, Verb::Drop, b"a"));
}

#[test]
fn a_user_may_what_was_granted_and_no_more() {
    let users = [user("ann", &["staff"]), user("bob", &[])];
    let grants = [
        grant(to("ann"), &["orders"], &[Right::Put]),
        grant(
            Holder::Group("staff".to_owned()),
            &["mail*", "x"],
            &[Right::Peek, Right::Take],
        ),
        grant(to("bob"), &["*"], &[Right::Peek]),
        grant(to("bob"), &[], &[Right::Server]),
    ];
    let mut register = Register::default();
    let table = register.table(&users, &grants, false).expect("a table");
    let [ann, bob] = ["ann", "bob"].map(|name| table.principal(name).expect("a number"));
    assert!(table.is_used() && !table.lets_anonymous());
    for (principal, verb, queue, may) in [
        (ann, Verb::Put, "orders", true),
        (ann, Verb::Take, "orders", false),
        (ann, Verb::Put, "orders2", false),
        // A child of a fan-out has its parent's.
        (ann, Verb::Put, "orders+copy", true),
        (ann, Verb::Put, "orders+copy+more", true),
        (ann, Verb::Take, "mail.out", true),
        (ann, Verb::Settle, "mail.out", false),
        (ann, Verb::Stats, "mail.out", true),
        (ann, Verb::Stats, "other", false),
        (ann, Verb::StopWaiting, "other", true),
        (bob, Verb::Peek, "whatever", true),
        (bob, Verb::Put, "whatever", false),
        (Principal::ANONYMOUS, Verb::Stats, "orders", false),
        (Principal::SERVER, Verb::Drop, "orders", true),
        (Principal(4711), Verb::Stats, "orders", false),
    ] {
        let found = table.may(principal, verb, queue.as_bytes());
        assert_eq!(found, may, "{principal:?} {verb:?} {queue}");
    }
    assert!(table.everywhere(bob).has(Right::Server));
    assert!(!table.everywhere(ann).has(Right::Server));
    let mut shard = ShardPermits::new(Arc::new(table));
    assert!(shard.may_all(bob, Verb::Flush) && !shard.may_all(ann, Verb::Flush));
    assert!(shard.may_all(ann, Verb::StopWaiting));
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let token = Token {
        id: NewToken::of([1; 32]).id,
        until_ms: u64::MAX,
    };
    let mut twice = user("ann", &["a b"]);
    twice.tokens = vec![token, token];
    let users = [
        user("ann", &[]),
        twice,
        user("a:b", &[]),
        user(ANONYMOUS, &[]),
    ];
    let grants = [
        grant(to("bob"), &["*"], &[Right::Put]),
        grant(Holder::Group("none".to_owned()), &["*"], &[Right::Put]),
        grant(to("ann"), &[], &[Right::Put]),
        grant(to("ann"), &["*"], &[]),
    ];
    let mut register = Register::default();
    let TableError(wrong) = register.table(&users, &grants, false).expect_err("wrong");
    assert_eq!(wrong.len(), 9, "{wrong:#?}");
    for says in [
        "ann is there twice",
        "token is there twice",
        "no group's name",
        "a:b",
        "have not logged in",
        "\"bob\" is no user",
        "\"none\" has no member",
        "on no queue",
        "grants no right",
    ] {
        assert!(wrong.iter().any(|line| line.contains(says)), "{says}");
    }
    let hooked = [grant(to("bob"), &["*"], &[Right::Put])];
    assert!(register.table(&[], &hooked, true).is_ok());
}

#[test]
fn a_number_is_never_given_to_another() {
    let mut register = Register::default();
    let mut number = |names: &[&str], name: &str| {
        let users: Vec<User> = names.iter().map(|name| user(name, &[])).collect();
        let table = register.table(&users, &[], false).expect("a table");
        table.principal(name).expect("a number")
    };
    let ann = number(&["ann", "bob"], "ann");
    let bob = number(&["ann", "bob"], "bob");
    assert!(ann >= Principal::FIRST && ann != bob);
    assert_eq!(number(&["ann", "cyd"], "ann"), ann);
    let cyd = number(&["ann", "cyd"], "cyd");
    assert!(cyd > bob);
    // Somebody of the same name may be another person.
    assert!(number(&["bob"], "bob") > cyd);
}

#[test]
fn who_somebody_is_goes_by_what_it_brings() {
    let made = NewToken::of([5; 32]);
    let mut ann = user("ann", &[]);
    ann.password = Some(Password::of_cost(b"hush", [0; 16], 8, 1).expect("a hash"));
    ann.tokens = vec![Token {
        id: made.id,
        until_ms: 1000,
    }];
    let mut bob = user("bob", &[]);
    bob.secret = Some(crate::Secret::read(b"shared").expect("a secret"));
    let mut register = Register::default();
    let table = register.table(&[ann, bob], &[], false).expect("a table");
    let number = table.principal("ann").expect("a number");
    let token = made.text.as_bytes();
    assert!(matches!(table.claim(b"ann", token, 999), Claim::Is(is) if is == number));
    assert!(matches!(
        table.claim(b"ann", token, 1000),
        Claim::If(_, Some(_))
    ));
    assert_eq!(table.bearer(token, 999), Some(number));
    assert_eq!(table.bearer(token, 1000), None);
    assert_eq!(table.bearer(NewToken::of([6; 32]).text.as_bytes(), 0), None);
    let Claim::If(password, Some(is)) = table.claim(b"ann", b"hush", 0) else {
        panic!("to be checked");
    };
    assert!(is == number && password.fits(b"hush"));
    assert!(matches!(table.claim(b"bob", b"shared", 0), Claim::Is(_)));
    // Another's token, and one without a password, cost what all cost.
    assert!(matches!(table.claim(b"bob", token, 0), Claim::If(_, None)));
    for name in [&b"cyd"[..], b"", b"\xff", &[b'a'; 70_000]] {
        assert!(matches!(table.claim(name, b"hush", 0), Claim::Unknown(_)));
    }
    assert!(!Password::read(NOBODYS).expect("a hash").fits(b""));
}

/// What the table says, straight from the grants.
/// `leads`: nothing but `*` has stood before; such a one is about no `+`, unless there is nothing
/// else in the pattern.
fn fits(glob: &[u8], name: &[u8], leads: bool, all: bool) -> bool {
    match (glob, name) {
        ([b'*', rest @ ..], _) => {
            let goes_on = name
                .first()
                .is_some_and(|&byte| byte != b'+' || !leads || all);
            fits(rest, name, leads, all) || goes_on && fits(glob, &name[1..], leads, all)
        }
        ([], name) => name.is_empty(),
        (_, []) => false,
        ([one, rest @ ..], [byte, name @ ..]) => {
            (*one == b'?' || one == byte) && fits(rest, name, false, all)
        }
    }
}

fn naive(grants: &[Grant], groups: &[Vec<String>], who: usize, verb: Verb, queue: &str) -> bool {
    let mut rights = Rights::NONE;
    let parent = queue.split('+').next().unwrap_or(queue);
    for grant in grants {
        let his = match &grant.to {
            Holder::User(name) => *name == format!("u{who}"),
            Holder::Group(group) => groups[who].contains(group),
        };
        let reaches = |q: &Pattern, name: &str| match q {
            Pattern::Exact(exact) => exact.as_bytes() == name.as_bytes(),
            Pattern::Glob(glob) => {
                fits(glob, name.as_bytes(), true, glob.iter().all(|b| *b == b'*'))
            }
        };
        let matches = |name: &str| grant.queues.iter().any(|q| reaches(q, name));
        if his && (matches(queue) || matches(parent)) {
            rights = rights.and(grant.rights);
        }
    }
    match needs(verb) {
        Needs::Nothing => true,
        Needs::Any => !rights.on_queues().is_empty(),
        Needs::On(Right::Server) => grants.iter().any(|grant| {
            let his = match &grant.to {
                Holder::User(name) => *name == format!("u{who}"),
                Holder::Group(group) => groups[who].contains(group),
            };
            his && grant.rights.has(Right::Server)
        }),
        Needs::On(right) => rights.has(right),
    }
}

fn grants() -> impl Strategy<Value = Vec<Grant>> {
    let holder = prop_oneof![
        (0..3usize).prop_map(|n| Holder::User(format!("u{n}"))),
        (0..2usize).prop_map(|n| Holder::Group(format!("g{n}"))),
    ];
    let queues = prop::collection::vec("[ab*?+]{1,4}", 1..4);
    let rights = prop::collection::vec(prop::sample::select(Right::ALL), 1..4);
    let one = (holder, queues, rights).prop_map(|(to, queues, rights)| Grant {
        to,
        queues: queues.iter().map(|queue| Pattern::new(queue)).collect(),
        rights: rights.into_iter().collect(),
    });
    prop::collection::vec(one, 1..8)
}

proptest! {
    #[test]
    fn the_table_says_what_the_grants_say(
        grants in grants(),
        asked in prop::collection::vec(
            (0..3usize, prop::sample::select(Verb::ALL), "[ab+]{1,4}"), 1..60),
    ) {
        let groups = [vec!["g0".to_owned()], vec!["g0".to_owned(), "g1".to_owned()], vec![]];
        let users: Vec<User> = groups
            .iter()
            .enumerate()
            .map(|(n, groups)| User {
                name: format!("u{n}"),
                groups: groups.clone(),
                ..User::default()
            })
            .collect();
        let table = Register::default().table(&users, &grants, false).expect("a table");
        let table = Arc::new(table);
        let mut shard = ShardPermits::new(Arc::clone(&table));
        // Asked twice: what is remembered is what was said.
        for (who, verb, queue) in asked.iter().chain(&asked) {
            let principal = table.principal(&format!("u{who}")).expect("a number");
            let expected = naive(&grants, &groups, *who, *verb, queue);
            prop_assert_eq!(table.may(principal, *verb, queue.as_bytes()), expected);
            prop_assert_eq!(shard.may(principal, *verb, &Name::from(queue.as_str())), expected);
        }
    }
}

#[test]
fn what_one_logs_in_with_changes_when_a_token_s_time_is_over() {
    let token = |byte: u8, until_ms: u64| Token {
        id: NewToken::of([byte; 32]).id,
        until_ms,
    };
    let ann = User {
        tokens: vec![token(1, 5000), token(2, u64::MAX)],
        ..user("ann", &[])
    };
    let mut register = Register::default();
    let table = register
        .table(std::slice::from_ref(&ann), &[], false)
        .expect("a table");
    let number = table.principal("ann").expect("a number");
    let at = |ms: u64| table.credentials(number, ms);
    assert_eq!(at(0), at(4999));
    assert_ne!(at(4999), at(5000));
    assert_eq!(at(5000), at(u64::MAX - 1));
    assert_eq!(table.credentials(Principal(4711), 0), 0);
}
