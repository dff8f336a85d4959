//! Who may do what: users and how they show who they are, what they are
//! granted, and the table that answers for each queue.
//!
//! Pure: no clock, file or socket. Time is an argument, in ms of the wall
//! clock, and so is what is random. Checking a password takes tens of
//! milliseconds and tens of MiB by design: whoever calls [`Password::fits`]
//! does it where nobody waits.

#![warn(clippy::cast_possible_truncation, clippy::wildcard_enum_match_arm)]

mod credential;
mod fits;
mod permits;
mod rights;
mod table;
mod throttle;
mod users;

pub use credential::{CredentialError, NewToken, Password, Secret, Token, TokenId};
pub use fits::Fits;
pub use permits::ShardPermits;
pub use rights::{Needs, Right, Rights, needs};
pub use table::{Claim, Register, Table, TableError};
pub use throttle::{Throttle, Wait};
pub use users::{ANONYMOUS, Grant, Holder, User};
