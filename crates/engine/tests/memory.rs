//! The engine's estimate of its messages' memory is within a fifth of the process's real memory,
//! for every kind of content. A program of its own, as it looks at its process.

use quintet_engine::*;
use quintet_types::*;

/// Facts go nowhere, so that they take nothing.
struct Nowhere;

impl Journal for Nowhere {
    fn record(&mut self, _: &Fact) {}
}

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let kb = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kb.expect("a number") << 10
}

fn ask(engine: &mut Engine, command: Command) -> Outcome {
    let caller = Caller {
        client_id: ClientId(1),
        ..Caller::default()
    };
    let answer = engine.submit(
        Ms(1_000_000),
        caller,
        command,
        &mut Nowhere,
        &mut Vec::new(),
    );
    match answer {
        Answer::Now(outcome, _) => outcome,
        Answer::Later => panic!("it waits"),
    }
}

/// Content of `len` bytes that is another for each `number`.
fn content(number: usize, len: usize) -> Vec<u8> {
    let mut bytes = number.to_string().into_bytes();
    bytes.resize(len.max(bytes.len()), b'.');
    bytes
}

fn with(more: PutMore) -> Put {
    Put {
        queue: "q".into(),
        more: Some(Box::new(more)),
        ..Put::default()
    }
}

/// A message of that number with content of that length, of one kind.
type Kind = (&'static str, fn(usize, usize) -> Put);

fn with_id(id: Vec<u8>, scope: Option<Scope>) -> Put {
    let dedupe = Dedupe {
        id: id.into(),
        window_ms: Some(1_000_000),
        scope,
        on_repeat: None,
    };
    with(PutMore {
        dedupe: Some(dedupe),
        ..PutMore::default()
    })
}

const KINDS: [Kind; 13] = [
    ("bodies", |number, len| Put {
        queue: "q".into(),
        body: Body::new(&content(number, len)),
        ..Put::default()
    }),
    ("an attribute", |number, len| {
        with(PutMore {
            attrs: vec![(Box::from(*b"name"), content(number, len).into())],
            ..PutMore::default()
        })
    }),
    ("ten attributes", |number, len| {
        let attrs = (0..10).map(|at: usize| {
            let name = format!("name-{at}").into_bytes();
            (name.into(), content(number, len / 10).into())
        });
        with(PutMore {
            attrs: attrs.collect(),
            ..PutMore::default()
        })
    }),
    ("reasons and results", |number, len| {
        let past = Past {
            state: State::Buried,
            status: content(number, len).into(),
            ..Past::default()
        };
        with(PutMore {
            past: Some(Box::new(past)),
            ..PutMore::default()
        })
    }),
    ("keys", |number, len| {
        with(PutMore {
            key: Some(content(number, len).into()),
            ..PutMore::default()
        })
    }),
    ("messages of ten keys", |number, len| {
        let more = PutMore {
            key: Some(content(number % 10, 20).into()),
            ..PutMore::default()
        };
        Put {
            body: Body::new(&content(number, len)),
            ..with(more)
        }
    }),
    ("names", |number, len| {
        with(PutMore {
            name: Some(content(number, len.min(255)).into()),
            ..PutMore::default()
        })
    }),
    ("tracked", |number, len| {
        with(PutMore {
            name: Some(content(number, len.min(255)).into()),
            tracked: true,
            ..PutMore::default()
        })
    }),
    ("deduplication ids", |number, len| {
        with_id(content(number, len), None)
    }),
    ("deduplication ids of what waits", |number, len| {
        with_id(content(number, len), Some(Scope::Waiting))
    }),
    ("tokens", |number, len| {
        with(PutMore {
            token: Some(content(number, len).into()),
            ..PutMore::default()
        })
    }),
    ("attachments", |number, len| {
        with(PutMore {
            attachments: vec![Attachment {
                name: content(number, len).into(),
                len: 1,
                md5: [0; 16],
            }],
            ..PutMore::default()
        })
    }),
    ("retries of their own", |_, len| Put {
        body: Body::new(&content(0, len)),
        ..with(PutMore {
            retry: Some(Retry::default()),
            ..PutMore::default()
        })
    }),
];

/// Content beside that of a put: the commands that bring the one of that number.
type Other = (&'static str, fn(usize, usize) -> Vec<Command>);

/// Puts a message and takes it under a lease.
fn leased(number: usize, len: usize) -> Vec<Command> {
    let put = Put {
        queue: "q".into(),
        body: Body::new(&content(number, len)),
        ..Put::default()
    };
    let take = Take {
        queues: std::iter::once(Name::from("q")).collect(),
        lease: Some(LeaseRequest {
            owner: LeaseOwner::Connection,
            time: LeaseTime::OwnTtr,
            back_to: BackTo::Position,
            held_max: 0,
        }),
        ..Take::default()
    };
    vec![Command::Put(put), Command::Take(take)]
}

fn batch(description: Vec<u8>, attrs: Vec<Attr>) -> Vec<Command> {
    let complete = Some(Callback {
        queue: "done".into(),
        attrs,
        ..Callback::default()
    });
    let batch = NewBatch {
        description: description.into(),
        complete,
        ..NewBatch::default()
    };
    vec![Command::Batch(BatchRequest::New(Box::new(batch)))]
}

const OTHERS: [Other; 7] = [
    ("messages that wait for ten others", |number, _| {
        let parents = (0..10).map(|_| {
            Command::Put(Put {
                queue: "p".into(),
                ..Put::default()
            })
        });
        // Ids begin with 1.
        let after = PutAfter {
            ids: (1..=10).map(MessageId).collect(),
            ..PutAfter::default()
        };
        let held = Command::Put(with(PutMore {
            after: Some(Box::new(after)),
            ..PutMore::default()
        }));
        let parents = parents.filter(|_| number == 0);
        parents.chain([held]).collect()
    }),
    ("replies", |number, len| {
        let reply = ReplyTo {
            queue: "replies".into(),
            correlation: content(number, len.min(255)).into(),
        };
        vec![Command::Put(with(PutMore {
            reply: Some(Box::new(reply)),
            ..PutMore::default()
        }))]
    }),
    ("leases", leased),
    ("reasons of cancels", |number, len| {
        let cancel = Cancel {
            reason: content(number, len).into(),
            grace_ms: 1_000_000,
        };
        let id = MessageId(number as u64 + 1);
        let mut commands = leased(number, 0);
        commands.push(Command::Cancel(id, Box::new(cancel)));
        commands
    }),
    ("held keys", |number, len| {
        let queue = Name::from(format!("held-{}", number / HELD_KEYS_MAX).as_str());
        let first = Command::Put(Put {
            queue: queue.clone(),
            ..Put::default()
        });
        let hold = Command::Hold {
            queue,
            key: Some(content(number, len).into()),
            for_ms: 1_000_000,
        };
        let is_first = number % HELD_KEYS_MAX == 0;
        let first = is_first.then_some(first);
        first.into_iter().chain([hold]).collect()
    }),
    ("batches", |number, len| {
        batch(content(number, len), Vec::new())
    }),
    ("batches with ten attributes", |number, len| {
        let attrs = (0..10).map(|at: usize| {
            let name = format!("name-{at}").into_bytes();
            (name.into(), content(number, len / 10).into())
        });
        batch(Vec::new(), attrs.collect())
    }),
];

#[test]
fn memory_of_messages_is_counted() {
    // The allocator gives back what an index left as it grew only if that has a mapping of its own.
    const MAPPED: (&str, &str) = ("MALLOC_MMAP_THRESHOLD_", "65536");
    if std::env::var_os(MAPPED.0).is_none() {
        let program = std::env::current_exe().expect("this program");
        let mut again = std::process::Command::new(program);
        let again = again.args(["--exact", "memory_of_messages_is_counted"]);
        let output = again.env(MAPPED.0, MAPPED.1).output().expect("started");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        );
        return;
    }
    // None is freed before the end, so that none gets what another had.
    let mut engines = Vec::new();
    let mut wrong = Vec::new();
    let mut measure = |kind: &str, commands: &dyn Fn(usize, usize) -> Vec<Command>| {
        for (count, len) in [(30_000, 200), (4_000, 4_000), (500, 60_000)] {
            let groups = Overrides {
                groups: Some(Groups::Ordered),
                ..Overrides::default()
            };
            let settings = Settings {
                rules: vec![(Pattern::new("held-*"), groups)],
                tracked_max: 1 << 20,
                batches_max: 1 << 20,
                ..Settings::default()
            };
            let mut engine = Engine::new(0, 1, settings);
            engine.begin_epoch(Ms(1_000_000), 1, [7; 16], &mut Nowhere);
            let before = resident();
            for number in 0..count {
                for command in commands(number, len) {
                    let outcome = ask(&mut engine, command);
                    assert!(
                        !matches!(outcome, Outcome::Refused(_) | Outcome::Empty),
                        "{kind}: {outcome:?}"
                    );
                }
            }
            let (held, counted) = (resident() - before, engine.memory_bytes());
            engines.push(engine);
            // So little may be in what an index left as it grew.
            if counted > 2 << 20 && counted.abs_diff(held) > held / 5 {
                wrong.push(format!(
                    "{count} {kind} of {len} bytes: {counted} counted, {held} held"
                ));
            }
        }
    };
    for (kind, put) in KINDS {
        measure(kind, &|number, len| vec![Command::Put(put(number, len))]);
    }
    for (kind, commands) in OTHERS {
        measure(kind, &commands);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
