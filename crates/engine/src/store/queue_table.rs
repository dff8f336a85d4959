//! The queues of a shard by their numbers.

use super::Queue;

/// Numbers of a page.
const PAGE: usize = 256;

/// Numbers rise with each queue that is made. There is memory only for pages that have a queue:
/// for many that were made and dropped it takes little, and so for one of a damaged, great number.
#[derive(Debug, Default)]
pub(crate) struct QueueTable {
    pages: Vec<Option<Box<Page>>>,
    len: usize,
}

#[derive(Debug)]
struct Page {
    /// How many there are.
    count: usize,
    queues: [Option<Box<Queue>>; PAGE],
}

impl QueueTable {
    /// One more than the greatest number that a queue has had.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn get(&self, at: usize) -> Option<&Queue> {
        let page = self.pages.get(at / PAGE)?.as_deref()?;
        page.queues[at % PAGE].as_deref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut Queue> {
        let page = self.pages.get_mut(at / PAGE)?.as_deref_mut()?;
        page.queues[at % PAGE].as_deref_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Queue> {
        let pages = self.pages.iter().flatten();
        pages.flat_map(|page| page.queues.iter().filter_map(Option::as_deref))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Queue> {
        let pages = self.pages.iter_mut().flatten();
        pages.flat_map(|page| page.queues.iter_mut().filter_map(Option::as_deref_mut))
    }

    pub(super) fn insert(&mut self, at: usize, queue: Queue) {
        if self.pages.len() <= at / PAGE {
            self.pages.resize_with(at / PAGE + 1, || None);
        }
        self.len = self.len.max(at + 1);
        let page = self.pages[at / PAGE].get_or_insert_with(|| {
            Box::new(Page {
                count: 0,
                queues: [const { None }; PAGE],
            })
        });
        let before = page.queues[at % PAGE].replace(Box::new(queue));
        page.count += usize::from(before.is_none());
    }

    pub(super) fn remove(&mut self, at: usize) -> Option<Box<Queue>> {
        let place = self.pages.get_mut(at / PAGE)?;
        let page = place.as_deref_mut()?;
        let queue = page.queues[at % PAGE].take()?;
        page.count -= 1;
        if page.count == 0 {
            *place = None;
        }
        Some(queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_great_number_and_numbers_of_the_past_take_little_memory() {
        let mut table = QueueTable::default();
        let pages = |table: &QueueTable| table.pages.iter().flatten().count();
        let last = (1 << 20) - 1;
        for at in [last, 3, 4, last] {
            table.insert(at, Queue::default());
        }
        assert_eq!((table.len(), pages(&table)), (last + 1, 2));
        assert!(table.get(3).is_some() && table.get_mut(last).is_some());
        assert!(table.get(5).is_none() && table.get(last + 1).is_none());
        assert_eq!((table.iter().count(), table.iter_mut().count()), (3, 3));
        for (at, left) in [(3, 2), (4, 1), (last, 0)] {
            assert!(table.remove(at).is_some());
            assert!(table.remove(at).is_none() && table.get(at).is_none());
            assert_eq!(pages(&table), left);
        }
        assert_eq!(table.len(), last + 1, "no number comes again");
    }
}
