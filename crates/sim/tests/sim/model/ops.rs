//! Steps of a random run, small so that they collide, and shrinkable.

use proptest::prelude::*;
use quintet_types::*;

use super::batches::{after, batch, batch_pick, retry};
use super::bulk_ops::{bulk_op, by_name, cancel, holding};
use super::groups::reconfigure;

/// One step. Messages are picked by an index into those that exist.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// A command that names no message.
    ClientRequest(u8, Command),
    /// A command on one message.
    On(u8, u16, On),
    /// Undoes the newest removing take.
    Restore,
    /// Time passes, and what is due is done.
    Pass(u64),
    /// The wall clock is set: so far ahead of engine time.
    SetWall(i64),
    /// Time passes; what is due is done later.
    Lag(u64),
    /// The client goes, another comes in its stead.
    HangUp(u8),
    /// The process dies and another begins.
    Restart,
    /// The log begins a new segment.
    Segment,
    /// A slice of the oldest segment is copied out.
    Copy(u32),
    /// Messages leave memory: so many bytes of them, or all of the oldest
    /// segment's; in blocks of so many.
    Evict(Option<u64>, usize),
    /// Messages are chosen to leave memory, and do so later.
    Pick(u64),
    /// All runs but the newest few are written again as one.
    Rewrite(usize),
    /// Copies of messages in runs are dropped, but so many blocks.
    Unload(usize),
}

/// Which lease is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseChoice {
    pub(crate) earlier: u32,
    pub(crate) other_epoch: bool,
    pub(crate) over: bool,
}

/// A command on one message.
#[derive(Clone, Debug)]
pub(crate) enum On {
    Settle(By, How),
    Touch,
    Extend(By, Option<u64>),
    /// By the lease it has, or had so many leases ago, or the same of another process.
    Shown(LeaseChoice, Box<On>),
    Progress(By, Option<u8>, Option<&'static str>),
    Cancel(Cancel),
    Hold(By, How, Holding),
    Reserve(LeaseRequest),
    Peek,
    Result,
    Delete(By),
    Kick,
    Redrive,
    Move(Name),
    Commit,
    Edit(Edit),
}

impl On {
    pub(crate) fn command(self, id: MessageId) -> Command {
        match self {
            On::Settle(by, how) => Command::Settle { id, by, how },
            On::Touch => Command::Touch(id),
            On::Extend(by, ms) => Command::Extend { id, by, ms },
            // The world knows its lease.
            On::Shown(_, on) => on.command(id),
            On::Progress(by, percent, text) => Command::Progress {
                id,
                by,
                percent,
                text: text.map(|text| text.as_bytes().into()),
            },
            On::Cancel(cancel) => Command::Cancel(id, Box::new(cancel)),
            On::Hold(by, how, hold) => Command::SettleHolding { id, by, how, hold },
            On::Reserve(lease) => Command::ReserveId { id, lease },
            On::Peek => Command::Peek(Peek::Id(id)),
            On::Result => Command::AwaitResult { id, wait_ms: 0 },
            On::Delete(by) => Command::Delete { id, by },
            On::Kick => Command::KickId(id),
            On::Redrive => Command::Redrive(id),
            On::Move(to) => Command::Move { id, to },
            On::Commit => Command::Commit(id),
            On::Edit(edit) => Command::Edit(id, Box::new(edit)),
        }
    }
}

/// Weighted choice among constants.
pub(super) fn of<T: Clone + std::fmt::Debug + 'static>(
    values: &[T],
) -> impl Strategy<Value = T> + use<T> {
    prop::sample::select(values.to_vec())
}

pub(super) fn name() -> impl Strategy<Value = Name> {
    of(&["a", "a", "b", "b", "c", "d", "m"]).prop_map(Name::from)
}

pub(super) fn text() -> impl Strategy<Value = Box<[u8]>> {
    of(&["", "x", "y"]).prop_map(|text| text.as_bytes().into())
}

fn when() -> impl Strategy<Value = When> {
    prop_oneof![
        2 => Just(When::Default),
        2 => Just(When::Now),
        2 => (0..30u64).prop_map(When::In),
        1 => (1_000_000..1_000_100u64).prop_map(|at| When::At(Ms(at))),
    ]
}

pub(super) fn priority() -> impl Strategy<Value = Option<u32>> {
    of(&[None, None, Some(0), Some(1), Some(1024), Some(u32::MAX)])
}

fn put() -> impl Strategy<Value = Put> {
    let expires = prop_oneof![
        4 => Just(Expiry::Default),
        1 => Just(Expiry::Never),
        2 => (0..40u64).prop_map(Expiry::In),
        1 => (999_990..1_000_050u64).prop_map(|at| Expiry::At(Ms(at))),
        1 => (999_990..1_000_050u64).prop_map(|at| Expiry::AtWall(Ms(at))),
    ];
    let ttr = of(&[None, None, Some(0), Some(5), Some(20)]);
    let body = (0..6usize, any::<u8>()).prop_map(|(len, fill)| Body::new(&vec![fill; len]));
    let queue = (name(), prop::bool::weighted(0.1));
    (
        queue,
        body,
        priority(),
        when(),
        expires,
        ttr,
        0..3u32,
        more(),
    )
        .prop_map(
            |((queue, must_exist), body, priority, due, expires, ttr_ms, flags, more)| Put {
                queue,
                must_exist,
                body,
                priority,
                flags,
                due,
                expires,
                ttr_ms,
                more,
            },
        )
}

fn more() -> impl Strategy<Value = Option<Box<PutMore>>> {
    let window = of(&[None, Some(0), Some(5), Some(40)]);
    let scope = prop::option::of(of(Scope::ALL));
    let on_repeat = prop::option::of(of(OnRepeat::ALL));
    let dedupe =
        (text(), window, scope, on_repeat).prop_map(|(id, window_ms, scope, on_repeat)| Dedupe {
            id,
            window_ms,
            scope,
            on_repeat,
        });
    let more = (
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.1),
        prop::option::weighted(0.7, text()),
        prop::option::weighted(0.15, dedupe),
        (prop::option::weighted(0.15, text()), of(&[0, 1, 1, 2])),
        prop::option::weighted(0.15, past()),
        prop::option::weighted(0.4, message_name()),
        prop::option::weighted(0.15, retry()),
        prop::option::weighted(0.5, batch_pick()),
        prop::bool::weighted(0.6),
        prop::option::weighted(0.3, after()),
    );
    prop::option::weighted(
        0.5,
        more.prop_map(
            |(
                not_selectable,
                prepared,
                key,
                dedupe,
                (token, token_sum),
                past,
                name,
                retry,
                batch,
                tracked,
                after,
            )| {
                let has_name = name.is_some();
                Box::new(PutMore {
                    not_selectable,
                    prepared,
                    key: key.map(|key| key.into()),
                    dedupe,
                    token,
                    token_sum,
                    past: past.map(Box::new),
                    name: name.map(Into::into),
                    retry,
                    batch: batch.map(Tie::member),
                    // One without a name is refused, and few are.
                    tracked: tracked && (has_name || prepared),
                    after: after.map(Box::new),
                    ..PutMore::default()
                })
            },
        ),
    )
}

pub(super) fn message_name() -> impl Strategy<Value = Box<[u8]>> {
    of(&["", "n", "n", "n", "o", "o"]).prop_map(|text| text.as_bytes().into())
}

/// Times before, in and after those of the run.
fn past() -> impl Strategy<Value = Past> {
    let state = of(&[
        State::Prepared,
        State::Ready,
        State::Reserved,
        State::Buried,
        State::Done,
        State::Relayed,
    ]);
    let time = || of(&[0, 1_000, 1_000_010, 2_000_000]).prop_map(Ms);
    (state, time(), time(), text(), 0..2u32).prop_map(|(state, created, changed, status, count)| {
        Past {
            state,
            created,
            changed,
            status,
            reserves: count,
            buries: count,
            ..Past::default()
        }
    })
}

fn back_to() -> impl Strategy<Value = BackTo> {
    of(&[BackTo::Position, BackTo::Head, BackTo::Tail])
}

fn ask() -> impl Strategy<Value = LeaseRequest> {
    let owner = of(&[
        LeaseOwner::Connection,
        LeaseOwner::Connection,
        LeaseOwner::Process,
        LeaseOwner::Time,
        LeaseOwner::TimeElseConnection,
    ]);
    let time = of(&[
        LeaseTime::OwnTtr,
        LeaseTime::TtrOrDefault,
        LeaseTime::TtrOrDefaultElse(14),
        LeaseTime::TtrOrOver,
        LeaseTime::Fixed(0),
        LeaseTime::Fixed(10),
        LeaseTime::Fixed(25),
        LeaseTime::TtrElse(12),
        LeaseTime::Over,
    ]);
    (owner, time, back_to(), of(&[0, 0, 0, 1, 2])).prop_map(|(owner, time, back_to, held_max)| {
        LeaseRequest {
            owner,
            time,
            back_to,
            held_max,
        }
    })
}

pub(super) fn take() -> impl Strategy<Value = Take> {
    let queues = prop_oneof![3 => prop::collection::vec(name(), 1), 1 => prop::collection::vec(name(), 2..4)];
    let wait = prop_oneof![
        3 => Just(Wait::No),
        2 => (0..40u64).prop_map(Wait::For),
        1 => (999_990..1_000_090u64).prop_map(|at| Wait::Until(Ms(at))),
        2 => Just(Wait::Forever),
    ];
    let group = prop::option::weighted(
        0.3,
        (0..4u32, 0..12u64).prop_map(|(messages_max, bytes_max)| GroupLimit {
            messages_max,
            bytes_max,
        }),
    );
    (
        (
            (queues, prop::bool::weighted(0.15)),
            of(&[Pick::Best, Pick::InOrder]),
            of(&[End::Oldest, End::Oldest, End::Newest]),
            group,
        ),
        prop::option::weighted(0.6, ask()),
        (prop::bool::weighted(0.1), wait, of(&[0, 1, 1, 2, 3])),
        (
            prop::option::weighted(0.2, 0..5u64),
            of(&[0, 0, 0, 1]),
            any::<bool>(),
            of(&[None, None, Some(4), Some(12)]),
            (of(&["", "", "", "s", "t"]), of(&[0, 1, 1, 2])),
        ),
    )
        .prop_map(
            |(
                ((queues, must_exist), pick, end, group),
                lease,
                (peek, wait, messages_max),
                (body_max, refuse_if_held, held_anywhere, deadline_soon_ms, (token, token_sum)),
            )| Take {
                queues: queues.into_iter().collect(),
                must_exist,
                pick,
                end,
                group,
                keys: None,
                lease,
                peek,
                wait,
                messages_max,
                body_max,
                refuse_if_held,
                held_anywhere,
                deadline_soon_ms,
                token: (!token.is_empty()).then(|| token.as_bytes().into()),
                token_sum,
            },
        )
}

pub(super) fn how() -> impl Strategy<Value = How> {
    prop_oneof![
        2 => Just(How::Finish),
        1 => (any::<bool>(), text()).prop_map(|(relayed, status)| How::Archive { relayed, status }),
        4 => (priority(), when(), prop::option::of(back_to()))
            .prop_map(|(priority, due, back_to)| How::Release { priority, due, back_to }),
        2 => (priority(), text()).prop_map(|(priority, reason)| How::Bury { priority, reason }),
        1 => (text(), prop::option::weighted(0.3, (text(), prop::option::of(text()))))
            .prop_map(|(error, note)| How::Fail { error, note: note.into_iter().collect() }),
    ]
}

fn by() -> impl Strategy<Value = By> {
    of(&[
        By::Owner,
        By::Owner,
        By::OwnerOrFree,
        By::OwnerOrFree,
        By::Anyone,
        By::Bearer,
    ])
}

pub(super) fn state() -> impl Strategy<Value = ListState> {
    of(&[
        ListState::Ready,
        ListState::Delayed,
        ListState::Reserved,
        ListState::Buried,
        ListState::Prepared,
        ListState::Archived,
    ])
}

fn edit() -> impl Strategy<Value = Edit> {
    (
        priority(),
        prop::option::of(when()),
        prop::option::of(text()),
        prop::option::of(text()),
    )
        .prop_map(|(priority, due, status, attr)| Edit {
            body: None,
            priority,
            due,
            status,
            attrs: attr
                .into_iter()
                .map(|v| (v.clone(), (!v.is_empty()).then_some(v)))
                .collect(),
            attachments: None,
        })
}

fn overrides() -> impl Strategy<Value = Overrides> {
    prop_oneof![
        of(&[0, 1, 3]).prop_map(|n| Overrides {
            messages_max: Some(n),
            ..Overrides::default()
        }),
        of(&[0, 4, 9]).prop_map(|n| Overrides {
            bytes_max: Some(n),
            ..Overrides::default()
        }),
        of(&[0, 1, 2]).prop_map(|n| Overrides {
            attempts_max: Some(n),
            ..Overrides::default()
        }),
        of(&[0, 20]).prop_map(|n| Overrides {
            ttl_ms: Some(n),
            ..Overrides::default()
        }),
        of(&[0, 7]).prop_map(|n| Overrides {
            default_delay_ms: Some(n),
            ..Overrides::default()
        }),
        of(&[0, 1, 2]).prop_map(|n| Overrides {
            in_flight_max: Some(n),
            ..Overrides::default()
        }),
        (of(&[0, 1, 3]), of(&[10, 25]), of(&[1, 2])).prop_map(|(count, per_ms, burst)| Overrides {
            take_rate: Some(Rate { count, per_ms }),
            take_burst: Some(burst),
            ..Overrides::default()
        }),
        (of(&[0, 5, 20]), of(&[1, 2]), of(&[0, 1, 2])).prop_map(|(delay, factor, max)| Overrides {
            retry_delay_ms: Some(delay),
            retry_factor: Some(factor),
            retry_delay_max_ms: Some(30),
            retry_jitter: Some(0),
            retry_max: Some(max),
            ..Overrides::default()
        }),
        (of(&["t", "u"]), prop::option::of(text())).prop_map(|(name, value)| {
            let mut tags = Tags::default();
            tags.set(name.as_bytes(), value.as_deref());
            Overrides {
                tags: Some(tags),
                ..Overrides::default()
            }
        }),
        (of(&[0, 1, 3]), of(&[10, 25])).prop_map(|(count, per_ms)| Overrides {
            aging: Some(Rate { count, per_ms }),
            ..Overrides::default()
        }),
        of(Groups::ALL).prop_map(|groups| Overrides {
            groups: Some(groups),
            ..Overrides::default()
        }),
        of(&[0, 1, 2]).prop_map(|n| Overrides {
            key_in_flight_max: Some(n),
            ..Overrides::default()
        }),
        (of(&[0, 1, 3]), of(&[10, 25]), of(&[1, 2])).prop_map(|(count, per_ms, burst)| Overrides {
            key_take_rate: Some(Rate { count, per_ms }),
            key_take_burst: Some(burst),
            ..Overrides::default()
        }),
        any::<bool>().prop_map(|b| Overrides {
            paused: Some(b),
            ..Overrides::default()
        }),
        any::<bool>().prop_map(|b| Overrides {
            down: Some(b),
            ..Overrides::default()
        }),
        any::<bool>().prop_map(|b| Overrides {
            fanout_only: Some(b),
            ..Overrides::default()
        }),
        any::<bool>().prop_map(|b| Overrides {
            when_full: Some(if b {
                WhenFull::DropOldest
            } else {
                WhenFull::Refuse
            }),
            ..Overrides::default()
        }),
        name().prop_map(|n| Overrides {
            expire_to: Some(n),
            ..Overrides::default()
        }),
        name().prop_map(|n| Overrides {
            dead_letter: Some(DeadLetter::To(n)),
            attempts_max: Some(1),
            ..Overrides::default()
        }),
    ]
}

/// A take that may also name no queue.
fn subscription() -> impl Strategy<Value = Take> {
    (take(), prop::bool::weighted(0.2)).prop_map(|(mut take, none)| {
        if none {
            take.queues.clear();
        }
        take
    })
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        20 => put().prop_map(Command::Put),
        4 => prop::collection::vec(put(), 0..4).prop_map(Command::PutMany),
        20 => take().prop_map(Command::Take),
        3 => prop::option::weighted(0.8, subscription()).prop_map(|t| Command::Watch(t.map(Box::new))),
        2 => subscription().prop_map(|t| Command::Rewatch(Box::new(t))),
        3 => (name(), any::<bool>()).prop_map(|(queue, on)| Command::WatchQueue { queue, on }),
        1 => Just(Command::StopWaiting),
        4 => (name(), of(&[None, Some(true), Some(false)]), of(&[None, Some(true), Some(false)]))
            .prop_map(|(queue, uses, watches)| Command::Refer { queue, uses, watches }),
        4 => (prop::option::of(name()), how(), 1..4u32)
            .prop_map(|(queue, how, max)| Command::SettleHeld { queue, how, max }),
        3 => (name(), state(), 0..4u64)
            .prop_map(|(queue, state, max)| Command::Kick { queue, state, max }),
        8 => by_name().prop_map(|by_name| Command::ByName(Box::new(by_name))),
        4 => bulk_op().prop_map(|bulk_op| Command::BulkOp(Box::new(bulk_op))),
        2 => (name(), of(&[None, Some(0), Some(15)]))
            .prop_map(|(queue, for_ms)| Command::Pause { queue, for_ms }),
        1 => (name(), of(&[0, 5, 25]))
            .prop_map(|(queue, for_ms)| Command::Hold { queue, key: None, for_ms }),
        2 => (name(), prop::option::weighted(0.5, overrides())).prop_map(|(queue, o)| {
            let overrides = Box::new(o.unwrap_or_default());
            Command::Create { queue, overrides }
        }),
        3 => (name(), prop::option::weighted(0.9, overrides()), any::<bool>()).prop_map(
            |(queue, o, must_exist)| {
                let overrides = o.map(Box::new);
                Command::Configure { queue, overrides, must_exist }
            },
        ),
        3 => (name(), prop::option::weighted(0.3, overrides()), overrides()).prop_map(reconfigure),
        2 => (name(), name()).prop_map(|(parent, child)| Command::Join { parent, child }),
        1 => (name(), any::<bool>()).prop_map(|(queue, reserved)| Command::Flush { queue, reserved }),
        1 => Just(Command::FlushAll),
        2 => name().prop_map(Command::Drop),
        1 => (of(&["a", "*", "?", "m*", "x"]), any::<bool>(), any::<bool>()).prop_map(
            |(pattern, messages, dry_run)| Command::DropQueues {
                pattern: Pattern::new(pattern),
                messages,
                dry_run,
                from: (0, 0),
            }
        ),
        1 => Just(Command::BurnId),
        10 => batch().prop_map(Command::Batch),
        1 => (name(), text()).prop_map(|(queue, id)| Command::Remembered { queue, id }),
        3 => prop_oneof![
            name().prop_map(Peek::Ready),
            name().prop_map(Peek::Delayed),
            name().prop_map(Peek::Buried),
        ].prop_map(Command::Peek),
    ]
}

fn shown() -> impl Strategy<Value = LeaseChoice> {
    (of(&[0, 0, 0, 1]), prop::bool::weighted(0.1), any::<bool>()).prop_map(
        |(earlier, other_epoch, over)| LeaseChoice {
            earlier,
            other_epoch,
            over,
        },
    )
}

/// Its right is put in when the lease is known.
fn shown_act() -> impl Strategy<Value = On> {
    let by = By::Anyone;
    prop_oneof![
        2 => how().prop_map(move |how| On::Settle(by, how)),
        2 => of(&[None, Some(1), Some(40)]).prop_map(move |ms| On::Extend(by, ms)),
        1 => Just(On::Delete(by)),
    ]
}

pub(super) fn on() -> impl Strategy<Value = On> {
    prop_oneof![
        8 => (by(), how()).prop_map(|(by, how)| On::Settle(by, how)),
        1 => Just(On::Touch),
        1 => of(&[None, Some(1), Some(40)]).prop_map(|ms| On::Extend(By::Anyone, ms)),
        8 => (shown(), shown_act()).prop_map(|(shown, on)| On::Shown(shown, Box::new(on))),
        1 => (by(), of(&[None, Some(0), Some(100)]), of(&[None, Some(""), Some("half")]))
            .prop_map(|(by, percent, text)| On::Progress(by, percent, text)),
        3 => ask().prop_map(On::Reserve),
        3 => cancel().prop_map(On::Cancel),
        2 => (by(), how(), holding()).prop_map(|(by, how, hold)| On::Hold(by, how, hold)),
        1 => Just(On::Peek),
        2 => Just(On::Result),
        2 => by().prop_map(On::Delete),
        2 => Just(On::Kick),
        2 => Just(On::Redrive),
        2 => name().prop_map(On::Move),
        2 => Just(On::Commit),
        3 => edit().prop_map(On::Edit),
    ]
}

/// A random step.
pub(crate) fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        60 => (0..3u8, command()).prop_map(|(client_id, command)| Op::ClientRequest(client_id, command)),
        24 => (0..3u8, any::<u16>(), on()).prop_map(|(client_id, pick, on)| Op::On(client_id, pick, on)),
        3 => Just(Op::Restore),
        10 => of(&[0, 1, 3, 10, 20, 60, 1100]).prop_map(Op::Pass),
        1 => of(&[0, 20, -20, 31_536_000_000, -31_536_000_000]).prop_map(Op::SetWall),
        4 => of(&[1, 3, 10, 20]).prop_map(Op::Lag),
        2 => (0..3u8).prop_map(Op::HangUp),
        2 => Just(Op::Restart),
        2 => Just(Op::Segment),
        4 => (1..6u32).prop_map(Op::Copy),
        8 => (prop::option::of(of(&[200, 1000, u64::MAX])), 1..4usize)
            .prop_map(|(bytes, size)| Op::Evict(bytes, size)),
        3 => of(&[200, u64::MAX]).prop_map(Op::Pick),
        2 => (0..3usize).prop_map(Op::Rewrite),
        4 => (0..3usize).prop_map(Op::Unload),
    ]
}

/// Settings under which limits, dead letters and memory queues happen.
pub(crate) fn settings() -> impl Strategy<Value = Settings> {
    of(&all_settings()[..5])
}

/// The same, and some under which keys mean something.
pub(crate) fn every_setting() -> impl Strategy<Value = Settings> {
    of(&all_settings())
}

/// Those under which messages leave memory.
pub(crate) fn cold_settings() -> impl Strategy<Value = Settings> {
    of(&all_settings()[..3])
}

fn all_settings() -> [Settings; 6] {
    let rule = |name: &str, o: Overrides| (Pattern::new(name), o);
    let memory = rule(
        "m",
        Overrides {
            memory: Some(true),
            ..Overrides::default()
        },
    );
    let plain = Settings {
        rules: vec![memory],
        batches_max: 4,
        batch_bytes_max: 18,
        batch_open_ms: 300,
        batch_ttl_ms: 2000,
        batch_keep_ms: 100,
        tracked_max: 4,
        track_keep_ms: 200,
        ..Settings::default()
    };
    let none = || Overrides::default();
    let mut tight = plain.clone();
    tight.defaults.retention_ms = 30;
    tight.defaults.aging = Rate {
        count: 1,
        per_ms: 10,
    };
    tight.defaults.default_ttr_ms = 15;
    tight.rules.extend([
        rule(
            "a",
            Overrides {
                messages_max: Some(2),
                attempts_max: Some(1),
                buried_ttl_ms: Some(20),
                ..none()
            },
        ),
        rule(
            "b",
            Overrides {
                bytes_max: Some(6),
                when_full: Some(WhenFull::DropOldest),
                dead_letter: Some(DeadLetter::To("c".into())),
                attempts_max: Some(2),
                message_bytes_max: Some(4),
                ..none()
            },
        ),
        rule(
            "c",
            Overrides {
                dedupe_by_key_ms: Some(25),
                ttl_max_ms: Some(50),
                in_flight_max: Some(1),
                dead_letter: Some(DeadLetter::To("a".into())),
                retry_delay_ms: Some(5),
                retry_jitter: Some(0),
                retry_max: Some(1),
                ..none()
            },
        ),
        rule(
            "d",
            Overrides {
                unique_by_body: Some(true),
                unique_for_ms: Some(0),
                unique_until: Some(Scope::Waiting),
                unique_repeat: Some(OnRepeat::Replace),
                locked: ["messages_max", "paused"].map(Overrides::bit).iter().sum(),
                ..none()
            },
        ),
        rule(
            "m",
            Overrides {
                expire_to: Some("a".into()),
                ttl_ms: Some(10),
                ..none()
            },
        ),
    ]);
    let mut few = plain.clone();
    few.queues_max = 2;
    few.waiters_max = 2;
    few.defaults.expire_to = Some("c".into());
    few.defaults.dead_letter = DeadLetter::To("b".into());
    few.defaults.attempts_max = 1;
    let mut idle = plain.clone();
    idle.defaults.idle_ms = 50;
    idle.defaults.expire_to = Some("b".into());
    idle.rules.push(rule(
        "b",
        Overrides {
            memory: Some(true),
            messages_max: Some(2),
            idle_ms: Some(50),
            ..none()
        },
    ));
    // The same where nobody makes way.
    let mut counted = tight.clone();
    counted.dedupe_max = 3;
    for (_, rule) in &mut counted.rules {
        if rule.bytes_max.take().is_some() {
            (rule.messages_max, rule.when_full) = (Some(2), None);
        }
    }
    let mut grouped = plain.clone();
    grouped.defaults.groups = Groups::Ordered;
    grouped.defaults.default_ttr_ms = 15;
    grouped.rules.extend([
        rule(
            "b",
            Overrides {
                key_in_flight_max: Some(1),
                retry_delay_ms: Some(5),
                retry_jitter: Some(0),
                ..none()
            },
        ),
        rule(
            "c",
            Overrides {
                groups: Some(Groups::Fair),
                key_take_rate: Some(Rate {
                    count: 1,
                    per_ms: 25,
                }),
                key_take_burst: Some(2),
                ..none()
            },
        ),
        rule(
            "d",
            Overrides {
                groups: Some(Groups::None),
                key_in_flight_max: Some(1),
                ..none()
            },
        ),
    ]);
    [plain, tight, counted, few, idle, grouped]
}
