//! The word that an owner leaves itself as the one that follows, or its next process: who is to
//! own, so that its clients are brought there before JetStream is reached.

use quintet_cluster::ClusterId;
use quintet_proxy::Hint;

/// The new owner, as far as the node need not ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) cluster: ClusterId,
    /// The node that was named in a handoff, in the epoch that it claims. If another node claims
    /// that one, this node reads it in the log.
    pub(super) successor: Hint,
}

impl Word {
    pub(super) fn to_text(&self) -> String {
        let Hint {
            epoch,
            node,
            address,
        } = &self.successor;
        // A node's name may have spaces.
        format!("{} {epoch} {address} {node}", self.cluster.0)
    }

    pub(super) fn from_text(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, ' ');
        let cluster = ClusterId(parts.next()?.parse().ok()?);
        let epoch = parts.next()?.parse().ok()?;
        let address = parts.next()?.to_owned();
        let node = parts.next()?.to_owned();
        Some(Self {
            cluster,
            successor: Hint {
                epoch,
                node,
                address,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_process_reads_who_is_to_own() {
        let word = Word {
            cluster: ClusterId(0xc0_ffee),
            successor: Hint {
                epoch: 8,
                node: "node b".to_owned(),
                address: "b:4600".to_owned(),
            },
        };
        assert_eq!(Word::from_text(&word.to_text()), Some(word));
        assert_eq!(Word::from_text("7 8 b:4600"), None);
        assert_eq!(Word::from_text("x 8 b:4600 b"), None);
    }
}
