//! The console's pages for those who operate, over the real binary.

use quintet_types::Name;

use crate::common::{Server, Start, http, page, text};

const LISTEN: &str = "[[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\n";

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
fn settings_show_values_in_force_and_their_source() {
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
    let output = shown(&server, "/settings?only=said");
    assert!(row(&output, "queues_max").contains(">77<"));
    assert!(
        !output.contains("<span class=\"mono\">shards</span>"),
        "{output}"
    );
}

#[test]
fn a_queue_shows_its_settings_and_their_source() {
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

/// The row of a setting in a queue's page.
fn row_of<'a>(setup: &'a str, key: &str) -> &'a str {
    let rest = setup.split_once(&format!("<span class=\"mono\">{key}</span>"));
    rest.expect("a setting")
        .1
        .split("</div>")
        .next()
        .expect("a part")
}

#[test]
fn a_reload_reports_its_result() {
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
        page.contains("Configuration reloaded") && page.contains("[[queue]] later"),
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
    let (newer, older) = log
        .split_once("/queues/first/pause")
        .expect("the first act");
    assert!(
        newer.contains("/queues/second/pause") && !older.contains("/queues/second/pause"),
        "{log}"
    );
    let filtered = shown(&server, "/log?has=second");
    assert!(
        filtered.contains("/queues/second/pause") && !filtered.contains("/queues/first/pause"),
        "{filtered}"
    );
}

#[test]
fn a_server_that_is_alone_says_so_where_its_cluster_would_be() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir, "");
    assert!(shown(&server, "/cluster").contains("This server is not part of a cluster"));
}

#[test]
fn pages_of_operators_are_hidden_from_others() {
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
        "/schedules",
        "/cluster",
    ] {
        let (status, shown) = page(&server, path);
        assert_eq!(status, 403, "{path}: {shown}");
    }
    let all = shown(&server, "/leases");
    for place in [
        "settings",
        "hooks",
        "log",
        "connections",
        "schedules",
        "cluster",
    ] {
        assert!(
            !all.contains(&format!("href=\"/{place}\"")),
            "{place} is offered: {all}"
        );
    }
}

/// Of the API and the console; the audit has those that change something, and who read the
/// configuration.
#[test]
fn operations_on_the_server_need_the_right_server() {
    let config = "[[user]]\nname = 'ann'\n[[grant]]\nuser = 'ann'\nqueues = ['*']\n\
                  rights = ['put', 'peek', 'take', 'settle', 'admin']\n";
    let config = format!("{config}{LISTEN}user = 'ann'\n");
    let server = Start::of(&config).serve_as_configured();
    let of_api = |operation: &str| operation.replace(' ', " /api/v1");
    let looks = [
        "GET /connections",
        "GET /workers",
        "GET /schedules",
        "GET /schedules/x",
        "GET /cron",
        "GET /server",
        "GET /server/metrics",
    ];
    let operates = [
        "DELETE /connections/999999",
        "POST /connections/999999/release",
        "POST /workers/w1/quiet",
        "PUT /schedules/x",
        "DELETE /schedules/x",
        "POST /schedules/x/pause",
        "POST /schedules/x/resume",
        "POST /schedules/x/run",
        "POST /cron/x/pause",
        "POST /cron/x/resume",
        "POST /cron/x/run",
        "GET /server/config",
        "POST /server/reload",
    ];
    for operation in looks.iter().chain(&operates).copied() {
        let reply = server.ask(&of_api(operation), "", "");
        assert_eq!(reply.status, 403, "{operation}: {}", reply.body);
        assert_eq!(reply.json()["code"], "not_permitted", "{operation}");
    }
    // With the token that forms need.
    let form = format!("csrf={}", token(&shown(&server, "/put")));
    let forms = [
        "/settings/do/reload",
        "/cluster/a/do/drain",
        "/connections/999999/do/close",
        "/workers/w1/do/quiet",
        "/schedules/form",
        "/schedules/x/do/run",
    ];
    for path in forms {
        assert_eq!(post(&server, path, &form).0, 403, "{path}");
    }
    for path in ["/schedules/form", "/workers", "/workers/w1/ask/quiet"] {
        assert_eq!(page(&server, path).0, 403, "{path}");
    }
    let audit = text(&server.run(&["audit"]).stdout);
    let forms = forms.map(|path| format!("POST {path}"));
    for operation in operates.map(of_api).iter().chain(&forms) {
        assert!(
            audit.contains(&format!("{operation} 403")),
            "{operation}: {audit}"
        );
    }
    for operation in looks.map(of_api) {
        assert!(
            !audit.contains(&format!("{operation} ")),
            "{operation}: {audit}"
        );
    }
    let audit = server.printed(&["audit", "--json"]);
    let names = [
        "reload",
        "cluster",
        "close_connection",
        "steer_worker",
        "define_schedule",
        "steer_schedule",
    ];
    for (form, name) in forms.iter().zip(names) {
        let line = format!("\"operation\":\"{name}\",\"what\":\"{form}\"");
        assert!(audit.contains(&line), "{line}: {audit}");
    }
}

/// A name that an address cannot have as it is.
const CRON: &str = "[[cron]]\nname = 'nightly/<b>'\nschedule = '30 2 * * *'\nqueue = 'reports'\n";

#[test]
fn cron_tables_are_shown_paused_and_run() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir, CRON);
    let page = shown(&server, "/schedules");
    // Its address before.
    assert!(shown(&server, "/cron").contains("nightly/&#60;b&#62;"));
    assert!(page.contains("nightly/&#60;b&#62;"), "{page}");
    assert!(
        page.contains("30 2 * * *, UTC, in the configuration"),
        "{page}"
    );
    assert!(
        page.contains("02:30 nightly/&#60;b&#62;"),
        "the calendar: {page}"
    );
    let act = |page: &str, act: &str| {
        let part = page.split("action=\"/schedules/").nth(1).expect("a form");
        let part = part.split('/').next().unwrap();
        let form = format!("csrf={}", token(page));
        let (status, to) = post(&server, &format!("/schedules/{part}/do/{act}"), &form);
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
    assert!(
        resumed.contains("Missed runs are not made up for."),
        "{resumed}"
    );
    assert!(!resumed.contains(">paused</span>"), "{resumed}");
    // A form of nobody's, a table that is not there, an act that is none.
    assert_eq!(post(&server, "/schedules/x/do/run", "csrf=x").0, 403);
    let form = format!("csrf={}", token(&resumed));
    assert_eq!(post(&server, "/schedules/x/do/run", &form).0, 404);
    assert_eq!(post(&server, "/schedules/~ff/do/run", &form).0, 404);
    assert_eq!(post(&server, "/schedules/x/do/explode", &form).0, 404);
    assert_eq!(server.number("ready"), 1);
}

#[test]
fn a_key_is_held_and_let_go_on_the_page_of_its_queue() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir, "[[queue]]\nname = 'calls'\ngroups = 'fair'\n");
    for queue in ["calls", "plain"] {
        server.run(&["put", queue, "x", "--with-key", "a<b"]);
    }
    assert!(!shown(&server, "/queues/plain").contains("id=\"held\""));
    let page = shown(&server, "/queues/calls");
    assert!(page.contains("No message group is held."), "{page}");
    let form = |key: &str| format!("csrf={}&key={key}&for=", token(&page));
    let wrong = post(&server, "/queues/calls/do/hold", &(form("a") + "soon"));
    assert_eq!(wrong.0, 400);
    let held = post(&server, "/queues/calls/do/hold", &(form("a%3Cb") + "1h"));
    assert_eq!(held.0, 303);
    let page = shown(&server, &held.1);
    assert!(
        page.contains("The message group a&#60;b is held for 1h."),
        "{page}"
    );
    assert!(page.contains("name=\"key\" value=\"YTxi\""), "{page}");
    // A shorter hold changes nothing.
    let shorter = post(&server, "/queues/calls/do/hold", &(form("a%3Cb") + "30s"));
    let page = shown(&server, &shorter.1);
    assert!(page.contains("a&#60;b is held for 59m "), "{page}");
    assert_eq!(text(&server.run(&["take", "calls"]).stdout), "");
    let (status, to) = post(&server, "/queues/calls/do/unhold", &form(""));
    assert_eq!(status, 400, "{to}");
    let (status, to) = post(&server, "/queues/calls/do/unhold", &form("YTxi"));
    assert_eq!(status, 303);
    assert!(shown(&server, &to).contains("No message group is held."));
    assert_eq!(text(&server.run(&["take", "calls"]).stdout), "x");
    let audit = server.printed(&["audit", "--json"]);
    for (status, word) in [(400, "hold"), (303, "hold"), (303, "unhold")] {
        let what = format!("\"what\":\"POST /queues/calls/do/{word}\"");
        let result = format!("\"result\":\"{status}\"");
        let mut lines = audit.lines().filter(|line| line.contains(&what));
        let named = "\"operation\":\"hold_key\"";
        let found = lines.any(|line| line.contains(named) && line.contains(&result));
        assert!(found, "{status} {word}: {audit}");
    }
}

#[test]
fn the_audit_has_count_and_queue_of_an_operation() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir, "");
    let put = |queue: &str| text(&server.run(&["put", queue, "x"]).stdout);
    let answer = |question: &str, path: &str, more: &str| {
        let shown = shown(&server, question);
        let mut form = format!("csrf={}{more}", token(&shown));
        let tokens = shown.split("name=\"token\" value=\"").skip(1);
        for token in tokens.filter_map(|rest| rest.split('"').next()) {
            form += &format!("&token={token}");
        }
        assert_eq!(post(&server, path, &form).0, 303, "{path}");
    };
    let kept: Vec<String> = (0..4).map(|_| put("kept").trim().to_owned()).collect();
    for queue in ["one", "one", "two", "three", "last", "last"] {
        put(queue);
    }
    put("odd\u{202e}");
    answer("/queues/one/ask/purge", "/queues/one/do/purge", "");
    put("one");
    answer("/bulk/purge?queue=one&queue=two", "/bulk/purge", "");
    answer(
        "/queues/last/ask/drop",
        "/queues/last/do/drop",
        "&name=last",
    );
    let requested = shown(&server, "/bulk/pause?queue=three&queue=kept");
    let form = format!("csrf={}", token(&requested));
    let queues = format!("{form}&queue=three&queue=kept");
    assert_eq!(post(&server, "/bulk/pause", &queues).0, 303);
    for path in ["/queues/three/do/resume", "/queues/three/do/pause"] {
        assert_eq!(post(&server, path, &form).0, 303, "{path}");
    }
    let delete = |id: &str| server.ask(&format!("DELETE /api/v1/messages/{id}"), "", "");
    assert_eq!(delete(&kept[0]).status, 204);
    assert_eq!(delete(&kept[0]).status, 404);
    let odd = put("odd\u{202e}");
    assert_eq!(delete(odd.trim()).status, 204);
    let edit = format!("/messages/{}/edit", kept[1]);
    let requested = shown(&server, &edit);
    let (_, seen) = requested.split_once("name=\"seen\" value=\"").expect("it");
    let seen = seen.split('"').next().expect("its end");
    let changes = format!("{form}&seen={seen}&body=y&priority=0");
    assert_eq!(post(&server, &edit, &changes).0, 303);
    let late = text(&server.run(&["put", "kept", "x", "--delay", "1h"]).stdout);
    let retry = format!("/messages/{}/do/retry", late.trim());
    assert_eq!(post(&server, &retry, &form).0, 303);
    let audit = server.printed(&["audit"]);
    for line in [
        "POST /queues/one/do/purge 303, 2 messages\n".to_owned(),
        "act 2: purge one 200, 1 message\n".to_owned(),
        "act 3: purge two 200, 1 message\n".to_owned(),
        "POST /bulk/purge 303, 2 messages\n".to_owned(),
        "POST /queues/last/do/drop 303, 2 messages\n".to_owned(),
        "pause three 200\n".to_owned(),
        format!("DELETE /api/v1/messages/{} of kept 204\n", kept[0]),
        format!("DELETE /api/v1/messages/{} 404\n", kept[0]),
        "of odd\\xe2\\x80\\xae 204\n".to_owned(),
        format!("POST {edit} of kept 303, now message "),
        format!("POST {retry} of kept 303\n"),
    ] {
        assert!(audit.contains(&line), "{line}: {audit}");
    }
    let audit = server.printed(&["audit", "--json"]);
    for (name, what) in [
        ("flush", "POST /queues/one/do/purge"),
        ("flush", "act 2: purge one"),
        ("pause", "pause three"),
        ("pause", "POST /bulk/pause"),
        ("pause", "POST /queues/three/do/pause"),
        ("resume", "POST /queues/three/do/resume"),
        ("drop", "POST /queues/last/do/drop"),
        ("edit", &format!("POST {edit} of kept")),
        ("on_message", &format!("POST {retry} of kept")),
    ] {
        let line = format!("\"operation\":\"{name}\",\"what\":\"{what}\"");
        assert!(audit.contains(&line), "{line}: {audit}");
    }
}

#[test]
fn a_message_shows_its_attempts_and_the_link_to_its_trace() {
    let dir = tempfile::tempdir().unwrap();
    let config = "trace_url = 'https://traces.example/{trace_id}?at={span_id}'\n\
                  [[queue]]\nname = 'work'\nretry_delay = '1h'\n";
    let server = start(&dir, config);
    let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let ask = |head: &str, more: &str, body: &str| {
        let reply = server.ask(head, &format!("{}{more}", http::JSON), body);
        assert!(
            (200..300).contains(&reply.status),
            "{head}: {}",
            reply.status
        );
        reply
    };
    let puts = "POST /api/v1/queues/work/messages";
    let parent = format!("traceparent: 00-{trace}-{span}-01\r\n");
    let id = ask(puts, &parent, "{\"messages\": [{\"body\": \"x\"}]}").json()["ids"][0].clone();
    let odd = ask(
        puts,
        "traceparent: 00-0-0-01\r\n",
        "{\"messages\": [{\"body\": \"x\"}]}",
    );
    let odd = shown(&server, &format!("/messages/{}", odd.json()["ids"][0]));
    assert!(!odd.contains("Show its trace"), "{odd}");
    let path = format!("/messages/{id}");
    let first = shown(&server, &path);
    let link = format!("href=\"https://traces.example/{trace}?at={span}\" rel=\"noreferrer\"");
    assert!(first.contains(&link), "{first}");
    assert!(!first.contains("attempt 1 by") && !first.contains("the newest attempts"));
    let reserve = "POST /api/v1/queues/work/reserve";
    let take = "{\"worker\": \"w-7 <b>\", \"lease_ms\": 60000}";
    let take = ask(reserve, "", take).json();
    assert_eq!(take["messages"][0]["id"], id);
    let held = shown(&server, &path);
    let (_, line) = held.split_once("<h2>Timeline</h2>").expect("it");
    let (line, _) = line.split_once("</section>").expect("its end");
    let at = |words: &str| {
        line.find(words)
            .unwrap_or_else(|| panic!("{words}: {line}"))
    };
    assert!(at("put") < at("attempt 1 by") && at("attempt 1 by") < at("its lease ends"));
    assert!(line.contains("w-7 &#60;b&#62;"), "{line}");
    assert!(
        !line.contains("the newest attempts"),
        "nothing is over: {line}"
    );
    let lease = take["messages"][0]["lease"].as_str().expect("a lease");
    let fail = format!("POST /api/v1/leases/{lease}/fail");
    ask(&fail, "", "{\"error\": \"HTTP 503\\nmore\"}");
    let failed = shown(&server, &path);
    assert!(
        failed.contains("last failure, after 1 attempt: HTTP 503</dd>"),
        "{failed}"
    );
    assert!(
        failed.contains("attempt 1 by worker w-7 &#60;b&#62;"),
        "{failed}"
    );
    assert!(failed.contains(" failed: HTTP 503</dd>"), "{failed}");
    assert!(
        !failed.contains("the newest attempts"),
        "all is known: {failed}"
    );
}

#[test]
fn bodies_are_searched_over_all_queues_a_part_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir, "");
    let put = |queue: &str, bodies: &[&str]| {
        let messages = bodies
            .iter()
            .map(|body| serde_json::json!({ "body": body }));
        let path = format!("POST /api/v1/queues/{queue}/messages");
        let body = serde_json::json!({ "messages": messages.collect::<Vec<_>>() }).to_string();
        server.ask(&path, http::JSON, &body).json()["ids"][0].to_string()
    };
    let late = text(
        &server
            .run(&["put", "late", "a needle & <hay>", "--delay", "1h"])
            .stdout,
    );
    for _ in 0..70 {
        put("big", &["straw"; 1000]);
    }
    let last = put("big", &["a needle & <hay>"]);
    put("small", &["straw"]);
    let all = shown(&server, "/?name=needle+%26+%3C");
    let query = "has=needle+%26+%3C";
    assert!(
        all.contains("waiting?group=all&has=needle+%26+%3C\">Search"),
        "{all}"
    );
    let (mut found, mut path, mut pages) =
        (String::new(), format!("/waiting?group=all&{query}"), 0);
    loop {
        let page = shown(&server, &path);
        let rows = page.split_once("<tbody").map_or("", |(_, rows)| rows);
        found += rows.split("</table>").next().expect("a part");
        pages += 1;
        let Some((_, next)) = page.split_once(&format!("{query}&after=")) else {
            break;
        };
        let next = next.split('"').next().expect("its end");
        path = format!("/waiting?group=all&{query}&after={next}");
    }
    let messages = |page: &str| page.matches("data-row").count();
    assert!(pages > 1, "a long search has several parts");
    assert_eq!(messages(&found), 2, "{found}");
    for id in [late.trim(), &last] {
        assert!(found.contains(&format!("messages/{id}\"")), "{id}: {found}");
    }
    assert_eq!(messages(&shown(&server, "/waiting?has=needle")), 1);
    assert_eq!(messages(&shown(&server, "/waiting?has=straw")), 0);
    let small = "GET /api/v1/messages?group=all&contains=needle&max=2";
    let listed = server.ask(small, "", "").json();
    assert_eq!(listed["messages"][0]["queue"], "late", "{listed}");
}

#[test]
fn clients_over_a_limit_are_shown() {
    let limit = "[[limit]]\naddress = '127.0.0.0/8'\nconnections_max = 2\n";
    let server = Start::of(limit).listen(&["memcache=0", "http=0"]).serve();
    let calm = shown(&server, "/connections");
    assert!(!calm.contains("Throttled by"), "{calm}");
    let refused = "SERVER_ERROR too many connections from this address\r\n";
    let (first, second) = crate::common::eventually("room for two", || {
        let mut two = [(); 2].map(|()| server.client_of("memcache"));
        let mut in_ = two.iter_mut().map(|client| {
            client.try_send(b"get q\r\n");
            client.exact(5) == b"END\r\n"
        });
        let both = in_.by_ref().filter(|is| *is).count() == 2;
        let [first, second] = two;
        both.then_some((first, second))
    });
    server.client_of("memcache").expect(refused.as_bytes());
    drop(second);
    let held = crate::common::eventually("room for a page", || {
        let (status, shown) = page(&server, "/connections");
        (status == 200).then_some(shown)
    });
    let (_, table) = held.split_once("id=\"held\"").expect("a table");
    assert!(table.contains("address 127.0.0.1"), "{table}");
    assert!(
        table.contains("<span class=\"bad\">connections</span>"),
        "{table}"
    );
    drop(first);
}

#[test]
fn a_message_that_a_worker_holds_is_cancelled_on_its_page() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir, "");
    let id = text(&server.run(&["put", "work", "x"]).stdout);
    let path = format!("/messages/{}", id.trim());
    let held = server.ask("POST /api/v1/queues/work/reserve", http::JSON, "{}");
    assert_eq!(held.status, 200, "{held:?}");
    let form = format!("csrf={}", token(&shown(&server, &path)));
    let (status, to) = post(&server, &format!("{path}/do/cancel"), &form);
    assert_eq!(status, 303);
    let page = shown(&server, &to);
    assert!(page.contains("has 30 s to end its work"), "{page}");
    let message = server.ask(&format!("GET /api/v1{path}"), "", "").json();
    let reason = &message["cancelled"]["reason"];
    assert_eq!(reason, "cancelled in the console", "{message}");
    let audit = server.printed(&["audit"]);
    let line = format!("POST {path}/do/cancel of work 303");
    assert!(audit.contains(&line), "{audit}");
}

#[test]
fn the_page_of_a_message_that_vanished_shows_that_it_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir, "");
    let id = text(&server.run(&["put", "work", "x"]).stdout);
    let path = format!("/messages/{}", id.trim());
    let open = shown(&server, &path);
    let edit = shown(&server, &format!("{path}/edit"));
    let (_, seen) = edit.split_once("name=\"seen\" value=\"").expect("it");
    let seen = seen.split('"').next().expect("its end");
    let form = format!("csrf={}&seen={seen}&body=y&priority=0", token(&open));
    server.printed(&["delete", id.trim()]);
    let gone = format!("essage {} was deleted", id.trim());
    for end in ["do/retry", "do/bury", "do/redrive", "do/cancel", "edit"] {
        let reply = server.ask(&format!("POST {path}/{end}"), http::FORM, &form);
        assert!(
            reply.status == 404 && reply.body.contains(&gone),
            "{end}: {reply:?}"
        );
    }
    for end in ["", "/edit", "/body"] {
        let (status, response) = page(&server, &format!("{path}{end}"));
        assert!(
            status == 404 && response.contains(&gone),
            "{end}: {response}"
        );
    }
}

/// Quotes and markup, controls, marks of direction, and length: a name, and what a page has for it.
fn odd_names() -> [(String, String); 4] {
    let esc = |text: &str| format!("<span class=\"esc\">{text}</span>");
    [
        ("a\"b'<i>&".into(), "a&#34;b&#39;&#60;i&#62;&#38;".into()),
        (
            "c\u{7}\n\u{1b}[2Jd".into(),
            format!("c{}[2Jd", esc(r"\x07\x0a\x1b")),
        ),
        (
            "e\u{202e}f\u{200f}".into(),
            format!("e{}f{}", esc(r"\xe2\x80\xae"), esc(r"\xe2\x80\x8f")),
        ),
        ("x".repeat(250), "x".repeat(250)),
    ]
}

#[test]
fn odd_names_of_queues_are_escaped_wherever_many_queues_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let tables = odd_names().map(|(name, _)| {
        // Text in JSON is text in TOML.
        let queue = serde_json::Value::from(name);
        format!(
            "[[cron]]\nname = \"n\\\"<i>\u{202e}{}\"\nschedule = '30 2 * * *'\nqueue = {queue}\n",
            queue.to_string().len()
        )
    });
    let server = start(&dir, &tables.concat());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("buried.jsonl");
    let mut lines = String::new();
    for (name, _) in odd_names() {
        server.printed(&["put", &name, "x"]);
        server.printed(&["pause", &name]);
        let queue = Name::from(name.as_str()).to_string();
        let line =
            serde_json::json!({ "queue": queue, "state": "buried", "priority": 1, "body": "x" });
        lines += &format!("{line}\n");
    }
    std::fs::write(&file, lines).unwrap();
    server.printed(&["import", "--quiet", file.to_str().unwrap()]);
    let hidden = ['\u{7}', '\u{1b}', '\u{202e}', '\u{200f}'];
    let pages = [
        ("/", "data-f=\"need/"),
        ("/waiting?group=dead", "messages/"),
        ("/waiting?group=all", "messages/"),
        ("/schedules", "schedules/"),
    ];
    for (path, row) in pages {
        let page = shown(&server, path);
        assert!(!page.contains("<i>") && !page.contains(hidden), "{page}");
        assert!(page.matches(row).count() >= 4, "{path}: {page}");
        for (name, html) in odd_names() {
            assert!(page.contains(&html), "{path}: {name:?} in {page}");
        }
    }
    let schedules = shown(&server, "/schedules");
    let name = r"n&#34;&#60;i&#62;\xe2\x80\xae";
    assert!(schedules.contains(name), "{schedules}");
    for path in ["attention", "messages?group=dead", "schedules"] {
        let reply = server.ask(&format!("GET /api/v1/{path}"), "", "");
        let json = reply.json();
        let list = json.as_array().or_else(|| {
            let lists = ["findings", "messages", "schedules"];
            lists.iter().find_map(|list| json[list].as_array())
        });
        let queues = list.expect("a list").iter().map(|one| &one["queue"]);
        let mut queues: Vec<&str> = queues.filter_map(|queue| queue.as_str()).collect();
        let mut wanted = odd_names().map(|(name, _)| Name::from(name.as_str()).to_string());
        queues.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(queues, wanted, "{path}");
    }
    for words in [&["attention"][..], &["cron"], &["queues"]] {
        let (printed, why, _) = server.outputs(words);
        assert!(printed.lines().count() >= 4, "{words:?}: {printed}{why}");
        assert!(!printed.contains(hidden), "{words:?}: {printed:?}");
    }
}
