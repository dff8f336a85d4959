//! Relay between two real servers, over a link that is cut, while either is
//! killed: in the end each message is there once.

#[path = "../../../web/tests/web/common/proxy.rs"]
mod proxy;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, Server, Start};
use proxy::{Cut, Proxy};
use serde_json::{Value, json};

const MESSAGES: usize = 20;
/// Connections after which the link is whole.
const TROUBLE: u32 = 60;

fn start(data: &Path, address: &str, config: &str) -> Server {
    let text = format!("{config}\n[[listen]]\nprotocol = 'http'\naddress = '{address}'\n");
    Server::start_as_configured(data, Start::of(&text))
}

fn address(server: &Server) -> SocketAddr {
    server.address_of("http").parse().expect("an address")
}

fn ask(server: &Server, head: &str, kind: &str, body: &[u8]) -> Value {
    server
        .ask(head, &format!("content-type: {kind}\r\n"), body)
        .json()
}

fn get(server: &Server, path: &str) -> Value {
    server.ask(&format!("GET {path}"), "", "").json()
}

#[test]
fn each_message_arrives_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let (near, far) = (folder.path().join("near"), folder.path().join("far"));
    let near_config = "relay_hosts = '127.0.0.1'\n[[queue]]\nname = 'relay'\nscript = 'builtin:relay'\nnum_workers = 4\n\
                       env_vars = { RETRY_UNIT_S = '0' }";
    // Nobody takes there: what arrives stays to be counted.
    let far_config = "[[queue]]\nname = 'in'\nscript = '/bin/true'\npaused = true";
    let mut to = start(&far, "127.0.0.1:0", far_config);
    let far_address = address(&to).to_string();
    std::fs::write(far.join("rq/config/in.pause"), "").expect("written");
    get(&to, "/q/in.json");
    let mut from = start(&near, "127.0.0.1:0", near_config);
    let near_address = address(&from).to_string();

    let (sender, receiver) = mpsc::channel();
    let mut connections = 0;
    // Which connections are cut where is fixed; what they are is not.
    let mut dice = 7u64;
    let link = Proxy::start(address(&to), move |_| {
        connections += 1;
        sender.send(connections).ok();
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        match (dice >> 33) % 6 {
            _ if connections > TROUBLE => Cut::Pass,
            0 => Cut::Reply,
            1 => Cut::Request(60),
            2 => Cut::Request(5000),
            _ => Cut::Pass,
        }
    });
    let dest = format!("http://{}/q/in", link.address);
    let pause = near.join("rq/config/relay.pause");
    std::fs::write(&pause, "").expect("written");
    get(&from, "/q/relay.json");
    let mut ids = Vec::new();
    for n in 0..MESSAGES {
        let fields = json!({"_method": "prep", "dest": dest, "param1": format!("m{n}")});
        let made = ask(
            &from,
            "POST /q/relay/new_message",
            "application/json",
            fields.to_string().as_bytes(),
        );
        let id = made[1]
            .as_str()
            .and_then(|id| id.rsplit('/').next())
            .expect("an id")
            .to_owned();
        let mut body =
            b"--x\r\nContent-Disposition: form-data; name=\"filedata\"; filename=\"f\"\r\n\r\n"
                .to_vec();
        body.extend(std::iter::repeat_n(n as u8, 20_000));
        body.extend(b"\r\n--x\r\nContent-Disposition: form-data; name=\"x_format\"\r\n\r\njson\r\n--x--\r\n");
        let attached = ask(
            &from,
            &format!("POST /q/relay/{id}/attach/new"),
            "multipart/form-data; boundary=x",
            &body,
        );
        assert_eq!(attached[0], "ok", "{attached}");
        let form = b"_method=commit&x_format=json";
        ask(
            &from,
            &format!("POST /q/relay/{id}"),
            "application/x-www-form-urlencoded",
            form,
        );
        ids.push(id);
    }
    std::fs::remove_file(&pause).expect("removed");
    // Each server dies twice, in the middle of requests.
    for (at, kill_near) in [(8, true), (20, false), (32, true), (44, false)] {
        while receiver.recv_timeout(PATIENCE).expect("the relay goes on") < at {}
        if kill_near {
            from.kill();
            from = start(&near, &near_address, near_config);
        } else {
            to.kill();
            to = start(&far, &far_address, far_config);
        }
    }
    let until = Instant::now() + 2 * PATIENCE;
    for id in &ids {
        loop {
            let message = get(&from, &format!("/q/relay/{id}.json"));
            if message["state"] == "relayed" {
                break;
            }
            assert_ne!(message["state"], "err", "{message}");
            assert!(Instant::now() < until, "never relayed: {message}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let there = get(&to, "/q/in.json");
    let mut seen = BTreeMap::new();
    for id in there["messages"]["que"].as_array().expect("a list") {
        let id = id.as_str().expect("an id");
        let message = get(&to, &format!("/q/in/{id}.json"));
        assert_eq!(message["_attachments"]["f"]["size"], 20_000, "{message}");
        *seen.entry(message["param1"].to_string()).or_insert(0) += 1;
    }
    let expected = (0..MESSAGES).map(|n| (format!("\"m{n}\""), 1)).collect();
    assert_eq!(seen, expected);
    assert_eq!(there["prep_size"], 0, "{there}");
    assert!(from.stop().success() && to.stop().success());
}

#[test]
fn relay_under_tls_checks_its_configured_authorities() {
    let folder = tempfile::tempdir().expect("a folder");
    let (near, far) = (folder.path().join("near"), folder.path().join("far"));
    // The plain one is for this test to look by.
    let far_config = "[[queue]]\nname = 'in'\nscript = '/bin/true'\n\
                      [[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\n\
                      [[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\ntls = 'self-signed'\n";
    let start = Start::of(far_config);
    let to = Server::start_as_configured(&far, start);
    let secret = to.lines.iter().rev();
    let mut secret = secret.filter_map(|line| line.strip_prefix("listening http "));
    let secret = secret.next().expect("a second http listener");
    let ca = far.join(quintet_tls::CERTIFICATE);
    for (auth, state) in [
        (ca.display().to_string(), "relayed"),
        (String::new(), "que"),
    ] {
        let config = format!(
            "relay_hosts = '127.0.0.1'\nrelay_ca = '{auth}'\n[[queue]]\nname = 'relay'\n\
             script = 'builtin:relay'\n[[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\n"
        );
        let start = Start::of(&config);
        let from = Server::start_as_configured(&near, start);
        let dest = format!("https://{secret}/q/in");
        let fields = json!({"_method": "commit", "dest": dest, "param1": "hello"});
        let made = ask(
            &from,
            "POST /q/relay/new_message",
            "application/json",
            fields.to_string().as_bytes(),
        );
        let id = made[1].as_str().and_then(|id| id.rsplit('/').next());
        let path = format!("/q/relay/{}.json", id.expect("an id"));
        let until = Instant::now() + PATIENCE;
        loop {
            let message = get(&from, &path);
            let tried = message["status"].to_string().contains("certificate");
            if message["state"] == state && (state == "relayed" || tried) {
                break;
            }
            assert!(Instant::now() < until, "not {state}: {message}");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(from.stop().success());
    }
    assert!(to.stop().success());
}
