//! The record decoder: whatever the bytes, it answers; what it accepts it
//! writes again no longer than it was; every fact comes back as it went.
//!
//! `crates/engine/tests/corpus/facts.txt` keeps records that were once written
//! (`ok`, so that they can be read for ever) or that once were trouble (`bad`).

use proptest::prelude::*;
use quintet_engine::*;
use quintet_sim::facts::{decode, encode, survive};

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..3u64,
        any::<u64>(),
        Just(u64::MAX),
        (0..64u32).prop_map(|bit| 1 << bit)
    ]
}

fn small() -> impl Strategy<Value = u32> {
    prop_oneof![0..3u32, any::<u32>(), Just(u32::MAX)]
}

fn ms() -> impl Strategy<Value = Ms> {
    // `NEVER` is not stored: a time there is one, or none.
    number().prop_map(|at| Ms(at.min(u64::MAX - 1)))
}

fn bytes() -> impl Strategy<Value = Box<[u8]>> {
    prop::collection::vec(any::<u8>(), 0..6).prop_map(Vec::into_boxed_slice)
}

fn queue() -> impl Strategy<Value = QueueId> {
    (0..1u32 << 28).prop_map(QueueId)
}

fn id() -> impl Strategy<Value = MessageId> {
    prop_oneof![1..9u64, 1..1u64 << 63].prop_map(MessageId)
}

fn name() -> impl Strategy<Value = Name> {
    bytes().prop_map(|name| Name::new(&name))
}

fn at() -> impl Strategy<Value = At> {
    (queue(), small(), any::<i64>(), id()).prop_map(|(queue, rank, place, id)| At {
        queue,
        rank,
        place,
        id,
    })
}

fn attachments() -> impl Strategy<Value = Vec<Attachment>> {
    let one = (bytes(), number(), any::<[u8; 16]>());
    prop::collection::vec(
        one.prop_map(|(name, len, md5)| Attachment { name, len, md5 }),
        0..3,
    )
}

fn extra() -> impl Strategy<Value = Extra> {
    (
        (
            prop::option::of(bytes()),
            prop::option::of(ms()),
            prop::option::of(ms()),
        ),
        (
            prop::collection::vec((bytes(), bytes()), 0..3),
            attachments(),
            bytes(),
        ),
        (ms(), number(), small(), small(), small(), small(), number()),
    )
        .prop_map(
            |((key, due, expires), (attrs, attachments, status), counts)| Extra {
                key: key.map(Into::into),
                due,
                expires,
                attrs,
                attachments,
                status,
                changed: counts.0,
                bury_order: counts.1,
                timeouts: counts.2,
                releases: counts.3,
                buries: counts.4,
                kicks: counts.5,
                delay_ms: counts.6,
            },
        )
}

fn message() -> impl Strategy<Value = Message> {
    let state = prop::sample::select(vec![
        State::Prepared,
        State::Ready,
        State::Reserved,
        State::Buried,
        State::Done,
        State::Relayed,
    ]);
    let large = (number(), number()).prop_map(|(id, len)| Body::Large(LargeBody::new(id, len, 0)));
    let body = prop_oneof![9 => bytes().prop_map(|body| Body::new(&body)), 1 => large];
    (
        (at(), ms(), body, prop::option::of(extra())),
        (prop::option::of(number()), small(), small(), state),
        (any::<bool>(), any::<bool>()),
    )
        .prop_map(
            |(
                (at, created, body, extra),
                (ttr_ms, flags, reserves, state),
                (selectable, doomed),
            )| {
                Message {
                    id: at.id,
                    place: at.place,
                    created,
                    body,
                    extra: extra.map(Box::new),
                    ttr_ms,
                    rank: at.rank,
                    queue: at.queue,
                    flags,
                    reserves,
                    home: Home(0),
                    era: 0,
                    ordinal: 0,
                    state,
                    selectable,
                    doomed,
                }
            },
        )
}

fn lease() -> impl Strategy<Value = Lease> {
    let bound = prop::sample::select(vec![Bound::Connection, Bound::Process, Bound::Time]);
    (
        number(),
        bound,
        prop::option::of(ms()),
        number(),
        any::<bool>(),
    )
        .prop_map(|(party, bound, until, span_ms, head)| Lease {
            party: Party(party),
            bound,
            until,
            span_ms,
            back_to: if head { BackTo::Head } else { BackTo::Place },
        })
}

fn overrides() -> impl Strategy<Value = Overrides> {
    let n = || prop::option::of(number());
    let b = || prop::option::of(any::<bool>());
    (
        (
            prop::option::of(small()),
            n(),
            n(),
            n(),
            n(),
            prop::option::of(small()),
        ),
        // No queue has the empty name; the record uses it for "bury".
        (
            prop::option::of(prop::option::of(
                "[a-z]{1,3}".prop_map(|to| Name::from(to.as_str())),
            )),
            n(),
            n(),
            prop::option::of(name()),
        ),
        (b(), n(), n(), n(), b(), b(), b()),
    )
        .prop_map(
            |(a, (dead_letter, ttl_ms, ttl_max_ms, expire_to), c)| Overrides {
                default_rank: a.0,
                default_ttr_ms: a.1,
                messages_max: a.2,
                bytes_max: a.3,
                message_bytes_max: a.4,
                attempts_max: a.5,
                dead_letter: dead_letter.map(|to| to.map_or(DeadLetter::Bury, DeadLetter::To)),
                ttl_ms,
                ttl_max_ms,
                expire_to,
                when_full: c.0.map(|drop| {
                    if drop {
                        WhenFull::DropOldest
                    } else {
                        WhenFull::Refuse
                    }
                }),
                dedupe_by_key_ms: c.1,
                retention_ms: c.2,
                idle_ms: c.3,
                paused: c.4,
                down: c.5,
                memory: None,
                fanout_only: c.6,
            },
        )
}

fn totals() -> impl Strategy<Value = QueueTotals> {
    prop::collection::vec(number(), 0..26).prop_map(|values| QueueTotals::from_values(&values))
}

fn change() -> impl Strategy<Value = Change> {
    (
        ms(),
        prop::option::of(small()),
        prop::option::of(prop::option::of(ms())),
        prop::option::of(bytes()),
        prop::option::of(prop::collection::vec((bytes(), bytes()), 0..3)),
        prop::option::of(attachments()),
    )
        .prop_map(|(now, rank, due, status, attrs, attachments)| Change {
            now,
            rank,
            due,
            status,
            attrs,
            attachments,
        })
}

fn about_messages() -> impl Strategy<Value = Fact> {
    let why = prop::sample::select(vec![
        Removal::Taken,
        Removal::Finished,
        Removal::Deleted,
        Removal::Expired,
        Removal::Discarded,
        Removal::Doomed,
        Removal::Retention,
    ]);
    let back = prop::sample::select(vec![Return::Released, Return::Timeout, Return::Lost]);
    let transfer = prop::sample::select(vec![
        Transfer::Command,
        Transfer::DeadLetter,
        Transfer::Expired,
    ]);
    let sending = transfer.clone();
    prop_oneof![
        message().prop_map(Fact::Put),
        (message(), prop::option::of(lease())).prop_map(|(m, lease)| Fact::Image(m, lease)),
        message().prop_map(Fact::Restored),
        (at(), why).prop_map(|(at, why)| Fact::Removed { at, why }),
        (at(), lease()).prop_map(|(at, lease)| Fact::Leased { at, lease }),
        (at(), ms()).prop_map(|(at, until)| Fact::Touched { at, until }),
        (
            at(),
            small(),
            any::<i64>(),
            (prop::option::of(ms()), number()),
            back
        )
            .prop_map(|(at, rank, place, (due, delay_ms), why)| Fact::Released {
                at,
                rank,
                place,
                due,
                delay_ms,
                why
            }),
        (at(), small(), ms(), any::<bool>(), bytes()).prop_map(|(at, rank, now, dead, reason)| {
            Fact::Buried {
                at,
                rank,
                now,
                dead,
                reason,
            }
        }),
        (at(), any::<bool>(), ms(), bytes()).prop_map(|(at, relayed, now, status)| {
            Fact::Archived {
                at,
                relayed,
                now,
                status,
            }
        }),
        at().prop_map(|at| Fact::Kicked { at }),
        (at(), queue(), any::<i64>(), transfer, ms()).prop_map(|(at, to, place, why, now)| {
            Fact::Moved {
                at,
                to,
                place,
                why,
                now,
            }
        }),
        (at(), name(), sending, ms()).prop_map(|(at, to, why, now)| Fact::Sent {
            at,
            to,
            why,
            now
        }),
        (message(), name()).prop_map(|(message, to)| Fact::SentImage(message, to)),
        (message(), number()).prop_map(|(message, from)| Fact::Arrived {
            message,
            from: MessageId(from)
        }),
        number().prop_map(|id| Fact::Carried(MessageId(id))),
        at().prop_map(|at| Fact::Committed { at }),
        (at(), change()).prop_map(|(at, change)| Fact::Edited {
            at,
            change: Box::new(change)
        }),
    ]
}

fn about_queues() -> impl Strategy<Value = Fact> {
    let kind = prop::sample::select(vec![Mark::Dedupe, Mark::Token, Mark::Key]);
    let pause = (prop::option::of(ms()), number());
    let counts = (number(), number(), number(), totals());
    prop_oneof![
        (number(), ms()).prop_map(|(epoch, now)| Fact::Epoch { epoch, now }),
        number().prop_map(Fact::IdMark),
        (queue(), name(), prop::option::of(queue()), ms()).prop_map(
            |(queue, name, parent, created)| Fact::QueueMade {
                queue,
                name,
                parent,
                created
            }
        ),
        (queue(), overrides()).prop_map(|(queue, overrides)| Fact::QueueConfigured {
            queue,
            overrides: Box::new(overrides),
        }),
        (queue(), prop::option::of(pause)).prop_map(|(queue, pause)| Fact::QueuePaused {
            queue,
            pause: pause.map(|(until, for_ms)| Pause { until, for_ms }),
        }),
        (queue(), number(), number()).prop_map(|(queue, through, count)| Fact::QueueFlushed {
            queue,
            through: MessageId(through),
            count,
        }),
        (queue(), number(), any::<bool>()).prop_map(|(queue, through, idle)| {
            Fact::QueueDropped {
                queue,
                through: MessageId(through),
                idle,
            }
        }),
        (queue(), totals(), any::<i64>(), number()).prop_map(
            |(queue, totals, head, bury_order)| Fact::QueueCounted {
                queue,
                totals: Box::new(totals),
                head,
                bury_order,
            }
        ),
        counts.prop_map(|(made, dropped, expired, gone)| {
            Fact::ShardCounted(Box::new(ShardCounts {
                made,
                dropped,
                expired,
                gone,
            }))
        }),
        (queue(), kind, bytes(), number(), ms()).prop_map(|(queue, kind, mark, id, until)| {
            Fact::Remembered {
                queue,
                kind,
                mark,
                id: MessageId(id),
                until,
            }
        }),
    ]
}

fn fact() -> impl Strategy<Value = Fact> {
    prop_oneof![about_messages(), about_queues()]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 4000,
        failure_persistence: Some(Box::new(
            proptest::test_runner::FileFailurePersistence::WithSource("regressions"),
        )),
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_fact_comes_back_as_it_went(fact in fact()) {
        let bytes = encode(&fact);
        let mut rest = bytes.as_slice();
        prop_assert_eq!(decode(&mut rest), Ok(fact));
        prop_assert!(rest.is_empty());
        for cut in 0..bytes.len() {
            prop_assert_eq!(decode(&mut &bytes[..cut]), Err(FactError::Short));
        }
    }

    #[test]
    fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        survive(&bytes);
    }

    #[test]
    fn damaged_facts_are_answered(
        facts in prop::collection::vec(fact(), 1..4),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8u8), 1..5),
    ) {
        let mut bytes: Vec<u8> = facts.iter().flat_map(encode).collect();
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        survive(&bytes);
    }
}

#[test]
fn the_kept_corpus_is_read_as_before() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../engine/tests/corpus/facts.txt"
    );
    let text = std::fs::read_to_string(path).expect("the corpus is part of the sources");
    let mut operations = std::collections::BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (kind, hex) = line.split_once(' ').expect("`ok` or `bad`, then hex");
        let bytes: Vec<u8> = (0..hex.len() / 2)
            .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("hex"))
            .collect();
        survive(&bytes);
        let mut rest = bytes.as_slice();
        match kind {
            "ok" => {
                let fact = decode(&mut rest).expect(line);
                assert!(rest.is_empty(), "{line}");
                assert_eq!(encode(&fact), bytes, "{fact:?}");
                operations.insert(bytes[0]);
            }
            _ => assert!(decode(&mut rest).is_err(), "{line}"),
        }
    }
    assert_eq!(
        operations.len(),
        23,
        "one of each operation: {operations:02x?}"
    );
}
