//! Users, credentials, grants and limits: the users and how they log in, their grants, the table
//! that answers for each queue, and limits.
//!
//! Pure: no clock, file or socket. Time is an argument, in ms of the wall
//! clock, and so is what is random. Checking a password takes tens of
//! milliseconds and tens of MiB by design: the caller of [`Password::fits`]
//! does it where nobody waits.

#![warn(clippy::cast_possible_truncation, clippy::wildcard_enum_match_arm)]

mod bucket;
mod credential;
mod fits;
mod limits;
mod permits;
mod rights;
mod table;
mod throttle;
mod users;

pub use bucket::{Bucket, Rate};
pub use credential::{CredentialError, NewToken, Password, Secret, Token, TokenId};
pub use fits::Fits;
pub use limits::{Limit, LimitTable, Limits, Subject};
pub use permits::{Accounts, ShardPermits};
pub use rights::{Needs, Right, Rights, needs};
pub use table::{Claim, Mistake, Register, Row, Table, TableError, proof_of_password};
pub use throttle::{Place, RetryAfter, Throttle, place_of};
pub use users::{ANONYMOUS, Grant, Holder, User};
