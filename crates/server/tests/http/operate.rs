//! The console's pages for those who operate, over the real binary.

use crate::common::{Server, Start, page, text};

const LISTEN: &str = "[[listen]]\nvoice = 'http'\naddress = '127.0.0.1:0'\n";

fn start(dir: &tempfile::TempDir, config: &str) -> Server {
    let config = format!("{config}{LISTEN}");
    let start = Start {
        config: Some(&config),
        ..Start::default()
    };
    Server::start_as_configured(&dir.path().join("data"), start)
}

fn shown(server: &Server, path: &str) -> String {
    let (status, shown) = page(server, path);
    assert_eq!(status, 200, "{path}: {shown}");
    shown
}

/// The row of a setting, from its key on.
fn row<'a>(page: &'a str, key: &str) -> &'a str {
    let rest = page.split_once(&format!("<span class=\"mono\">{key}</span>"));
    let rest = rest.unwrap_or_else(|| panic!("no {key} in {page}")).1;
    rest.split("</tr>").next().expect("a row")
}

#[test]
fn settings_say_what_is_in_force_and_who_said_so() {
    let dir = tempfile::tempdir().unwrap();
    let config = "queues_max = 77\n[[queue]]\nname = 'work*'\nmessages_max = 5\n";
    let server = start(&dir, config);
    let all = shown(&server, "/settings");
    let queues = row(&all, "queues_max");
    assert!(
        queues.contains(">77<") && queues.contains(">file<"),
        "{queues}"
    );
    assert!(row(&all, "data").contains(">command line<"), "{all}");
    assert!(row(&all, "shards").contains(">default<"), "{all}");
    let (_, rule) = all
        .split_once("<h2 class=\"wrap\">[[queue]] work*</h2>")
        .expect("the rule");
    assert!(row(rule, "messages_max").contains(">5<"), "{rule}");
    let said = shown(&server, "/settings?only=said");
    assert!(row(&said, "queues_max").contains(">77<"));
    assert!(
        !said.contains("<span class=\"mono\">shards</span>"),
        "{said}"
    );
}

#[test]
fn a_hook_that_fails_is_shown_with_its_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rules.lua");
    std::fs::write(
        &file,
        "function before_put(msg)\n  error('<no tenant>')\nend\n",
    )
    .unwrap();
    let server = start(&dir, &format!("hooks = {file:?}\n"));
    assert!(shown(&server, "/hooks").contains("No hook was called"));
    for _ in 0..3 {
        server.run(&["put", "work", "x"]);
    }
    let hooks = shown(&server, "/hooks");
    assert!(hooks.contains("<b>Hooks failed 3 times</b>"), "{hooks}");
    let (_, event) = hooks.split_once(">before_put<").expect("the event");
    assert!(
        event.contains("rules.lua:2") && event.contains("&#60;no tenant&#62;"),
        "{event}"
    );
}

#[test]
fn the_log_has_the_newest_acts_first() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir, "");
    server.run(&["put", "first", "x"]);
    server.run(&["put", "second", "x"]);
    for queue in ["first", "second"] {
        let paused = server.run(&["pause", queue]);
        assert!(paused.status.success(), "{}", text(&paused.stderr));
    }
    let log = shown(&server, "/log");
    let (newer, older) = log.split_once(">first<").expect("the first act");
    assert!(
        newer.contains(">second<") && !older.contains(">second<"),
        "{log}"
    );
    let filtered = shown(&server, "/log?has=second");
    assert!(
        filtered.contains(">second<") && !filtered.contains(">first<"),
        "{filtered}"
    );
}

#[test]
fn a_server_that_is_alone_says_so_where_its_cluster_would_be() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir, "");
    assert!(shown(&server, "/cluster").contains("This server is alone"));
}

#[test]
fn who_may_not_operate_sees_none_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let config = "[[user]]\nname = 'ann'\n[[grant]]\nuser = 'ann'\nqueues = ['mine']\n\
                  rights = ['put', 'peek', 'take', 'settle', 'admin']\n";
    let config = format!("{config}{LISTEN}user = 'ann'\n");
    let start = Start {
        config: Some(&config),
        ..Start::default()
    };
    let server = Server::start_as_configured(&dir.path().join("data"), start);
    for path in ["/settings", "/hooks", "/log", "/connections", "/cluster"] {
        let (status, shown) = page(&server, path);
        assert_eq!(status, 403, "{path}: {shown}");
    }
    let all = shown(&server, "/leases");
    for place in ["settings", "hooks", "log", "connections", "cluster"] {
        assert!(
            !all.contains(&format!("href=\"/{place}\"")),
            "{place} is offered: {all}"
        );
    }
}
