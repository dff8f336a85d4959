//! The record decoder: whatever the bytes, it answers; what it accepts it
//! writes again no longer than it was; every fact comes back as it went.
//!
//! `crates/engine/tests/corpus/facts.txt` keeps records that were once written
//! (`ok`, so that they can be read for ever) or that once were trouble (`bad`).

mod batches;
mod settings;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use quintet_engine::*;
use quintet_sim::facts::{decode, encode, survive};
use quintet_types::*;

use batches::{after, batch, owed, progress, reply, retry, tie, tracked};
use settings::overrides;

thread_local! {
    /// Numbers are such as may be added up: sums that overflow are no matter of
    /// the test that replays.
    static MODEST: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

// Where there are many of them, no `prop_oneof!`: it begins a generator of random numbers for each
// choice before the one it takes, which is most of such a test's time.
fn number() -> BoxedStrategy<u64> {
    if MODEST.get() {
        return (any::<bool>(), 0..1u64 << 40)
            .prop_map(|(few, number)| if few { number % 3 } else { number })
            .boxed();
    }
    (0..4u8, any::<u64>())
        .prop_map(|(kind, bits)| match kind {
            0 => bits % 3,
            1 => bits,
            2 => u64::MAX,
            _ => 1_u64 << (bits % 64),
        })
        .boxed()
}

/// A fact that may be the next one of a log, whatever came before.
fn modest_fact() -> impl Strategy<Value = Fact> {
    MODEST.set(true);
    let fact = fact();
    MODEST.set(false);
    fact
}

fn small() -> BoxedStrategy<u32> {
    if MODEST.get() {
        return (0..1u32 << 20).boxed();
    }
    (0..3u8, any::<u32>())
        .prop_map(|(kind, bits)| match kind {
            0 => bits % 3,
            1 => bits,
            _ => u32::MAX,
        })
        .boxed()
}

fn ms() -> impl Strategy<Value = Ms> {
    // `NEVER` is not stored: a time there is one, or none.
    number().prop_map(|at| Ms(at.min(u64::MAX - 1)))
}

fn bytes() -> impl Strategy<Value = Box<[u8]>> {
    prop::collection::vec(any::<u8>(), 0..6).prop_map(Vec::into_boxed_slice)
}

fn dedupe_id() -> impl Strategy<Value = DedupeId> {
    let hash = any::<[u64; 2]>().prop_map(DedupeId::Hash);
    prop_oneof![bytes().prop_map(DedupeId::Whole), hash]
}

fn queue() -> impl Strategy<Value = QueueId> {
    prop_oneof![3 => 0..4u32, 1 => 0..1u32 << 28].prop_map(QueueId)
}

fn id() -> impl Strategy<Value = MessageId> {
    (any::<bool>(), 1..1u64 << 63)
        .prop_map(|(few, id)| MessageId(if few { id % 8 + 1 } else { id }))
}

fn name() -> impl Strategy<Value = Name> {
    bytes().prop_map(|name| Name::new(&name))
}

fn at() -> impl Strategy<Value = At> {
    (queue(), small(), any::<i64>(), id()).prop_map(|(queue, priority, position, id)| At {
        queue,
        priority,
        position,
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
            prop::option::of(ms()),
        ),
        (
            prop::collection::vec((bytes(), bytes()), 0..3),
            attachments(),
            bytes(),
        ),
        (
            (ms(), number(), small(), small(), small(), small(), number()),
            (
                small(),
                prop::option::of(bytes()),
                prop::option::of(retry()),
                prop::option::of(tie()),
                prop::option::of(after()),
            ),
            (
                number(),
                ms(),
                any::<bool>(),
                (cancelled(), reply(), small()),
            ),
        ),
    )
        .prop_map(
            |(
                (key, due, expires, buried_until),
                (attrs, attachments, status),
                (
                    counts,
                    (failures, name, retry, batch, after),
                    (born, first_leased, tracked, (cancelled, reply, aged_from)),
                ),
            )| {
                Extra {
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
                    failures,
                    name: name.map(Into::into),
                    retry: retry.map(Box::new),
                    buried_until,
                    born: MessageId(born),
                    first_leased,
                    batch,
                    tracked,
                    cancelled,
                    aged_from,
                    reply,
                    after: after.map(Box::new),
                }
            },
        )
}

fn message() -> impl Strategy<Value = Message> {
    let state = one_of(State::ALL);
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
                let mut message = Message::new(at, created, body);
                message.doomed = doomed;
                message.extra = extra.map(Box::new);
                message.ttr_ms = ttr_ms;
                (message.flags, message.reserves) = (flags, reserves);
                (message.state, message.selectable) = (state, selectable);
                message
            },
        )
}

fn lease() -> impl Strategy<Value = Lease> {
    (
        number(),
        one_of(Bound::ALL),
        prop::option::of(ms()),
        number(),
        one_of(BackTo::ALL),
        number(),
        ms(),
    )
        .prop_map(
            |(client_id, bound, until, span_ms, back_to, epoch, since)| Lease {
                client_id: ClientId(client_id),
                bound,
                until,
                span_ms,
                back_to,
                epoch,
                since,
            },
        )
}

fn totals() -> impl Strategy<Value = QueueTotals> {
    prop::collection::vec(number(), 0..30).prop_map(|values| QueueTotals::from_values(&values))
}

fn cancelled() -> impl Strategy<Value = Option<Box<Cancelled>>> {
    let cancelled = (ms(), bytes()).prop_map(|(until, reason)| Cancelled { until, reason });
    prop::option::of(cancelled.prop_map(Box::new))
}

fn change() -> impl Strategy<Value = Change> {
    (
        ms(),
        prop::option::of(small()),
        prop::option::of(prop::option::of(ms())),
        prop::option::of(bytes()),
        prop::option::of(prop::collection::vec((bytes(), bytes()), 0..3)),
        prop::option::of(attachments()),
        prop::option::of(prop::option::of(ms())),
        cancelled(),
    )
        .prop_map(
            |(now, priority, due, status, attrs, attachments, expires, cancelled)| Change {
                now,
                priority,
                due,
                status,
                attrs,
                attachments,
                expires,
                cancelled,
            },
        )
}

/// A strategy over a coded enum's list, whatever is added to it.
fn one_of<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
    prop::sample::select(all)
}

fn block() -> impl Strategy<Value = Block> {
    let order = || (small(), any::<i64>(), id());
    (
        (
            small(),
            0..1u32 << 20,
            0..9u32,
            queue(),
            one_of(StateIndex::ALL),
        ),
        (order(), order(), 0..9u32, number()),
        (
            small(),
            small(),
            any::<bool>(),
            prop::option::of(ms()),
            ms(),
        ),
    )
        .prop_map(
            |(
                (number, ordinal, count, queue, state_index),
                (first, last, live, bytes),
                (urgent, apart, keyed, expires, created),
            )| Block {
                number,
                ordinal,
                count,
                queue,
                state_index,
                first,
                last,
                live: live.min(count),
                bytes,
                urgent,
                apart,
                keyed,
                expires,
                created,
            },
        )
}

fn run() -> impl Strategy<Value = RunId> {
    small().prop_map(|number| RunId((number >> 1).min((1 << 31) - 2)))
}

/// A fact of this kind. The match is the test's promise that none is left out.
fn of_kind(kind: FactKind) -> BoxedStrategy<Fact> {
    use FactKind as Kind;
    match kind {
        Kind::Put => message().prop_map(Fact::Put).boxed(),
        Kind::Image => (message(), prop::option::of(lease()))
            .prop_map(|(message, lease)| Fact::Image(message, lease.map(Box::new)))
            .boxed(),
        Kind::Restored => message().prop_map(Fact::Restored).boxed(),
        Kind::Removed => (at(), one_of(Removal::ALL))
            .prop_map(|(at, why)| Fact::Removed { at, why })
            .boxed(),
        Kind::Leased => (at(), lease())
            .prop_map(|(at, lease)| Fact::Leased { at, lease })
            .boxed(),
        Kind::Reheld => (at(), lease())
            .prop_map(|(at, lease)| Fact::Reheld { at, lease })
            .boxed(),
        Kind::Touched => (at(), ms())
            .prop_map(|(at, until)| Fact::Touched { at, until })
            .boxed(),
        Kind::Released => (
            at(),
            small(),
            any::<i64>(),
            (prop::option::of(ms()), number()),
            (one_of(Return::ALL), prop::option::of(bytes())),
        )
            .prop_map(
                |(at, priority, position, (due, delay_ms), (why, failed))| Fact::Released {
                    at,
                    priority,
                    position,
                    due,
                    delay_ms,
                    why,
                    failed,
                },
            )
            .boxed(),
        Kind::Buried => (
            at(),
            small(),
            (ms(), prop::option::of(ms())),
            any::<(bool, bool)>(),
            bytes(),
        )
            .prop_map(
                |(at, priority, (now, until), (dead, by_time), reason)| Fact::Buried {
                    at,
                    priority,
                    now,
                    dead,
                    reason,
                    until,
                    by_time,
                },
            )
            .boxed(),
        Kind::Archived => (at(), any::<bool>(), ms(), bytes())
            .prop_map(|(at, relayed, now, status)| Fact::Archived {
                at,
                relayed,
                now,
                status,
            })
            .boxed(),
        Kind::Kicked => at().prop_map(|at| Fact::Kicked { at }).boxed(),
        Kind::Moved => (at(), queue(), any::<i64>(), one_of(Transfer::ALL), ms())
            .prop_map(|(at, to, position, why, now)| Fact::Moved {
                at,
                to,
                position,
                why,
                now,
            })
            .boxed(),
        Kind::Sent => (at(), name(), one_of(Transfer::ALL), ms())
            .prop_map(|(at, to, why, now)| Fact::Sent { at, to, why, now })
            .boxed(),
        Kind::SentImage => (message(), name())
            .prop_map(|(message, to)| Fact::SentImage(message, to))
            .boxed(),
        Kind::Arrived => (message(), number())
            .prop_map(|(message, from)| Fact::Arrived {
                message,
                from: MessageId(from),
            })
            .boxed(),
        Kind::Carried => number().prop_map(|id| Fact::Carried(MessageId(id))).boxed(),
        Kind::Committed => at().prop_map(|at| Fact::Committed { at }).boxed(),
        Kind::Edited => (at(), change())
            .prop_map(|(at, change)| Fact::Edited {
                at,
                change: Box::new(change),
            })
            .boxed(),
        Kind::Remembered => (
            queue(),
            one_of(DedupeKind::ALL),
            dedupe_id(),
            number(),
            ms(),
            one_of(Scope::ALL),
            prop_oneof![Just(0), number()],
        )
            .prop_map(
                |(queue, kind, dedupe_record, id, until, scope, sum)| Fact::Remembered {
                    queue,
                    kind,
                    dedupe_record,
                    id: MessageId(id),
                    until,
                    scope,
                    sum,
                },
            )
            .boxed(),
        Kind::Evicted => (run(), block(), prop::collection::vec(id(), 8))
            .prop_map(|(run, block, some)| {
                // As many entries as the block counts, as many of them alive.
                let ids = (0..block.count as usize)
                    .map(|at| match at < block.live as usize {
                        true => some[at],
                        false => MessageId(0),
                    })
                    // An id twice in a row has no form: no block has it.
                    .scan(MessageId(0), |before, id| {
                        let id = match id == *before && id.0 != 0 {
                            true => MessageId(id.0 ^ 1 << 62),
                            false => id,
                        };
                        *before = if id.0 == 0 { *before } else { id };
                        Some(id)
                    })
                    .collect();
                Fact::Evicted {
                    run,
                    block: Box::new(block),
                    ids,
                }
            })
            .boxed(),
        Kind::Loaded => (run(), small(), at(), number(), any::<bool>())
            .prop_map(|(run, ordinal, at, bytes, apart)| Fact::Loaded {
                run,
                ordinal,
                at,
                bytes,
                apart,
            })
            .boxed(),
        Kind::RunImage => (run(), block())
            .prop_map(|(run, block)| {
                let dead = (block.live < block.count)
                    .then(|| vec![(1u64 << (block.count - block.live)) - 1].into_boxed_slice());
                Fact::RunImage {
                    run,
                    block: Box::new(block),
                    dead,
                }
            })
            .boxed(),
        Kind::RunGone => run().prop_map(Fact::RunGone).boxed(),
        Kind::Pending => (at(), number())
            .prop_map(|(at, client_id)| Fact::Pending {
                at,
                client_id: ClientId(client_id),
            })
            .boxed(),
        Kind::TableSet => (
            name(),
            bytes(),
            prop::option::of(bytes()),
            prop::option::of(ms()),
            number(),
        )
            .prop_map(|(table, key, value, until, version)| Fact::TableSet {
                table,
                key,
                value,
                until,
                version,
            })
            .boxed(),
        Kind::TableDropped => name().prop_map(Fact::TableDropped).boxed(),
        Kind::BatchMade => batch()
            .prop_map(|batch| Fact::BatchMade(Box::new(batch)))
            .boxed(),
        Kind::BatchProgress => (number(), progress())
            .prop_map(|(batch, progress)| Fact::BatchProgress {
                batch: BatchId(batch),
                progress,
            })
            .boxed(),
        Kind::BatchGone => number().prop_map(|id| Fact::BatchGone(BatchId(id))).boxed(),
        Kind::BatchOwed => owed().boxed(),
        Kind::Tracked => tracked().boxed(),
        Kind::Awaits => (id(), prop::option::of(after()))
            .prop_map(|(child, after)| Fact::Awaits {
                child,
                after: after.map(Box::new),
            })
            .boxed(),
        Kind::ParentEnded => (id(), any::<bool>())
            .prop_map(|(parent, succeeded)| Fact::ParentEnded { parent, succeeded })
            .boxed(),
        Kind::ParentTold => (id(), id(), any::<bool>())
            .prop_map(|(child, parent, succeeded)| Fact::ParentTold {
                child,
                parent,
                succeeded,
            })
            .boxed(),
        Kind::Freed => (at(), after())
            .prop_map(|(at, after)| Fact::Freed {
                at,
                after: Box::new(after),
            })
            .boxed(),
        Kind::Watched => (id(), 0..4u8, prop::option::of(one_of(ParentState::ALL)))
            .prop_map(|(parent, shard, state)| Fact::Watched {
                parent,
                shard,
                state,
            })
            .boxed(),
        Kind::Epoch => (number(), ms())
            .prop_map(|(epoch, now)| Fact::Epoch { epoch, now })
            .boxed(),
        Kind::IdMark => number().prop_map(Fact::IdMark).boxed(),
        Kind::HashKey => any::<[u8; 16]>().prop_map(Fact::HashKey).boxed(),
        Kind::QueueMade => (queue(), name(), prop::option::of(queue()), ms())
            .prop_map(|(queue, name, parent, created)| Fact::QueueMade {
                queue,
                name,
                parent,
                created,
            })
            .boxed(),
        Kind::QueueMaker => (queue(), bytes())
            .prop_map(|(queue, maker)| Fact::QueueMaker { queue, maker })
            .boxed(),
        Kind::QueueConfigured => (queue(), overrides())
            .prop_map(|(queue, overrides)| Fact::QueueConfigured {
                queue,
                overrides: Box::new(overrides),
            })
            .boxed(),
        Kind::QueuePaused => (
            queue(),
            prop::option::of((prop::option::of(ms()), number())),
        )
            .prop_map(|(queue, pause)| Fact::QueuePaused {
                queue,
                pause: pause.map(|(until, for_ms)| Pause { until, for_ms }),
            })
            .boxed(),
        Kind::KeyHeld => (queue(), bytes(), ms(), prop::option::of(ms()))
            .prop_map(|(queue, key, now, until)| Fact::KeyHeld {
                queue,
                key,
                now,
                until,
            })
            .boxed(),
        Kind::AgingSet => (
            queue(),
            prop::option::of((small(), ms(), small(), number())),
        )
            .prop_map(|(queue, clock)| Fact::AgingSet {
                queue,
                clock: clock.map(|(steps, since, count, per_ms)| AgingClock {
                    steps,
                    since,
                    rate: Rate { count, per_ms },
                }),
            })
            .boxed(),
        Kind::QueueFlushed => (queue(), number(), number())
            .prop_map(|(queue, through, count)| Fact::QueueFlushed {
                queue,
                through: MessageId(through),
                count,
            })
            .boxed(),
        Kind::QueuePurged => (queue(), number(), number())
            .prop_map(|(queue, through, count)| Fact::QueuePurged {
                queue,
                through: MessageId(through),
                count,
            })
            .boxed(),
        Kind::DedupeForgotten => queue()
            .prop_map(|queue| Fact::DedupeForgotten { queue })
            .boxed(),
        Kind::QueueDropped => (queue(), number(), any::<bool>())
            .prop_map(|(queue, through, idle)| Fact::QueueDropped {
                queue,
                through: MessageId(through),
                idle,
            })
            .boxed(),
        Kind::QueueCounted => (queue(), totals(), any::<i64>(), number())
            .prop_map(|(queue, totals, head, bury_order)| Fact::QueueCounted {
                queue,
                totals: Box::new(totals),
                head,
                bury_order,
            })
            .boxed(),
        Kind::ShardCounted => (number(), number(), number(), totals())
            .prop_map(|(made, dropped, expired, gone)| {
                Fact::ShardCounted(Box::new(ShardCounts {
                    made,
                    dropped,
                    expired,
                    gone,
                }))
            })
            .boxed(),
    }
}

fn fact() -> impl Strategy<Value = Fact> {
    let kinds: Vec<_> = FactKind::ALL.iter().map(|&kind| of_kind(kind)).collect();
    (0..kinds.len()).prop_flat_map(move |kind| kinds[kind].clone())
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

proptest! {
    // Seen to hold for 100,000 sequences once.
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: Some(Box::new(
            proptest::test_runner::FileFailurePersistence::WithSource("regressions"),
        )),
        ..ProptestConfig::default()
    })]

    /// A log whose checksums are right and whose facts make no sense is read:
    /// nothing in it reaches what replay asserts.
    #[test]
    fn facts_in_any_order_are_replayed(facts in prop::collection::vec(modest_fact(), 1..200)) {
        let mut engine = Engine::new(0, 1, Settings::default());
        for number in 0..3 {
            let made = Fact::QueueMade {
                queue: QueueId(number),
                name: Name::from(format!("queue {number}").as_str()),
                parent: None,
                created: Ms(1),
            };
            engine.replay(made, SegmentRef(0));
        }
        let mut dropped = Vec::new();
        for fact in facts {
            match &fact {
                Fact::QueueDropped { queue, .. } => dropped.push(*queue),
                // The table of queues is an array, and no number comes again.
                Fact::QueueMade { queue, .. }
                    if queue.0 > 1 << 16 || dropped.contains(queue) =>
                {
                    continue;
                }
                _ => {}
            }
            engine.replay(fact, SegmentRef(0));
        }
    }
}

/// Records that were once written, cut, joined and changed anyhow.
/// `RECORD_CASES` sets how many times.
#[test]
fn changed_records_are_refused_or_come_back() {
    let cases = std::env::var("RECORD_CASES").map_or(20_000, |text| {
        text.parse().expect("RECORD_CASES is a number")
    });
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let seeds: Vec<Vec<u8>> = FactKind::ALL
        .iter()
        .flat_map(|&kind| [kind; 4])
        .map(|kind| {
            let fact = of_kind(kind).new_tree(&mut runner).expect("a value");
            encode(&fact.current())
        })
        .collect();
    for case in 0..cases {
        let mut random = quintet_sim::Random::new(case);
        let mut bytes = seeds[random.index(seeds.len())].clone();
        for _ in 0..=random.below(4) {
            let at = random.index(bytes.len() + 1);
            match random.below(5) {
                0 => bytes.truncate(at),
                1 => bytes.extend(&seeds[random.index(seeds.len())]),
                2 => bytes.insert(at, random.next_u64() as u8),
                3 => drop(bytes.drain(at..(at + 3).min(bytes.len()))),
                _ => {
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte = random.next_u64() as u8;
                    }
                }
            }
        }
        let answered = std::panic::catch_unwind(|| survive(&bytes));
        assert!(answered.is_ok(), "input {bytes:02x?}");
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
    // A fact that was added has no line yet: these are some.
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let lines: Vec<String> = FactKind::ALL
        .iter()
        .filter(|&&kind| !operations.contains(&(kind as u8)))
        .flat_map(|&kind| [kind; 3])
        .map(|kind| {
            let fact = of_kind(kind).new_tree(&mut runner).expect("a value");
            let bytes = encode(&fact.current());
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("ok {hex}")
        })
        .collect();
    assert!(lines.is_empty(), "add to the corpus:\n{}", lines.join("\n"));
}
