//! Facts as bytes. The layout is described in `docs/log-format.md`, section
//! "Records"; change the two together and raise the format version.

use quintet_types::{LargeBody, Message};

use crate::fact::Fact;

mod field;
mod message;
mod overrides;
mod read;
mod records;
mod run;
mod table;
mod write;

use read::Reader;
use write::Writer;

pub use table::FactKind;

/// Resolves a large body by its id and length: its chunks came before the fact.
pub type LargeBodies<'a> = dyn FnMut(u64, u64) -> LargeBody + 'a;

/// A record that is not one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FactError {
    /// The bytes end inside the record.
    Short,
    /// No such operation: written by a newer version, or damaged.
    UnknownOperation(u8),
    /// A field has a value it cannot have; the text names it.
    BadField(&'static str),
}

impl std::fmt::Display for FactError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FactError::Short => f.write_str("record ends too early"),
            FactError::UnknownOperation(op) => write!(f, "unknown operation {op:#04x}"),
            FactError::BadField(field) => write!(f, "bad value in field \"{field}\""),
        }
    }
}

impl std::error::Error for FactError {}

impl Fact {
    /// Reads one record from the front of `bytes` and moves past it.
    ///
    /// # Errors
    /// [`FactError`] if there is no record; `bytes` is left where it was.
    pub fn decode(bytes: &mut &[u8], large: &mut LargeBodies<'_>) -> Result<Fact, FactError> {
        let mut r = Reader(bytes);
        let fact = table::read(&mut r, large)?;
        *bytes = r.0;
        Ok(fact)
    }
}

/// Appends the message alone, as runs hold it.
pub fn write_message(message: &Message, out: &mut Vec<u8>) {
    message::write(&mut Writer(out), message);
}

/// Reads the bytes that [`write_message`] wrote.
///
/// # Errors
/// They are no such record, or the body would have to be in the log.
pub fn read_message(bytes: &[u8]) -> Result<Message, FactError> {
    let mut r = Reader(bytes);
    let mut strays = false;
    let message = message::read(&mut r, &mut |id, len| {
        strays = true;
        LargeBody::new(id, len, 0)
    })?;
    if strays || !r.0.is_empty() {
        return Err(FactError::BadField("message in a run"));
    }
    Ok(message)
}
