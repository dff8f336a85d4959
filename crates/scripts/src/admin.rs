//! Admin states of queues, in RQ's words.

quintet_types::named! {
    /// The state that an operator sets for a queue. Down wins over pause.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub enum Admin, word {
        /// It works.
        #[default]
        Up = "UP",
        /// It takes messages; its script is not started.
        Paused = "PAUSE",
        /// It refuses everything, from everybody.
        Down = "DOWN",
    }
}

/// An operator's operation on a queue, in RQ's words:
/// [`Operation`](quintet_types::Operation) has no *up* and *down*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminOp {
    /// Ends *down*.
    Up,
    /// Begins *down*.
    Down,
    Pause,
    /// Ends a pause.
    Resume,
}
