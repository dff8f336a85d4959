//! Rates over the API with a feature in use, beside the same requests without it, alternating.
//!
//! `cargo run --release -p quintet-bench --example features [PORT [SECONDS [PAIRS]]]` against
//! `quintet serve --sync 50ms` on this machine; without a port, 3333. A round is the work for one
//! message (ten of them for `gather`).

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

const CONNECTIONS: usize = 50;
/// Bodies of 100 bytes.
const BODY: &str = "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";

type Round = fn(&mut Client) -> Result<bool>;

/// A feature: its name, a round without it and one with it. The last two are rounds of a second
/// half of the connections, which work for the first half.
const FEATURES: &[(&str, Round, Round, Option<Round>)] = &[
    (
        "cancel of waiting messages / delete",
        put_and_delete,
        put_and_cancel,
        None,
    ),
    (
        "cancel of running messages / extend",
        extend,
        cancel_running,
        None,
    ),
    (
        "put that waits for its result / put",
        put,
        put_and_wait,
        Some(take),
    ),
    (
        "a message after another / two messages",
        two,
        one_after_another,
        None,
    ),
    (
        "gathering ten / reserve of ten",
        reserve_ten,
        gather_ten,
        None,
    ),
];

struct Client {
    stream: TcpStream,
    queue: String,
    input: Vec<u8>,
}

impl Client {
    fn connect(port: u16, queue: String) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).context("is a server there?")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self {
            stream,
            queue,
            input: Vec::new(),
        })
    }

    /// Sends a request; its status and JSON.
    fn post(&mut self, path: &str, body: &Value) -> Result<(u16, Value)> {
        self.send("POST", path, body)?;
        self.reply()
    }

    fn send(&mut self, method: &str, path: &str, body: &Value) -> Result<()> {
        let body = body.to_string();
        let request = format!(
            "{method} /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.write_all(request.as_bytes())?;
        Ok(())
    }

    fn reply(&mut self) -> Result<(u16, Value)> {
        loop {
            let mut fields = [httparse::EMPTY_HEADER; 32];
            let mut reply = httparse::Response::new(&mut fields);
            if let httparse::Status::Complete(head) = reply.parse(&self.input)? {
                let status = reply.code.context("no status")?;
                let mut fields = reply.headers.iter();
                let length = fields.find(|f| f.name.eq_ignore_ascii_case("content-length"));
                let length = match length {
                    Some(field) => std::str::from_utf8(field.value)?.parse()?,
                    None => 0,
                };
                if let Some(body) = self.input.get(head..head + length) {
                    let value = serde_json::from_slice(body).unwrap_or(Value::Null);
                    self.input.drain(..head + length);
                    return Ok((status, value));
                }
            }
            let mut piece = [0; 16_384];
            let read = self.stream.read(&mut piece)?;
            ensure!(read > 0, "the server closed the connection");
            self.input.extend_from_slice(&piece[..read]);
        }
    }

    fn ok(&mut self, path: &str, body: &Value) -> Result<Value> {
        let (status, value) = self.post(path, body)?;
        ensure!(status < 300, "{path}: {status} {value}");
        Ok(value)
    }

    /// Puts a message; its id.
    fn put(&mut self, more: &Value) -> Result<u64> {
        let mut message = json!({ "body": BODY });
        let fields = message.as_object_mut().context("an object")?;
        fields.extend(more.as_object().context("fields")?.clone());
        let path = format!("queues/{}/messages", self.queue);
        let value = self.ok(&path, &json!({ "messages": [message] }))?;
        value["ids"][0].as_u64().context("an id")
    }

    /// Reserves messages; their leases.
    fn reserve(&mut self, fields: &Value) -> Result<Vec<String>> {
        let value = self.ok(&format!("queues/{}/reserve", self.queue), fields)?;
        let messages = value["messages"].as_array().context("messages")?;
        let lease = |m: &Value| m["lease"].as_str().map(str::to_owned);
        Ok(messages.iter().filter_map(lease).collect())
    }

    fn finish(&mut self, leases: &[String]) -> Result<()> {
        for lease in leases {
            self.ok(&format!("leases/{lease}/finish"), &json!({}))?;
        }
        Ok(())
    }
}

fn put_and_delete(client: &mut Client) -> Result<bool> {
    let id = client.put(&json!({}))?;
    client.send("DELETE", &format!("messages/{id}"), &json!({}))?;
    client.reply().map(|_| true)
}

fn put_and_cancel(client: &mut Client) -> Result<bool> {
    let id = client.put(&json!({}))?;
    client
        .ok(&format!("messages/{id}/cancel"), &json!({}))
        .map(|_| true)
}

fn extend(client: &mut Client) -> Result<bool> {
    client.put(&json!({}))?;
    let leases = client.reserve(&json!({}))?;
    for lease in &leases {
        client.ok(&format!("leases/{lease}/extend"), &json!({}))?;
    }
    client.finish(&leases).map(|()| true)
}

fn cancel_running(client: &mut Client) -> Result<bool> {
    let id = client.put(&json!({}))?;
    let leases = client.reserve(&json!({}))?;
    client.ok(
        &format!("messages/{id}/cancel"),
        &json!({ "grace_ms": 5000 }),
    )?;
    client.finish(&leases).map(|()| true)
}

fn put(client: &mut Client) -> Result<bool> {
    client.put(&json!({})).map(|_| true)
}

fn put_and_wait(client: &mut Client) -> Result<bool> {
    let path = format!("queues/{}/messages", client.queue);
    let body = json!({ "messages": [{ "body": BODY }], "wait_ms": 10_000 });
    client.ok(&path, &body).map(|_| true)
}

/// A worker of the second half.
fn take(client: &mut Client) -> Result<bool> {
    let leases = client.reserve(&json!({ "wait_ms": 200 }))?;
    client.finish(&leases).map(|()| !leases.is_empty())
}

fn two(client: &mut Client) -> Result<bool> {
    for _ in 0..2 {
        client.put(&json!({}))?;
    }
    for _ in 0..2 {
        let leases = client.reserve(&json!({}))?;
        client.finish(&leases)?;
    }
    Ok(true)
}

fn one_after_another(client: &mut Client) -> Result<bool> {
    let first = client.put(&json!({}))?;
    client.put(&json!({ "after": [first] }))?;
    for _ in 0..2 {
        let leases = client.reserve(&json!({ "wait_ms": 1000 }))?;
        client.finish(&leases)?;
    }
    Ok(true)
}

fn put_ten(client: &mut Client) -> Result<()> {
    let messages = vec![json!({ "body": BODY }); 10];
    let path = format!("queues/{}/messages", client.queue);
    client.ok(&path, &json!({ "messages": messages })).map(drop)
}

fn reserve_ten(client: &mut Client) -> Result<bool> {
    put_ten(client)?;
    let leases = client.reserve(&json!({ "max": 10 }))?;
    client.finish(&leases).map(|()| true)
}

fn gather_ten(client: &mut Client) -> Result<bool> {
    put_ten(client)?;
    let leases = client.reserve(&json!({ "max": 10, "min": 10, "linger_ms": 1000 }))?;
    client.finish(&leases).map(|()| true)
}

/// Rounds a second, of the workers if there are some.
fn rate(port: u16, round: Round, worker: Option<Round>, time: Duration) -> Result<f64> {
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CONNECTIONS)
            .map(|n| {
                let (stop, count) = (&stop, &count);
                let second = n % 2 == 1 && worker.is_some();
                let queue = format!("bench{:04}", if worker.is_some() { n / 2 } else { n });
                let round = worker.filter(|_| second).unwrap_or(round);
                scope.spawn(move || -> Result<()> {
                    let mut client = Client::connect(port, queue)?;
                    while !stop.load(Ordering::Relaxed) {
                        let done = round(&mut client)?;
                        if done && (second || worker.is_none()) {
                            count.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        let rate = count.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
        for thread in threads {
            thread.join().expect("no panic")?;
        }
        Ok(rate)
    })
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let port = args.next().map_or(Ok(3333), |arg| arg.parse())?;
    let time = Duration::from_secs(args.next().map_or(Ok(3), |arg| arg.parse())?);
    let pairs: usize = args.next().map_or(Ok(5), |arg| arg.parse())?;
    for (name, without, with, worker) in FEATURES {
        let mut ratios = Vec::new();
        for _ in 0..pairs {
            let base = rate(port, *without, *worker, time)?;
            let feature = rate(port, *with, *worker, time)?;
            println!("{name}: {feature:.0}/s with, {base:.0}/s without");
            ratios.push(feature / base);
        }
        ratios.sort_by(f64::total_cmp);
        let (least, most) = (ratios[0], ratios[pairs - 1]);
        println!("{name}: {:.2} ({least:.2} to {most:.2})", ratios[pairs / 2]);
    }
    Ok(())
}
