//! Operations on many messages, slice by slice.

use quintet_types::{BulkDone, BulkOp, ListState};

/// Where an operation on many messages is. Its caller asks for each slice here, does it, says what
/// came of it, and rests; or stops, or begins later with [`Slices::bulk_op`] as it is.
pub struct Slices<'a> {
    /// The operation: it goes on with this state, behind this place.
    pub bulk_op: BulkOp,
    /// The states after that.
    pub then: &'a [ListState],
    /// Messages of one slice at most.
    pub step: u32,
    /// Messages of all slices at most.
    pub most: u64,
    /// Slices that may follow; none if it is over.
    pub left: u32,
    /// Messages that it was done to.
    pub messages: u64,
    /// It was done to all of its messages.
    pub whole: bool,
}

impl Slices<'_> {
    /// An operation on all messages of its state, in slices of its `max`.
    pub fn of(bulk_op: BulkOp) -> Self {
        Self {
            step: bulk_op.max,
            bulk_op,
            then: &[],
            most: u64::MAX,
            left: u32::MAX,
            messages: 0,
            whole: false,
        }
    }

    /// At most so many messages, and slices.
    pub fn at_most(self, most: u64, left: u32) -> Self {
        Self { most, left, ..self }
    }

    /// The next slice; `None` if there is none. It stays the same until it is [done](Self::done).
    pub fn slice(&mut self) -> Option<&mut BulkOp> {
        let room = self.most.saturating_sub(self.messages);
        self.bulk_op.max = u32::try_from(room).map_or(self.step, |room| room.min(self.step));
        (self.left > 0).then_some(&mut self.bulk_op)
    }

    /// Goes on behind this slice.
    pub fn done(&mut self, slice: &BulkDone) {
        self.left = self.left.saturating_sub(1);
        self.messages += slice.matched;
        self.bulk_op.after = slice.next;
        if slice.next.is_none() {
            match self.then.split_first() {
                Some((state, then)) => (self.bulk_op.state, self.then) = (*state, then),
                None => self.whole = true,
            }
        }
        if self.whole || self.messages >= self.most {
            self.left = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use quintet_types::{Cursor, MessageId};

    use super::*;

    fn cursor(id: u64) -> Cursor {
        Cursor {
            not_selectable: false,
            order: (0, 0, MessageId(id)),
        }
    }

    fn ready() -> Slices<'static> {
        Slices {
            then: &[ListState::Buried],
            ..Slices::of(BulkOp::show("q".into(), ListState::Ready, 3))
        }
    }

    /// The next slice: its state, the message it begins behind, and its size.
    fn place(slices: &mut Slices<'_>) -> Option<(ListState, Option<u64>, u32)> {
        let bulk_op = slices.slice()?;
        let after = bulk_op.after.map(|after| after.order.2.0);
        Some((bulk_op.state, after, bulk_op.max))
    }

    fn done(slices: &mut Slices<'_>, matched: u64, next: Option<u64>) {
        slices.done(&BulkDone {
            matched,
            next: next.map(cursor),
            ..BulkDone::default()
        });
    }

    #[test]
    fn slices_go_through_each_state_to_its_end() {
        let mut slices = ready();
        assert_eq!(place(&mut slices), Some((ListState::Ready, None, 3)));
        done(&mut slices, 3, Some(7));
        assert_eq!(place(&mut slices), Some((ListState::Ready, Some(7), 3)));
        done(&mut slices, 1, None);
        assert!(!slices.whole);
        assert_eq!(place(&mut slices), Some((ListState::Buried, None, 3)));
        done(&mut slices, 2, None);
        assert_eq!(place(&mut slices), None);
        assert_eq!((slices.messages, slices.whole), (6, true));
    }

    #[test]
    fn a_slice_that_failed_is_the_next_again_and_a_stop_leaves_where_to_go_on() {
        let mut slices = ready();
        done(&mut slices, 3, Some(7));
        // It failed: nobody says that it was done.
        let failed = place(&mut slices);
        assert_eq!(failed, Some((ListState::Ready, Some(7), 3)));
        assert_eq!(place(&mut slices), failed);
        done(&mut slices, 2, Some(9));
        // Stopped here, and begun again.
        let mut later = Slices::of(slices.bulk_op.clone());
        assert_eq!(place(&mut later), Some((ListState::Ready, Some(9), 3)));
        assert_eq!((slices.messages, slices.whole), (5, false));
    }

    #[test]
    fn no_more_messages_nor_slices_than_were_asked_for() {
        let mut slices = ready().at_most(4, u32::MAX);
        done(&mut slices, 3, Some(7));
        assert_eq!(place(&mut slices), Some((ListState::Ready, Some(7), 1)));
        // Of the last of a state too it is known where others would follow.
        done(&mut slices, 1, None);
        assert_eq!((place(&mut slices), slices.whole), (None, false));
        assert_eq!(slices.bulk_op.state, ListState::Buried);

        let mut slices = ready().at_most(u64::MAX, 2);
        for next in [7, 8] {
            assert!(place(&mut slices).is_some());
            done(&mut slices, 0, Some(next));
        }
        assert_eq!((place(&mut slices), slices.whole), (None, false));
        assert_eq!(slices.bulk_op.after, Some(cursor(8)));
    }
}
