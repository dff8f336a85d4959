//! The HTTP transport: listeners and their threads, TLS, connections and their limits, logins and
//! sessions, forms in, replies out. Its users decide which addresses there are (`Serve`).
//!
//! A few threads run event loops; what waits for the shards or the disk runs
//! in others. Bodies pass through in pieces.

#![warn(clippy::cast_possible_truncation, clippy::wildcard_enum_match_arm)]

mod app;
mod attempts;
mod authorization;
mod clients;
mod consumers;
mod cookie;
pub mod download;
mod elsewhere;
pub mod files;
mod flash;
pub mod form;
pub mod gate;
mod guard;
mod guest;
mod head;
pub mod held;
mod interruptible;
mod never;
mod pace;
mod paced;
pub mod paths;
mod payer;
mod range;
pub mod replies;
pub mod reply;
mod requester;
mod secure;
mod serve;
pub mod sessions;
mod settings;
mod slots;
mod streams;
mod threads;
mod undo;
pub mod upload;
mod watched;
mod workers;

pub use app::{App, RequestBody, content_type};
pub use attempts::{Attempt, Attempts};
pub use clients::{Client, ClientNow, Clients, Present};
pub use consumers::{Consumer, Consumers, WORKER_MAX};
pub use elsewhere::{Called, CalledAs, Elsewhere};
pub use form::{Form, Kind, Whole, whole};
pub use gate::{
    Answer, AuthenticatedClient, Counted, DoneWith, Full, Gate, LoginCredentials, Pace, Tell,
};
pub use guard::{Denied, Guard, LoginCheck, Logins, User, is_one_of};
pub use guest::Guest;
pub use interruptible::interruptible;
pub use never::or_never;
pub use pace::pace;
pub use payer::{Payer, RequestMemory};
pub use quintet_client::{Did, Share};
pub use quintet_types::locked;
pub use replies::{Errand, Replied, TellReply, Waited};
pub use reply::Problem;
pub use requester::Requester;
pub use serve::{Answering, Connected, ForwardedConnection, Forwarding, Serve, Socket, Web};
pub use settings::{Limits, Settings};
pub use slots::{Apart, ConnectionSlot, SlotPermit, Slots, Waits};
pub use streams::{OpenStream, StreamCounts};
pub use threads::Task;
pub use undo::{Leaving, Losses, Undo};
