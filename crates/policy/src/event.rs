//! The events that call hooks.

quintet_types::named! {
    /// Events that hooks can handle.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(u8)]
    pub enum Event, name {
        /// The server has started, or the file was loaded anew.
        Start = "start",
        Stop = "stop",
        /// A client has connected.
        Connect = "connect",
        /// A client is gone.
        Disconnect = "disconnect",
        /// A command of any protocol.
        Command = "command",
        /// A message is to be stored.
        BeforePut = "before_put",
        /// A message was stored.
        AfterPut = "after_put",
        /// A take is to be decided.
        BeforeTake = "before_take",
        /// A message is to be handed to its consumer.
        AfterTake = "after_take",
        /// A lease is to be ended by its holder.
        Settle = "settle",
        /// A take found nothing.
        Empty = "empty",
        /// A message's ttl ran out.
        Expire = "expire",
        /// A lease ended without being settled.
        LeaseEnd = "lease_end",
        /// A message came back as often as its queue allows.
        DeadLetter = "dead_letter",
        /// A put was refused because its queue is full.
        Full = "full",
        /// A client says who it is.
        Auth = "auth",
        /// A command is refused.
        Error = "on_error",
        /// `quintet.every` and `quintet.at`.
        Timer = "timer",
        /// A command of a text protocol that a hook has added.
        Added = "added_command",
    }
}

impl Event {
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

/// Events as bits, one for each [`Event`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Events(u32);

impl Events {
    /// The empty set of events.
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
