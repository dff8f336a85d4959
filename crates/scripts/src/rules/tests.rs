use super::*;

const GOOD: &str = r#"
[[rule]]
desc = "errors twice"
dest = '/barrier_err$'
action = "relay"
route = ["log.example.com", "stats.example.com"]
delay = 10

[[rule]]
desc = "even numbers"
num = 2
src = '^http://barrier\d[02468]\.example\.com:3333/'
action = "done"
route = ["host0.example.com"]
log = true

[[rule]]
desc = "default"
action = "blackhole"

[[rule]]
desc = "odd numbers"
src = '^http://barrier\d[13579]\.example\.com:3333/'
action = "relay"
route = [["a1.example.com", "a2.example.com"], ["b1.example.com", "b2.example.com"]]

[[rule]]
desc = "traffic"
src = '^checkin$'
dest = '^http://old\.example\.com'
action = "balance"
route = ["one:1", "two:2", "three:3"]
"#;

fn rules(text: &str) -> Rules {
    Rules::parse(text).expect("good rules")
}

fn wrong(text: &str) -> Vec<String> {
    Rules::parse(text).map(drop).expect_err(text)
}

#[test]
fn the_first_rule_that_fits_counts_and_the_default_is_the_last() {
    let rules = rules(GOOD);
    for (src, dest, desc) in [
        (None, Some("http://h/q/barrier_err"), "errors twice"),
        (None, Some("http://h/q/barrier_err2"), "default"),
        (None, Some("barrier_err"), "default"),
        (
            Some("http://barrier02.example.com:3333/x"),
            Some("http://h/q/barrier_err"),
            "errors twice",
        ),
        (
            Some("http://barrier02.example.com:3333/x"),
            None,
            "even numbers",
        ),
        (
            Some("http://barrier03.example.com:3333/x"),
            None,
            "odd numbers",
        ),
        (
            Some("checkin"),
            Some("http://old.example.com/q/a"),
            "traffic",
        ),
        (
            Some("checkin"),
            Some("http://new.example.com/q/a"),
            "default",
        ),
        (Some("checkin"), None, "default"),
        (None, Some("http://old.example.com/q/a"), "default"),
        // Ends of lines, as in Ruby.
        (
            Some("first\ncheckin"),
            Some("http://old.example.com/q/a"),
            "traffic",
        ),
        (None, None, "default"),
    ] {
        let found = rules.first_match(src, dest).expect("the default at least");
        assert_eq!(found.desc, desc, "{src:?} {dest:?}");
    }
    let all: Vec<(usize, Action, u64, bool)> = rules
        .all()
        .iter()
        .map(|rule| (rule.num, rule.action, rule.delay_s, rule.log))
        .collect();
    assert_eq!(
        all,
        [
            (1, Action::Relay, 10, false),
            (2, Action::Done, 0, true),
            (4, Action::Relay, 0, false),
            (5, Action::Balance, 0, false),
            (3, Action::Blackhole, 0, true),
        ]
    );
    // Without a default of its own: an error, and logged.
    let none = self::rules("[[rule]]\ndesc = \"a\"\nsrc = 'a'\naction = \"done\"\n");
    let found = none.first_match(Some("x"), Some("y")).expect("the default");
    assert_eq!((found.action, found.log, found.num), (Action::Err, true, 0));
}

#[test]
fn hosts_are_chosen() {
    let rules = rules(GOOD);
    let of = |desc: &str, chosen: usize| {
        let mut rules = rules.all().iter();
        let rule = rules.find(|rule| rule.desc == desc).expect("it is there");
        rule.hosts(|of| {
            assert!(of > 0);
            chosen % of
        })
        .join(" ")
    };
    assert_eq!(of("errors twice", 1), "log.example.com stats.example.com");
    assert_eq!(of("odd numbers", 0), "a1.example.com b1.example.com");
    assert_eq!(of("odd numbers", 1), "a2.example.com b2.example.com");
    assert_eq!(of("traffic", 0), "one:1");
    assert_eq!(of("traffic", 2), "three:3");
    assert_eq!(of("even numbers", 0), "", "it goes nowhere");
}

#[test]
fn destinations() {
    for (dest, route, to) in [
        ("http://old/q/box", "new", "http://new:3333/q/box"),
        ("http://old:1/q/box/", "new:2222", "http://new:2222/q/box"),
        ("https://old/base/q/box", "new", "http://new:3333/q/box"),
        ("box", "new", "http://new:3333/q/box"),
        ("box", "[::1]", "http://[::1]:3333/q/box"),
        ("box", "[::1]:5", "http://[::1]:5/q/box"),
        ("box", "me:word@new", "http://me:word@new:3333/q/box"),
        // A host whose name begins so is no address.
        ("box", "httpd1", "http://httpd1:3333/q/box"),
        ("box", "http://h:1/q/other", "http://h:1/q/other"),
        ("http://old", "https://h/x/q/other/", "https://h/x/q/other"),
    ] {
        assert_eq!(on_route(dest, route).as_deref(), Ok(to), "{dest} {route}");
    }
    for dest in ["http://old/", "", "a b", "http://old/q/", "http://o/q/a/b"] {
        assert!(on_route(dest, "new").is_err(), "{dest:?}");
    }
}

#[test]
fn errors_name_their_rule() {
    let bad = r#"
other = 1
[[rule]]
desc = "first"
dest = 7
src = '(unclosed'
action = "send"
delay = -1
log = "yes"
route = ["a b", "host/path"]
color = "red"
num = 2
[[rule]]
src = 'a(?=b)'
[[rule]]
desc = "none"
action = "relay"
[[rule]]
desc = "lists"
src = 'x'
action = "balance"
route = [["a", "b"]]
[[rule]]
desc = "default"
src = 'x'
action = "err"
[[rule]]
desc = "good"
src = 'x'
action = "relay"
route = "host"
"#;
    let problems = wrong(bad);
    let expected = [
        "unknown key other",
        "rule 1 (first): action: \"send\" is not one of",
        "rule 1 (first): color: no such key",
        "rule 1 (first): delay: not a number of seconds",
        "rule 1 (first): dest: not a text",
        "rule 1 (first): log: neither",
        "rule 1 (first): num: 2, but it is rule 1",
        "rule 1 (first): route: \"a b\": not HOST",
        "rule 1 (first): src: unclosed group",
        "rule 2: action: missing",
        "rule 2: desc: ",
        "rule 2: src: look-around",
        "rule 3 (none): route: missing",
        "rule 3 (none): src or dest",
        "rule 4 (lists): route: lists in the list",
        "rule 5 (default): the default takes",
    ];
    for begin in expected {
        let found = problems.iter().any(|problem| problem.starts_with(begin));
        assert!(found, "{begin} is not in {problems:#?}");
    }
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    assert!(problems.iter().all(|problem| !problem.contains('\n')));
}

#[test]
fn invalid_files_of_rules_are_refused() {
    for (text, begin) in [
        (
            "[[rule]]\ndesc = \"a\"\naction = relay\n",
            "line 3, column 10: ",
        ),
        ("", "no rules"),
        ("# none yet\n", "no rules"),
        ("rule = 1", "rules are tables"),
        ("rule = [1]", "rule 1: not a table"),
        (
            "[[rule]]\ndesc = \"default\"\naction = \"err\"\n[[rule]]\ndesc = \"default\"\naction = \"done\"\n",
            "rule 2 (default): rule 1 is the default",
        ),
        (
            "[[rule]]\ndesc = \"a\"\nsrc = 'a'\naction = \"relay\"\nroute = []\n",
            "rule 1 (a): route: an empty list",
        ),
        (
            "[[rule]]\ndesc = \"a\"\nsrc = 'a'\naction = \"relay\"\nroute = [[]]\n",
            "rule 1 (a): route: an empty list",
        ),
        (
            "[[rule]]\ndesc = \"a\"\nsrc = 'a'\naction = \"relay\"\nroute = [\"http://h/\"]\n",
            "rule 1 (a): route: \"http://h/\": an address ends",
        ),
        (
            "[[rule]]\ndesc = \"a\"\nsrc = 'a'\naction = \"relay\"\nroute = [\"http://h/q/a.b\"]\n",
            "rule 1 (a): route: \"http://h/q/a.b\": queue name",
        ),
    ] {
        let problems = wrong(text);
        assert!(problems[0].starts_with(begin), "{problems:?}");
    }
    let many = "[[rule]]\ndesc = \"default\"\n".repeat(RULES_MAX + 1);
    assert!(wrong(&many).contains(&format!("more than {RULES_MAX} rules")));
    let large = "[[rule]]\ndesc = \"a\"\nsrc = '(\\w{1000}){1000}'\naction = \"done\"\n";
    assert!(wrong(large)[0].contains("size limit"), "{:?}", wrong(large));
    let routes = vec!["\"h\""; ROUTES_MAX + 1].join(",");
    let routes =
        format!("[[rule]]\ndesc = \"a\"\nsrc = 'a'\naction = \"relay\"\nroute = [{routes}]\n");
    assert!(wrong(&routes)[0].contains("more than"));
}

#[test]
fn files_are_bounded() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(RULES_FILE);
    assert!(Rules::read(&path).is_err(), "not there");
    std::fs::write(&path, GOOD).expect("written");
    assert_eq!(Rules::read(&path).expect("good").all().len(), 5);
    std::fs::write(&path, b"desc = \"\xff\"").expect("written");
    assert!(Rules::read(&path).is_err());
    std::fs::write(&path, "# long\n".repeat(200_000)).expect("written");
    assert!(Rules::read(&path).expect_err("long")[0].contains("1 MiB"));
}

#[test]
fn the_example_of_the_documentation_is_good() {
    let page = include_str!("../../../../docs/protocols/rq.md");
    let (_, example) = page.split_once("```toml\n").expect("an example");
    let (example, _) = example.split_once("```").expect("its end");
    let rules = rules(example);
    assert_eq!(rules.all().len(), 4);
    let dest = Some("http://h:3333/q/old");
    let found = rules.first_match(None, dest).expect("a rule");
    assert_eq!(found.action, Action::Balance);
}
