//! Relay and webhook: messages between two services, over links that break.

use crate::common;
use crate::proxy;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use common::{World, eventually};
use proxy::{Cut, Proxy};
use serde_json::json;

/// A service whose relay tries again after so many seconds (times the square of
/// the count); `0`: at once.
fn sender(retry_s: &str) -> World {
    sender_to("*", retry_s)
}

/// The same, that may ask these hosts.
fn sender_to(hosts: &'static str, retry_s: &str) -> World {
    let world = World::asking(hosts, |_| {});
    for name in ["relay", "webhook"] {
        let config = json!({
            "name": name, "script": format!("builtin:{name}"), "num_workers": 4,
            "env_vars": {"RETRY_UNIT_S": retry_s},
        });
        let config = quintet_scripts::QueueConfig::from_json(&config, None).expect("a config");
        world.rq.create_queue(config).expect("a queue");
    }
    world
}

fn waiting(world: &World, queue: &str) -> Vec<String> {
    let ids = &world.get(&format!("/q/{queue}.json")).json()["messages"];
    let ids = ids["que"].as_array().expect("a list");
    ids.iter()
        .map(|id| id.as_str().expect("an id").to_owned())
        .collect()
}

/// Makes a relay message with an attachment, and commits it.
fn with_file(from: &World, dest: &str) -> String {
    let fields =
        json!({"_method": "prep", "dest": dest, "src": "me", "param1": "p", "param3": "c"});
    let id = from.message("relay", fields);
    let path = format!("/q/relay/{id}");
    let data = vec![9u8; 100_000];
    from.post_parts(
        &format!("{path}/attach/new"),
        &[("@filedata=data.bin", &data)],
    );
    from.post(&path, "_method=commit");
    id
}

#[test]
fn case_13_dup_to_another_server() {
    let to = World::new();
    to.paused_queue("in");
    let from = sender("0");
    let script = format!(
        "echo dup 0-X-http://{}/q/in >&3; read answer <&4; echo done $answer >&3",
        to.address
    );
    from.queue("test", &script);
    let id = from.message(
        "test",
        json!({"_method": "prep", "param1": "one", "param2": "two"}),
    );
    let path = format!("/q/test/{id}");
    from.post_parts(
        &format!("{path}/attach/new"),
        &[("@filedata=a.txt", b"text")],
    );
    from.post(&path, "_method=commit");
    let status = from.end("test", &id);
    let relay = status.strip_prefix("done - ok ").expect("dup was answered");
    let relay = relay.rsplit('/').next().expect("a short id");
    let status = from.end("relay", relay);
    let there = status
        .strip_prefix("relayed - ")
        .unwrap_or_else(|| panic!("{status}"));
    assert!(
        there.starts_with(&format!("http://{}/q/in/", to.address)),
        "{there}"
    );
    let ids = waiting(&to, "in");
    assert_eq!(ids.len(), 1);
    assert!(there.ends_with(&ids[0]));
    let message = to.json("in", &ids[0]);
    assert_eq!(
        (&message["param1"], &message["param2"]),
        (&json!("one"), &json!("two"))
    );
    assert_eq!(
        message["orig_msg_id"],
        from.json("test", &id)["orig_msg_id"]
    );
    assert_eq!(
        to.get(&format!("/q/in/{}/attach/a.txt", ids[0])).text(),
        "text"
    );
}

#[test]
fn its_log_has_the_lines_of_rq() {
    let to = World::new();
    to.paused_queue("in");
    let from = sender("0");
    let dest = format!("http://{}/q/in", to.address);
    for (forced, lines) in [(false, 0), (true, 1)] {
        let id = from.message("relay", json!({"dest": dest, "force_remote": forced}));
        let status = from.end("relay", &id);
        assert!(status.starts_with("relayed - "), "{status}");
        let log = from.get(&format!("/q/relay/{id}/log/stdio.log")).text();
        assert!(
            log.contains(&format!(" - attempting remote {dest}\n")),
            "{log}"
        );
        assert_eq!(log.matches(" - FORCE REMOTE\n").count(), lines, "{log}");
        let there = status.rsplit('/').next().expect("an id");
        let relayed = to.json("in", there);
        assert!(relayed["force_remote"].is_null(), "{relayed}");
    }
}

#[test]
fn a_message_that_comes_back_is_not_sent_round() {
    let from = sender("0");
    let dest = format!("http://{}/q/in", from.address);
    let fields = json!({"dest": dest, "orig_msg_id": format!("{dest}/20091109.0558.57.780.7")});
    let id = from.message("relay", fields);
    assert!(
        from.end("relay", &id)
            .starts_with("err - Relay loop detected")
    );
}

#[test]
fn every_step_may_break_off() {
    let to = World::new();
    to.paused_queue("in");
    let from = sender("0");
    // Each kind of request is cut once on its way and once on the way back.
    let mut cuts = Vec::new();
    for what in ["new_message", "attach/new", ".json", "POST /q/in/2"] {
        cuts.push((what, Cut::Request(60)));
        cuts.push((what, Cut::Reply));
    }
    let (seen_sender, seen) = std::sync::mpsc::channel();
    let link = Proxy::start(to.address, move |line| {
        let at = cuts.iter().position(|(what, _)| line.contains(what));
        let cut = at.map_or(Cut::Pass, |at| cuts.remove(at).1);
        seen_sender.send((line.to_owned(), cut)).ok();
        cut
    });
    let id = with_file(&from, &format!("http://{}/q/in", link.address));
    let status = from.end("relay", &id);
    assert!(status.starts_with("relayed - "), "{status}");
    let cut = seen.try_iter().filter(|(_, cut)| *cut != Cut::Pass).count();
    assert!(cut >= 7, "only {cut} connections were cut");
    let ids = waiting(&to, "in");
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert_eq!(to.get("/q/in.json").json()["prep_size"], 0);
    let message = to.json("in", &ids[0]);
    assert_eq!(
        (&message["param1"], &message["param3"]),
        (&json!("p"), &json!("c"))
    );
    assert_eq!(message["_attachments"]["data.bin"]["size"], 100_000);
}

#[test]
fn committed_and_gone_is_relayed() {
    let to = World::new();
    to.paused_queue("in");
    let from = sender("1000");
    let link = Proxy::start(to.address, |line| match line.starts_with("POST /q/in/2") {
        true if !line.contains("attach") => Cut::Reply,
        _ => Cut::Pass,
    });
    let id = with_file(&from, &format!("http://{}/q/in", link.address));
    // The first failure is tried again at once; the second waits.
    let arrived = eventually("it is there", || waiting(&to, "in").pop());
    to.post(&format!("/q/in/{arrived}"), "_method=delete");
    link.set(|_| Cut::Pass);
    eventually("its end, or a wait", || {
        match from.state("relay", &id).as_str() {
            "relayed" => Some(()),
            "que" => {
                from.post(&format!("/q/relay/{id}"), "_method=run_now");
                None
            }
            _ => None,
        }
    });
    assert_eq!(
        from.json("relay", &id)["status"]
            .as_str()
            .map(|s| s.ends_with(&arrived)),
        Some(true)
    );
    let sizes = to.get("/q/in.json").json();
    assert_eq!(
        (&sizes["que_size"], &sizes["prep_size"]),
        (&json!(0), &json!(0))
    );
}

#[test]
fn prepared_and_gone_is_prepared_again() {
    let to = World::new();
    to.paused_queue("in");
    let from = sender("1000");
    let link = Proxy::start(to.address, |line| match line.contains("attach") {
        true => Cut::Request(10),
        false => Cut::Pass,
    });
    let id = with_file(&from, &format!("http://{}/q/in", link.address));
    eventually("it waits", || {
        (from.json("relay", &id)["count"] == 2).then_some(())
    });
    let prepared = to.get("/q/in.json").json()["messages"]["prep"].clone();
    assert_eq!(prepared.as_array().map(Vec::len), Some(1));
    let first = prepared[0].as_str().expect("an id").to_owned();
    to.post(&format!("/q/in/{first}"), "_method=delete");
    link.set(|_| Cut::Pass);
    eventually("its end", || match from.state("relay", &id).as_str() {
        "relayed" => Some(()),
        "que" => {
            from.post(&format!("/q/relay/{id}"), "_method=run_now");
            None
        }
        _ => None,
    });
    let ids = waiting(&to, "in");
    assert_eq!(ids.len(), 1);
    assert_ne!(ids[0], first);
}

#[test]
fn bodies_no_variable_holds_travel_as_a_file() {
    let to = World::new();
    to.paused_queue("in");
    let from = sender("0");
    let long = "x".repeat(200_000);
    let dest = format!("http://{}/q/in", to.address);
    let id = from.message("relay", json!({"dest": dest, "param1": long}));
    let status = from.end("relay", &id);
    assert!(status.starts_with("relayed"), "{status}");
    let there = waiting(&to, "in").pop().expect("one");
    assert_eq!(to.get(&format!("/q/in/{there}/attach/body")).text(), long);
}

#[test]
fn a_server_that_is_not_there_is_tried_later() {
    let from = sender("1000");
    // A port nobody listens on any more.
    let gone = TcpListener::bind("127.0.0.1:0").expect("a port");
    let dest = format!("http://{}/q/in", gone.local_addr().expect("an address"));
    drop(gone);
    let id = from.message("relay", json!({"dest": dest}));
    eventually("it waits", || {
        (from.json("relay", &id)["count"] == 2).then_some(())
    });
    let message = from.json("relay", &id);
    let status = message["status"].as_str().expect("text");
    assert!(
        status.contains("1000-Could not connect to http://"),
        "{status}"
    );
}

#[test]
fn a_webhook_is_called_until_it_accepts() {
    let hook = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/told?x=1", hook.local_addr().expect("an address"));
    let from = sender("0");
    from.queue("test", "echo done fine >&3");
    let id = from.message("test", json!({"param1": "a b", "post_run_webhook": [url]}));
    for answer in ["500 No", "204 Yes"] {
        let (mut stream, _) = hook.accept().expect("a connection");
        let mut request = Vec::new();
        let mut piece = [0; 4096];
        let text = loop {
            let read = stream.read(&mut piece).expect("read");
            request.extend_from_slice(&piece[..read]);
            let text = String::from_utf8_lossy(&request).into_owned();
            let len = text.lines().find_map(|line| {
                line.to_ascii_lowercase()
                    .strip_prefix("content-length: ")?
                    .parse::<usize>()
                    .ok()
            });
            if let (Some(len), Some((_, body))) = (len, text.split_once("\r\n\r\n"))
                && body.len() >= len
            {
                break text;
            }
        };
        assert!(text.starts_with("POST /told?x=1 HTTP/1.1\r\n"), "{text}");
        let body = text.split_once("\r\n\r\n").expect("a body").1;
        let (format, payload) = body.split_once("&payload=").expect("fields");
        assert_eq!(format, "x_format=json");
        assert!(
            payload.contains(&id) && payload.contains("done+-+fine"),
            "{payload}"
        );
        let reply = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        stream.write_all(reply.as_bytes()).expect("answered");
    }
    let hooks = eventually("it is done", || {
        let ids = from.get("/q/webhook/done.json").json();
        ids[0].as_str().map(str::to_owned)
    });
    assert_eq!(from.json("webhook", &hooks)["status"], "done - 204");
    assert_eq!(from.json("webhook", &hooks)["count"], 1);
}

/// An address comes with a message, so from anybody.
#[test]
fn only_hosts_of_the_settings_are_called() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    for hosts in ["", "localhost 127.0.0.1:1 *.0.0.1"] {
        let world = sender_to(hosts, "0");
        let url = format!("http://{address}/");
        for (queue, setting, message) in [
            (
                "webhook",
                "webhook_hosts",
                json!({"param1": url, "param2": "{}"}),
            ),
            ("relay", "relay_hosts", json!({"dest": format!("{url}q/x")})),
        ] {
            let made = world.post_json(&format!("/q/{queue}/new_message"), &message);
            let id = made.json()[1].as_str().expect("an id").to_owned();
            let id = id.rsplit('/').next().expect("a short id").to_owned();
            let message = eventually("it is over", || {
                let message = world.get(&format!("/q/{queue}/{id}.json")).json();
                (message["state"] == "err").then_some(message)
            });
            let status = message["status"].as_str().expect("a status");
            assert!(
                status.contains(&format!("127.0.0.1 is not among {setting}")),
                "{status}"
            );
        }
    }
    listener.set_nonblocking(true).expect("set");
    assert!(listener.accept().is_err(), "a host was called");
}
