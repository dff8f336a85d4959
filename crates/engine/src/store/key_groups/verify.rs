//! Whether message groups agree with their messages. For tests: it looks at
//! everything.

use std::collections::BTreeSet;

use super::{Eligibility, Group, Head, KeyGroups, Pos, Position};
use quintet_types::StateIndex;

use crate::cold::{Block, BlockAt};

impl KeyGroups {
    /// The same of what is there, built anew; for [`Durable::verify`].
    ///
    /// # Errors
    /// The first disagreement found.
    pub(in crate::store) fn verify(&self, slow: &Self) -> Result<(), String> {
        if self.numbers.len() != self.list.iter().flatten().count() {
            return Err("key groups are lost".to_owned());
        }
        let (mut members, mut firsts) = (0, 0);
        for (number, group) in self.list.iter().enumerate() {
            // A free number.
            let Some(group) = group else { continue };
            members += group.members();
            let spared = self.idle.map(|idle| idle as usize) == Some(number);
            self.verify_group(group, spared, slow)?;
        }
        #[expect(clippy::disallowed_methods, reason = "all of them are wanted")]
        for key in slow.numbers.keys() {
            if !self.numbers.contains_key(key) {
                return Err(format!("no group of {key:?}"));
            }
        }
        let entered_as = |which: Eligibility| {
            let groups = self.list.iter().flatten();
            let entered = groups.filter_map(|group| group.eligibility);
            entered.filter(|(is, _)| *is == which).count()
        };
        #[expect(clippy::disallowed_methods, reason = "they are counted")]
        for list in self.known.values() {
            firsts += list.len();
        }
        let free = slow.free.len()
            - slow
                .list
                .iter()
                .flatten()
                .filter_map(|g| g.eligibility)
                .filter(|(s, _)| *s == Eligibility::Free)
                .count();
        #[expect(clippy::disallowed_methods, reason = "they are counted")]
        let keyless = self
            .known
            .values()
            .flat_map(|list| list.iter())
            .filter(|(group, _)| group.is_none())
            .count();
        let sums = (
            members,
            firsts,
            self.limited.len(),
            self.free.len(),
            self.in_flight,
        );
        let should = (
            self.members,
            self.known_firsts,
            entered_as(Eligibility::Limited),
            entered_as(Eligibility::Free) + free + keyless,
            slow.in_flight,
        );
        if sums != should {
            return Err(format!("sums of groups {sums:?} are not {should:?}"));
        }
        Ok(())
    }

    fn verify_group(&self, group: &Group, spared: bool, slow: &Self) -> Result<(), String> {
        let none = Group::new(group.key.clone());
        let other = slow.find(&group.key).unwrap_or(&none);
        let here = |(pos, (priority, head)): (Pos, &(u32, Head))| match head {
            Head::Here(slot) => Some((pos, *priority, *slot)),
            Head::Cold(_) => None,
        };
        let ours: Vec<_> = group.ready.iter().filter_map(here).collect();
        let theirs: Vec<_> = other.ready.iter().filter_map(here).collect();
        let blocking: BTreeSet<Position> = group.blocking.keys().collect();
        let plain: BTreeSet<Position> = other.blocking.keys().collect();
        let virtual_blocks = blocking.difference(&plain);
        #[expect(clippy::disallowed_methods, reason = "any of them will do")]
        let known = |position: &&Position| {
            let mut lists = self.known.iter().flat_map(|(_, list)| list.iter());
            lists.any(|&(_, (_, at, id))| (at, id) == **position)
        };
        let blocks = virtual_blocks.filter(|position| !known(position)).count() == 0
            && plain.is_subset(&blocking);
        let same = ours == theirs
            && group.not_selectable.iter().eq(other.not_selectable.iter())
            && blocks
            && group.in_flight == other.in_flight;
        if !same || group.is_idle() && !spared {
            return Err(format!("group {group:?} should be {other:?}"));
        }
        let eligibility = self.eligibility_of(group).map(|(is, order, _)| (is, order));
        let head = group.ready.first_key_value().map(|(_, (_, head))| *head);
        let entered = match eligibility {
            Some((Eligibility::Free, order)) => self.free.get(&order).copied() == head,
            Some((Eligibility::Limited, order)) => self.limited.get(&order).copied() == head,
            Some((Eligibility::OverShare, _)) | None => true,
        };
        if eligibility != group.eligibility || !entered {
            return Err(format!("{group:?} should be entered as {eligibility:?}"));
        }
        Ok(())
    }

    /// The stored blocks it knows of; for [`Durable::verify`].
    pub(in crate::store) fn has_block(&self, at: BlockAt, row: &Block) -> bool {
        let open = self.open.contains(&(row.first, at));
        let floor = self.floor_of.contains_key(&at);
        let known = self.known.contains_key(&at);
        match row.state_index {
            StateIndex::Ready => {
                known != open && (known || floor == (self.is_ordered() && row.keyed))
            }
            StateIndex::Delayed if self.is_ordered() => known || floor || !row.keyed,
            StateIndex::Delayed
            | StateIndex::NotSelectable
            | StateIndex::Buried
            | StateIndex::Archived => true,
        }
    }
}
