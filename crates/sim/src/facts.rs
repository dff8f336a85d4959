//! Properties of the record codec, whatever the bytes.

use quintet_engine::{Fact, FactError};
use quintet_types::LargeBody;

/// Reads one record, with large bodies by name only.
///
/// # Errors
/// As [`Fact::decode`].
pub fn decode(bytes: &mut &[u8]) -> Result<Fact, FactError> {
    Fact::decode(bytes, &mut |id, len| LargeBody::new(id, len, 0))
}

/// A fact as a record.
pub fn encode(fact: &Fact) -> Vec<u8> {
    let mut bytes = Vec::new();
    fact.encode(&mut bytes);
    bytes
}

/// Decodes all there is; what is accepted must round-trip. Shared by the tests
/// here and the fuzz target `records`.
///
/// # Panics
/// If it does not.
pub fn survive(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let before = bytes;
        let Ok(fact) = decode(&mut bytes) else { return };
        let used = before.len() - bytes.len();
        let again = encode(&fact);
        assert!(
            used > 0 && again.len() <= used,
            "{fact:?} grew to {again:02x?}"
        );
        assert_eq!(decode(&mut again.as_slice()), Ok(fact));
    }
}
