//! Finding out what became of an entry: by what stands in its place. Nothing is ever assumed.

use bytes::Bytes;
use quintet_log::Epoch;

use crate::{ClusterId, Moment, Writer, entry::Entry};

/// Kind of an entry, as far as it decides what may stand in its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Frame,
    Claim,
    Padding,
}

/// Marks of our own entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ours {
    pub(crate) cluster: ClusterId,
    pub(crate) epoch: Epoch,
    pub(crate) writer: Writer,
}

/// A question that is on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resolve {
    pub(crate) requested_at: Moment,
    /// It is which places there are, since nothing was found in the one asked for.
    pub(crate) ends: bool,
}

impl Resolve {
    pub(crate) fn get(requested_at: Moment) -> Self {
        Self {
            requested_at,
            ends: false,
        }
    }

    pub(crate) fn ends(requested_at: Moment) -> Self {
        Self {
            requested_at,
            ends: true,
        }
    }
}

/// Judgement of the content of an entry's position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is the entry itself, or a padding's place is filled, which is all a padding is for.
    Settled,
    /// Somebody else appends; the epoch they do it in.
    Stop(Epoch),
    /// It cannot be.
    Bad(String),
}

/// Judges `found`, which stands where `sent` should.
pub(crate) fn judge(ours: &Ours, sent: &Bytes, kind: Kind, found: &[u8]) -> Verdict {
    if found == sent {
        return Verdict::Settled;
    }
    let header = match Entry::decode(ours.cluster, found) {
        Ok(entry) => entry.header,
        Err(refused) => return Verdict::Bad(refused.to_string()),
    };
    let stranger = header.writer != ours.writer;
    match kind {
        // The entry that came first wins; what a claim is behind is not what its claimant read.
        Kind::Claim => Verdict::Stop(header.epoch),
        _ if header.epoch > ours.epoch => Verdict::Stop(header.epoch),
        Kind::Padding if header.epoch < ours.epoch => Verdict::Settled,
        _ if header.epoch < ours.epoch => Verdict::Bad(format!(
            "an entry of epoch {} was stored behind the padding of epoch {}",
            header.epoch, ours.epoch
        )),
        _ if stranger => Verdict::Bad(format!(
            "another writer writes in epoch {}, which this node claimed",
            ours.epoch
        )),
        _ => Verdict::Bad("another entry of this node is at its position".to_owned()),
    }
}
