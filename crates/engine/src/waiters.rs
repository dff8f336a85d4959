//! Takes that wait. All of it is volatile: a restart forgets it.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;
use smallvec::SmallVec;

use quintet_types::{ClientId, Ms, Name, Pick, QueueId, Take};

use crate::claim::Claim;
use crate::store::{Store, WaitsTo};

/// Numbers of queues, sorted, each once.
pub(crate) type Lines = SmallVec<[QueueId; 1]>;

/// One take in line.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) client_id: ClientId,
    pub(crate) standing: bool,
    /// Without the names of its queues, which may be many, unless it asks them in
    /// their order.
    pub(crate) take: Take,
    /// Those of its queues that are this shard's, sorted.
    pub(crate) queues: Lines,
    /// When it gives up.
    pub(crate) until: Option<Ms>,
    /// When it learns that a lease of its client is about to end.
    pub(crate) warn: Option<Ms>,
    /// Shared with its places in the lines of other shards, if it has any.
    pub(crate) claim: Option<Claim>,
}

impl Waiter {
    /// True if this shard may end the wait. False: another shard has.
    pub(crate) fn claim(&self) -> bool {
        self.claim.as_ref().is_none_or(Claim::take)
    }

    /// True for a peeking subscription, which takes nothing.
    fn only_peeks(&self) -> bool {
        self.standing && self.take.peek
    }

    fn waits_to(&self) -> WaitsTo {
        match (self.take.peek, self.standing) {
            (false, _) => WaitsTo::Take,
            (true, false) => WaitsTo::Peek,
            (true, true) => WaitsTo::Watch,
        }
    }

    /// Enters it in the lines of its queues.
    fn enter(&self, number: u64, store: &mut Store) {
        for &queue in &self.queues {
            store.enter_line(queue, number, self.waits_to());
        }
    }

    /// Takes it out of the lines of its queues.
    fn leave(&self, number: u64, store: &mut Store) {
        for &queue in &self.queues {
            store.leave_line(queue, number, self.waits_to());
        }
    }

    fn deadline(&self) -> Option<Ms> {
        match (self.until, self.warn) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

/// All waiting takes; a number tells who came first.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    next: u64,
    all: BTreeMap<u64, Waiter>,
    /// How many of them are peeking subscriptions.
    peeks: usize,
    deadlines: BTreeSet<(Ms, u64)>,
    by_client: HashMap<ClientId, SmallVec<[u64; 2]>, foldhash::fast::RandomState>,
}

impl Waiters {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// How many are takes: all but peeking subscriptions.
    pub(crate) fn takes(&self) -> usize {
        self.all.len() - self.peeks
    }

    /// The queues a client's takes stand in line for.
    pub(crate) fn queues_of(&self, client_id: ClientId) -> impl Iterator<Item = QueueId> + '_ {
        let numbers = self.by_client.get(&client_id).into_iter().flatten();
        let waiters = numbers.filter_map(|number| self.all.get(number));
        waiters.flat_map(|waiter| waiter.queues.iter().copied())
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Waiter> {
        self.all.get(&number)
    }

    /// Enters a take at the end of the lines of its queues; answers its number.
    pub(crate) fn add(&mut self, waiter: Waiter, store: &mut Store) -> u64 {
        let number = self.next;
        self.next += 1;
        waiter.enter(number, store);
        self.peeks += usize::from(waiter.only_peeks());
        if let Some(at) = waiter.deadline() {
            self.deadlines.insert((at, number));
        }
        self.by_client
            .entry(waiter.client_id)
            .or_default()
            .push(number);
        self.all.insert(number, waiter);
        number
    }

    /// Gives a waiter another take, in the lines of these queues; it keeps its
    /// number and so its place. Answers the queues it stood in before.
    pub(crate) fn change(
        &mut self,
        number: u64,
        take: Take,
        queues: Lines,
        store: &mut Store,
    ) -> Lines {
        let Some(waiter) = self.all.get_mut(&number) else {
            return queues;
        };
        waiter.leave(number, store);
        self.peeks -= usize::from(waiter.only_peeks());
        waiter.take = take;
        let before = std::mem::replace(&mut waiter.queues, queues);
        waiter.enter(number, store);
        self.peeks += usize::from(waiter.only_peeks());
        before
    }

    /// Enters a waiter in the line of one more queue, at the place it has
    /// elsewhere. False: it stood there.
    pub(crate) fn enter_one(&mut self, number: u64, queue: QueueId, store: &mut Store) -> bool {
        let Some(waiter) = self.all.get_mut(&number) else {
            return false;
        };
        let Err(at) = waiter.queues.binary_search(&queue) else {
            return false;
        };
        waiter.queues.insert(at, queue);
        store.enter_line(queue, number, waiter.waits_to());
        true
    }

    /// One that asks its queues in their order knows them by name: this one is
    /// the last of them now, or none.
    pub(crate) fn renamed(&mut self, number: u64, name: &Name, on: bool) {
        if let Some(waiter) = self.all.get_mut(&number)
            && waiter.take.pick == Pick::InOrder
        {
            waiter.take.queues.retain(|other| other != name);
            if on {
                waiter.take.queues.push(name.clone());
            }
        }
    }

    /// Takes a waiter out of the line of one queue.
    pub(crate) fn leave_one(&mut self, number: u64, queue: QueueId, store: &mut Store) {
        if let Some(waiter) = self.all.get_mut(&number)
            && let Ok(at) = waiter.queues.binary_search(&queue)
        {
            waiter.queues.remove(at);
            store.leave_line(queue, number, waiter.waits_to());
        }
    }

    /// Takes a waiter out of all lines.
    pub(crate) fn remove(&mut self, number: u64, store: &mut Store) -> Option<Waiter> {
        let waiter = self.all.remove(&number)?;
        waiter.leave(number, store);
        self.peeks -= usize::from(waiter.only_peeks());
        if let Some(at) = waiter.deadline() {
            self.deadlines.remove(&(at, number));
        }
        if let Some(numbers) = self.by_client.get_mut(&waiter.client_id) {
            numbers.retain(|other| *other != number);
            if numbers.is_empty() {
                self.by_client.remove(&waiter.client_id);
            }
        }
        Some(waiter)
    }

    /// The client's waiting take (`standing`: its subscription).
    pub(crate) fn of(&self, client_id: ClientId, standing: bool) -> Option<u64> {
        let numbers = self.by_client.get(&client_id)?;
        numbers
            .iter()
            .copied()
            .find(|number| self.all.get(number).is_some_and(|w| w.standing == standing))
    }

    /// Drops all waits of a client; answers the queues they were on.
    pub(crate) fn forget(
        &mut self,
        client_id: ClientId,
        store: &mut Store,
    ) -> SmallVec<[QueueId; 4]> {
        let mut queues = SmallVec::new();
        for number in self.by_client.get(&client_id).cloned().unwrap_or_default() {
            if let Some(waiter) = self.remove(number, store) {
                // No other shard is to serve it any more either.
                waiter.claim();
                queues.extend(waiter.queues);
            }
        }
        queues
    }

    /// The client's waits that another shard has ended.
    pub(crate) fn served_elsewhere(&self, client_id: ClientId) -> SmallVec<[u64; 2]> {
        let mut numbers = self.by_client.get(&client_id).cloned().unwrap_or_default();
        numbers.retain(|number| {
            let claim = self.all.get(number).and_then(|w| w.claim.as_ref());
            claim.is_some_and(Claim::is_taken)
        });
        numbers
    }

    /// A queue was dropped and made again under another number: its line moves
    /// over, in order.
    pub(crate) fn requeue(&mut self, numbers: &BTreeSet<u64>, old: QueueId, new: QueueId) {
        for number in numbers {
            if let Some(waiter) = self.all.get_mut(number)
                && let Ok(at) = waiter.queues.binary_search(&old)
            {
                waiter.queues.remove(at);
                let to = waiter.queues.partition_point(|&queue| queue < new);
                waiter.queues.insert(to, new);
            }
        }
    }

    /// A waiter gives up later.
    pub(crate) fn postpone(&mut self, number: u64, until: Ms) {
        if let Some(waiter) = self.all.get_mut(&number) {
            if let Some(at) = waiter.deadline() {
                self.deadlines.remove(&(at, number));
            }
            (waiter.until, waiter.warn) = (Some(until), None);
            if let Some(at) = waiter.deadline() {
                self.deadlines.insert((at, number));
            }
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Ms> {
        self.deadlines.first().map(|&(at, _)| at)
    }

    /// The next waiter whose time has come.
    pub(crate) fn due(&self, now: Ms) -> Option<u64> {
        self.deadlines
            .first()
            .filter(|(at, _)| *at <= now)
            .map(|&(_, number)| number)
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::Engine;
    use quintet_types::Ms;
    use quintet_types::Name;
    use quintet_types::Settings;
    use quintet_types::{Answer, Outcome};
    use quintet_types::{Caller, ClientId, Command, Take, Wait};

    const QUEUES: u64 = 1000;

    fn ask(engine: &mut Engine, client_id: u64, command: Command) -> Vec<ClientId> {
        let caller = Caller {
            client_id: ClientId(client_id),
            ..Caller::default()
        };
        let (mut log, mut deliveries) = (Vec::new(), Vec::new());
        let answer = engine.submit(Ms(1), caller, command, &mut log, &mut deliveries);
        assert!(matches!(
            answer,
            Answer::Now(Outcome::Done | Outcome::Put { .. }, _)
        ));
        engine.verify().unwrap();
        deliveries.into_iter().map(|delivery| delivery.to).collect()
    }

    fn watch_queue(engine: &mut Engine, client_id: u64, queue: &str, on: bool) {
        let queue = queue.into();
        assert!(ask(engine, client_id, Command::WatchQueue { queue, on }).is_empty());
    }

    #[test]
    fn a_queue_more_or_less_touches_no_line_but_its_own() {
        let mut engine = Engine::new(0, 1, Settings::default());
        let names = (0..QUEUES).map(|number| Name::from(format!("q{number}").as_str()));
        let take = Take {
            queues: names.collect(),
            wait: Wait::Forever,
            ..Take::default()
        };
        let stand = |take: &Take| Command::Watch(Some(Box::new(take.clone())));
        ask(&mut engine, 1, stand(&take));
        assert_eq!(engine.store.line_steps, QUEUES);
        // What was done for each change before there was a command for one.
        ask(&mut engine, 1, Command::Rewatch(Box::new(take.clone())));
        assert_eq!(engine.store.line_steps, 3 * QUEUES);
        engine.store.take_line_steps();
        watch_queue(&mut engine, 1, "one more", true);
        watch_queue(&mut engine, 1, "q7", false);
        // Nothing changes.
        watch_queue(&mut engine, 1, "q7", false);
        watch_queue(&mut engine, 1, "one more", true);
        assert_eq!(engine.store.line_steps, 2);
        // It keeps its place in the line of a queue that it comes back to.
        ask(&mut engine, 2, stand(&take));
        watch_queue(&mut engine, 1, "q7", true);
        let put = |queue: &str| quintet_types::Put {
            queue: queue.into(),
            ..Default::default()
        };
        assert_eq!(ask(&mut engine, 3, Command::Put(put("q7"))), [ClientId(1)]);
        // It was served, and nothing stands that could change.
        watch_queue(&mut engine, 1, "q8", true);
        assert_eq!(ask(&mut engine, 3, Command::Put(put("q8"))), [ClientId(2)]);
    }
}
