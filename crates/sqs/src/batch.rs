//! Rules for the entries of every batch.

use std::collections::BTreeSet;

use crate::fault::{Fault, Shape};
use crate::names;
use crate::whole::List;

/// Entries of a batch at most, as AWS has it.
const ENTRIES_MAX: usize = 10;
/// The same where limits are open.
const OPEN_ENTRIES_MAX: usize = 1000;
/// Characters of an entry's id at most.
const ID_MAX: usize = 80;
/// Bytes of all messages of a batch at most, as AWS has it.
const BYTES_MAX: u64 = 1 << 20;

/// Looks at the entries of a batch as a whole; `kind` is what SDKs call one.
///
/// # Errors
/// The request is refused as a whole.
pub(crate) fn check<'a, T>(
    entries: &'a List<T>,
    kind: &str,
    open: bool,
    id: impl Fn(&'a T) -> &'a Option<String>,
) -> Result<(), Fault> {
    let most = if open { OPEN_ENTRIES_MAX } else { ENTRIES_MAX };
    if entries.count == 0 {
        let why = format!("There should be at least one {kind} in the request.");
        return Err(Fault::new(Shape::EmptyBatchRequest, why));
    }
    if entries.count > most {
        let why = format!(
            "Maximum number of entries per request are {most}. You have sent {}.",
            entries.count
        );
        return Err(Fault::new(Shape::TooManyEntriesInBatchRequest, why));
    }
    let mut seen = BTreeSet::new();
    for entry in &entries.kept {
        let id = id(entry).as_deref();
        let id = id.ok_or_else(|| Fault::missing(&format!("{kind}.Id")))?;
        if !(1..=ID_MAX).contains(&id.len()) || !names::is_plain(id) {
            let why = "A batch entry id can only contain alphanumeric characters, hyphens and \
                 underscores. It can be at most 80 letters long.";
            return Err(Fault::new(Shape::InvalidBatchEntryId, why));
        }
        if !seen.insert(id) {
            let why = format!("Id {id} repeated.");
            return Err(Fault::new(Shape::BatchEntryIdsNotDistinct, why));
        }
    }
    Ok(())
}

/// Looks at what all messages of a batch come to.
///
/// # Errors
/// They are too long together.
pub(crate) fn check_bytes(bytes: u64, most: u64) -> Result<(), Fault> {
    let most = most.max(BYTES_MAX);
    match bytes > most {
        true => Err(Fault::new(
            Shape::BatchRequestTooLong,
            format!(
                "Batch requests cannot be longer than {most} bytes. You have sent {bytes} bytes."
            ),
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::SendEntry;

    fn refused(ids: &[&str], open: bool) -> Option<(Shape, String)> {
        let entries = List {
            kept: ids
                .iter()
                .map(|id| SendEntry {
                    id: Some((*id).to_owned()),
                    ..SendEntry::default()
                })
                .collect(),
            count: ids.len(),
        };
        let checked = check(&entries, "SendMessageBatchRequestEntry", open, |entry| {
            &entry.id
        });
        checked
            .err()
            .map(|fault| (fault.shape, fault.text.into_owned()))
    }

    /// Case 28.
    #[test]
    fn batches_are_refused_as_a_whole() {
        let reply_of = |shape, text: &str| Some((shape, text.to_owned()));
        assert_eq!(
            refused(&[], false),
            reply_of(
                Shape::EmptyBatchRequest,
                "There should be at least one SendMessageBatchRequestEntry in the request."
            )
        );
        let eleven = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "a"];
        assert_eq!(
            refused(&eleven, false),
            reply_of(
                Shape::TooManyEntriesInBatchRequest,
                "Maximum number of entries per request are 10. You have sent 11."
            )
        );
        assert_eq!(refused(&eleven, true), None);
        for odd in ["a b", &"x".repeat(81), ""] {
            let shape = refused(&[odd], false).map(|(shape, _)| shape);
            assert_eq!(shape, Some(Shape::InvalidBatchEntryId));
        }
        assert_eq!(
            refused(&["a", "b", "b", "a"], false),
            reply_of(Shape::BatchEntryIdsNotDistinct, "Id b repeated.")
        );
        let fault = check_bytes(1_048_577, 1 << 20).expect_err("too long");
        assert_eq!(
            fault.text,
            "Batch requests cannot be longer than 1048576 bytes. You have sent 1048577 bytes."
        );
        assert!(check_bytes(1 << 20, 1 << 20).is_ok());
    }
}
