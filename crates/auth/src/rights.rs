//! Rights, and which of them a command needs.

use quintet_types::Verb;

quintet_types::named! {
    /// A right that can be granted.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Right, name {
        /// Storing messages.
        Put = "put",
        /// Taking and leasing messages.
        Take = "take",
        /// Ending and prolonging leases, deleting messages by id.
        Settle = "settle",
        /// Looking at messages without taking them.
        Peek = "peek",
        /// Changing messages that are there, settings, flushing, dropping.
        Admin = "admin",
        /// Reading the server's numbers over HTTP.
        Metrics = "metrics",
        /// All queues together, and the server's own commands.
        Server = "server",
    }
}

impl Right {
    /// The right with this word in a `[[grant]]`; `None`: there is none.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|right| right.name() == name)
    }
}

/// Rights as bits, one for each [`Right`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Rights(u8);

impl Rights {
    /// No right.
    pub const NONE: Self = Self(0);

    /// True if `right` is among them.
    pub fn has(self, right: Right) -> bool {
        self.0 & Self::from(right).0 != 0
    }

    /// The union of both sets.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if there is none.
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// The rights that are about queues.
    #[must_use]
    pub fn on_queues(self) -> Self {
        Self(self.0 & !Self::of_the_server().0)
    }

    /// The rights that are about no queue.
    pub(crate) fn of_the_server() -> Self {
        Self::from(Right::Server).and(Right::Metrics.into())
    }

    /// The rights that are in both.
    #[must_use]
    pub(crate) fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl From<Right> for Rights {
    fn from(right: Right) -> Self {
        Self(1 << right as u8)
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Self {
        let sets = rights.into_iter().map(Self::from);
        sets.fold(Self::NONE, Self::and)
    }
}

/// The right that an operation on a queue needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needs {
    /// Nothing: it shows and changes nothing of anybody else's.
    Nothing,
    /// Any right on the queue.
    Any,
    /// This one on the queue.
    On(Right),
}

impl Needs {
    /// True if a user that has `rights` on a queue may.
    pub fn met_by(self, rights: Rights) -> bool {
        match self {
            Needs::Nothing => true,
            Needs::Any => !rights.on_queues().is_empty(),
            Needs::On(right) => rights.has(right),
        }
    }
}

/// The right that a verb needs. Where it is done to no queue in particular it needs
/// [`Right::Server`], unless it needs nothing.
pub fn needs(verb: Verb) -> Needs {
    match verb {
        Verb::Put => Needs::On(Right::Put),
        // Where a moved message comes from; where it goes is a put.
        Verb::Take | Verb::Reserve | Verb::Move => Needs::On(Right::Take),
        Verb::Settle | Verb::Touch | Verb::Delete => Needs::On(Right::Settle),
        Verb::Peek => Needs::On(Right::Peek),
        // The queues of its callbacks.
        Verb::Batch => Needs::On(Right::Put),
        // A prepared message is its putter's until then.
        Verb::Commit => Needs::On(Right::Put),
        Verb::Kick
        | Verb::Edit
        | Verb::Pause
        | Verb::Configure
        | Verb::Flush
        | Verb::FlushExpired
        | Verb::Drop => Needs::On(Right::Admin),
        Verb::DropQueues | Verb::Table => Needs::On(Right::Server),
        // Numbers, and that a queue exists.
        Verb::Stats | Verb::Refer | Verb::Join => Needs::Any,
        // The caller's own waits and takes; a number of no message. A transaction
        // is a hook's, and the command in it is looked at by itself.
        Verb::StopWaiting | Verb::Restore | Verb::BurnId | Verb::Transaction => Needs::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_right_has_a_word_and_a_place() {
        for right in Right::ALL {
            assert_eq!(Right::by_name(right.name()), Some(right));
            let others = Right::ALL.iter().filter(|other| **other != right);
            let others: Rights = others.copied().collect();
            assert!(Rights::from(right).has(right) && !others.has(right));
        }
        assert_eq!(Right::by_name("Put"), None);
    }

    /// Every right but none is of no use; numbers over HTTP are no command.
    #[test]
    fn every_right_is_needed_for_something() {
        let commands = Right::ALL.iter().filter(|right| **right != Right::Metrics);
        for &right in commands {
            let needed = Verb::ALL
                .iter()
                .any(|verb| needs(*verb) == Needs::On(right));
            assert!(needed, "{}", right.name());
        }
    }

    #[test]
    fn the_server_s_right_is_none_on_a_queue() {
        assert!(!Needs::Any.met_by(Right::Server.into()));
        assert!(!Needs::Any.met_by(Right::Metrics.into()));
        assert!(Needs::Any.met_by(Right::Peek.into()));
        assert!(Needs::Nothing.met_by(Rights::NONE));
    }
}
