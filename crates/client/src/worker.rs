//! Workers of clients, as they are steered.

quintet_types::named! {
    /// A request that a Faktory worker gets with its next heartbeat.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum WorkerAction, word {
        /// It finishes what it has and gets nothing more.
        Quiet = "quiet",
        /// It is to end as well.
        Terminate = "terminate",
    }
}

impl WorkerAction {
    /// The action with this word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.word() == word)
    }
}
