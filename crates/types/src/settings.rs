//! Settings the engine decides by. They come from the configuration file and
//! from facts; `decide` reads them, `apply` never does.

use crate::command_error::CommandError;
use crate::name::Name;
use crate::retry::RetryOn;
use crate::tags::Tags;
use crate::unique::{OnRepeat, Scope};

named! {
    /// Behaviour of a put to a full queue.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub enum WhenFull, word {
        #[default]
        Refuse = "refuse",
        /// Drop the oldest message of the least urgent priority; if none is ready, the
        /// first not selectable, then the one that is due last.
        DropOldest = "drop_oldest",
    }
}

/// Destination of a message that was reserved `attempts_max` times and came back.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum DeadLetter {
    /// It is buried in its queue.
    #[default]
    Bury,
    /// It goes to this queue, with the reason in its attributes; it is buried
    /// if that is the queue it is in, or cannot be made.
    To(Name),
}

coded! {
    /// The meaning of message keys for takes. Messages with the same key are a *message group*;
    /// those without a key are in none.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub enum Groups, "groups" {
        #[default]
        None = 0 => "none",
        /// A message waits for those of its group that stand before it: while one of them is
        /// reserved or delayed, none behind it is handed out, but to the take that got it.
        Ordered = 1 => "ordered",
        /// Groups that have much under leases stand behind the others.
        Fair = 2 => "fair",
    }
}

/// So many in a time; none in no time: no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rate {
    /// How many.
    pub count: u32,
    /// In how long, ms.
    pub per_ms: u64,
}

impl Rate {
    /// Nanoseconds from one to the next; `None`: there is no limit.
    pub fn interval_ns(self) -> Option<u64> {
        let per_ns = self.per_ms.saturating_mul(1_000_000);
        (self.count > 0 && per_ns > 0).then(|| (per_ns / u64::from(self.count)).max(1))
    }
}

/// A time to run that is none, ms: 0 would be no deadline.
pub const AT_ONCE_MS: u64 = 1;

defaults! {
    /// Settings of one queue, resolved.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct QueueSettings {
        /// Priority of a put that names none.
        pub default_priority: u32 = crate::message::PRIORITY_DEFAULT,
        /// Time to run of a lease that needs one when the message has none, ms; [`AT_ONCE_MS`]: it
        /// is over in the step that gives it.
        pub default_ttr_ms: u64 = 60_000,
        /// How long a put message that says nothing of it is delayed, ms.
        pub default_delay_ms: u64 = 0,
        /// Waiting (ready, delayed, not selectable) messages at most; 0: no limit.
        pub messages_max: u64 = 0,
        /// Bytes of waiting messages at most ([`crate::Message::size`]); 0: no limit.
        pub bytes_max: u64 = 0,
        /// Bytes of one body at most.
        pub message_bytes_max: u64 = 64 << 20,
        /// Reserves without finish before the dead-letter rule; 0: no limit.
        pub attempts_max: u32 = 0,
        /// The dead-letter rule.
        pub dead_letter: DeadLetter = DeadLetter::Bury,
        /// Time to live of a put that gives none, ms; 0: for ever.
        pub ttl_ms: u64 = 0,
        /// Upper bound on any time to live, ms (Kestrel `maxAge`); 0: none.
        pub ttl_max_ms: u64 = 0,
        /// Expired messages go here instead of vanishing (Kestrel `expireToQueue`).
        pub expire_to: Option<Name> = None,
        /// Behaviour of a full queue.
        pub when_full: WhenFull = WhenFull::Refuse,
        /// A put whose key was put within this time is refused, ms; 0: off.
        pub dedupe_by_key_ms: u64 = 0,
        /// A put without a dedupe id has the hash of its body as one; a body that is not in memory
        /// has none.
        pub unique_by_body: bool = false,
        /// For how long a dedupe id is remembered at most, unless the put says, ms; 0: without a
        /// bound, but for the scope [`Scope::Window`].
        pub unique_for_ms: u64 = 24 * 3600 * 1000,
        /// The event that ends uniqueness, unless the put says.
        pub unique_until: Scope = Scope::Window,
        /// Handling of repeats, unless the put says.
        pub unique_repeat: OnRepeat = OnRepeat::Refuse,
        /// How long archived messages are kept, ms.
        pub retention_ms: u64 = 24 * 3600 * 1000,
        /// How long messages that are buried from now on stay, unless they say so themselves
        /// ([`crate::Retry::buried_ttl_ms`]), ms; 0: until somebody acts.
        pub buried_ttl_ms: u64 = 0,
        /// An empty queue nobody refers to is dropped after this time, ms, or up
        /// to a thirtieth of it (two seconds at least) later; 0: never. Waiting
        /// takes, fan-out, a pause, own settings and deduplication records refer to it. A
        /// restart begins the time anew.
        pub idle_ms: u64 = 3600 * 1000,
        /// Takes are not served.
        pub paused: bool = false,
        /// Puts and takes are refused.
        pub down: bool = false,
        /// Never logged: gone at restart.
        pub memory: bool = false,
        /// Direct puts go only to the children (Kestrel `fanoutOnly`).
        pub fanout_only: bool = false,
        /// Messages under a lease at most; takes beyond wait as for an empty queue.
        /// A lease by id does not wait, companions are taken together. 0: no
        /// limit.
        pub in_flight_max: u64 = 0,
        /// Messages handed out at most; takes beyond wait. Forgotten at restart.
        pub take_rate: Rate = Rate::default(),
        /// How many may be handed out at once after a rest; 1 at least.
        pub take_burst: u32 = 1,
        /// How much the priority of a message rises while it waits: steps in a time. For messages
        /// that come to the queue.
        pub aging: Rate = Rate::default(),
        /// The meaning of keys for takes.
        pub groups: Groups = Groups::None,
        /// Messages of one key under a lease at most; takes pass over those beyond. As with
        /// `in_flight_max` a lease by id does not wait, companions are taken together. 0: no
        /// limit.
        pub key_in_flight_max: u64 = 0,
        /// Messages of one key handed out at most; takes pass over those beyond. Forgotten at
        /// restart and when the queue is flushed.
        pub key_take_rate: Rate = Rate::default(),
        /// How many of one key may be handed out at once after a rest; 1 at least.
        pub key_take_burst: u32 = 1,
        /// How long a message rests after its first failure, ms; 0: not at all.
        pub retry_delay_ms: u64 = 0,
        /// How many times longer each further rest is than the one before; 1 at least.
        pub retry_factor: u32 = 2,
        /// The longest rest, ms, jitter not counted.
        pub retry_delay_max_ms: u64 = 3600 * 1000,
        /// Random addition to each rest at most, percent of it.
        pub retry_jitter: u32 = 10,
        /// Failures after which a message is tried again; the next one ends it by the dead-letter
        /// rule. 0: no limit.
        pub retry_max: u32 = 0,
        /// The events that count as a failure, besides the holder's own report.
        pub retry_on: RetryOn = RetryOn::ALL,
        /// Nobody has chosen a retry policy. Overrides with a `retry_delay_ms` or a `retry_max`
        /// then replace both, and `retry_on`.
        pub retry_by_default: bool = false,
        /// Its named values.
        pub tags: Tags = Tags::default(),
        /// Settings that only the configuration may change ([`Overrides::bit`]).
        pub locked: u64 = 0,
    }
}

impl QueueSettings {
    /// The defaults of a server: a message whose holder says that it failed is tried 25 times, at
    /// first after a second and then after twice the time before. Leases that end without that are
    /// no failures, as clients that know nothing of retries give messages back in their own way.
    pub fn of_server() -> Self {
        Self {
            retry_delay_ms: 1000,
            retry_max: 24,
            retry_on: RetryOn::NONE,
            retry_by_default: true,
            ..Self::default()
        }
    }
}

macro_rules! overrides {
    ($dollar:tt $($(#[$note:meta])* $field:ident: $type:ty,)*) => {
        /// Changes to a queue's settings: `Some` wins over what lies below.
        #[derive(Clone, PartialEq, Eq, Debug, Default)]
        pub struct Overrides {
            $(
                #[doc = concat!("See [`QueueSettings::", stringify!($field), "`].")]
                $(#[$note])*
                pub $field: Option<$type>,
            )*
            /// See [`QueueSettings::locked`]. Only from the configuration.
            pub locked: u64,
        }

        /// Calls a macro with the name of every override.
        #[macro_export]
        macro_rules! each_override {
            ($dollar then:ident) => {
                $dollar then! { $($field),* }
            };
        }
    };
}

// The only list of the overrides: a new one goes at its end, as the order is that of the log's
// format. The macro that this one makes has a `$` of its own.
overrides! {
    $
    default_priority: u32,
    default_ttr_ms: u64,
    messages_max: u64,
    bytes_max: u64,
    message_bytes_max: u64,
    attempts_max: u32,
    dead_letter: DeadLetter,
    ttl_ms: u64,
    ttl_max_ms: u64,
    expire_to: Name,
    when_full: WhenFull,
    dedupe_by_key_ms: u64,
    retention_ms: u64,
    idle_ms: u64,
    paused: bool,
    down: bool,
    /// Only from the configuration: a queue cannot become durable or stop being so while it
    /// exists.
    memory: bool,
    fanout_only: bool,
    in_flight_max: u64,
    take_rate: Rate,
    take_burst: u32,
    retry_delay_ms: u64,
    retry_factor: u32,
    retry_delay_max_ms: u64,
    retry_jitter: u32,
    retry_max: u32,
    retry_on: RetryOn,
    unique_by_body: bool,
    unique_for_ms: u64,
    unique_until: Scope,
    unique_repeat: OnRepeat,
    default_delay_ms: u64,
    /// These are laid over what lies below one by one, [`crate::TAGS_BYTES_MAX`] bytes in all.
    tags: Tags,
    groups: Groups,
    key_in_flight_max: u64,
    key_take_rate: Rate,
    key_take_burst: u32,
    buried_ttl_ms: u64,
    aging: Rate,
}

impl Overrides {
    /// Lays these over `settings`.
    pub fn lay_over(&self, settings: &mut QueueSettings) {
        let chosen = self.retry_delay_ms.is_some() || self.retry_max.is_some();
        if chosen && settings.retry_by_default {
            let plain = QueueSettings::default();
            settings.retry_delay_ms = plain.retry_delay_ms;
            settings.retry_max = plain.retry_max;
            settings.retry_on = plain.retry_on;
            settings.retry_by_default = false;
        }
        macro_rules! lay {
            ($($field:ident),* $(,)?) => {
                $(if let Some(value) = &self.$field { settings.$field = value.clone().into(); })*
            };
        }
        let tags = self.tags.as_ref().map(|tags| tags.over(&settings.tags));
        each_override!(lay);
        settings.tags = tags.unwrap_or_else(|| std::mem::take(&mut settings.tags));
        settings.locked |= self.locked;
    }

    /// Lays a queue's own ones over `settings`, but for those that are locked there.
    pub fn lay_own_over(&self, settings: &mut QueueSettings) {
        let locked = settings.locked;
        if locked == 0 || self.set_bits() == 0 {
            return self.lay_over(settings);
        }
        let (mut unlocked, below) = (self.clone(), settings.clone());
        unlocked.clear(locked);
        unlocked.lay_over(settings);
        // A retry policy also replaces values that it does not give.
        macro_rules! restore {
            ($($field:ident),* $(,)?) => {
                $(if locked & Self::bit(stringify!($field)) != 0 { settings.$field = below.$field; })*
            };
        }
        each_override!(restore);
    }

    /// The bit that stands for the setting of this field; 0: there is none.
    pub fn bit(field: &str) -> u64 {
        macro_rules! names {
            ($($field:ident),* $(,)?) => { [$(stringify!($field)),*] };
        }
        let at = each_override!(names).iter().position(|name| *name == field);
        at.map_or(0, |at| 1 << at)
    }

    /// The bits of those that are `Some`.
    pub fn set_bits(&self) -> u64 {
        macro_rules! set_bits {
            ($($field:ident),* $(,)?) => { [$(self.$field.is_some()),*] };
        }
        bits_of(&each_override!(set_bits))
    }

    /// Makes these `None`.
    pub fn clear(&mut self, bits: u64) {
        macro_rules! clear {
            ($($field:ident),* $(,)?) => {
                $(if bits & Self::bit(stringify!($field)) != 0 { self.$field = None; })*
            };
        }
        each_override!(clear);
    }

    /// The bits of those that are set here and are not the same in `before`.
    fn newly_set(&self, before: &Overrides) -> u64 {
        macro_rules! newly {
            ($($field:ident),* $(,)?) => { [$(self.$field.is_some() && self.$field != before.$field),*] };
        }
        bits_of(&each_override!(newly))
    }

    /// Whether `newer` may take the place of these where `locked` are locked.
    ///
    /// # Errors
    /// [`CommandError::Locked`].
    pub fn may_become(&self, newer: &Overrides, locked: u64) -> Result<(), CommandError> {
        match newer.newly_set(self) & locked {
            0 => Ok(()),
            _ => Err(CommandError::Locked),
        }
    }

    /// Lays `newer` over these; its `Some` win.
    pub fn merge(&mut self, newer: &Overrides) {
        macro_rules! merge {
            ($($field:ident),* $(,)?) => {
                $(if newer.$field.is_some() { self.$field = newer.$field.clone(); })*
            };
        }
        let below = self.tags.take().unwrap_or_default();
        let tags = match &newer.tags {
            Some(tags) => tags.over(&below),
            None => below,
        };
        each_override!(merge);
        self.tags = (!tags.is_empty()).then_some(tags);
    }
}

/// The first of these is the lowest bit.
fn bits_of(are_set: &[bool]) -> u64 {
    let bits = are_set.iter().enumerate();
    bits.map(|(at, &is)| u64::from(is) << at).sum()
}

/// Which queues a rule is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pattern {
    Exact(Name),
    /// `*` stands for any run of bytes, `?` for any one byte.
    Glob(Vec<u8>),
}

impl Pattern {
    /// Reads a pattern: a glob if it has `*` or `?` in it, else an exact name.
    pub fn new(text: &str) -> Self {
        Self::of_name(text.as_bytes())
    }

    /// The same of any bytes.
    pub fn of_name(name: &[u8]) -> Self {
        match name.iter().any(|b| matches!(b, b'*' | b'?')) {
            true => Pattern::Glob(name.to_vec()),
            false => Pattern::Exact(Name::new(name)),
        }
    }

    /// True if the rule is about `name`.
    pub fn matches(&self, name: &[u8]) -> bool {
        match self {
            Pattern::Exact(exact) => exact.as_bytes() == name,
            Pattern::Glob(glob) => glob_matches(glob, name),
        }
    }
}

/// Linear-time glob: on a mismatch only the last `*` is tried again.
fn glob_matches(glob: &[u8], name: &[u8]) -> bool {
    let (mut g, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        match glob.get(g) {
            Some(b'*') => {
                retry = Some((g, n));
                g += 1;
            }
            Some(&c) if c == b'?' || c == name[n] => {
                g += 1;
                n += 1;
            }
            _ => match retry {
                Some((star, from)) => {
                    g = star + 1;
                    n = from + 1;
                    retry = Some((star, n));
                }
                None => return false,
            },
        }
    }
    glob[g..].iter().all(|&c| c == b'*')
}

defaults! {
    /// All settings the engine decides by.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Settings {
        /// Below every rule.
        pub defaults: QueueSettings = QueueSettings::default(),
        /// Rules in the order of the file; later ones win, exact names win over
        /// globs.
        pub rules: Vec<(Pattern, Overrides)> = Vec::new(),
        /// Queues at most.
        pub queues_max: u32 = 100_000,
        /// Waiting takes at most, over all queues.
        pub waiters_max: u32 = 1_000_000,
        /// Bytes of memory the messages may use by the engine's reckoning; puts
        /// over it are refused. 0: no limit.
        pub memory_max: u64 = 0,
        /// Deduplication records at most: what puts with a dedupe id or a token leave behind, and
        /// those of queues that compare bodies or keys. One more put with one is
        /// [`crate::CommandError::DedupeFull`]. 0: no limit.
        pub dedupe_max: u64 = 0,
        /// Bytes the durable tables may take ([`crate::TableRequest`]).
        pub tables_bytes_max: u64 = 16 << 20,
        /// Batches that are there at once at most ([`crate::BatchRequest::New`]).
        pub batches_max: u32 = 10_000,
        /// Bytes of a batch's description and callbacks at most.
        pub batch_bytes_max: u64 = 64 << 10,
        /// How long a batch is there that was made or opened and not committed, ms.
        pub batch_open_ms: u64 = 30 * 60 * 1000,
        /// How long one is there that was committed and does not succeed, ms.
        pub batch_ttl_ms: u64 = 30 * 24 * 3600 * 1000,
        /// How long one that has succeeded can still be looked at, ms.
        pub batch_keep_ms: u64 = 24 * 3600 * 1000,
        /// Tracked messages of which something is known at most ([`crate::PutMore::tracked`]);
        /// those that changed longest ago are forgotten then.
        pub tracked_max: u32 = 50_000,
        /// How long what became of a tracked message can be asked after the last thing that
        /// happened to it, ms; 0: not at all.
        pub track_keep_ms: u64 = 30 * 60 * 1000,
        /// Messages that are gone of which it is known what became of them at most, the newest
        /// ([`crate::Engine::end_of`]); 0: none.
        pub ends_max: u32 = 0,
        /// Bytes the snapshot may take that each segment of the log begins with:
        /// names and settings of queues, tables. What would make it longer is
        /// refused; blocks of runs count, and are never refused.
        pub snapshot_bytes_max: u64 = 64 << 20,
        /// How much later than engine time says it may be, ms. Spans of time are
        /// so much longer, so that nothing ends early: a server's clock shows the
        /// millisecond that has begun.
        pub clock_grain_ms: u64 = 0,
    }
}

impl Settings {
    /// The file's settings of the queue `name`. A queue that the file names exactly was made on
    /// purpose, so it stays, unless its own rule has an `idle_ms`.
    pub fn resolve(&self, name: &[u8]) -> QueueSettings {
        let mut settings = self.defaults.clone();
        for (pattern, overrides) in &self.rules {
            if matches!(pattern, Pattern::Glob(_)) && pattern.matches(name) {
                overrides.lay_over(&mut settings);
            }
        }
        let exact = |pattern: &Pattern| matches!(pattern, Pattern::Exact(_));
        let own = self.rules.iter();
        let own = own.filter(|(pattern, _)| exact(pattern) && pattern.matches(name));
        for (_, overrides) in own.clone() {
            overrides.lay_over(&mut settings);
        }
        let mut own = own.map(|(_, overrides)| overrides.idle_ms).peekable();
        if own.peek().is_some() && own.all(|idle| idle.is_none()) {
            settings.idle_ms = 0;
        }
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_retry_policy_replaces_all_of_the_default_one() {
        let over = |change: fn(&mut Overrides)| {
            let (mut settings, mut overrides) = (QueueSettings::of_server(), Overrides::default());
            change(&mut overrides);
            overrides.lay_over(&mut settings);
            (
                settings.retry_delay_ms,
                settings.retry_max,
                settings.retry_on,
            )
        };
        assert_eq!(over(|_| {}), (1000, 24, RetryOn::NONE));
        assert_eq!(over(|o| o.ttl_ms = Some(5)), (1000, 24, RetryOn::NONE));
        assert_eq!(over(|o| o.retry_max = Some(0)), (0, 0, RetryOn::ALL));
        let delay = |o: &mut Overrides| o.retry_delay_ms = Some(7);
        assert_eq!(over(delay), (7, 0, RetryOn::ALL));
        let causes = |o: &mut Overrides| o.retry_on = Some(RetryOn::LOST);
        assert_eq!(over(causes), (1000, 24, RetryOn::LOST));
        // One after the other: the second changes what the first has chosen.
        let mut settings = QueueSettings::of_server();
        for change in [
            (|o| o.retry_delay_ms = Some(7)) as fn(&mut Overrides),
            |o| o.retry_max = Some(3),
        ] {
            let mut overrides = Overrides::default();
            change(&mut overrides);
            overrides.lay_over(&mut settings);
        }
        assert_eq!((settings.retry_delay_ms, settings.retry_max), (7, 3));
    }

    #[test]
    fn a_lock_holds_against_a_retry_policy_that_does_not_name_the_setting() {
        let policy = |locked: &[&str]| {
            let own = Overrides {
                retry_max: Some(3),
                ..Overrides::default()
            };
            let mut settings = QueueSettings {
                locked: locked.iter().map(|field| Overrides::bit(field)).sum(),
                ..QueueSettings::of_server()
            };
            own.lay_own_over(&mut settings);
            (
                settings.retry_delay_ms,
                settings.retry_max,
                settings.retry_on,
            )
        };
        assert_eq!(policy(&[]), (0, 3, RetryOn::ALL));
        assert_eq!(policy(&["retry_on"]), (0, 3, RetryOn::NONE));
        assert_eq!(policy(&["retry_delay_ms"]), (1000, 3, RetryOn::ALL));
        assert_eq!(policy(&["retry_max"]), (1000, 24, RetryOn::NONE));
    }

    #[test]
    fn globs() {
        for (glob, name, expected) in [
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c*", "abcabx", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*", "", true),
            ("a*b", "acccd", false),
            ("**x", "yyx", true),
        ] {
            assert_eq!(
                glob_matches(glob.as_bytes(), name.as_bytes()),
                expected,
                "{glob} {name}"
            );
        }
    }

    #[test]
    fn exact_wins_over_glob_and_later_over_earlier() {
        let rule = |p: &str, n| {
            (
                Pattern::new(p),
                Overrides {
                    messages_max: Some(n),
                    ..Overrides::default()
                },
            )
        };
        let settings = Settings {
            rules: vec![rule("work", 1), rule("w*", 2), rule("wo*", 3)],
            ..Settings::default()
        };
        assert_eq!(settings.resolve(b"work").messages_max, 1);
        assert_eq!(settings.resolve(b"worm").messages_max, 3);
        assert_eq!(settings.resolve(b"x").messages_max, 0);
    }
}
