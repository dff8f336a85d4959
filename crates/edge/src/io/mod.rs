//! Sockets: threads that poll, connections, and what they wait to send.

mod accept;
mod census;
mod conn;
mod counts;
mod decide;
mod gather;
mod goes_on;
mod gone;
mod guests;
mod hooked;
mod inbox;
mod limits;
mod login;
mod mail;
mod numbers;
mod operations;
mod outbox;
mod secure;
mod slab;
mod stream;
mod thread;
mod turn;
mod unacked;
mod upload;
mod waiting;

pub(crate) use counts::Family;
pub use counts::ThreadCounts;
pub use guests::Guests;
use guests::Origin;
pub use login::LOGINS_LOOK;
pub(crate) use mail::Mail;
pub use mail::Mailbox;
pub use stream::Stream;
pub use thread::IoThread;
pub use upload::Upload;
