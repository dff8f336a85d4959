//! From id to slot.

use std::cell::Cell;
use std::collections::BTreeMap;

const PAGE: u64 = 64;
#[expect(clippy::cast_possible_truncation, reason = "64 fits any number")]
const SLOTS: usize = PAGE as usize;
const NONE: u32 = u32::MAX;

/// Places of pages remembered; a power of two.
const RECENT: usize = 16;
/// No page has this number: ids would have to be near 2^64.
const NO_PAGE: u64 = u64::MAX;

/// Ids rise, so neighbours are put together: a page serves 64 of them at four
/// bytes each, and nothing is ever rehashed (a hash table of ten million
/// entries stops everybody for half a second when it grows).
#[derive(Debug, Default)]
pub(crate) struct Ids {
    /// Where each page is in `pages`.
    places: BTreeMap<u64, u32>,
    pages: Vec<Option<Box<Page>>>,
    free: Vec<u32>,
    /// Where pages were found lately, by the end of their number. A message
    /// is looked for several times from its take to its end, and those that
    /// are taken at about the same time are neighbours: walking down the tree
    /// every time was a twentieth of the instructions of a reserve with its
    /// delete.
    recent: Recent,
    /// The page new ids go to. It stays when it is empty: a queue that is
    /// emptied as it is filled would make and drop it with every message.
    newest: u64,
}

#[derive(Debug)]
struct Page {
    live: u32,
    slots: [u32; SLOTS],
}

#[derive(Debug)]
struct Recent([Cell<(u64, u32)>; RECENT]);

impl Default for Recent {
    fn default() -> Self {
        Self([const { Cell::new((NO_PAGE, 0)) }; RECENT])
    }
}

impl Recent {
    fn at(&self, page: u64) -> &Cell<(u64, u32)> {
        let at = usize::try_from(page % RECENT as u64);
        &self.0[at.expect("below a number of this type")]
    }
}

impl Ids {
    fn position(&self, page: u64) -> Option<usize> {
        let recent = self.recent.at(page);
        let (number, position) = recent.get();
        if number == page {
            return Some(position as usize);
        }
        let position = *self.places.get(&page)?;
        recent.set((page, position));
        Some(position as usize)
    }

    fn page(&self, page: u64) -> Option<&Page> {
        self.pages.get(self.position(page)?)?.as_deref()
    }

    fn page_mut(&mut self, page: u64) -> Option<&mut Page> {
        let position = self.position(page)?;
        self.pages.get_mut(position)?.as_deref_mut()
    }

    fn add(&mut self, page: u64) {
        let made = Some(Box::new(Page {
            live: 0,
            slots: [NONE; SLOTS],
        }));
        let position = match self.free.pop() {
            Some(position) => {
                let old = std::mem::replace(&mut self.pages[position as usize], made);
                assert!(old.is_none(), "a place is free when its page is dropped");
                position
            }
            None => {
                let position = u32::try_from(self.pages.len());
                self.pages.push(made);
                position.expect("slots of messages, which are more, are 32 bits long")
            }
        };
        self.places.insert(page, position);
    }

    fn drop_page(&mut self, page: u64) {
        let position = self.places.remove(&page);
        let position = position.expect("only a page that is there is dropped");
        let recent = self.recent.at(page);
        if recent.get().0 == page {
            recent.set((NO_PAGE, 0));
        }
        self.pages[position as usize] = None;
        self.free.push(position);
        if self.places.is_empty() && self.pages.len() > RECENT {
            // Whatever the peak was, it is over.
            (self.pages, self.free) = (Vec::new(), Vec::new());
        }
    }

    pub(crate) fn insert(&mut self, id: u64, slot: u32) {
        if id / PAGE > self.newest {
            if self.page(self.newest).is_some_and(|page| page.live == 0) {
                self.drop_page(self.newest);
            }
            self.newest = id / PAGE;
        }
        if self.position(id / PAGE).is_none() {
            self.add(id / PAGE);
        }
        let page = self.page_mut(id / PAGE);
        let page = page.expect("a page that has a place is there");
        let entry = &mut page.slots[(id % PAGE) as usize];
        if *entry == NONE {
            page.live += 1;
        }
        *entry = slot;
    }

    pub(crate) fn get(&self, id: u64) -> Option<u32> {
        let slot = self.page(id / PAGE)?.slots[(id % PAGE) as usize];
        (slot != NONE).then_some(slot)
    }

    pub(crate) fn remove(&mut self, id: u64) {
        let newest = self.newest;
        let Some(page) = self.page_mut(id / PAGE) else {
            // A run that brings an id for the second time leaves one message without.
            return;
        };
        let entry = &mut page.slots[(id % PAGE) as usize];
        if *entry != NONE {
            *entry = NONE;
            page.live -= 1;
            if page.live == 0 && id / PAGE != newest {
                self.drop_page(id / PAGE);
            }
        }
    }

    /// Ids above `after`, in order, with their slots.
    pub(crate) fn after(&self, after: u64) -> impl Iterator<Item = (u64, u32)> + '_ {
        let pages = self
            .places
            .range((after + 1) / PAGE..)
            .filter_map(|(number, &position)| {
                let page = self.pages.get(position as usize)?.as_deref()?;
                Some((number, page))
            });
        pages.flat_map(move |(number, page)| {
            page.slots
                .iter()
                .enumerate()
                .filter_map(move |(at, &slot)| {
                    let id = number * PAGE + at as u64;
                    (slot != NONE && id > after).then_some((id, slot))
                })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparse_ids_give_their_pages_back() {
        let mut ids = Ids::default();
        for slot in 1..1000 {
            ids.insert(slot.into(), slot);
        }
        assert_eq!(ids.get(999), Some(999));
        for id in 1..1000 {
            if id != 500 {
                ids.remove(id);
            }
        }
        assert_eq!(
            (ids.get(500), ids.get(499), ids.places.len()),
            (Some(500), None, 2)
        );
        assert_eq!(ids.after(0).collect::<Vec<_>>(), [(500, 500)]);
        assert_eq!(ids.after(500).count(), 0);
    }

    #[test]
    fn a_page_that_is_gone_is_not_remembered() {
        let mut ids = Ids::default();
        // Numbers of pages that end alike share a place among the recent.
        let far = PAGE * RECENT as u64;
        for (id, slot) in [(1, 1), (1 + far, 2), (1 + 2 * far, 3)] {
            ids.insert(id, slot);
            assert_eq!(ids.get(id), Some(slot));
        }
        assert_eq!(ids.get(1), Some(1));
        ids.remove(1);
        assert_eq!((ids.get(1), ids.get(2)), (None, None));
        ids.insert(3, 7);
        ids.insert(1 + 3 * far, 8);
        assert_eq!((ids.get(1), ids.get(3)), (None, Some(7)));
        assert_eq!(ids.get(1 + far), Some(2));
        assert_eq!((ids.pages.len(), ids.free.len()), (4, 0));
    }

    #[test]
    fn each_damaged_index_is_noticed() {
        use crate::store::damaged::fires;
        type Row = (&'static str, fn(&mut Ids), fn(&mut Ids));
        let rows: [Row; 3] = [
            (
                "a place is free when its page is dropped",
                |ids| ids.free.push(0),
                |ids| ids.insert(PAGE, 2),
            ),
            (
                "only a page that is there is dropped",
                |ids| ids.places.clear(),
                |ids| ids.drop_page(0),
            ),
            (
                "a page that has a place is there",
                |ids| ids.pages.clear(),
                |ids| ids.insert(2, 2),
            ),
        ];
        for (reason, damage, act) in rows {
            let mut ids = Ids::default();
            ids.insert(1, 1);
            damage(&mut ids);
            fires(reason, || act(&mut ids));
        }
    }
}
