//! Takes that were given a token: one that is sent again, since its answer was lost, is answered
//! with the leases that it had given, as long as all of them last. Volatile: a restart forgets it.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use quintet_types::{ClientId, MessageId, Ms, QueueId};

/// For how long a token is known, ms.
pub(crate) const KNOWN_MS: u64 = 5 * 60 * 1000;
/// Estimate of the memory that they take at most, bytes: some 60,000 takes of one message. The
/// oldest are forgotten first.
const BYTES_MAX: usize = 8 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseGrant {
    pub(crate) id: MessageId,
    /// Which of the message's leases ([`quintet_types::Message::reserves`]).
    pub(crate) number: u32,
    /// Its end. One that ends at another time was changed since.
    pub(crate) until: Option<Ms>,
    /// Its holder: a number that a lease gave back may be another's.
    pub(crate) client_id: ClientId,
}

#[derive(Debug)]
pub(crate) struct TakeRecord {
    /// Unknown from then on.
    ends: Ms,
    /// See [`quintet_types::Take::token_sum`].
    pub(crate) sum: u64,
    pub(crate) granted: Box<[LeaseGrant]>,
}

type Key = (QueueId, Arc<[u8]>);

/// The tokens of takes that are known.
#[derive(Debug, Default)]
pub(crate) struct TakeTokens {
    known: HashMap<Key, TakeRecord, foldhash::fast::RandomState>,
    /// As they came, with the memory each takes. One that came again since has a later end in
    /// `known`.
    ends: VecDeque<(Ms, Key, usize)>,
    bytes: usize,
    /// Leases in `known` that a repeat was answered with: the loss of the first answer does not
    /// end them.
    repeated: HashSet<(MessageId, u32), foldhash::fast::RandomState>,
}

impl TakeTokens {
    /// The last take with this token.
    pub(crate) fn of(&self, queue: QueueId, token: &[u8], now: Ms) -> Option<&TakeRecord> {
        // Looked up by what it borrows, which a pair cannot.
        let taken = self.known.get(&(queue, Arc::from(token)))?;
        (taken.ends > now).then_some(taken)
    }

    /// Those leases begin anew; the token is known no longer than before.
    pub(crate) fn renew(&mut self, queue: QueueId, token: &[u8], granted: Box<[LeaseGrant]>) {
        if let Some(taken) = self.known.get_mut(&(queue, Arc::from(token))) {
            let leases = granted.iter().map(|lease| (lease.id, lease.number));
            self.repeated.extend(leases);
            taken.granted = granted;
        }
    }

    /// True if a repeat was answered with this lease.
    pub(crate) fn is_repeated(&self, id: MessageId, number: u32) -> bool {
        self.repeated.contains(&(id, number))
    }

    fn forget(&mut self, taken: Option<TakeRecord>) {
        for lease in taken.iter().flat_map(|taken| &*taken.granted) {
            self.repeated.remove(&(lease.id, lease.number));
        }
    }

    /// A take with this token, of a request with this sum, gave these leases.
    pub(crate) fn note(
        &mut self,
        queue: QueueId,
        token: &[u8],
        sum: u64,
        granted: Box<[LeaseGrant]>,
        now: Ms,
    ) {
        let (key, ends): (Key, Ms) = ((queue, token.into()), now + KNOWN_MS);
        let bytes = bytes_of(token.len(), granted.len());
        let before = self
            .known
            .insert(key.clone(), TakeRecord { ends, sum, granted });
        self.forget(before);
        self.ends.push_back((ends, key, bytes));
        self.bytes += bytes;
        while let Some((ends, key, bytes)) = self.ends.front()
            && (*ends <= now || self.bytes > BYTES_MAX)
        {
            let over = self.known.get(key).is_some_and(|known| known.ends <= *ends);
            let taken = over.then(|| self.known.remove(key)).flatten();
            self.bytes -= bytes;
            self.ends.pop_front();
            self.forget(taken);
        }
    }
}

/// With the places in both lists.
const fn bytes_of(token: usize, leases: usize) -> usize {
    120 + token + leases * (size_of::<LeaseGrant>() + 2 * size_of::<(MessageId, u32)>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(id: u64) -> Box<[LeaseGrant]> {
        let granted = LeaseGrant {
            id: MessageId(id),
            number: 1,
            until: None,
            client_id: ClientId(7),
        };
        vec![granted; 2].into()
    }

    #[test]
    fn the_oldest_are_forgotten_when_their_time_is_over_or_there_are_too_many() {
        let (mut tokens, q) = (TakeTokens::default(), QueueId(3));
        tokens.note(q, b"a", 0, granted(1), Ms(0));
        tokens.note(q, b"b", 0, granted(2), Ms(10));
        tokens.note(q, b"a", 0, granted(3), Ms(20));
        assert_eq!(tokens.known.len(), 2);
        let end = Ms(KNOWN_MS + 10);
        assert!(tokens.of(q, b"b", end).is_none());
        let known = tokens.of(q, b"a", end).map(|taken| &taken.granted);
        assert_eq!(known, Some(&granted(3)));
        assert!(tokens.of(QueueId(4), b"a", end).is_none());
        tokens.note(q, b"c", 0, granted(4), end);
        assert_eq!((tokens.known.len(), tokens.ends.len()), (2, 2));
        for number in 0..1_000_000u32 {
            tokens.note(q, &number.to_le_bytes(), 0, granted(5), end);
            assert!(tokens.bytes <= BYTES_MAX);
        }
        assert_eq!(tokens.known.len(), tokens.ends.len());
        assert!(tokens.known.len() > 30_000);
        let end = end + KNOWN_MS;
        tokens.note(q, b"d", 0, granted(6), end);
        assert_eq!(tokens.bytes, bytes_of(1, 2));
    }

    #[test]
    fn one_token_over_and_over_takes_no_more_than_its_bound() {
        let mut tokens = TakeTokens::default();
        for _ in 0..1_000_000 {
            tokens.note(QueueId(1), b"a", 0, granted(1), Ms(0));
        }
        assert!(tokens.ends.len() <= BYTES_MAX / bytes_of(1, 0));
    }
}
