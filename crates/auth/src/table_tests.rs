use proptest::prelude::*;

use super::*;
use crate::credential::{NewToken, Token};
use crate::permits::ShardPermits;
use crate::rights::Needs;
use quintet_types::Permits as _;

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
fn without_users_every_client_may_do_everything() {
    let table = Register::default().table(&[], &[], false).expect("a table");
    assert!(!table.is_used() && table.lets_anonymous());
    assert!(table.may(Principal::ANONYMOUS, Verb::Drop, b"a"));
}

#[test]
fn a_user_may_only_what_was_granted() {
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
fn all_errors_of_a_table_come_at_once() {
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
    for (row, key, says) in [
        (Row::User(1), "name", "\"ann\" is there twice"),
        (Row::User(1), "tokens", "each token once"),
        (Row::User(1), "groups", "not \"a b\""),
        (Row::User(2), "name", "not \"a:b\""),
        (Row::User(3), "name", "have not logged in"),
        (Row::Grant(0), "user", "not \"bob\""),
        (Row::Grant(1), "group", "not \"none\""),
        (Row::Grant(2), "queues", "at least"),
        (Row::Grant(3), "rights", "at least"),
    ] {
        let is_reported = |one: &&Mistake| (one.row, one.key) == (row, key);
        let is_reported = wrong.iter().find(is_reported).expect(says);
        assert!(is_reported.why.contains(says), "{says}: {is_reported:?}");
    }
    let hooked = [grant(to("bob"), &["*"], &[Right::Put])];
    assert!(register.table(&[], &hooked, true).is_ok());
}

#[test]
fn a_number_is_never_used_for_another_user() {
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
fn the_user_follows_from_the_credentials() {
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
    assert!(matches!(table.claim(b"ann", token, 999), Claim::Is(is, _) if is == number));
    assert!(matches!(
        table.claim(b"ann", token, 1000),
        Claim::If(_, Some(_))
    ));
    assert_eq!(table.bearer(token, 999).map(|(is, _)| is), Some(number));
    assert_eq!(table.bearer(token, 1000), None);
    assert_eq!(table.bearer(NewToken::of([6; 32]).text.as_bytes(), 0), None);
    let Claim::If(password, Some(is)) = table.claim(b"ann", b"hush", 0) else {
        panic!("to be checked");
    };
    assert!(is == number && password.fits(b"hush"));
    assert!(matches!(table.claim(b"bob", b"shared", 0), Claim::Is(..)));
    // Another's token, and one without a password, cost what all cost.
    assert!(matches!(table.claim(b"bob", token, 0), Claim::If(_, None)));
    for name in [&b"cyd"[..], b"", b"\xff", &[b'a'; 70_000]] {
        assert!(matches!(table.claim(name, b"hush", 0), Claim::Unknown(_)));
    }
    assert!(!Password::read(NOBODYS).expect("a hash").fits(b""));
}

/// True if `glob` matches `name`. `leads`: only `*` stood before `glob` in its pattern; such a `*`
/// does not match a `+`, unless the pattern has nothing but `*` (`all`).
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

/// True if the grants allow it, read one by one.
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
    let rights = prop::collection::vec(prop::sample::select(Right::ALL.to_vec()), 1..4);
    let one = (holder, queues, rights).prop_map(|(to, queues, rights)| Grant {
        to,
        queues: queues.iter().map(|queue| Pattern::new(queue)).collect(),
        rights: rights.into_iter().collect(),
    });
    prop::collection::vec(one, 1..8)
}

proptest! {
    #[test]
    fn the_table_has_the_rights_of_the_grants(
        grants in grants(),
        requested in prop::collection::vec(
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
        for (who, verb, queue) in requested.iter().chain(&requested) {
            let principal = table.principal(&format!("u{who}")).expect("a number");
            let expected = naive(&grants, &groups, *who, *verb, queue);
            prop_assert_eq!(table.may(principal, *verb, queue.as_bytes()), expected);
            prop_assert_eq!(shard.may(principal, *verb, &Name::from(queue.as_str())), expected);
        }
    }
}

#[test]
fn a_login_counts_as_long_as_its_credentials() {
    let kept = NewToken::of([1; 32]);
    let ends = NewToken::of([2; 32]);
    let token = |id, until_ms| Token { id, until_ms };
    let hash = |salt: u8| Password::of_cost(b"hush", [salt; 16], 8, 1).expect("a hash");
    let ann = User {
        password: Some(hash(1)),
        secret: Some(crate::Secret::read(b"shared").expect("a secret")),
        tokens: vec![token(kept.id, u64::MAX), token(ends.id, 5000)],
        ..user("ann", &[])
    };
    let hooked = [grant(to("zed"), &["*"], &[Right::Put])];
    let mut register = Register::default();
    let mut table = |ann: Option<&User>| {
        let users: Vec<User> = ann.into_iter().cloned().collect();
        register.table(&users, &hooked, true).expect("a table")
    };
    let first = table(Some(&ann));
    let number = first.principal("ann").expect("a number");
    let zed = first.principal("zed").expect("a number");
    let is = |supplied: &[u8]| match first.claim(b"ann", supplied, 0) {
        Claim::Is(_, proof) => proof,
        claim @ (Claim::If(..) | Claim::Unknown(_)) => panic!("{claim:?}"),
    };
    let (_, borne) = first.bearer(ends.text.as_bytes(), 0).expect("a bearer");
    let [kept, ends, secret] =
        [kept.text, ends.text, "shared".to_owned()].map(|g| is(g.as_bytes()));
    assert_eq!(borne, ends);
    let password = proof_of_password(&hash(1));
    let all = [0, password, secret, kept, ends];
    let counting = |table: &Table, now_ms| all.map(|proof| table.counts(number, proof, now_ms));
    assert_eq!(counting(&first, 4999), [true; 5]);
    assert_eq!(first.live_tokens(4999), 2);
    // The end of one token concerns no other login of its user.
    assert_eq!(counting(&first, 5000), [true, true, true, true, false]);
    assert_eq!(first.live_tokens(5000), 1);
    let changed = User {
        password: Some(hash(2)),
        ..ann.clone()
    };
    assert_eq!(
        counting(&table(Some(&changed)), 0),
        [true, false, true, true, true]
    );
    let revoked = User {
        secret: None,
        tokens: ann.tokens[1..].to_vec(),
        ..ann.clone()
    };
    assert_eq!(
        counting(&table(Some(&revoked)), 0),
        [true, true, false, false, true]
    );
    // By a certificate or a hook one counts as long as the name.
    let gone = table(None);
    assert_eq!(counting(&gone, 0), [false; 5]);
    assert!(gone.counts(zed, 0, 0) && !gone.counts(zed, password, 0));
    for always in [Principal::SERVER, Principal::ANONYMOUS] {
        assert!(gone.counts(always, 0, 0));
    }
}
