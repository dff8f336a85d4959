//! The schedules in the order of their names, and in that of their due times. Some 300 bytes for
//! each: definitions and cursors stay in the tables.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use quintet_policy::Schedule;
use quintet_types::Ms;

/// State of a schedule.
#[derive(Debug, Default)]
pub struct Item {
    /// Its definition, if that is in the configuration; else it is in the table of definitions.
    pub(super) of_file: Option<Arc<Schedule>>,
    /// The table has a definition too, which is passed over.
    pub(super) shadows: bool,
    /// When it is to be looked at next.
    pub(super) due: Ms,
    /// The due times at its reading have been handled, or tried.
    pub(super) checked: bool,
    pub(super) paused: bool,
    /// When it put last, by the wall clock.
    pub last_run: Option<u64>,
    /// Since the server's start, as the two below.
    pub runs: u64,
    pub missed: u64,
    pub failures: u64,
    /// Why the last put was refused.
    pub(super) error: Option<Box<str>>,
    /// Why its definition cannot be read.
    pub(super) invalid: Option<Box<str>>,
}

impl Item {
    /// Its cursors say that nothing is put.
    pub fn is_paused(&self) -> bool {
        self.paused
    }
}

/// Sums over all schedules; those of events since the start of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub schedules: u64,
    pub paused: u64,
    pub runs: u64,
    pub missed: u64,
    pub failures: u64,
}

/// All schedules.
#[derive(Debug, Default)]
pub(super) struct Book {
    items: BTreeMap<Arc<str>, Item>,
    /// Schedules that will be due, the next one first.
    due: BTreeSet<(Ms, Arc<str>)>,
    /// Schedules whose puts got errors, to be tried again.
    refused: VecDeque<Arc<str>>,
    /// How many are in the table of definitions.
    defined: u64,
    sums: Sums,
}

impl Book {
    pub(super) fn get(&self, name: &str) -> Option<&Item> {
        self.items.get(name)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// How many are defined at run time.
    pub(super) fn defined(&self) -> u64 {
        self.defined
    }

    /// Those behind a name.
    pub(super) fn behind(&self, after: Option<&str>) -> impl Iterator<Item = (&Arc<str>, &Item)> {
        let from = after.map_or(Unbounded, Excluded);
        self.items.range::<str, _>((from, Unbounded))
    }

    /// Names in the order in which they are due: first those that were refused; those that are
    /// never due come last.
    pub(super) fn soonest(&self, most: usize) -> Vec<Arc<str>> {
        let is_overdue = |name: &&Arc<str>| {
            let item = self.items.get(*name);
            let due = item.map(|item| item.due).filter(|due| *due != Ms::NEVER);
            due.is_some_and(|due| !self.due.contains(&(due, Arc::clone(name))))
        };
        let overdue: BTreeSet<&Arc<str>> = self.refused.iter().filter(is_overdue).collect();
        let due = self.due.iter().map(|(_, name)| name);
        let rest = self.items.iter();
        let rest = rest.filter_map(|(name, item)| (item.due == Ms::NEVER).then_some(name));
        let all = overdue.into_iter().chain(due).chain(rest);
        all.take(most).cloned().collect()
    }

    /// Adds one, which is to be looked at then.
    pub(super) fn insert(&mut self, name: &str, of_file: Option<Arc<Schedule>>, due: Ms) {
        self.remove(name);
        let name: Arc<str> = name.into();
        let item = Item {
            checked: of_file.is_none(),
            of_file,
            due,
            ..Item::default()
        };
        self.defined += u64::from(item.of_file.is_none());
        if due != Ms::NEVER {
            self.due.insert((due, Arc::clone(&name)));
        }
        self.items.insert(name, item);
    }

    pub(super) fn remove(&mut self, name: &str) {
        if let Some((name, item)) = self.items.remove_entry(name) {
            self.defined -= u64::from(item.of_file.is_none() || item.shadows);
            self.sums.paused -= u64::from(item.paused);
            self.due.remove(&(item.due, name));
        }
    }

    /// Its definition in the table is passed over, or is so no more.
    pub(super) fn set_shadows(&mut self, name: &str, shadows: bool) {
        if let Some(item) = self.items.get_mut(name)
            && item.of_file.is_some()
            && item.shadows != shadows
        {
            item.shadows = shadows;
            match shadows {
                true => self.defined += 1,
                false => self.defined -= 1,
            }
        }
    }

    /// Changes what is counted of one.
    pub(super) fn change(&mut self, name: &str, change: impl FnOnce(&mut Item, &mut Sums)) {
        if let Some(item) = self.items.get_mut(name) {
            let paused = item.paused;
            change(item, &mut self.sums);
            self.sums.paused += u64::from(item.paused);
            self.sums.paused -= u64::from(paused);
        }
    }

    /// Has one checked then; it is not tried again before.
    pub(super) fn check_at(&mut self, name: &str, due: Ms) {
        let Some((name, _)) = self.items.get_key_value(name) else {
            return;
        };
        let name = Arc::clone(name);
        if let Some(item) = self.items.get_mut(&name) {
            self.due.remove(&(item.due, Arc::clone(&name)));
            item.due = due;
            if due != Ms::NEVER {
                self.due.insert((due, name));
            }
        }
    }

    /// Has one tried again soon.
    pub(super) fn try_again(&mut self, name: &str) {
        if let Some((name, item)) = self.items.get_key_value(name) {
            // Its due time stays what is shown; it is not due by it until it was tried again.
            self.due.remove(&(item.due, Arc::clone(name)));
            self.refused.push_back(Arc::clone(name));
        }
    }

    /// Has those that were refused be due again, `most` of them.
    pub(super) fn try_refused(&mut self, most: usize) {
        let most = most.min(self.refused.len());
        for name in self.refused.drain(..most) {
            if let Some(item) = self.items.get(&name)
                && item.due != Ms::NEVER
            {
                self.due.insert((item.due, name));
            }
        }
    }

    /// The names that are due, `most` of them at most.
    pub(super) fn due_at(&self, now: Ms, most: usize) -> Vec<Arc<str>> {
        let due = self.due.iter().take_while(|(due, _)| *due <= now);
        due.take(most).map(|(_, name)| Arc::clone(name)).collect()
    }

    /// The names that are due after `late` and at `now`, `most` of them at most.
    pub(super) fn due_between(&self, late: Ms, now: Ms, most: usize) -> Vec<Arc<str>> {
        let from = (Ms(late.0.saturating_add(1)), Arc::from(""));
        let due = self.due.range(from..).take_while(|(due, _)| *due <= now);
        due.take(most).map(|(_, name)| Arc::clone(name)).collect()
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Ms {
        self.due.first().map_or(Ms::NEVER, |(due, _)| *due)
    }

    pub(super) fn sums(&self) -> Sums {
        Sums {
            schedules: self.items.len() as u64,
            ..self.sums
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[Arc<str>]) -> Vec<&str> {
        names.iter().map(|name| &**name).collect()
    }

    #[test]
    fn due_schedules_come_in_their_order() {
        let mut book = Book::default();
        for (name, due) in [("a", 30), ("b", 10), ("c", 20), ("d", u64::MAX)] {
            book.insert(name, None, Ms(due));
        }
        assert_eq!(names(&book.due_at(Ms(20), 9)), ["b", "c"]);
        assert_eq!(names(&book.due_at(Ms(20), 1)), ["b"]);
        assert_eq!(names(&book.soonest(9)), ["b", "c", "a", "d"]);
        assert_eq!((book.next(), book.defined()), (Ms(10), 4));
        book.check_at("b", Ms(40));
        assert_eq!(names(&book.due_at(Ms(40), 9)), ["c", "a", "b"]);
        // One that was refused is due by its next try alone.
        book.try_again("c");
        assert_eq!(names(&book.due_at(Ms(40), 9)), ["a", "b"]);
        assert_eq!(names(&book.soonest(9)), ["c", "a", "b", "d"]);
        book.try_refused(9);
        assert_eq!(names(&book.due_at(Ms(40), 9)), ["c", "a", "b"]);
        // One that was paused or removed meanwhile is not tried.
        book.try_again("c");
        book.check_at("c", Ms::NEVER);
        book.try_again("a");
        book.remove("a");
        book.try_refused(9);
        assert_eq!(names(&book.due_at(Ms(40), 9)), ["b"]);
        let behind = book.behind(Some("b")).map(|(name, _)| &**name);
        assert_eq!(behind.collect::<Vec<_>>(), ["c", "d"]);
        assert_eq!(book.defined(), 3);
    }

    #[test]
    fn paused_schedules_are_counted() {
        let mut book = Book::default();
        book.insert("a", None, Ms(1));
        book.change("a", |item, _| item.paused = true);
        book.change("a", |item, _| item.paused = true);
        assert_eq!(book.sums().paused, 1);
        book.remove("a");
        assert_eq!(book.sums(), Sums::default());
    }
}
