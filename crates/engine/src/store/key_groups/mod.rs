//! A queue's messages by their keys, where its settings give keys a meaning:
//! which of them may be handed out, in which order.
//!
//! An index over durable state. It is in no log: replay keeps it as it keeps
//! the queue's other maps, and where the settings change while messages wait
//! it is built in slices ([`super::Durable::build_groups`]).
//!
//! Every message group has its ready messages in order, and its first one, the
//! *head*, in at most one of a few ordered maps: of those that may go, and of
//! those that a limit holds back. The head of a group that waits for one of
//! its own is in none. So what a take costs does not depend on what waits
//! behind groups that may not go.
//!
//! Messages in runs are known by block. Of a block that is *known* every
//! group has its first message there among its own, so the block is read when
//! that one's turn has come; other blocks are *open*: they must be read before
//! anything behind them goes, and, in an ordered queue, no message goes while
//! one of its group that stands before it may be in one.

mod blocks;
#[cfg(test)]
mod damaged;
mod order;
mod verify;

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;
use smallvec::SmallVec;

pub(crate) use blocks::Safe;
pub(super) use blocks::Survey;
pub(crate) use order::Walk;

use super::{Ascending, Hash, Order};
use quintet_types::{Groups, HELD, Message, MessageId, Ms, QueueSettings, StateIndex, TakeLimit};

use crate::cold::BlockAt;
use crate::pace::{Pace, Speed};

/// A key of fewer messages under leases is never over its share.
const NOISY_LEAST: u64 = 30;
/// Nor one with no more than one of so many of its queue's.
const NOISY_SHARE: u64 = 10;
/// Messages of keys under their share in a row, while one of a key over its share waits.
const QUIET_RUN: u8 = 15;
/// First messages of keys that are remembered of known blocks, of one queue:
/// some 25 MB. Beyond, what lies behind blocked groups is left alone.
const KNOWN_MAX: usize = 1 << 18;
/// Keys whose rate lets them go in one step.
const RUNG_AT_ONCE: usize = 1024;
/// Groups that have rested are looked at when a multiple of this has come, ms:
/// many at once, rather than a timer for each message handed out.
const REST_GRAIN_MS: u64 = 50;

/// A place in a group: the priority is 0 in an ordered one, where place alone counts.
type Pos = (u32, i64, MessageId);
/// Place and id.
type Position = (i64, MessageId);

/// Settings about keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    groups: Groups,
    in_flight_max: u64,
    speed: Speed,
}

impl Rules {
    /// `None`: keys mean nothing to takes.
    pub(crate) fn of(settings: &QueueSettings) -> Option<Self> {
        let rules = Self {
            groups: settings.groups,
            in_flight_max: settings.key_in_flight_max,
            speed: Speed::of_keys(settings),
        };
        let limits = rules.in_flight_max > 0 || rules.is_paced();
        (rules.groups != Groups::None || limits).then_some(rules)
    }

    fn is_paced(&self) -> bool {
        self.speed.rate.interval_ns().is_some()
    }
}

/// How a message in memory stands in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Ready,
    NotSelectable,
    Delayed,
    Reserved,
}

/// True if a message waits for others: it stands in no line of its key, in which these may stand.
fn is_held(message: &Message, standing: Standing) -> bool {
    standing == Standing::Delayed && message.due() == Some(HELD)
}

/// The first message of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// In this slot.
    Here(u32),
    /// In this known block.
    Cold(BlockAt),
}

/// Whether a group's head can be taken: decides the index that lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Eligibility {
    /// Among those that may go.
    Free,
    /// Among those that a limit holds back.
    Limited,
    /// It may go, after those of keys under their share.
    OverShare,
}

/// Facts about a group's messages in open blocks.
#[derive(Clone, Copy, Debug)]
struct BlockScan {
    /// When: [`KeyGroups::turn`].
    turn: u64,
    /// None of them stands before this.
    up_to: i64,
    /// The block in which the first of them may be.
    block: Option<BlockAt>,
}

#[derive(Debug)]
struct Group {
    key: Arc<[u8]>,
    /// Ready ones with their priorities, and the first one in each known block.
    ready: Ascending<Pos, (u32, Head)>,
    /// Of an ordered queue: those that leave only with a companion.
    not_selectable: Ascending<Position, u32>,
    /// Of an ordered queue: those that nothing behind them may overtake.
    blocking: Ascending<Position, ()>,
    in_flight: u64,
    pace: Pace,
    /// The end of its hold.
    held: Option<Ms>,
    /// Its entry among those that time lets go.
    rings: Option<Ms>,
    is_noisy: bool,
    eligibility: Option<(Eligibility, Order)>,
    scanned: Option<BlockScan>,
}

impl Group {
    fn new(key: Arc<[u8]>) -> Self {
        Self {
            key,
            ready: Ascending::default(),
            not_selectable: Ascending::default(),
            blocking: Ascending::default(),
            in_flight: 0,
            pace: Pace::default(),
            held: None,
            rings: None,
            is_noisy: false,
            eligibility: None,
            scanned: None,
        }
    }

    /// True if nothing of it is handed out at `now`.
    fn is_held(&self, now: Ms) -> bool {
        self.held.is_some_and(|until| until > now)
    }

    /// True if nothing would be lost with it.
    fn is_idle(&self) -> bool {
        self.ready.is_empty()
            && self.not_selectable.is_empty()
            && self.blocking.is_empty()
            && self.in_flight == 0
            && self.rings.is_none()
    }

    fn members(&self) -> usize {
        self.ready.len() + self.not_selectable.len() + self.blocking.len()
    }
}

/// How far the building of what is there has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Building {
    Blocks(StateIndex, Option<(Order, BlockAt)>),
    Reserved(Option<MessageId>),
    Delayed(Option<(Ms, MessageId)>),
    NotSelectable(Option<Order>),
    Ready(Option<Order>),
    Done,
}

/// The first message of a key in a block that was read: its group, and where it stands.
type First = (Option<u32>, Pos);

/// Message groups of one queue.
#[derive(Debug)]
pub(crate) struct KeyGroups {
    rules: Rules,
    numbers: HashMap<Arc<[u8]>, u32, Hash>,
    list: Vec<Option<Group>>,
    unused: Vec<u32>,
    /// An empty group, which is forgotten next if it is still empty.
    idle: Option<u32>,
    /// Heads that may go, and ready messages without a key.
    free: Ascending<Order, Head>,
    /// Heads that a limit holds back.
    limited: Ascending<Order, Head>,
    /// Groups that time lets go, or after which nothing is left of what they
    /// handed out.
    rings: BTreeSet<(Ms, u32)>,
    /// Messages under leases.
    in_flight: u64,
    /// Groups with so many of them that they may be over their share.
    busy: BTreeSet<(u64, u32)>,
    /// Groups over their share: fewer than ten.
    over_share: SmallVec<[u32; 9]>,
    /// Messages of keys under their share handed out while one of a key over its share waited.
    quiet_run: u8,
    /// Open blocks of ready messages by the first one.
    open: BTreeSet<(Order, BlockAt)>,
    /// Of an ordered queue: open blocks with keys by the lowest place, and that
    /// place by block.
    floors: BTreeSet<(i64, BlockAt)>,
    floor_of: HashMap<BlockAt, i64, Hash>,
    /// Version: a search from before its last increment may not be true any more.
    turn: u64,
    known: HashMap<BlockAt, Box<[First]>, Hash>,
    /// Entries in those lists.
    known_firsts: usize,
    /// Entries of groups.
    members: usize,
    pub(super) building: Building,
    /// Something may go that might not before.
    freed: bool,
    pub(super) noted: bool,
}

impl KeyGroups {
    /// Of a queue with nothing in it, or with what is to be built.
    pub(crate) fn new(rules: Rules, empty: bool) -> Self {
        Self {
            rules,
            numbers: HashMap::default(),
            list: Vec::new(),
            unused: Vec::new(),
            idle: None,
            free: Ascending::default(),
            limited: Ascending::default(),
            rings: BTreeSet::new(),
            in_flight: 0,
            busy: BTreeSet::new(),
            over_share: SmallVec::new(),
            quiet_run: 0,
            open: BTreeSet::new(),
            floors: BTreeSet::new(),
            floor_of: HashMap::default(),
            turn: 0,
            known: HashMap::default(),
            known_firsts: 0,
            members: 0,
            building: match empty {
                true => Building::Done,
                false => Building::Blocks(StateIndex::Ready, None),
            },
            freed: false,
            noted: false,
        }
    }

    pub(crate) fn rules(&self) -> Rules {
        self.rules
    }

    pub(crate) fn is_ordered(&self) -> bool {
        self.rules.groups == Groups::Ordered
    }

    pub(crate) fn is_fair(&self) -> bool {
        self.rules.groups == Groups::Fair
    }

    pub(crate) fn is_built(&self) -> bool {
        self.building == Building::Done
    }

    /// Keys that it has something of.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Keys of which a limit holds something back.
    pub(crate) fn limited_len(&self) -> usize {
        self.limited.len()
    }

    /// The first message that a limit of its key holds back.
    pub(crate) fn first_limited(&self) -> Option<Head> {
        self.limited.first_key_value().map(|(_, &head)| head)
    }

    /// The limit that holds this key's messages back; `None`: of a key that is not known, the only
    /// one that the queue has.
    pub(crate) fn limit_of(&self, key: Option<&Arc<[u8]>>) -> Option<TakeLimit> {
        let max = self.rules.in_flight_max;
        let Some(group) = key.and_then(|key| self.find(key)) else {
            // A key that no message has, or none.
            return match (max > 0, self.rules.is_paced()) {
                (true, false) => Some(TakeLimit::InFlight),
                (false, true) => Some(TakeLimit::Rate),
                (false, false) => Some(TakeLimit::Hold),
                (true, true) => None,
            };
        };
        match () {
            () if group.held.is_some() => Some(TakeLimit::Hold),
            () if max > 0 && group.in_flight >= max => Some(TakeLimit::InFlight),
            () => group.pace.rings().map(|_| TakeLimit::Rate),
        }
    }

    /// Estimate of the memory that it takes, bytes.
    pub(super) fn bytes(&self) -> u64 {
        const GROUP: usize = 400;
        const MEMBER: usize = 64;
        const FIRST: usize = 96;
        (self.numbers.len() * GROUP + self.members * MEMBER + self.known_firsts * FIRST) as u64
    }

    /// Something may go that might not before; asked once.
    pub(super) fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.freed)
    }

    /// When something may go that may not now.
    pub(crate) fn alarm(&self) -> Option<Ms> {
        self.rings.first().map(|&(at, _)| at)
    }

    fn group(&self, number: u32) -> &Group {
        self.list[number as usize]
            .as_ref()
            .expect("a number names a group")
    }

    fn group_mut(&mut self, number: u32) -> &mut Group {
        self.list[number as usize]
            .as_mut()
            .expect("a number names a group")
    }

    fn find(&self, key: &Arc<[u8]>) -> Option<&Group> {
        self.numbers.get(key).map(|&number| self.group(number))
    }

    /// The group of this key, made if there is none.
    fn number_of(&mut self, key: &Arc<[u8]>) -> u32 {
        if let Some(&number) = self.numbers.get(key) {
            return number;
        }
        let group = Some(Group::new(key.clone()));
        let number = match self.unused.pop() {
            Some(number) => {
                let old = std::mem::replace(&mut self.list[number as usize], group);
                assert!(
                    old.is_none(),
                    "a number is free when its group is forgotten"
                );
                number
            }
            None => {
                self.list.push(group);
                u32::try_from(self.list.len() - 1).expect("fewer groups than messages")
            }
        };
        self.numbers.insert(key.clone(), number);
        number
    }

    /// A place in a group.
    fn pos(&self, (priority, position, id): Order) -> Pos {
        match self.is_ordered() {
            true => (0, position, id),
            false => (priority, position, id),
        }
    }

    /// A message came to memory, or to another state.
    pub(super) fn enter(&mut self, message: &Message, slot: u32, standing: Standing) {
        let order = message.order();
        let position = (message.position, message.id);
        let ordered = self.is_ordered();
        let reserved = standing == Standing::Reserved;
        if is_held(message, standing) || (reserved && !self.covers(message.id)) {
            // It waits for others, or the building has not come to it.
            return;
        }
        self.in_flight += u64::from(reserved);
        let Some(key) = message.key() else {
            // Of no group.
            if standing == Standing::Ready {
                self.free.insert(order, Head::Here(slot));
                self.freed = true;
            }
            if reserved {
                self.weigh_noise(None);
            }
            // Its put gave it no key.
            return;
        };
        if !ordered && matches!(standing, Standing::NotSelectable | Standing::Delayed) {
            // Without an order it keeps back no other.
            return;
        }
        let number = self.number_of(key);
        let pos = self.pos(order);
        let group = self.group_mut(number);
        let before = group.members();
        match standing {
            Standing::Ready => {
                group.ready.insert(pos, (order.0, Head::Here(slot)));
            }
            Standing::NotSelectable => {
                group.not_selectable.insert(position, slot);
            }
            Standing::Delayed => {
                group.blocking.insert(position, ());
            }
            Standing::Reserved => {
                if ordered {
                    group.blocking.insert(position, ());
                }
                group.in_flight += 1;
            }
        }
        self.members = self.members - before + self.group(number).members();
        if reserved {
            self.weigh_noise(Some(number));
        }
        self.update_eligibility(number);
    }

    /// It left.
    pub(super) fn leave(&mut self, message: &Message, standing: Standing) {
        let order = message.order();
        let position = (message.position, message.id);
        let reserved = standing == Standing::Reserved;
        if is_held(message, standing) || (reserved && !self.covers(message.id)) {
            // It waited for others, or the building has not come to it.
            return;
        }
        let counted = !reserved || self.in_flight > 0;
        assert!(counted, "a reserved message was counted when covered");
        self.in_flight -= u64::from(reserved);
        // What it held up may lie in one of these.
        self.freed |= !self.open.is_empty();
        let Some(key) = message.key() else {
            // Of no group.
            if standing == Standing::Ready {
                self.free.remove(&order);
            }
            if reserved {
                self.weigh_noise(None);
            }
            // Its put gave it no key.
            return;
        };
        // Not there yet, or it leaves nothing there.
        let Some(&number) = self.numbers.get(key) else {
            return;
        };
        let pos = self.pos(order);
        let group = self.group_mut(number);
        let before = group.members();
        match standing {
            Standing::Ready => {
                group.ready.remove(&pos);
            }
            Standing::NotSelectable => {
                group.not_selectable.remove(&position);
            }
            Standing::Delayed => {
                group.blocking.remove(&position);
            }
            Standing::Reserved => {
                group.blocking.remove(&position);
                assert!(
                    group.in_flight > 0,
                    "a reserved message is counted in its group"
                );
                group.in_flight -= 1;
            }
        }
        self.members = self.members - before + self.group(number).members();
        if reserved {
            self.weigh_noise(Some(number));
        }
        self.update_eligibility(number);
        self.forget_idle(number);
    }

    /// True if a reserved message of this id is counted, or would be if there
    /// were one.
    fn covers(&self, id: MessageId) -> bool {
        match self.building {
            Building::Blocks(..) => false,
            Building::Reserved(last) => last >= Some(id),
            Building::Delayed(_)
            | Building::NotSelectable(_)
            | Building::Ready(_)
            | Building::Done => true,
        }
    }

    /// Forgets a group of which nothing is left, when the next one is left so:
    /// a message that changes its state leaves its group and comes back.
    fn forget_idle(&mut self, number: u32) {
        if !self.group(number).is_idle() || self.idle == Some(number) {
            // Something is left of it, or it is the next one already.
            return;
        }
        let Some(old) = self.idle.replace(number) else {
            // No other is left so.
            return;
        };
        if self.group(old).is_idle() {
            let group = self.list[old as usize].take();
            let number = group.and_then(|group| self.numbers.remove(&group.key));
            assert!(number == Some(old), "a group is known by its key");
            self.unused.push(old);
        }
    }

    /// Where the head of a group belongs.
    fn eligibility_of(&self, group: &Group) -> Option<(Eligibility, Order, Head)> {
        let ((_, position, id), &(priority, head)) = group.ready.first_key_value()?;
        if group
            .blocking
            .first_key_value()
            .is_some_and(|(first, ())| first < (position, id))
        {
            return None;
        }
        let max = self.rules.in_flight_max;
        let full = max > 0 && group.in_flight >= max;
        let waits = full || group.held.is_some() || group.pace.rings().is_some();
        let eligibility = match (waits, group.is_noisy) {
            (true, _) => Eligibility::Limited,
            (false, true) => Eligibility::OverShare,
            (false, false) => Eligibility::Free,
        };
        Some((eligibility, (priority, position, id), head))
    }

    /// Enters the head of a group where it belongs now.
    fn update_eligibility(&mut self, number: u32) {
        let group = self.group(number);
        let old = group.eligibility;
        let new = self.eligibility_of(group);
        if new.map(|(eligibility, order, _)| (eligibility, order)) == old {
            // The message that came or went is not the one it is known by.
            return;
        }
        if let Some((eligibility, order)) = old {
            match eligibility {
                Eligibility::Free => self.free.remove(&order),
                Eligibility::Limited => self.limited.remove(&order),
                Eligibility::OverShare => None,
            };
        }
        if let Some((eligibility, order, head)) = new {
            match eligibility {
                Eligibility::Free => self.free.insert(order, head),
                Eligibility::Limited => self.limited.insert(order, head),
                Eligibility::OverShare => None,
            };
            // Those that a limit holds back can be looked at.
            self.freed = true;
        }
        self.group_mut(number).eligibility =
            new.map(|(eligibility, order, _)| (eligibility, order));
    }

    /// Adjusts to a change of the messages under leases, in this group or outside of all.
    fn weigh_noise(&mut self, changed: Option<u32>) {
        if !self.is_fair() {
            // By the settings its keys have no shares.
            return;
        }
        if let Some(number) = changed {
            let now = self.group(number).in_flight;
            for before in [now + 1, now.saturating_sub(1)] {
                self.busy.remove(&(before, number));
            }
            if now >= NOISY_LEAST {
                self.busy.insert((now, number));
            }
        }
        if self.busy.is_empty() && self.over_share.is_empty() {
            // Clients hold too few of any key for a share to matter.
            return;
        }
        let loud = self.busy.iter().rev();
        let loud = loud.take_while(|(held, _)| held * NOISY_SHARE > self.in_flight);
        let over_share: SmallVec<[u32; 9]> = loud.map(|&(_, number)| number).collect();
        let before = std::mem::replace(&mut self.over_share, over_share.clone());
        for &number in before.iter().filter(|number| !over_share.contains(number)) {
            self.group_mut(number).is_noisy = false;
            self.update_eligibility(number);
        }
        for &number in over_share.iter().filter(|number| !before.contains(number)) {
            self.group_mut(number).is_noisy = true;
            self.update_eligibility(number);
        }
    }

    /// A message of this key is handed out, by a lease or for good.
    pub(super) fn handed(&mut self, key: Option<&Arc<[u8]>>, now: Ms) {
        if self.is_fair() {
            let over_share = key.and_then(|key| self.find(key));
            let quiet = over_share.is_none_or(|group| !group.is_noisy);
            self.quiet_run = match quiet && self.noisy_heads().next().is_some() {
                true => self.quiet_run.saturating_add(1),
                false => 0,
            };
        }
        if let Some(key) = key
            && self.rules.is_paced()
        {
            let number = self.number_of(key);
            let speed = self.rules.speed;
            self.group_mut(number).pace.handed(speed, now);
            self.time(number, now);
        }
    }

    /// A key is held until then; `None`: no longer.
    pub(super) fn hold(&mut self, key: &Arc<[u8]>, until: Option<Ms>, now: Ms) {
        if until.is_none() && !self.numbers.contains_key(key) {
            // Nothing of the key is here: its group was forgotten, or never made.
            return;
        }
        let number = self.number_of(key);
        self.group_mut(number).held = until;
        self.time(number, now);
        self.forget_idle(number);
    }

    /// Enters a group among those that time lets go, if it may not go now, or
    /// is not rested.
    fn time(&mut self, number: u32, now: Ms) {
        let group = self.group_mut(number);
        let rested = group.pace.rested();
        let rings = group.pace.rings();
        let forgets = Ms(rested.0.next_multiple_of(REST_GRAIN_MS));
        let rings = rings.or_else(|| (rested > now).then_some(forgets));
        if rings.is_none() {
            group.pace = Pace::default();
        }
        group.held = group.held.filter(|&until| until > now);
        let rings = rings.into_iter().chain(group.held).min();
        let old = std::mem::replace(&mut group.rings, rings);
        if old != rings {
            let was = old.is_none_or(|old| self.rings.remove(&(old, number)));
            assert!(was, "a group that time lets go is among those that ring");
            let new = rings.is_none_or(|at| self.rings.insert((at, number)));
            assert!(new, "a group rings once");
        }
        self.update_eligibility(number);
    }

    /// Frees the heads whose time has come.
    pub(super) fn ring(&mut self, now: Ms) {
        for _ in 0..RUNG_AT_ONCE {
            let Some(&(at, number)) = self.rings.first() else {
                // No group waits for a time.
                return;
            };
            if at > now {
                // By the clock no other is due.
                return;
            }
            let speed = self.rules.speed;
            self.group_mut(number).pace.settle(speed, now);
            self.time(number, now);
            self.forget_idle(number);
        }
    }

    /// Frees up to `max` entries of what is not needed any more; true if some
    /// is left.
    pub(super) fn dismantle(&mut self, max: usize) -> bool {
        for _ in 0..max {
            if let Some(last) = self.list.last_mut() {
                let Some(group) = last else {
                    // A free number.
                    self.list.pop();
                    continue;
                };
                let some = group.ready.pop_first().is_some()
                    || group.not_selectable.pop_first().is_some()
                    || group.blocking.pop_first().is_some();
                if !some {
                    self.numbers.remove(&group.key);
                    self.list.pop();
                }
                continue;
            }
            let some = self.free.pop_first().is_some()
                || self.limited.pop_first().is_some()
                || self.rings.pop_first().is_some()
                || self.open.pop_first().is_some()
                || self.floors.pop_first().is_some();
            if !some {
                return false;
            }
        }
        true
    }
}
