//! The console: every page, what it shows and what its forms do.

use crate::common;

use common::console::{between, csrf, note, page, put, send};
use common::{World, eventually};
use serde_json::{Value, json};

fn queue(world: &World, name: &str) -> Value {
    world.get(&format!("/api/v1/queues/{name}")).json()
}

#[test]
fn every_page_forbids_scripts_of_others_and_says_that_it_is_operational() {
    let world = World::new();
    let id = put(&world, "work", "hello");
    // Words of RQ stand where there are scripts, and pages in the menu where there is something.
    let pages = [">Scripts<", ">Workers<", ">Hooks<", ">Cluster<"];
    for word in pages.into_iter().chain(["OPERATIONAL", "RQ pages"]) {
        assert!(!page(&world, "/").contains(word), "{word}");
    }
    // A rate that nobody has measured is not 0.
    let shown = page(&world, "/");
    let unknown = "<dt>Out, per second</dt><dd>–</dd>";
    assert!(shown.contains(unknown), "{shown}");
    world.queue("job", "echo done >&3");
    for path in [
        "/".to_owned(),
        "/put?queue=work".to_owned(),
        "/leases".to_owned(),
        "/operations".to_owned(),
        "/queues/work".to_owned(),
        "/queues/work/ask/purge".to_owned(),
        format!("/messages/{id}"),
    ] {
        let reply = world.get(&path);
        assert_eq!(reply.status, 200, "{path}");
        let policy = reply.header("content-security-policy").expect("a policy");
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"));
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "same-origin"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(reply.header(name), Some(value), "{path}");
        }
        let text = reply.text();
        // The first is read by RQ's monitoring, the second by the check of its set-up.
        assert!(text.contains("QUEUE MGR is OPERATIONAL"), "{path}");
        assert!(text.contains("QUEUEMGR: OPERATIONAL"), "{path}");
        assert!(
            !text.contains(" style=") && !text.contains(" onclick="),
            "{path}"
        );
        // A page that is not to weigh more than it has to say.
        assert!(text.len() < 40 << 10, "{path}: {}", text.len());
    }
}

#[test]
fn sheet_and_script_are_kept_for_good_under_their_hash() {
    let world = World::new();
    let shown = page(&world, "/");
    for part in ["<link rel=\"stylesheet\" href=\"", "<script src=\""] {
        let path = between(&shown, part, "\"");
        let reply = world.get(path);
        assert_eq!(reply.status, 200, "{path}");
        let kept = reply.header("cache-control").expect("a header");
        assert!(kept.contains("immutable"), "{kept}");
    }
    assert_eq!(world.get("/assets/console-00.css").status, 404);
}

#[test]
fn the_theme_of_the_cookie_is_in_the_page() {
    let world = World::new();
    let dark = world
        .ask("GET", "/", &[("cookie", "a=b; theme=dark")], b"")
        .text();
    assert!(dark.contains("<html lang=\"en\" data-theme=\"dark\">"));
    let odd = world
        .ask("GET", "/", &[("cookie", "theme=\"><script>")], b"")
        .text();
    assert!(odd.contains("<html lang=\"en\">"));
}

#[test]
fn names_of_any_bytes_are_escaped_and_have_an_address() {
    let world = World::new();
    for (shown, part, html) in [
        ("../../etc", "~2e2e2f2e2e2f657463", "../../etc"),
        (
            "\\xff\\x00",
            "~ff00",
            "<span class=\"esc\">\\xff\\x00</span>",
        ),
        ("<script>x", "~3c7363726970743e78", "&#60;script&#62;x"),
        ("..", "~2e2e", ".."),
    ] {
        let path: String = form_urlencoded::byte_serialize(shown.as_bytes()).collect();
        put(&world, &path, "body");
        let all = page(&world, "/");
        assert!(all.contains(&format!("href=\"/queues/{part}\"")), "{all}");
        assert!(!all.contains("<script>x"), "{all}");
        let own = page(&world, &format!("/queues/{part}"));
        assert!(
            own.contains(&format!("<h1><bdi>{html}</bdi></h1>")),
            "{own}"
        );
    }
    let long = "x".repeat(4096);
    put(&world, &long, "body");
    page(&world, &format!("/queues/{long}"));
    for path in ["/queues/~", "/queues/~2", "/queues/~zz", "/queues/none"] {
        let reply = world.get(path);
        assert_eq!(reply.status, 404, "{path}");
        assert!(reply.text().contains("<h1>"), "{}", reply.text());
    }
}

#[test]
fn a_queue_that_is_not_there_may_have_been_meant_otherwise() {
    let world = World::new();
    for name in ["invoices", "invo%3Cb%3E", "mail"] {
        put(&world, name, "body");
    }
    let shown = world.get("/queues/invocies");
    assert_eq!(shown.status, 404);
    let shown = shown.text();
    assert!(shown.contains("There is no queue invocies."), "{shown}");
    assert!(shown.contains("href=\"/queues/invoices\""), "{shown}");
    assert!(!shown.contains("href=\"/queues/mail\""), "{shown}");
    let shown = world.get("/queues/invo~3cb~3f").text();
    assert!(
        shown.contains("invo&#60;b&#62;") && !shown.contains("invo<b>"),
        "{shown}"
    );
    // To programs it is the problem it was.
    let response = world.get("/api/v1/queues/invocies").json();
    assert_eq!(
        (response["code"].as_str(), response.get("nearest")),
        (Some("queue_not_found"), None)
    );
}

#[test]
fn a_body_with_markup_is_text_wherever_it_is_shown() {
    let world = World::new();
    let markup = "<script>alert(1)</script><img src=x onerror=alert(2)>";
    let id = put(&world, "work", markup);
    for path in ["/queues/work".to_owned(), format!("/messages/{id}")] {
        let shown = page(&world, &path);
        assert!(shown.contains("&#60;script&#62;alert(1)"), "{shown}");
        assert!(
            !shown.contains("<img") && !shown.contains("<script>"),
            "{shown}"
        );
    }
    let body = world.get(&format!("/messages/{id}/body"));
    assert_eq!(body.text(), markup);
    assert_eq!(
        body.header("content-type"),
        Some("application/octet-stream")
    );
    let kept = body.header("content-disposition").expect("a header");
    assert!(kept.starts_with("attachment"), "{kept}");
    let policy = body.header("content-security-policy").expect("a policy");
    assert!(policy.contains("sandbox"), "{policy}");
}

#[test]
fn a_message_is_shown_as_text_json_and_bytes() {
    let world = World::new();
    let id = put(&world, "work", "{\"to\":[1,2]}");
    let shown = page(&world, &format!("/messages/{id}"));
    let quoted = shown.replace("&#34;", "\"");
    for line in [
        "<summary>\"to\": [ <span class=\"soft\">2</span></summary>",
        "<div><span class=\"n\">1</span>,</div>",
    ] {
        assert!(quoted.contains(line), "{quoted}");
    }
    assert!(quoted.contains("{\"to\":[1,2]}</pre>"), "{quoted}");
    assert!(shown.contains("00000000  7b 22 74 6f"), "{shown}");
    let id = put(&world, "work", "");
    assert!(page(&world, &format!("/messages/{id}")).contains("empty body"));
    for path in ["/messages/0", "/messages/x", "/messages/999999999"] {
        assert_eq!(world.get(path).status, 404, "{path}");
    }
}

#[test]
fn a_message_is_copied_and_changed_by_forms_unless_it_changed_before() {
    let world = World::new();
    let put = |message: Value| {
        let body = json!({ "messages": [message] });
        let reply = world.post_json("/api/v1/queues/work/messages", &body);
        reply.json()["ids"][0].as_u64().expect("an id")
    };
    let id = put(json!({"body": "a\"b<\n", "key": "k", "priority": 7, "headers": {"h": "v"}}));
    let copy = page(&world, &format!("/put?copy={id}"));
    for field in [
        "a&#34;b&#60;\n</textarea>",
        "name=\"key\" value=\"k\"",
        "name=\"priority\" inputmode=\"numeric\" value=\"7\"",
        "value=\"h\"",
        "value=\"v\"",
    ] {
        assert!(copy.contains(field), "{field}: {copy}");
    }
    // What is no text is typed as base64, and shown as hex at first.
    let raw = put(json!({"body_base64": "AAH/"}));
    let shown = page(&world, &format!("/messages/{raw}"));
    assert!(shown.contains("id=\"way-hex\" checked"), "{shown}");
    assert!(page(&world, &format!("/messages/{raw}/edit")).contains("AAH/"));
    let form = page(&world, &format!("/messages/{id}/edit"));
    let fields = |body: &str| {
        let csrf = between(&form, "name=\"csrf\" value=\"", "\"");
        let seen = between(&form, "name=\"seen\" value=\"", "\"");
        format!("csrf={csrf}&seen={seen}&body={body}&as=text&priority=7&delay=")
    };
    let edit = format!("/messages/{id}/edit");
    let same = world.post(&edit, &fields("a%22b%3C%0D%0A"));
    assert_eq!(note(&world, &same), "Nothing was changed.");
    let changed = world.post(&edit, &fields("new"));
    let shown = page(&world, changed.leads_to());
    assert!(
        shown.contains("Changed: the message has the id ") && shown.contains("new</pre>"),
        "{shown}"
    );
    // It is gone; and of one that is there the second is told.
    assert_eq!(world.post(&edit, &fields("x")).status, 404);
    let id = put(json!({"body": "one"}));
    let form = page(&world, &format!("/messages/{id}/edit"));
    let csrf = between(&form, "name=\"csrf\" value=\"", "\"");
    let stale = format!("csrf={csrf}&seen=0-1-2-3&body=two&as=text&priority=7&delay=");
    assert_eq!(
        world.post(&format!("/messages/{id}/edit"), &stale).status,
        412
    );
}

#[test]
fn an_unknown_address_is_a_page_for_browsers_and_a_line_for_tools() {
    let world = World::new();
    let line = world.get("/nowhere");
    assert_eq!((line.status, line.text().contains("<html")), (404, false));
    let page = world.ask("GET", "/nowhere", &[("accept", "text/html,*/*")], b"");
    assert_eq!(page.status, 404);
    assert!(
        page.text().contains("<h1>Not found</h1>")
            && page.text().contains("aria-label=\"Console\"")
    );
}

#[test]
fn messages_are_paged_and_filtered() {
    let world = World::new();
    for n in 0..120 {
        put(&world, "work", &format!("body {n}."));
    }
    let mut path = "/queues/work".to_owned();
    let mut seen = Vec::new();
    loop {
        let shown = page(&world, &path);
        let ids = shown.split("name=\"id\" value=\"").skip(1);
        seen.extend(ids.map(|rest| rest.split('"').next().expect("an id").to_owned()));
        assert!(shown.contains("of 120, in the order of delivery"));
        match shown.split_once("#messages\">Next</a>") {
            Some((before, _)) => {
                let link = before.rsplit("href=\"").next().expect("a link");
                path = link.replace("&#38;", "&");
            }
            None => break,
        }
    }
    seen.dedup();
    assert_eq!(seen.len(), 120);
    let found = page(&world, "/queues/work?has=body+17.");
    assert!(found.contains("1 found; searched 120 of 120"), "{found}");
    let none = page(&world, "/queues/work?older=1h");
    assert!(none.contains("None of the 120 searched"), "{none}");
    assert_eq!(world.get("/queues/work?older=soon").status, 400);
    assert_eq!(world.get("/queues/work?state=lost").status, 400);
    assert_eq!(world.get("/queues/work?after=x").status, 400);
}

#[test]
fn a_message_is_put_by_the_form() {
    let world = World::new();
    let form = page(&world, "/put?queue=new.one");
    let fields = "queue=new.one&body=line+1%0D%0Aline+2&as=text&delay=&ttl=1h&priority=7&key=k\
                  &attr_name=origin&attr_value=here&attr_name=&attr_value=";
    let reply = send(&world, &form, "/put", fields);
    assert!(note(&world, &reply).starts_with("Message "));
    let path = reply
        .leads_to()
        .split('?')
        .next()
        .expect("a path")
        .to_owned();
    let message = world.get(&format!("/api/v1{path}")).json();
    assert_eq!(message["body"], "line 1\nline 2");
    assert_eq!(message["priority"], 7);
    assert_eq!(message["key"], "k");
    assert_eq!(message["headers"], json!({ "origin": "here" }));
    let wrong = send(
        &world,
        &form,
        "/put",
        "queue=a&body=%3Cb%3E&ttl=3+weeks&priority=-1&delay=3661d",
    );
    assert_eq!(wrong.status, 400);
    let text = wrong.text();
    assert!(text.contains("id=\"ttl-e\">Not a duration"), "{text}");
    assert!(text.contains("id=\"priority-e\">A number"), "{text}");
    assert!(text.contains("id=\"delay-e\">3660d at most."), "{text}");
    assert!(
        text.contains("value=\"3 weeks\"") && text.contains("&#60;b&#62;"),
        "{text}"
    );
    let wrong = send(&world, &form, "/put", "queue=a&body=%21&as=base64");
    assert!(
        wrong
            .text()
            .contains("id=\"body-e\">takes base64 with padding")
    );
    for (field, name) in [("key", "key"), ("dedupe", "dedupe.id")] {
        let long = format!("queue=a&{field}={}", "k".repeat(65_536));
        let text = send(&world, &form, "/put", &long).text();
        assert!(
            text.contains(&format!("{name}: takes 65535 bytes at most")),
            "{field}"
        );
    }
    assert_eq!(world.get("/api/v1/queues/a").status, 404);
}

#[test]
fn a_form_without_its_token_does_nothing() {
    let world = World::new();
    let id = put(&world, "work", "x");
    for path in [
        "/put".to_owned(),
        "/queues/work/do/pause".to_owned(),
        "/queues/work/do/purge".to_owned(),
        format!("/messages/{id}/do/bury"),
        "/connections/1/do/close".to_owned(),
    ] {
        for form in ["queue=work&body=x", "queue=work&csrf=", "queue=work&csrf=0"] {
            assert_eq!(world.post(&path, form).status, 403, "{path} {form}");
        }
    }
    let form = page(&world, "/queues/work");
    let form = format!("csrf={}", csrf(&form));
    let kind = ("content-type", "application/x-www-form-urlencoded");
    let other = ("origin", "http://evil.example");
    let reply = world.ask(
        "POST",
        "/queues/work/do/pause",
        &[kind, other],
        form.as_bytes(),
    );
    assert_eq!(reply.status, 403);
    let stats = queue(&world, "work");
    assert_eq!(
        (&stats["ready"], &stats["paused"]),
        (&json!(1), &json!(false))
    );
}

#[test]
fn a_queue_is_paused_and_resumed() {
    let world = World::new();
    put(&world, "work", "x");
    let shown = page(&world, "/queues/work");
    let reply = send(&world, &shown, "/queues/work/do/pause", "");
    assert!(note(&world, &reply).starts_with("Paused"));
    assert_eq!(queue(&world, "work")["paused"], true);
    let all = page(&world, "/");
    assert!(
        all.contains("is paused until it is resumed; 1 ready."),
        "{all}"
    );
    let reply = send(&world, &all, "/queues/work/do/resume", "back=/");
    assert!(note(&world, &reply).starts_with("Resumed"));
    assert_eq!(queue(&world, "work")["paused"], false);
    assert!(!page(&world, "/").contains("Needs attention</h2>"));
}

#[test]
fn a_time_that_is_none_is_refused_with_a_way_back() {
    let world = World::with(|settings| settings.relative_root = "/mq/".to_owned());
    let put = json!({ "messages": [{}] });
    world.post_json("/mq/api/v1/queues/work/messages", &put);
    let shown = page(&world, "/mq/queues/work");
    let pause = |time: &str| {
        let fields = format!("for={time}");
        send(&world, &shown, "/mq/queues/work/do/pause", &fields)
    };
    for time in ["soon", "0", "3661d", "1157407407d"] {
        let refused = pause(time);
        assert_eq!(refused.status, 400, "{time}");
        let text = refused.text();
        for part in [
            "Time: Write 10s, 5m or 2h, up to 3660d.",
            "<a class=\"btn\" href=\"/mq/queues/work\">Back</a>",
        ] {
            assert!(text.contains(part), "{time}: {text}");
        }
    }
    let response = note(&world, &pause("3660d"));
    assert!(response.starts_with("Paused for 3,660d:"), "{response}");
    // What is not there has no page to go back to.
    assert!(!world.get("/mq/queues/none").text().contains(">Back</a>"));
}

#[test]
fn a_purge_asks_first_and_spares_later_messages() {
    let world = World::new();
    for n in 0..5 {
        put(&world, "work", &n.to_string());
    }
    let question = page(&world, "/queues/work/ask/purge");
    assert!(question.contains("5 are deleted"), "{question}");
    assert!(
        question.contains("Delete 5 messages</button>"),
        "{question}"
    );
    let oldest = || world.get("/api/v1/queues/work").json()["oldest_ms"].as_u64();
    // What is put in the same millisecond counts as asked about.
    let requested = oldest();
    assert!(requested.is_some());
    eventually("time has gone on", || (oldest() > requested).then_some(()));
    let kept = put(&world, "work", "kept");
    let reply = send(&world, &question, "/queues/work/do/purge", "");
    assert_eq!(note(&world, &reply), "5 messages deleted.");
    assert_eq!(queue(&world, "work")["ready"], 1);
    assert_eq!(world.get(&format!("/messages/{kept}")).status, 200);
    // An answer counts once.
    let again = send(&world, &question, "/queues/work/do/purge", "");
    assert!(
        again
            .leads_to()
            .starts_with("/queues/work/ask/purge?notice=")
    );
    assert_eq!(queue(&world, "work")["ready"], 1);
}

#[test]
fn much_is_purged_only_with_the_name_typed() {
    let world = World::new();
    let messages: Vec<Value> = (0..1000)
        .map(|n| json!({ "body": n.to_string() }))
        .collect();
    for _ in 0..2 {
        let reply = world.post_json(
            "/api/v1/queues/a%20b/messages",
            &json!({ "messages": messages }),
        );
        assert_eq!(reply.status, 201);
    }
    let action = "/queues/~612062/do/purge";
    let question = page(&world, "/queues/~612062/ask/purge");
    let reply = send(&world, &question, action, "name=ab");
    assert!(note(&world, &reply).starts_with("Nothing was done"));
    assert_eq!(queue(&world, "a%20b")["ready"], 2000);
    let question = page(&world, "/queues/~612062/ask/purge");
    let reply = send(&world, &question, action, "name=a+b");
    let gone = || (queue(&world, "a%20b")["ready"] == 0).then_some(());
    assert_eq!(reply.status, 303);
    eventually("it is empty", gone);
}

#[test]
fn messages_are_buried_retried_moved_and_deleted() {
    let world = World::new();
    let ids: Vec<u64> = (0..4)
        .map(|n| put(&world, "work", &n.to_string()))
        .collect();
    for id in &ids[..3] {
        let shown = page(&world, &format!("/messages/{id}"));
        let reply = send(
            &world,
            &shown,
            &format!("/messages/{id}/do/bury"),
            "reason=bad",
        );
        assert!(note(&world, &reply).starts_with("Buried"));
    }
    assert_eq!(queue(&world, "work")["buried"], 3);
    assert!(page(&world, "/").contains("set aside 3 failed messages within the last hour."));
    // One.
    let shown = page(&world, &format!("/messages/{}", ids[0]));
    send(
        &world,
        &shown,
        &format!("/messages/{}/do/retry", ids[0]),
        "",
    );
    assert_eq!(queue(&world, "work")["buried"], 2);
    // A selection.
    let path = format!("/queues/work/ask/retry?pick=1&state=buried&id={}", ids[1]);
    let question = page(&world, &path);
    assert!(question.contains("Retry 1 message</button>"), "{question}");
    let reply = send(&world, &question, "/queues/work/do/retry", "");
    assert_eq!(note(&world, &reply), "1 message ready again.");
    // All of a state.
    let question = page(
        &world,
        "/queues/work/ask/move?pick=1&state=buried&scope=all",
    );
    let reply = send(&world, &question, "/queues/work/do/move", "to=other");
    assert_eq!(note(&world, &reply), "1 message moved.");
    assert_eq!(queue(&world, "other")["ready"], 1);
    let question = page(
        &world,
        &format!("/queues/work/ask/delete?id={}&id=999999", ids[3]),
    );
    let reply = send(&world, &question, "/queues/work/do/delete", "");
    let output = note(&world, &reply);
    assert!(
        output.starts_with("1 message deleted. 1 skipped"),
        "{output}"
    );
    assert_eq!(queue(&world, "work")["ready"], 2);
    // Nothing.
    let reply = world.get("/queues/work/ask/delete?pick=1&state=ready");
    assert_eq!(
        note(&world, &reply),
        "Nothing was selected: select rows first."
    );
    assert_eq!(world.get("/queues/work/ask/explode").status, 404);
    assert_eq!(
        world.get("/queues/work/ask/move?state=reserved").status,
        400
    );
}

#[test]
fn messages_that_match_are_cancelled_also_those_that_a_worker_holds() {
    let world = World::new();
    for body in ["keep", "stale 1", "stale 2"] {
        put(&world, "work", body);
    }
    assert!(page(&world, "/queues/work?has=stale").contains("/queues/work/ask/cancel"));
    let path = "/queues/work/ask/cancel?pick=1&state=ready&scope=all&has=stale";
    let question = page(&world, path);
    let button = "Cancel 2 messages</button>";
    assert!(question.contains(button), "{question}");
    let reply = send(&world, &question, "/queues/work/do/cancel", "");
    assert_eq!(note(&world, &reply), "2 messages cancelled.");
    assert_eq!(queue(&world, "work")["ready"], 1);
    let taken = world.post_json("/api/v1/queues/work/reserve", &json!({}));
    assert_eq!(taken.status, 200, "{}", taken.text());
    let shown = page(&world, "/queues/work?state=reserved");
    assert!(shown.contains("Cancel all…</button>"), "{shown}");
    let path = "/queues/work/ask/cancel?pick=1&state=reserved&scope=all";
    let question = page(&world, path);
    let reply = send(&world, &question, "/queues/work/do/cancel", "");
    assert_eq!(note(&world, &reply), "1 message cancelled.");
    // Its worker ends its work; there is nothing more to cancel.
    assert_eq!(queue(&world, "work")["reserved"], 1);
    assert!(page(&world, path).contains("There are no messages to cancel."));
    assert_eq!(world.get("/queues/work/ask/cancel?state=done").status, 400);
}

#[test]
fn a_queue_is_deleted_with_its_name_typed() {
    let world = World::new();
    put(&world, "work", "x");
    let question = page(&world, "/queues/work/ask/drop");
    send(&world, &question, "/queues/work/do/drop", "name=other");
    assert_eq!(world.get("/api/v1/queues/work").status, 200);
    let question = page(&world, "/queues/work/ask/drop");
    let reply = send(&world, &question, "/queues/work/do/drop", "name=work");
    assert_eq!(note(&world, &reply), "The queue work is deleted.");
    assert_eq!(world.get("/api/v1/queues/work").status, 404);
}

#[test]
fn a_lease_is_shown_and_put_back() {
    let world = World::new();
    let id = put(&world, "work", "x");
    let taken = world.post_json(
        "/api/v1/queues/work/reserve",
        // Two hours and a half: the half passes before the figure changes.
        &json!({ "lease_ms": 9_000_000 }),
    );
    assert_eq!(taken.status, 200, "{}", taken.text());
    let shown = page(&world, "/queues/work?state=reserved");
    assert!(shown.contains("data-l=\"ends in\">2h "), "{shown}");
    let shown = page(&world, &format!("/messages/{id}"));
    let reply = send(&world, &shown, &format!("/messages/{id}/do/putback"), "");
    assert!(note(&world, &reply).starts_with("Put back"));
    assert_eq!(queue(&world, "work")["ready"], 1);
}

#[test]
fn a_queue_or_a_message_is_found_by_typed_text() {
    let world = World::new();
    let id = put(&world, "mail.outbound", "x");
    for (typed, leads) in [
        ("mail.outbound", "/queues/mail.outbound".to_owned()),
        (&*id.to_string(), format!("/messages/{id}")),
        ("outb", "/?name=outb".to_owned()),
        ("//evil.example", "/?name=%2F%2Fevil.example".to_owned()),
    ] {
        let typed: String = form_urlencoded::byte_serialize(typed.as_bytes()).collect();
        assert_eq!(world.get(&format!("/find?q={typed}")).leads_to(), leads);
    }
}

#[test]
fn thousands_of_queues_are_a_light_page() {
    let world = World::new();
    for n in 0..3000 {
        put(&world, &format!("queue.{n:05}"), "x");
    }
    for _ in 0..60 {
        put(&world, "zzz", &"x".repeat(300));
    }
    let shown = page(&world, "/queues/zzz");
    assert_eq!(shown.matches("data-row href=\"/messages/").count(), 50);
    assert!(shown.len() < 100 << 10, "{}", shown.len());
    send(&world, &shown, "/queues/zzz/do/pause", "");
    let reply = world.get("/");
    assert!(reply.body.len() < 100 << 10, "{}", reply.body.len());
    let shown = reply.text();
    assert!(shown.contains("50 of 3,001 queues"), "{shown}");
    let first = between(&shown, "data-row href=\"", "\"");
    assert_eq!(first, "/queues/zzz", "the worst is first");
    let filtered = page(&world, "/?name=queue.0004*&sort=name");
    assert!(filtered.contains("10 of 10 queues"), "{filtered}");
}

/// Pages of a list from this address on.
fn pages(world: &World, from: &str) -> Vec<String> {
    let mut all = vec![page(world, from)];
    while let Some((before, _)) = all.last().and_then(|shown| shown.split_once("\">Next</a>")) {
        let link = before.rsplit("href=\"").next().expect("a link");
        let next = page(world, &link.replace("&#38;", "&"));
        all.push(next);
    }
    all
}

#[test]
fn long_names_make_short_pages_that_leave_nothing_out() {
    let world = World::new();
    for n in 100..200 {
        let names = [
            format!("{n}{}", "x".repeat(247)),
            "\\x01".repeat(247) + &n.to_string(),
        ];
        for name in names {
            let name: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
            put(&world, &name, "body");
            if n < 110 && name.starts_with('%') {
                let pause = format!("/api/v1/queues/{name}/pause");
                assert_eq!(world.post_json(&pause, &json!({})).status, 204);
            }
        }
    }
    for (from, row) in [
        ("/?sort=name", "data-row href=\"/queues/"),
        ("/waiting?group=all", "data-row href=\"/messages/"),
    ] {
        let mut seen = Vec::new();
        for shown in pages(&world, from) {
            assert!(shown.len() < 100 << 10, "{from}: {} bytes", shown.len());
            let rows = shown.split(row).skip(1);
            seen.extend(rows.map(|row| between(row, "", "\"").to_owned()));
        }
        assert_eq!(seen.len(), 200, "{from}");
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 200, "{from}");
    }
    // Findings have their part of a page, and are counted.
    let shown = page(&world, "/");
    let response = shown.matches("data-f=\"need/").count();
    let more = between(&shown, "?only=need\">and ", " more</a>");
    assert!(
        response > 1 && more == (10 - response).to_string(),
        "{response} {more}"
    );
}

#[test]
fn leases_of_queues_with_long_names_make_a_short_page() {
    let world = World::new();
    for n in 100..200 {
        let name = "\\x01".repeat(247) + &n.to_string();
        let name: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
        put(&world, &name, "body");
        let reserve = format!("/api/v1/queues/{name}/reserve");
        assert_eq!(world.post_json(&reserve, &json!({})).status, 200);
    }
    let shown = page(&world, "/leases");
    assert!(shown.len() < 100 << 10, "{} bytes", shown.len());
    let rows = shown.matches("data-row href=\"/messages/").count();
    let response = shown.contains(&format!(">{rows} of 100 leases"));
    assert!(rows > 1 && response, "{rows}");
}

#[test]
fn it_lives_below_a_root() {
    let world = World::with(|settings| settings.relative_root = "/mq/".to_owned());
    let reply = world.post_json(
        "/mq/api/v1/queues/work/messages",
        &json!({ "messages": [{}] }),
    );
    assert_eq!(reply.status, 201);
    let shown = page(&world, "/mq/");
    assert!(shown.contains("href=\"/mq/queues/work\""), "{shown}");
    for part in ["href=\"/", "action=\"/", "src=\"/"] {
        for link in shown.split(part).skip(1) {
            assert!(
                link.starts_with("mq/"),
                "{part}{}",
                &link[..link.len().min(40)]
            );
        }
    }
    let queue = page(&world, "/mq/queues/work");
    let reply = send(&world, &queue, "/mq/queues/work/do/pause", "");
    assert!(reply.leads_to().starts_with("/mq/queues/work?notice="));
}

#[test]
fn each_column_of_the_queues_has_its_heading() {
    let world = World::new();
    put(&world, "work", "x");
    let shown = page(&world, "/");
    let row = |with: &str| {
        let mut rows = shown.split("<tr role=\"row\"").skip(1);
        let row = rows.find(|row| row.contains(with)).expect("a row");
        row.split("</tr>").next().unwrap_or_default().to_owned()
    };
    let heads = row(">Out /s</th>");
    let cells = row("data-row");
    let heads = heads.matches("role=\"columnheader\"").count();
    let cells =
        cells.matches("role=\"cell\"").count() + cells.matches("role=\"rowheader\"").count();
    assert_eq!(heads, cells, "{shown}");
}

#[test]
fn the_page_of_a_message_asks_once_for_the_connections() {
    let world = World::new();
    world.client_api.configure(quintet_types::Settings {
        ends_max: 1000,
        ..quintet_types::Settings::default()
    });
    let id = put(&world, "work", "x");
    let reserve = || {
        let path = "/api/v1/queues/work/reserve";
        let reply = world.post_json(path, &json!({ "lease_ms": 60_000 })).json();
        let lease = reply["messages"][0]["lease"].as_str();
        lease.expect("a lease").to_owned()
    };
    let path = format!("/api/v1/leases/{}/release", reserve());
    let released = world.post_json(&path, &json!({}));
    assert!(released.status < 300, "{}", released.text());
    reserve();
    let before = world.client_api.lists();
    let shown = page(&world, &format!("/messages/{id}"));
    assert!(shown.contains("was released"), "{shown}");
    assert_eq!(world.client_api.lists() - before, 1);
}
