//! From id to slot.

use std::collections::BTreeMap;

const PAGE: u64 = 64;
const NONE: u32 = u32::MAX;

/// Ids rise, so neighbours are put together: a page serves 64 of them at four
/// bytes each, and nothing is ever rehashed (a hash table of ten million
/// entries stops everybody for half a second when it grows).
#[derive(Debug, Default)]
pub(crate) struct Ids {
    pages: BTreeMap<u64, Box<Page>>,
    /// The page new ids go to. It stays when it is empty: a queue that is
    /// emptied as it is filled would make and drop it with every message.
    newest: u64,
}

#[derive(Debug)]
struct Page {
    live: u32,
    slots: [u32; PAGE as usize],
}

impl Ids {
    pub(crate) fn insert(&mut self, id: u64, slot: u32) {
        if id / PAGE > self.newest {
            if self
                .pages
                .get(&self.newest)
                .is_some_and(|page| page.live == 0)
            {
                self.pages.remove(&self.newest);
            }
            self.newest = id / PAGE;
        }
        let page = self.pages.entry(id / PAGE).or_insert_with(|| {
            Box::new(Page {
                live: 0,
                slots: [NONE; PAGE as usize],
            })
        });
        let entry = &mut page.slots[(id % PAGE) as usize];
        if *entry == NONE {
            page.live += 1;
        }
        *entry = slot;
    }

    pub(crate) fn get(&self, id: u64) -> Option<u32> {
        let slot = self.pages.get(&(id / PAGE))?.slots[(id % PAGE) as usize];
        (slot != NONE).then_some(slot)
    }

    pub(crate) fn remove(&mut self, id: u64) {
        let Some(page) = self.pages.get_mut(&(id / PAGE)) else {
            return;
        };
        let entry = &mut page.slots[(id % PAGE) as usize];
        if *entry != NONE {
            *entry = NONE;
            page.live -= 1;
            if page.live == 0 && id / PAGE != self.newest {
                self.pages.remove(&(id / PAGE));
            }
        }
    }

    /// Ids above `after`, in order, with their slots.
    pub(crate) fn after(&self, after: u64) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.pages
            .range((after + 1) / PAGE..)
            .flat_map(move |(page, slots)| {
                slots
                    .slots
                    .iter()
                    .enumerate()
                    .filter_map(move |(at, &slot)| {
                        let id = page * PAGE + at as u64;
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
        for id in 1..1000 {
            ids.insert(id, id as u32);
        }
        assert_eq!(ids.get(999), Some(999));
        for id in 1..1000 {
            if id != 500 {
                ids.remove(id);
            }
        }
        assert_eq!(
            (ids.get(500), ids.get(499), ids.pages.len()),
            (Some(500), None, 2)
        );
        assert_eq!(ids.after(0).collect::<Vec<_>>(), [(500, 500)]);
        assert_eq!(ids.after(500).count(), 0);
    }
}
