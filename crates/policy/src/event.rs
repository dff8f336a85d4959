//! The events that call hooks.

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Event {
    /// The server has started, or the file was loaded anew.
    Start,
    /// The server stops.
    Stop,
    /// A client has connected.
    Connect,
    /// A client is gone.
    Disconnect,
    /// A command of any protocol.
    Command,
    /// A message is to be stored.
    BeforePut,
    /// A message was stored.
    AfterPut,
    /// A take is to be decided.
    BeforeTake,
    /// A message is to be handed to its consumer.
    AfterTake,
    /// A lease is to be ended by its holder.
    Settle,
    /// A take found nothing.
    Empty,
    /// A message's ttl ran out.
    Expire,
    /// A lease ended without being settled.
    LeaseEnd,
    /// A message came back as often as its queue allows.
    DeadLetter,
    /// A put was refused because its queue is full.
    Full,
    /// A client says who it is.
    Auth,
    /// A command is refused.
    Error,
    /// `quintet.every` and `quintet.at`.
    Timer,
    /// A command of a text protocol that a hook has added.
    Added,
}

impl Event {
    /// How many there are.
    pub const COUNT: usize = 19;

    /// All events.
    pub const ALL: [Event; Event::COUNT] = [
        Event::Start,
        Event::Stop,
        Event::Connect,
        Event::Disconnect,
        Event::Command,
        Event::BeforePut,
        Event::AfterPut,
        Event::BeforeTake,
        Event::AfterTake,
        Event::Settle,
        Event::Empty,
        Event::Expire,
        Event::LeaseEnd,
        Event::DeadLetter,
        Event::Full,
        Event::Auth,
        Event::Error,
        Event::Timer,
        Event::Added,
    ];

    /// The name of its function.
    pub fn name(self) -> &'static str {
        match self {
            Event::Start => "start",
            Event::Stop => "stop",
            Event::Connect => "connect",
            Event::Disconnect => "disconnect",
            Event::Command => "command",
            Event::BeforePut => "before_put",
            Event::AfterPut => "after_put",
            Event::BeforeTake => "before_take",
            Event::AfterTake => "after_take",
            Event::Settle => "settle",
            Event::Empty => "empty",
            Event::Expire => "expire",
            Event::LeaseEnd => "lease_end",
            Event::DeadLetter => "dead_letter",
            Event::Full => "full",
            Event::Auth => "auth",
            Event::Error => "on_error",
            Event::Timer => "timer",
            Event::Added => "added_command",
        }
    }

    /// The event of this name, also those that functions are not named after:
    /// timers and added commands.
    pub fn from_any_name(name: &str) -> Option<Event> {
        Event::ALL.into_iter().find(|event| event.name() == name)
    }

    /// The event `quintet.on` calls this. Timers and added commands have no
    /// names of their own; `error` is `on_error`, which a global function
    /// cannot be called, as Lua has one of that name.
    pub fn from_name(name: &str) -> Option<Event> {
        if name == "error" {
            return Some(Event::Error);
        }
        Event::ALL
            .into_iter()
            .filter(|event| !matches!(event, Event::Timer | Event::Added))
            .find(|event| event.name() == name)
    }
}

/// Some of the events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Events(u32);

impl Events {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// All of them.
    pub const ALL: Self = Self((1 << Event::COUNT) - 1);

    /// The events with one more.
    #[must_use]
    pub fn with(mut self, event: Event) -> Self {
        self.insert(event);
        self
    }

    /// One by one, in the order of [`Event::ALL`].
    pub fn each(self) -> impl Iterator<Item = Event> {
        Event::ALL.into_iter().filter(move |event| self.has(*event))
    }

    /// Adds one.
    pub fn insert(&mut self, event: Event) {
        self.0 |= 1 << event as u32;
    }

    /// True if it is among them.
    pub fn has(self, event: Event) -> bool {
        self.0 & (1 << event as u32) != 0
    }

    /// True if there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}
