//! Putting together what a stream tells as it happens, which may be doubled, late or missing, and
//! what is fetched to close the gaps: a pure machine.

use std::collections::BTreeMap;

use bytes::Bytes;
use quintet_cluster::Seq;

/// Entries that came before their turn and are kept, at most; more are fetched when it is theirs.
const KEPT: usize = 32;

/// How far a stream was followed.
pub(crate) struct Follow {
    next: Seq,
    kept: BTreeMap<Seq, Bytes>,
    /// Something is known to be missing.
    behind: bool,
}

impl Follow {
    /// From the entry `from` on, which is looked for first.
    pub(crate) fn new(from: Seq) -> Self {
        Self {
            next: from,
            kept: BTreeMap::new(),
            behind: true,
        }
    }

    /// The entry whose turn it is.
    pub(crate) fn next(&self) -> Seq {
        self.next
    }

    /// Something is to be fetched.
    pub(crate) fn is_behind(&self) -> bool {
        self.behind
    }

    /// There was silence, in which something may have been lost.
    pub(crate) fn doubt(&mut self) {
        self.behind = true;
    }

    /// An entry was delivered or fetched; hands on what is in order.
    pub(crate) fn came(&mut self, seq: Seq, entry: Bytes, hand: &mut dyn FnMut(Seq, Bytes)) {
        if seq > self.next {
            self.behind = true;
            if self.kept.len() < KEPT {
                self.kept.insert(seq, entry);
            }
            return;
        }
        if seq < self.next {
            return;
        }
        hand(seq, entry);
        self.next = seq.after();
        while let Some(first) = self.kept.first_entry() {
            if *first.key() > self.next {
                break;
            }
            let (seq, entry) = first.remove_entry();
            if seq == self.next {
                hand(seq, entry);
                self.next = seq.after();
            }
        }
    }

    /// The server that was asked has nothing from the next entry on; `may_be_behind`: it was no
    /// leader.
    pub(crate) fn found_nothing(&mut self, may_be_behind: bool) {
        // What came before its turn says that there is something.
        self.behind = may_be_behind && !self.kept.is_empty();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Events may be lost, doubled or late: each is handed on once and in order, and the
        /// follower asks for lost ones.
        #[test]
        fn all_come_once_and_in_order(
            reported in prop::collection::vec(1_u64..60, 0..200),
            batch in 1_u64..20,
        ) {
            let mut follow = Follow::new(Seq(1));
            let mut got = Vec::new();
            let mut last = 0;
            for seq in reported {
                // Only stored entries are delivered.
                last = last.max(seq);
                let entry = Bytes::from(seq.to_string());
                follow.came(Seq(seq), entry, &mut |seq, bytes| got.push((seq, bytes)));
                if seq % 3 == 0 {
                    fetch(&mut follow, last, batch, &mut got);
                }
            }
            follow.doubt();
            while follow.is_behind() {
                fetch(&mut follow, last, batch, &mut got);
            }
            let all: Vec<(Seq, Bytes)> =
                (1..=last).map(|seq| (Seq(seq), Bytes::from(seq.to_string()))).collect();
            prop_assert_eq!(got, all);
        }
    }

    fn fetch(follow: &mut Follow, last: u64, batch: u64, got: &mut Vec<(Seq, Bytes)>) {
        let from = follow.next().0;
        for seq in from..(from + batch).min(last + 1) {
            let entry = Bytes::from(seq.to_string());
            follow.came(Seq(seq), entry, &mut |seq, bytes| got.push((seq, bytes)));
        }
        if follow.next().0 > last {
            follow.found_nothing(false);
        }
    }

    #[test]
    fn a_server_that_is_behind_gets_the_request_again() {
        let mut follow = Follow::new(Seq(1));
        follow.found_nothing(true);
        assert!(!follow.is_behind());
        follow.came(Seq(2), Bytes::new(), &mut |_, _| {});
        follow.found_nothing(true);
        assert!(follow.is_behind());
    }
}
