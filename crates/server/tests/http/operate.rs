//! The console's pages for those who operate, over the real binary.

use crate::common::{Server, Start, http, page, text};

const LISTEN: &str = "[[listen]]\nvoice = 'http'\naddress = '127.0.0.1:0'\n";

fn start(dir: &tempfile::TempDir, config: &str) -> Server {
    let config = format!("{config}{LISTEN}");
    Server::start_as_configured(&dir.path().join("data"), Start::of(&config))
}

fn shown(server: &Server, path: &str) -> String {
    let (status, shown) = page(server, path);
    assert_eq!(status, 200, "{path}: {shown}");
    shown
}

/// The token of a page's forms.
fn token(page: &str) -> &str {
    let (_, rest) = page.split_once("name=\"csrf\" value=\"").expect("a form");
    rest.split('"').next().expect("its end")
}

/// Sends a form; answers the status and where the reply leads.
fn post(server: &Server, path: &str, form: &str) -> (u16, String) {
    let reply = server.ask(&format!("POST {path}"), http::FORM, form);
    let to = reply.header("location").unwrap_or_default();
    (reply.status, to.to_owned())
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
fn a_queue_says_what_holds_for_it_and_who_said_so() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir, "[[queue]]\nname = 'work*'\nmessages_max = 5\n");
    server.run(&["put", "work1", "x"]);
    server.run(&["put", "other", "x"]);
    let setup = |path: &str| {
        let page = shown(&server, path);
        let (_, rest) = page
            .split_once("<details class=\"box\" id=\"setup\">")
            .expect("it");
        rest.split("</details>").next().expect("a part").to_owned()
    };
    let work = setup("/queues/work1");
    let row = row_of(&work, "messages_max");
    assert!(row.contains(">5<") && row.contains(">file<"), "{row}");
    assert!(
        row_of(&work, "attempts_max").contains(">default<"),
        "{work}"
    );
    assert!(work.contains("1 of "), "{work}");
    assert!(setup("/queues/other").contains("all by default"));
}

/// What a queue's page says of a setting.
fn row_of<'a>(setup: &'a str, key: &str) -> &'a str {
    let rest = setup.split_once(&format!("<span class=\"mono\">{key}</span>"));
    rest.expect("a setting")
        .1
        .split("</div>")
        .next()
        .expect("a part")
}

#[test]
fn a_reload_tells_what_came_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir, "queues_max = 77\n");
    let reload = |fields: &str| {
        let form = format!("csrf={}{fields}", token(&shown(&server, "/settings")));
        post(&server, "/settings/do/reload", &form)
    };
    let (status, _) = post(&server, "/settings/do/reload", "csrf=x");
    assert_eq!(status, 403);
    let config = dir.path().join("data.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(
        &config,
        format!("{text}\n[[queue]]\nname = 'later'\nmessages_max = 3\n"),
    )
    .unwrap();
    let (status, to) = reload("");
    assert_eq!(status, 303);
    let page = shown(&server, &to);
    assert!(
        page.contains("was read again") && page.contains("[[queue]] later"),
        "{page}"
    );
    std::fs::write(&config, format!("{text}\ntoken = 's3cret\n")).unwrap();
    let (_, to) = reload("");
    let page = shown(&server, &to);
    assert!(
        page.contains("Not reloaded") && !page.contains("s3cret"),
        "{page}"
    );
    // All is as it was.
    assert!(page.contains("[[queue]] later"), "{page}");
    assert!(shown(&server, "/log").contains(">reloaded<"));
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
    let config = "[[user]]\nname = 'ann'\n[[grant]]\nuser = 'ann'\nqueues = ['mine']\n\
                  rights = ['put', 'peek', 'take', 'settle', 'admin']\n";
    let config = format!("{config}{LISTEN}user = 'ann'\n");
    let server = Start::of(&config).serve_as_configured();
    for path in [
        "/settings",
        "/hooks",
        "/log",
        "/connections",
        "/cron",
        "/cluster",
    ] {
        let (status, shown) = page(&server, path);
        assert_eq!(status, 403, "{path}: {shown}");
    }
    let all = shown(&server, "/leases");
    for place in ["settings", "hooks", "log", "connections", "cron", "cluster"] {
        assert!(
            !all.contains(&format!("href=\"/{place}\"")),
            "{place} is offered: {all}"
        );
    }
}

/// A name that an address cannot have as it is.
const CRON: &str = "[[cron]]\nname = 'nightly/<b>'\nschedule = '30 2 * * *'\nqueue = 'reports'\n";

#[test]
fn cron_tables_are_shown_paused_and_run() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir, CRON);
    let page = shown(&server, "/cron");
    assert!(page.contains("nightly/&#60;b&#62;"), "{page}");
    assert!(page.contains("30 2 * * *, UTC"), "{page}");
    let act = |page: &str, act: &str| {
        let part = page.split("action=\"/cron/").nth(1).expect("a form");
        let part = part.split('/').next().unwrap();
        let form = format!("csrf={}", token(page));
        let (status, to) = post(&server, &format!("/cron/{part}/do/{act}"), &form);
        assert_eq!(status, 303, "{act}");
        shown(&server, &to)
    };
    let paused = act(&page, "pause");
    assert!(
        paused.contains("is paused until it is resumed."),
        "{paused}"
    );
    assert!(paused.contains(">paused</span>") && paused.contains("/do/resume\""));
    let again = act(&paused, "pause");
    assert!(again.contains("was paused already."), "{again}");
    let run = act(&again, "run");
    assert!(run.contains("was put as message "), "{run}");
    assert_eq!(server.number("ready"), 1);
    let resumed = act(&run, "resume");
    assert!(resumed.contains("nothing is made up for."), "{resumed}");
    assert!(!resumed.contains(">paused</span>"), "{resumed}");
    // A form of nobody's, a table that is not there, an act that is none.
    assert_eq!(post(&server, "/cron/x/do/run", "csrf=x").0, 403);
    let form = format!("csrf={}", token(&resumed));
    assert_eq!(post(&server, "/cron/x/do/run", &form).0, 404);
    assert_eq!(post(&server, "/cron/~ff/do/run", &form).0, 404);
    assert_eq!(post(&server, "/cron/x/do/explode", &form).0, 404);
    assert_eq!(server.number("ready"), 1);
}
