//! The observations of clients and their times, and the impossible ones among them: rules about
//! order, which the ledger of single messages does not know.
//!
//! An operation has two moments, when it was asked and when it was answered; whatever it did was in
//! between. Only what follows from that for sure is wrong. A take whose answer did not come may
//! have had any message of its queue for a while, so nothing follows for those that were there.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// Bits of an id below its shard's number.
const SHARD_SHIFT: u32 = 55;

/// A put that was acknowledged, of a message that anybody could take at once.
struct Put {
    queue: &'static str,
    /// Properties that are equal for messages of one priority.
    priority: Option<(usize, u32)>,
    requested: Instant,
    answered: Option<Instant>,
    /// It may be gone by itself.
    mortal: bool,
    /// The message's id, where the protocol tells it.
    id: Option<u64>,
}

/// A take that was answered with a message.
struct Take {
    number: u64,
    requested: Instant,
    answered: Instant,
    /// By a protocol that takes the oldest of a priority, and not the newest.
    oldest: bool,
    /// It was the consumer's until then: that the connection lived on was seen afterwards.
    held: Option<Instant>,
}

/// All of it since the queues were empty.
#[derive(Default)]
pub(crate) struct History {
    puts: BTreeMap<u64, Put>,
    takes: Vec<Take>,
    /// Takes without an answer: of which queue, and when they were asked.
    unknown: Vec<(&'static str, Instant)>,
    /// Takes that got the reply that there is nothing: of which queue, asked and answered when.
    empty: Vec<(&'static str, Instant, Instant)>,
}

/// Two moments.
#[derive(Clone, Copy)]
struct Firsts {
    requested: Instant,
    answered: Instant,
    /// All takes of it were of the oldest.
    oldest: bool,
}

impl History {
    /// A put is sent. `priority`: what is equal for messages of one priority, if places count in
    /// it.
    pub(crate) fn put(
        &mut self,
        number: u64,
        queue: &'static str,
        priority: Option<(usize, u32)>,
        mortal: bool,
    ) {
        let put = Put {
            queue,
            priority,
            requested: Instant::now(),
            answered: None,
            mortal,
            id: None,
        };
        self.puts.insert(number, put);
    }

    /// It was acknowledged.
    pub(crate) fn stored(&mut self, number: u64) {
        if let Some(put) = self.puts.get_mut(&number) {
            put.answered = Some(Instant::now());
        }
    }

    /// It was answered with this id.
    pub(crate) fn has_id(&mut self, number: u64, id: u64) {
        if let Some(put) = self.puts.get_mut(&number) {
            put.id = Some(id);
        }
    }

    /// A take was answered with a message; `oldest`: the first of its priority was requested, as
    /// all protocols do but pinpriq.
    pub(crate) fn taken(
        &mut self,
        number: u64,
        requested: Instant,
        answered: Instant,
        oldest: bool,
    ) {
        self.takes.push(Take {
            number,
            requested,
            answered,
            oldest,
            held: None,
        });
    }

    /// A lease was ended by its consumer at `end`, and the same connection answered later.
    pub(crate) fn held(&mut self, number: u64, requested: Instant, end: Instant) {
        let mut takes = self.takes.iter_mut().rev();
        if let Some(take) = takes.find(|take| take.number == number && take.requested == requested)
        {
            take.held = Some(end);
        }
    }

    /// A take has no answer.
    pub(crate) fn unanswered(&mut self, queue: &'static str, requested: Instant) {
        self.unknown.push((queue, requested));
    }

    /// A take got the reply that there is nothing.
    pub(crate) fn empty(&mut self, queue: &'static str, requested: Instant, answered: Instant) {
        self.empty.push((queue, requested, answered));
    }

    /// The impossible observations: message and reason. Leases last for `lease` at least. The
    /// queues are empty, and all begins anew.
    pub(crate) fn close(&mut self, lease: Duration) -> Vec<(u64, String)> {
        let mut wrong = self.out_of_order();
        wrong.extend(self.shared(lease));
        wrong.extend(self.overlooked());
        wrong.extend(self.misnumbered());
        *self = Self::default();
        wrong
    }

    /// When each message was first asked for, and first given, by takes that were answered.
    fn firsts(&self) -> HashMap<u64, Firsts> {
        let mut firsts: HashMap<u64, Firsts> = HashMap::new();
        for take in &self.takes {
            let (requested, answered, oldest) = (take.requested, take.answered, take.oldest);
            let first = firsts.entry(take.number);
            let first = first.or_insert(Firsts {
                requested,
                answered,
                oldest,
            });
            first.requested = first.requested.min(requested);
            first.answered = first.answered.min(answered);
            first.oldest &= oldest;
        }
        firsts
    }

    /// How many messages of a queue may have been, before `until`, with consumers nobody knows of.
    fn hidden(&self, queue: &str, until: Instant) -> usize {
        let unknown = self.unknown.iter();
        let before = unknown.filter(|(of, requested)| *of == queue && *requested < until);
        before.count()
    }

    /// R4: of two of a queue and priority that one who was put later must not come out first.
    fn out_of_order(&self) -> Vec<(u64, String)> {
        let firsts = self.firsts();
        let mut lines: BTreeMap<_, Vec<(u64, &Put, Firsts)>> = BTreeMap::new();
        for (number, put) in &self.puts {
            if let (Some(priority), Some(first)) = (put.priority, firsts.get(number)) {
                let line = lines.entry((put.queue, priority)).or_default();
                line.push((*number, put, *first));
            }
        }
        let mut wrong = Vec::new();
        for ((queue, _), line) in lines {
            for (late, later, taken) in line.iter().filter(|(_, _, taken)| taken.oldest) {
                let mut overtaken = line.iter().filter(|(_, put, first)| {
                    put.answered
                        .is_some_and(|answered| answered < later.requested)
                        && taken.answered < first.requested
                });
                // As many may have been hidden as takes are unknown.
                if let Some((early, ..)) = overtaken.nth(self.hidden(queue, taken.answered)) {
                    let why = format!(
                        "message {late} of the same queue and priority was put after this one was \
                         acknowledged, and came out before anybody asked for it"
                    );
                    wrong.push((*early, why));
                }
            }
        }
        wrong
    }

    /// R5: what somebody holds nobody else is given.
    fn shared(&self, lease: Duration) -> Vec<(u64, String)> {
        let mut of: HashMap<u64, Vec<&Take>> = HashMap::new();
        for take in &self.takes {
            of.entry(take.number).or_default().push(take);
        }
        let mut wrong = Vec::new();
        for (number, takes) in of {
            let held = takes.iter().filter_map(|one| {
                let held = one.held?.min(one.requested + lease);
                Some((one.answered, held))
            });
            for (from, until) in held {
                let meanwhile = |take: &&Take| take.requested > from && take.answered < until;
                if takes.iter().copied().any(|take| meanwhile(&take)) {
                    let why = "it was given to somebody while another held it".to_owned();
                    wrong.push((number, why));
                }
            }
        }
        wrong
    }

    /// R7: an id is given once, and those of a shard rise.
    fn misnumbered(&self) -> Vec<(u64, String)> {
        let mut listed: Vec<_> = (self.puts.iter())
            .filter_map(|(number, put)| Some((put.answered?, put.requested, put.id?, *number)))
            .collect();
        listed.sort_unstable();
        let (mut wrong, mut granted) = (Vec::new(), HashMap::new());
        for (_, _, id, number) in &listed {
            if let Some(other) = granted.insert(id, number) {
                wrong.push((*number, format!("it has the id {id} of message {other}")));
            }
        }
        // Of each shard, those that were answered before this one was requested.
        let mut requested: Vec<_> = listed
            .iter()
            .map(|(_, requested, id, n)| (*requested, *id, *n))
            .collect();
        requested.sort_unstable();
        let (mut newest, mut before) = (HashMap::<u64, u64>::new(), listed.iter().peekable());
        for (requested, id, number) in requested {
            while let Some((_, _, id, _)) = before.next_if(|(answered, ..)| *answered < requested) {
                let most = newest.entry(id >> SHARD_SHIFT).or_default();
                *most = (*most).max(*id);
            }
            if let Some(most) = newest.get(&(id >> SHARD_SHIFT)).filter(|most| **most > id) {
                wrong.push((number, format!("its id {id} was given after {most}")));
            }
        }
        wrong
    }

    /// R6: no take gets the reply that there is nothing while something is there all the time.
    fn overlooked(&self) -> Vec<(u64, String)> {
        let firsts = self.firsts();
        let mut wrong = Vec::new();
        for (queue, requested, answered) in &self.empty {
            let mut there = self.puts.iter().filter(|(number, put)| {
                put.queue == *queue
                    && put.priority.is_some()
                    && !put.mortal
                    && put.answered.is_some_and(|stored| stored < *requested)
                    && firsts
                        .get(number)
                        .is_some_and(|first| first.requested > *answered)
            });
            if let Some((number, _)) = there.nth(self.hidden(queue, *answered)) {
                let why = "an empty reply while a message was there".to_owned();
                wrong.push((*number, why));
            }
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::History;

    const LEASE: Duration = Duration::from_secs(2);
    const PRIORITY: Option<(usize, u32)> = Some((0, 0));

    /// Later than everything before: two moments may be the same.
    fn now() -> Instant {
        let before = Instant::now();
        loop {
            let now = Instant::now();
            if now > before {
                return now;
            }
        }
    }

    fn stored(history: &mut History, number: u64) {
        now();
        history.put(number, "q", PRIORITY, false);
        history.stored(number);
        now();
    }

    fn taken(history: &mut History, number: u64) -> Instant {
        let requested = now();
        history.taken(number, requested, now(), true);
        now();
        requested
    }

    fn wrong(mut history: History) -> Vec<u64> {
        history
            .close(LEASE)
            .into_iter()
            .map(|(number, _)| number)
            .collect()
    }

    #[test]
    fn in_order_nothing_is_wrong() {
        let mut history = History::default();
        (1..=3).for_each(|number| stored(&mut history, number));
        for number in 1..=3 {
            taken(&mut history, number);
        }
        let requested = now();
        history.empty("q", requested, now());
        assert_eq!(wrong(history), [0; 0]);
    }

    #[test]
    fn a_message_put_later_and_taken_first_is_found() {
        let overtaken = |unknown: usize| {
            let mut history = History::default();
            (1..=2).for_each(|number| stored(&mut history, number));
            (0..unknown).for_each(|_| history.unanswered("q", now()));
            taken(&mut history, 2);
            taken(&mut history, 1);
            wrong(history)
        };
        assert_eq!(overtaken(0), [1]);
        // Somebody may have had it, and given it back.
        assert_eq!(overtaken(1), [0; 0]);
    }

    #[test]
    fn pinpriq_takes_the_newest() {
        let mut history = History::default();
        (1..=2).for_each(|number| stored(&mut history, number));
        let requested = now();
        history.taken(2, requested, now(), false);
        taken(&mut history, 1);
        assert_eq!(wrong(history), [0; 0]);
    }

    #[test]
    fn concurrent_puts_and_takes_have_no_order() {
        let mut history = History::default();
        history.put(1, "q", PRIORITY, false);
        stored(&mut history, 2);
        history.stored(1);
        stored(&mut history, 3);
        let requested = now();
        taken(&mut history, 2);
        taken(&mut history, 3);
        // Asked for before 3 came out.
        history.taken(1, requested, now(), true);
        // Another priority.
        history.put(4, "q", Some((0, 1)), false);
        history.stored(4);
        stored(&mut history, 5);
        taken(&mut history, 5);
        taken(&mut history, 4);
        assert_eq!(wrong(history), [0; 0]);
    }

    #[test]
    fn two_holders_of_one_message_are_found() {
        let twice = |held: bool| {
            let mut history = History::default();
            stored(&mut history, 1);
            let requested = taken(&mut history, 1);
            taken(&mut history, 1);
            if held {
                history.held(1, requested, now());
            }
            wrong(history)
        };
        assert_eq!(twice(true), [1]);
        // Its connection may have been over.
        assert_eq!(twice(false), [0; 0]);
    }

    #[test]
    fn a_released_or_expired_lease_allows_another() {
        let mut history = History::default();
        stored(&mut history, 1);
        let requested = taken(&mut history, 1);
        history.held(1, requested, now());
        let again = taken(&mut history, 1);
        taken(&mut history, 1);
        history.held(1, again, now());
        let wrong = history.close(Duration::ZERO);
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn ids_that_come_again_or_fall_in_a_shard_are_found() {
        let ids = |ids: &[u64]| {
            let mut history = History::default();
            for (number, id) in (1..).zip(ids) {
                stored(&mut history, number);
                history.has_id(number, *id);
                taken(&mut history, number);
            }
            wrong(history)
        };
        let other = 1 << super::SHARD_SHIFT;
        assert_eq!(ids(&[1, 2, 3]), [0; 0]);
        assert_eq!(ids(&[other + 5, 2, other + 6, 3]), [0; 0]);
        assert_eq!(ids(&[1, 2, 2]), [3]);
        assert_eq!(ids(&[1, 3, 2, 4]), [3]);
        // Of two that were requested at the same time either may be the first.
        let mut history = History::default();
        history.put(1, "q", PRIORITY, false);
        stored(&mut history, 2);
        history.stored(1);
        history.has_id(2, 8);
        history.has_id(1, 7);
        for number in 1..=2 {
            taken(&mut history, number);
        }
        assert_eq!(wrong(history), [0; 0]);
    }

    #[test]
    fn an_empty_reply_with_a_waiting_message_is_found() {
        let listed = |mortal: bool, unknown: usize| {
            let mut history = History::default();
            history.put(1, "q", PRIORITY, mortal);
            history.stored(1);
            (0..unknown).for_each(|_| history.unanswered("q", now()));
            let requested = now();
            history.empty("q", requested, now());
            taken(&mut history, 1);
            wrong(history)
        };
        assert_eq!(listed(false, 0), [1]);
        assert_eq!(listed(true, 0), [0; 0]);
        assert_eq!(listed(false, 1), [0; 0]);
    }
}
