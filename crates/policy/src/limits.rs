//! Limits of a hook.

use crate::event::Events;

quintet_types::defaults! {
    /// Budgets of hooks. Each is counted anew for every call.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Limits {
        /// Lua instructions in one call at most, and what library functions are
        /// charged for their loops. About 100 of them take a microsecond.
        pub instructions_max: u64 = 1_000_000,
        /// Processor time of one call at most, ms; for what instructions do not
        /// show. 10 ms of the machine's time always pass before it is looked at.
        pub time_ms_max: u64 = 30,
        /// Memory of one state at most, bytes. There is a state for each I/O
        /// thread.
        pub memory_bytes_max: u64 = 16 << 20,
        /// Messages, moves, deletions and table entries that one call may ask for.
        pub effects_max: usize = 1000,
        /// Bytes of bodies, keys and values that one call may ask to store.
        pub effect_bytes_max: usize = 64 << 20,
        /// How often an event is run again because what it read has changed.
        pub attempts_max: u32 = 8,
        /// How deep puts of `after_put` may cause further `after_put`.
        pub depth_max: u32 = 8,
        /// A command whose function for one of these events fails is refused; for
        /// the others it goes on as if there were no hook.
        pub refuse_on_error: Events = Events::NONE,
    }
}
