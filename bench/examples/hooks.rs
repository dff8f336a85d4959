//! Nanoseconds that hooks add to a put.
//!
//! `cargo run --release -p quintet-bench --example hooks`

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use quintet_hooks::{HookState, Host, Level, Limits, Program, Who};
use quintet_types::{Body, Caller, Command, MessageId, Ms, Name, Outcome, Put};

const CALLS: u32 = 1_000_000;

/// Takes every put and keeps nothing: what is measured is the hook.
struct Consumer;

impl Host for Consumer {
    fn now(&self) -> Ms {
        Ms(1_000_000)
    }

    fn wall(&self) -> Ms {
        self.now()
    }

    fn ask(&mut self, _caller: Caller, command: Command) -> (Option<Outcome>, Name) {
        black_box(command);
        let put = Outcome::Put {
            id: MessageId(1),
            fresh: true,
        };
        (Some(put), Name::default())
    }

    fn log(&mut self, _level: Level, text: &str) {
        eprintln!("{text}");
    }
}

fn main() {
    for (name, text) in [
        ("no function", ""),
        (
            "before_put that returns nothing",
            "function before_put(msg) end",
        ),
        (
            "before_put that reads the queue's name",
            "function before_put(msg) if msg.queue == 'other' then return false end end",
        ),
        (
            "before_put that reads a body of 64 bytes",
            "function before_put(msg) if #msg.body > 1000 then return false end end",
        ),
        (
            "before_put that sets the priority",
            "function before_put(msg) msg.priority = 5 end",
        ),
        (
            "before_put that counts",
            "local n = quintet.counter('n') function before_put(msg) n:add(1) end",
        ),
    ] {
        let limits = Limits::default();
        let program = match Program::from_text("cost.lua", text, &limits, Arc::default()) {
            Ok(program) => program,
            Err(error) => return eprintln!("{error}"),
        };
        let mut state = match HookState::new(program, Box::new(Consumer)) {
            Ok(state) => state,
            Err(error) => return eprintln!("{error}"),
        };
        let who = Who::default();
        let body = Body::new(&[b'x'; 64]);
        let queue = Name::from("work");
        let mut host = Consumer;
        let start = Instant::now();
        for _ in 0..CALLS {
            let command = Command::Put(Put {
                queue: queue.clone(),
                body: body.clone(),
                ..Put::default()
            });
            if state.ignores(&command) {
                black_box(host.ask(who.caller, command));
            } else {
                black_box(state.submit(&who, command));
            }
        }
        let each = start.elapsed().as_nanos() / u128::from(CALLS);
        println!("{each:5} ns  {name}");
    }
}
