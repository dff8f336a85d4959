//! Dead letters over the API and on the console: why, from where, and back.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use crate::api::{get, post};
use crate::common::{Server, Start, await_that, http, page};

const FRAGILE: &str = "[[queue]]\nname = 'fragile'\nattempts_max = 1\ndead_letter = 'dead'\n";

/// Puts a message and fails it.
fn fail(server: &Server, queue: &str, error: &str) {
    let put = json!({ "messages": [{ "body": error }] });
    assert_eq!(
        post(server, &format!("/queues/{queue}/messages"), &put).status,
        201
    );
    let held = post(server, &format!("/queues/{queue}/reserve"), &json!({})).json;
    let lease = held["messages"][0]["lease"]
        .as_str()
        .expect("a lease")
        .to_owned();
    let failed = post(
        server,
        &format!("/leases/{lease}/fail"),
        &json!({ "error": error }),
    );
    assert!(failed.status < 300, "{}", failed.json);
}

fn ids(server: &Server, queue: &str) -> Vec<u64> {
    let list = get(server, &format!("/queues/{queue}/messages")).json;
    let all = list["messages"].as_array().expect("a list").iter();
    all.map(|message| message["id"].as_u64().expect("an id"))
        .collect()
}

fn served() -> Server {
    let server = Start::of(FRAGILE).listen(&["http=0"]).serve();
    for error in [
        "HTTP 503 after 12 s",
        "HTTP 500 after 7 s",
        "no such <b>user</b> 7\nat line 1",
        "HTTP 502 after 1 s",
    ] {
        fail(&server, "fragile", error);
    }
    server
}

#[test]
fn dead_letters_are_counted_by_error_and_go_back_one_by_one_or_by_error() {
    let server = served();
    let errors = get(&server, "/queues/dead/errors?state=ready").json;
    let kinds: Vec<(&Value, &Value, &Value)> = errors["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|kind| (&kind["error"], &kind["messages"], &kind["from"]))
        .collect();
    let from = json!("fragile");
    assert_eq!(
        kinds,
        [
            (&json!("HTTP # after # s"), &json!(3), &from),
            (&json!("no such <b>user</b> #"), &json!(1), &from),
        ]
    );
    assert_eq!(
        (&errors["messages"], &errors["cursor"]),
        (&json!(4), &Value::Null)
    );
    let of = get(&server, "/queues/dead/messages?error=HTTP+%23+after+%23+s").json;
    assert_eq!(of["messages"].as_array().unwrap().len(), 3);
    let dead = ids(&server, "dead");
    let redrive = |id: u64| post(&server, &format!("/messages/{id}/redrive"), &json!({})).status;
    assert_eq!(redrive(dead[0]), 204);
    let back = ids(&server, "fragile");
    assert_eq!(back.len(), 1);
    // It is no dead letter any more.
    assert_eq!(redrive(back[0]), 404);
    let message = get(&server, &format!("/messages/{}", back[0])).json;
    assert!(
        message["headers"]
            .as_object()
            .is_none_or(serde_json::Map::is_empty),
        "{message}"
    );
    let some = json!({ "error": "HTTP # after # s" });
    let acted = post(&server, "/queues/dead/operations/redrive", &some).json;
    assert_eq!(acted["messages"], 2, "{acted}");
    assert_eq!(
        (ids(&server, "dead").len(), ids(&server, "fragile").len()),
        (1, 3)
    );
    // One that somebody works on stays, and that is said.
    let left = ids(&server, "dead");
    let reserved = post(&server, "/queues/dead/reserve", &json!({}));
    assert_eq!(reserved.json["messages"][0]["id"], left[0]);
    assert_eq!(redrive(left[0]), 409);
}

#[test]
fn the_console_shows_reasons_and_redrives_selected_messages() {
    let server = served();
    let (_, list) = page(&server, "/queues/dead");
    for shown in [
        "HTTP 503 after 12 s",
        "from <bdi>fragile</bdi>, ",
        "no such &#60;b&#62;user&#60;/b&#62; 7",
        "/ask/redrive",
    ] {
        assert!(list.contains(shown), "{shown}: {list}");
    }
    // Each was tried once, where it came from.
    assert_eq!(list.matches("data-l=\"attempts\">1<").count(), 4, "{list}");
    let (_, grouped) = page(&server, "/queues/dead?group=1");
    assert!(
        grouped.contains(">HTTP # after # s</a>") && grouped.contains("data-l=\"messages\">3<"),
        "{grouped}"
    );
    let (_, only) = page(
        &server,
        "/queues/dead?state=ready&error=HTTP+%23+after+%23+s",
    );
    assert!(only.contains("3 found") && !only.contains("user"), "{only}");
    let dead = ids(&server, "dead");
    let path = format!(
        "/queues/dead/ask/redrive?pick=1&state=ready&id={}&id={}",
        dead[1], dead[2]
    );
    let (_, question) = page(&server, &path);
    assert!(question.contains("Redrive 2 messages?"), "{question}");
    let hidden = |name: &str| {
        let rest = question
            .split_once(&format!("name=\"{name}\" value=\""))
            .expect("a field")
            .1;
        rest.split('"').next().expect("its end")
    };
    let form = format!("csrf={}&token={}", hidden("csrf"), hidden("token"));
    let reply = server.ask("POST /queues/dead/do/redrive", http::FORM, &form);
    assert_eq!(reply.status, 303);
    assert_eq!(ids(&server, "fragile").len(), 2);
    assert_eq!(ids(&server, "dead"), [dead[0], dead[3]]);
    let (_, message) = page(&server, &format!("/messages/{}", dead[0]));
    assert!(
        message.contains(&format!("/messages/{}/do/redrive", dead[0])),
        "{message}"
    );
}

/// The ids that the three tabs tell page by page, two to a page.
fn of_group(server: &Server, group: &str) -> Vec<u64> {
    let (mut ids, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = get(server, &format!("/messages?group={group}&max=2{cursor}")).json;
        let messages = page["messages"].as_array().expect("a list");
        assert!(messages.len() <= 2, "{page}");
        ids.extend(messages.iter().filter_map(|one| one["id"].as_u64()));
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return ids,
        }
    }
}

#[test]
fn delayed_messages_are_listed_by_due_time_over_all_queues_and_shards() {
    for shards in [1, 4] {
        let config =
            format!("shards = {shards}\n{FRAGILE}[[queue]]\nname = 'slow'\nretry_delay = '1h'\n");
        let server = Start::of(&config).listen(&["http=0"]).serve();
        let mut due = Vec::new();
        for at in 0..20u64 {
            // Due times that go up and down, some twice, over five queues.
            let minutes = 10 + (at * 7) % 20 / 2;
            let put = json!({ "messages": [{ "body": "x", "delay_ms": minutes * 60_000 }] });
            let put = post(&server, &format!("/queues/q-{}/messages", at % 5), &put).json;
            due.push((minutes, put["ids"][0].as_u64().expect("an id")));
        }
        let minutes: HashMap<u64, u64> = due.iter().map(|(minutes, id)| (*id, *minutes)).collect();
        let by_due = of_group(&server, "scheduled");
        let all: HashSet<u64> = by_due.iter().copied().collect();
        assert!(all.len() == 20 && by_due.len() == 20, "{by_due:?}");
        assert!(
            by_due.is_sorted_by_key(|id| minutes[id]),
            "{shards} shards: {by_due:?}"
        );
        // Those of one minute stand in the same order on a page of all.
        let whole = get(&server, "/messages?group=scheduled").json;
        let whole = whole["messages"].as_array().expect("a list").iter();
        let whole: Vec<u64> = whole.filter_map(|one| one["id"].as_u64()).collect();
        assert_eq!(whole, by_due, "{shards} shards");
        fail(&server, "slow", "again");
        fail(&server, "fragile", "never again");
        let state = |group: &str| {
            let page = get(&server, &format!("/messages?group={group}")).json;
            let all = page["messages"].as_array().expect("a list").clone();
            assert_eq!((all.len(), &page["cursor"]), (1, &Value::Null), "{page}");
            all[0]["queue"].as_str().expect("a queue").to_owned()
        };
        assert_eq!(
            (state("retrying"), state("dead")),
            ("slow".into(), "dead".into())
        );
        assert_eq!(get(&server, "/messages?group=other").status, 400);
        assert_eq!(
            get(&server, "/messages?group=scheduled&cursor=x").status,
            400
        );
        let (_, tab) = page(&server, "/waiting");
        let first = by_due
            .iter()
            .map(|id| tab.find(&format!("/messages/{id}\"")));
        let places: Vec<usize> = first.flatten().collect();
        assert!(places.len() == 20 && places.is_sorted(), "{places:?}");
    }
}

/// Buried messages and dead letters of several queues, while queues and states of the cursor go.
#[test]
fn a_list_of_the_dead_loses_and_repeats_nothing_while_a_queue_goes() {
    for shards in [1, 4] {
        let config = format!("shards = {shards}\n");
        let server = Start::of(&config).listen(&["http=0"]).serve();
        let bury = |queue: &str| {
            let put = json!({ "messages": [{ "body": "x" }] });
            let put = post(&server, &format!("/queues/{queue}/messages"), &put).json;
            let reserved = post(&server, &format!("/queues/{queue}/reserve"), &json!({})).json;
            let lease = reserved["messages"][0]["lease"].as_str().expect("a lease");
            let buried = post(&server, &format!("/leases/{lease}/bury"), &json!({}));
            assert_eq!(buried.status, 204);
            put["ids"][0].as_u64().expect("an id")
        };
        let queues = (0..6).map(|n| format!("q-{n}"));
        let mut dead: HashMap<u64, String> = HashMap::new();
        for queue in queues {
            for _ in 0..3 {
                dead.insert(bury(&queue), queue.clone());
            }
        }
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        let mut gone = Vec::new();
        loop {
            let page = get(&server, &format!("/messages?group=dead&max=2{cursor}")).json;
            let ids = page["messages"].as_array().expect("a list").iter();
            seen.extend(ids.filter_map(|one| one["id"].as_u64()));
            assert!(seen.len() <= dead.len(), "repeats: {seen:?}");
            let Some(next) = page["cursor"].as_str() else {
                break;
            };
            cursor = format!("&cursor={next}");
            // The list stands in this queue.
            if seen.len() == 10 {
                let queue = &dead[seen.last().expect("one")];
                let left = dead
                    .iter()
                    .filter(|(id, of)| *of == queue && !seen.contains(id));
                gone.extend(left.map(|(id, _)| *id));
                server.printed(&["drop", queue, "--messages"]);
            }
        }
        assert!(!gone.is_empty(), "the list stood inside of a queue");
        let mut wanted: Vec<u64> = dead.into_keys().filter(|id| !gone.contains(id)).collect();
        wanted.sort_unstable();
        seen.sort_unstable();
        assert_eq!(seen, wanted, "{shards} shards");
    }
}

/// Puts one, buries it or makes it a dead letter, and answers its id.
fn dies(server: &Server, queue: &str, at: u64) -> u64 {
    // A later one has another priority: its dead letter queue lists it elsewhere.
    let put = json!({ "messages": [{ "body": "x", "priority": 100 - at * 5 % 7 }] });
    let put = post(server, &format!("/queues/{queue}/messages"), &put).json;
    let reserved = post(server, &format!("/queues/{queue}/reserve"), &json!({})).json;
    let lease = reserved["messages"][0]["lease"].as_str().expect("a lease");
    let end = if queue == "fragile" { "fail" } else { "bury" };
    let ended = post(server, &format!("/leases/{lease}/{end}"), &json!({}));
    assert!(ended.status < 300, "{}", ended.json);
    put["ids"][0].as_u64().expect("an id")
}

/// Ids and cursor of a page of dead messages.
fn dead_page(server: &Server, max: u32, cursor: &str) -> (Vec<u64>, Option<String>) {
    let page = get(server, &format!("/messages?group=dead&max={max}{cursor}")).json;
    let list = page["messages"].as_array().expect("a list").iter();
    let ids = list.filter_map(|one| one["id"].as_u64()).collect();
    let next = page["cursor"].as_str();
    (ids, next.map(|next| format!("&cursor={next}")))
}

/// Messages of one ms have no order that a client could see, but for those of a queue.
#[test]
fn the_dead_of_all_queues_and_shards_come_newest_first_while_others_die_and_go() {
    for shards in [1, 4] {
        let config = format!("shards = {shards}\n{FRAGILE}");
        let server = Start::of(&config).listen(&["http=0"]).serve();
        let mut died: Vec<u64> = Vec::new();
        let queue = |at: u64| match at % 3 {
            0 => "fragile".to_owned(),
            _ => format!("q-{}", at % 5),
        };
        let next_ms = || {
            let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            let ms = || now().expect("a time").as_millis();
            let before = ms();
            while ms() < before + 2 {
                std::thread::yield_now();
            }
        };
        for at in 0..30 {
            let id = dies(&server, &queue(at), at);
            // With more shards a dead letter has another id there.
            died.push(match queue(at).as_str() {
                "fragile" => *ids_all(&server, "dead")
                    .iter()
                    .max()
                    .expect("a dead letter"),
                _ => id,
            });
            next_ms();
        }
        died.reverse();
        let (whole, next) = dead_page(&server, 100, "");
        assert_eq!((whole, next), (died.clone(), None), "{shards} shards");
        let (_, tab) = page(&server, "/waiting?group=dead");
        let places = died.iter().map(|id| tab.find(&format!("/messages/{id}\"")));
        let places: Vec<usize> = places.flatten().collect();
        assert!(places.len() == 30 && places.is_sorted(), "{places:?}");
        assert!(tab.contains("30, newest first"), "{tab}");
        // Between pages one that was listed goes, one that was not, and another dies.
        let (mut seen, mut cursor, mut new) = (Vec::new(), Some(String::new()), 100);
        let mut gone = Vec::new();
        while let Some(from) = cursor.take() {
            let (ids, next) = dead_page(&server, 4, &from);
            assert!(ids.len() <= 4, "{ids:?}");
            seen.extend(ids);
            cursor = next;
            if gone.len() < 3 {
                let left = died.iter().rev().find(|id| !gone.contains(*id));
                let left = *left.expect("one that is not listed");
                gone.push(left);
                let listed = seen[seen.len() - 1].to_string();
                server.printed(&["delete", &listed, &left.to_string()]);
                new += 1;
                dies(&server, "q-1", new);
            }
        }
        died.retain(|id| !gone.contains(id));
        assert_eq!(seen, died, "{shards} shards");
    }
}

fn ids_all(server: &Server, queue: &str) -> Vec<u64> {
    let list = get(server, &format!("/queues/{queue}/messages?max=100")).json;
    let all = list["messages"].as_array().expect("a list").iter();
    all.filter_map(|message| message["id"].as_u64()).collect()
}

/// The state in which a page ended is empty when the next one is asked for.
#[test]
fn a_list_goes_on_behind_a_state_that_has_become_empty() {
    let server = Start::of(FRAGILE).listen(&["http=0"]).serve();
    for _ in 0..3 {
        fail(&server, "fragile", "never again");
    }
    // Ready ones of the same queue come first in the list.
    let mut buried = Vec::new();
    for _ in 0..2 {
        let reserved = post(&server, "/queues/dead/reserve", &json!({})).json;
        let one = &reserved["messages"][0];
        buried.push(one["id"].as_u64().expect("an id"));
        let lease = one["lease"].as_str().expect("a lease");
        let done = post(&server, &format!("/leases/{lease}/bury"), &json!({}));
        assert_eq!(done.status, 204);
    }
    let ready = ids(&server, "dead")[0];
    let first = get(&server, "/messages?group=all&max=1").json;
    assert_eq!(first["messages"][0]["id"], ready, "{first}");
    server.printed(&["delete", &ready.to_string()]);
    let next = first["cursor"].as_str().expect("more");
    let rest = get(&server, &format!("/messages?group=all&cursor={next}")).json;
    assert_eq!(rest["messages"].as_array().map(Vec::len), Some(2), "{rest}");
}

/// Messages as a file of `quintet export` has them.
fn import(server: &Server, lines: impl Iterator<Item = Value>) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("messages.jsonl");
    let lines: Vec<String> = lines.map(|line| line.to_string()).collect();
    std::fs::write(&file, lines.join("\n")).expect("written");
    server.printed(&["import", "--quiet", file.to_str().expect("a path")]);
}

/// Ids of the buried messages of a queue, in the order in which they were buried.
fn buried(server: &Server, queue: &str) -> Vec<u64> {
    let path = format!("/queues/{queue}/messages?state=buried&max=100");
    let list = get(server, &path).json;
    let all = list["messages"].as_array().expect("a list").iter();
    all.filter_map(|message| message["id"].as_u64()).collect()
}

/// Messages of four queues have the same turn, so pages end between such as only ids tell apart.
#[test]
fn the_dead_of_one_ms_are_listed_once_whatever_the_size_of_a_page() {
    for shards in [1, 4] {
        let weak = FRAGILE.replace("fragile", "weak").replace("dead'", "gone'");
        let config = format!("shards = {shards}\n{FRAGILE}{weak}");
        let server = Start::of(&config).listen(&["http=0"]).serve();
        let lines = (0..24).map(|at| {
            json!({ "queue": format!("q-{}", at % 4), "state": "buried", "priority": 1,
                    "body": "x", "changed_ms": 1000 * (1 + at / 8) })
        });
        import(&server, lines);
        for _ in 0..6 {
            fail(&server, "fragile", "never again");
            fail(&server, "weak", "never again");
        }
        await_that("all are dead letters", || {
            ["dead", "gone"].map(|queue| ids_all(&server, queue).len()) == [6, 6]
        });
        // Of each ms a queue has two, with one turn after the other.
        let mut turns: Vec<(usize, u64)> = Vec::new();
        for queue in 0..4 {
            let ids = buried(&server, &format!("q-{queue}"));
            assert_eq!(ids.len(), 6, "q-{queue}");
            turns.extend(ids.into_iter().enumerate());
        }
        turns.sort_unstable();
        let buried: Vec<u64> = turns.into_iter().rev().map(|(_, id)| id).collect();
        let (whole, next) = dead_page(&server, 100, "");
        assert_eq!((whole.len(), next), (36, None), "{shards} shards");
        assert_eq!(whole[12..], buried, "{shards} shards");
        // Those of now come before, each queue's in its order.
        for queue in ["dead", "gone"] {
            let mut letters = ids_all(&server, queue);
            letters.reverse();
            let listed = whole[..12].iter().filter(|id| letters.contains(*id));
            assert_eq!(listed.copied().collect::<Vec<_>>(), letters, "{queue}");
        }
        for max in [1, 2, 3, 5, 12, 13, 35, 36] {
            let (mut seen, mut cursor) = (Vec::new(), Some(String::new()));
            while let Some(from) = cursor.take() {
                let (ids, next) = dead_page(&server, max, &from);
                assert!(ids.len() <= max as usize, "{max} {ids:?}");
                seen.extend(ids);
                assert!(seen.len() <= whole.len(), "{max}: {seen:?}");
                cursor = next;
            }
            assert_eq!(seen, whole, "{shards} shards, {max} a page");
        }
    }
}

/// A list is searched in slices of 64 messages, so many of them that a page has what is behind
/// thousands that do not fit.
#[test]
fn a_page_of_dead_letters_finds_them_behind_thousands_of_others() {
    let server = Start::of(FRAGILE).listen(&["http=0"]).serve();
    fail(&server, "fragile", "needle");
    // They are no dead letters, though their queue has one.
    let plain = json!({ "messages": vec![json!({ "body": "straw" }); 500] });
    for _ in 0..10 {
        assert_eq!(post(&server, "/queues/dead/messages", &plain).status, 201);
    }
    let (ids, next) = dead_page(&server, 5, "");
    assert_eq!((ids.len(), next), (1, None));
    let line = |body: &str, changed_ms: u64| {
        let mut line = json!({ "queue": "q", "state": "buried", "priority": 1, "body": body });
        line["changed_ms"] = changed_ms.into();
        line
    };
    let straw = (0..5000).map(|_| line("straw", 2));
    import(&server, std::iter::once(line("needle", 1)).chain(straw));
    let page = get(&server, "/messages?group=dead&contains=needle&max=5").json;
    let found = page["messages"].as_array().expect("a list").iter();
    let found: Vec<(&Value, &Value)> = found.map(|one| (&one["queue"], &one["body"])).collect();
    let needle = json!("needle");
    assert_eq!(
        found,
        [(&json!("dead"), &needle), (&json!("q"), &needle)],
        "{page}"
    );
    assert_eq!(page["cursor"], Value::Null, "{page}");
}

#[test]
fn lists_over_all_queues_have_only_those_whose_messages_may_be_seen() {
    let config = "[[user]]\nname = 'ann'\n[[grant]]\nuser = 'ann'\nqueues = ['mine']\n\
                  rights = ['put', 'peek']\n[[listen]]\nprotocol = 'http'\n\
                  address = '127.0.0.1:0'\nuser = 'ann'\n";
    let server = Start::of(config).serve_as_configured();
    let due = 4_000_000_000_000_u64;
    let lines = ["mine", "theirs"].into_iter().flat_map(|queue| {
        let line =
            |state: &str| json!({ "queue": queue, "state": state, "priority": 1, "body": queue });
        let (mut later, mut again) = (line("delayed"), line("delayed"));
        later["due_ms"] = due.into();
        (again["due_ms"], again["reserves"]) = (due.into(), 1.into());
        [line("buried"), later, again, line("ready")]
    });
    import(&server, lines);
    for group in ["dead", "scheduled", "retrying", "all"] {
        let list = get(&server, &format!("/messages?group={group}")).json;
        let found = list["messages"].as_array().expect("a list");
        let mine = found.iter().filter(|one| one["queue"] == "mine").count();
        let wanted = if group == "all" { 4 } else { 1 };
        assert_eq!((found.len(), mine), (wanted, wanted), "{group}: {list}");
        let (status, shown) = page(&server, &format!("/waiting?group={group}"));
        assert_eq!(status, 200, "{shown}");
        assert!(
            shown.contains("<bdi>mine</bdi>") && !shown.contains("theirs"),
            "{group}: {shown}"
        );
    }
}
