//! Sockets: threads that poll, connections, and what they wait to send.

mod accept;
mod acts;
mod census;
mod conn;
mod counts;
mod decide;
mod gather;
mod gone;
mod guests;
mod hooked;
mod inbox;
mod limits;
mod login;
mod mail;
mod numbers;
mod operator;
mod outbox;
mod secure;
mod slab;
mod stream;
mod thread;
mod turn;
mod unacked;
mod upload;
mod waiting;

pub(crate) use counts::{Family, ThreadCounts};
pub(crate) use guests::Guests;
use guests::Origin;
pub(crate) use mail::{Mail, Mailbox};
pub(crate) use operator::{Operator, TellText};
pub(crate) use stream::Stream;
pub(crate) use thread::IoThread;
pub(crate) use upload::Upload;
