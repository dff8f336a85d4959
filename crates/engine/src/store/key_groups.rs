//! A queue's messages by their keys, where its settings give keys a meaning:
//! which of them may be handed out, in which order.
//!
//! An index over durable state. It is in no log: replay keeps it as it keeps
//! the queue's other maps, and where the settings change while messages wait
//! it is built in slices ([`super::Durable::build_groups`]).
//!
//! Every key group has its ready messages in order, and its first one, the
//! *head*, in at most one of a few ordered maps: of those that may go, and of
//! those that a limit holds back. The head of a group that waits for one of
//! its own is in none. So what a take costs does not depend on what waits
//! behind groups that may not go.
//!
//! What lies in runs is known by block. Of a block that is *known* every
//! group has its first message there among its own, so the block is read when
//! that one's turn has come; other blocks are *open*: they must be read before
//! anything behind them goes, and, in an ordered queue, no message goes while
//! one of its group that stands before it may be in one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound as Edge;
use std::sync::Arc;

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::{Hash, Order};
use crate::cold::{Block, BlockAt, Lane};
use crate::message::{Message, MessageId};
use crate::pace::{Pace, Speed};
use crate::settings::{Groups, QueueSettings};
use crate::time::Ms;

/// A key of fewer messages under leases is never noisy.
const NOISY_LEAST: u64 = 30;
/// Nor one with no more than one of so many of its queue's.
const NOISY_SHARE: u64 = 10;
/// Messages of quiet keys in a row, while one of a noisy key waits.
const QUIET_RUN: u8 = 15;
/// First messages of keys that are remembered of known blocks, of one queue:
/// some 25 MB. Beyond, what lies behind blocked groups is left alone.
const KNOWN_MAX: usize = 1 << 18;
/// Keys whose rate lets them go in one step.
const RUNG_AT_ONCE: usize = 1024;

/// A place in a group: the rank is 0 in an ordered one, where place alone counts.
type Pos = (u32, i64, MessageId);
/// Place and id.
type Place = (i64, MessageId);

/// What the settings say.
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
            speed: settings.key_take_speed(),
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
    HeldBack,
    Delayed,
    Reserved,
}

/// What a group begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// In this slot.
    Here(u32),
    /// In this known block.
    Cold(BlockAt),
}

/// Where a group's head is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seat {
    /// Among those that may go.
    Free,
    /// Among those that a limit holds back.
    Limited,
    /// It may go, after those of quiet keys.
    Noisy,
}

/// What was found out of a group's messages in open blocks.
#[derive(Clone, Copy, Debug)]
struct Looked {
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
    /// Ready ones with their ranks, and the first one in each known block.
    ready: BTreeMap<Pos, (u32, Head)>,
    /// Of an ordered queue: those that leave only with a companion.
    held_back: BTreeMap<Place, u32>,
    /// Of an ordered queue: those that nothing behind them may overtake.
    blocking: BTreeSet<Place>,
    in_flight: u64,
    pace: Pace,
    /// Its entry among those that time lets go.
    rings: Option<Ms>,
    is_noisy: bool,
    seat: Option<(Seat, Order)>,
    looked: Option<Looked>,
}

impl Group {
    fn new(key: Arc<[u8]>) -> Self {
        Self {
            key,
            ready: BTreeMap::new(),
            held_back: BTreeMap::new(),
            blocking: BTreeSet::new(),
            in_flight: 0,
            pace: Pace::default(),
            rings: None,
            is_noisy: false,
            seat: None,
            looked: None,
        }
    }

    /// True if nothing would be lost with it.
    fn is_idle(&self) -> bool {
        self.ready.is_empty()
            && self.held_back.is_empty()
            && self.blocking.is_empty()
            && self.in_flight == 0
            && self.rings.is_none()
    }

    fn members(&self) -> usize {
        self.ready.len() + self.held_back.len() + self.blocking.len()
    }
}

/// How far the building of what is there has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Building {
    Blocks(Lane, Option<(Order, BlockAt)>),
    Reserved(Option<MessageId>),
    Delayed(Option<(Ms, MessageId)>),
    HeldBack(Option<Order>),
    Ready(Option<Order>),
    Done,
}

/// What is in a block, as it was in memory.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// The first message of each key, and of those without one.
    firsts: Vec<(Option<Arc<[u8]>>, Order)>,
    /// The lowest place.
    floor: i64,
    /// Nothing of it may go now.
    stuck: bool,
}

impl Survey {
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck
    }
}

/// Whether a message may go before something that an open block may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Safe {
    Yes,
    /// This block is to be read first.
    Read(BlockAt),
    /// It is to be looked up where messages of its key are.
    Ask,
}

/// How far a take of several has come along an ordered queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Walk {
    /// The group it follows, and the last place it got.
    follow: Option<(Arc<[u8]>, Place)>,
    /// How many of that group it would have got, if it only looks ahead.
    taken: u64,
    /// The head it got last, if it only looks ahead.
    passed: Option<Order>,
    /// What it would have got of each key, in a queue that is not ordered.
    counts: HashMap<Arc<[u8]>, u64, Hash>,
}

impl Walk {
    /// It got this message for good.
    pub(crate) fn got(&mut self, message: &Message) {
        self.follow = message
            .key()
            .map(|key| (key.clone(), (message.place, message.id)));
    }

    /// It would get this one.
    pub(crate) fn pass(&mut self, message: &Message, ordered: bool) {
        let order = (message.rank, message.place, message.id);
        if !ordered {
            self.passed = Some(order);
            if let Some(key) = message.key() {
                *self.counts.entry(key.clone()).or_default() += 1;
            }
            return;
        }
        match (&mut self.follow, message.key()) {
            (Some((followed, last)), Some(key)) if followed == key => {
                *last = (message.place, message.id);
                self.taken += 1;
            }
            _ => {
                self.got(message);
                self.taken = 1;
                self.passed = Some(order);
            }
        }
    }
}

/// Key groups of one queue.
#[derive(Debug)]
pub(crate) struct KeyGroups {
    rules: Rules,
    numbers: HashMap<Arc<[u8]>, u32, Hash>,
    list: Vec<Option<Group>>,
    unused: Vec<u32>,
    /// Heads that may go, and ready messages without a key.
    free: BTreeMap<Order, Head>,
    /// Heads that a limit holds back.
    limited: BTreeMap<Order, Head>,
    /// Groups that time lets go, or after which nothing is left of what they
    /// handed out.
    rings: BTreeSet<(Ms, u32)>,
    /// Messages under leases.
    in_flight: u64,
    /// Groups with so many of them that they may be noisy.
    busy: BTreeSet<(u64, u32)>,
    /// Those that are: fewer than ten.
    noisy: SmallVec<[u32; 9]>,
    /// Messages of quiet keys handed out while one of a noisy key waited.
    quiet_run: u8,
    /// Open blocks of ready messages by the first one.
    open: BTreeSet<(Order, BlockAt)>,
    /// Of an ordered queue: open blocks with keys by the lowest place, and that
    /// place by block.
    floors: BTreeSet<(i64, BlockAt)>,
    floor_of: HashMap<BlockAt, i64, Hash>,
    /// What was looked up before this rose may not be so any more.
    turn: u64,
    known: HashMap<BlockAt, Box<[(Option<u32>, Pos)]>, Hash>,
    /// Entries in those lists.
    known_firsts: usize,
    /// Entries of groups.
    members: usize,
    pub(super) building: Building,
    /// Something may go that might not before.
    freed: bool,
    /// That was noted.
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
            free: BTreeMap::new(),
            limited: BTreeMap::new(),
            rings: BTreeSet::new(),
            in_flight: 0,
            busy: BTreeSet::new(),
            noisy: SmallVec::new(),
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
                false => Building::Blocks(Lane::Ready, None),
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

    /// Bytes of memory it takes, reckoned.
    pub(super) fn bytes(&self) -> u64 {
        const GROUP: usize = 320;
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
                self.list[number as usize] = group;
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
    fn pos(&self, (rank, place, id): Order) -> Pos {
        match self.is_ordered() {
            true => (0, place, id),
            false => (rank, place, id),
        }
    }

    /// A message came to memory, or to another state.
    pub(super) fn enter(&mut self, message: &Message, slot: u32, standing: Standing) {
        let order = (message.rank, message.place, message.id);
        let place = (message.place, message.id);
        let ordered = self.is_ordered();
        let reserved = standing == Standing::Reserved;
        if reserved && !self.covers(message.id) {
            return;
        }
        self.in_flight += u64::from(reserved);
        let Some(key) = message.key() else {
            if standing == Standing::Ready {
                self.free.insert(order, Head::Here(slot));
                self.freed = true;
            }
            if reserved {
                self.weigh_noise(None);
            }
            return;
        };
        if !ordered && matches!(standing, Standing::HeldBack | Standing::Delayed) {
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
            Standing::HeldBack => {
                group.held_back.insert(place, slot);
            }
            Standing::Delayed => {
                group.blocking.insert(place);
            }
            Standing::Reserved => {
                if ordered {
                    group.blocking.insert(place);
                }
                group.in_flight += 1;
            }
        }
        self.members = self.members - before + self.group(number).members();
        if reserved {
            self.weigh_noise(Some(number));
        }
        self.reseat(number);
    }

    /// It left.
    pub(super) fn leave(&mut self, message: &Message, standing: Standing) {
        let order = (message.rank, message.place, message.id);
        let place = (message.place, message.id);
        let reserved = standing == Standing::Reserved;
        if reserved && !self.covers(message.id) {
            return;
        }
        self.in_flight -= u64::from(reserved);
        // What it held up may lie in one of these.
        self.freed |= !self.open.is_empty();
        let Some(key) = message.key() else {
            if standing == Standing::Ready {
                self.free.remove(&order);
            }
            if reserved {
                self.weigh_noise(None);
            }
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
            Standing::HeldBack => {
                group.held_back.remove(&place);
            }
            Standing::Delayed => {
                group.blocking.remove(&place);
            }
            Standing::Reserved => {
                group.blocking.remove(&place);
                group.in_flight -= 1;
            }
        }
        self.members = self.members - before + self.group(number).members();
        if reserved {
            self.weigh_noise(Some(number));
        }
        self.reseat(number);
        self.forget_idle(number);
    }

    /// True if a reserved message of this id is counted, or would be if there
    /// were one.
    fn covers(&self, id: MessageId) -> bool {
        match self.building {
            Building::Blocks(..) => false,
            Building::Reserved(last) => last >= Some(id),
            Building::Delayed(_) | Building::HeldBack(_) | Building::Ready(_) | Building::Done => {
                true
            }
        }
    }

    fn forget_idle(&mut self, number: u32) {
        if self.group(number).is_idle() {
            let group = self.list[number as usize].take();
            let key = group.map(|group| group.key);
            key.map(|key| self.numbers.remove(&key));
            self.unused.push(number);
        }
    }

    /// Where the head of a group belongs.
    fn seat_of(&self, group: &Group) -> Option<(Seat, Order, Head)> {
        let (&(_, place, id), &(rank, head)) = group.ready.first_key_value()?;
        if group
            .blocking
            .first()
            .is_some_and(|first| *first < (place, id))
        {
            return None;
        }
        let max = self.rules.in_flight_max;
        let full = max > 0 && group.in_flight >= max;
        let seat = match (full || group.pace.rings().is_some(), group.is_noisy) {
            (true, _) => Seat::Limited,
            (false, true) => Seat::Noisy,
            (false, false) => Seat::Free,
        };
        Some((seat, (rank, place, id), head))
    }

    /// Enters the head of a group where it belongs now.
    fn reseat(&mut self, number: u32) {
        let group = self.group(number);
        let old = group.seat;
        let new = self.seat_of(group);
        if new.map(|(seat, order, _)| (seat, order)) == old {
            return;
        }
        if let Some((seat, order)) = old {
            match seat {
                Seat::Free => self.free.remove(&order),
                Seat::Limited => self.limited.remove(&order),
                Seat::Noisy => None,
            };
        }
        if let Some((seat, order, head)) = new {
            match seat {
                Seat::Free => self.free.insert(order, head),
                Seat::Limited => self.limited.insert(order, head),
                Seat::Noisy => None,
            };
            // Those that a limit holds back can be looked at.
            self.freed = true;
        }
        self.group_mut(number).seat = new.map(|(seat, order, _)| (seat, order));
    }

    /// What is under leases has changed, in this group or outside of all.
    fn weigh_noise(&mut self, changed: Option<u32>) {
        if !self.is_fair() {
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
        if self.busy.is_empty() && self.noisy.is_empty() {
            return;
        }
        let loud = self.busy.iter().rev();
        let loud = loud.take_while(|(held, _)| held * NOISY_SHARE > self.in_flight);
        let noisy: SmallVec<[u32; 9]> = loud.map(|&(_, number)| number).collect();
        let before = std::mem::replace(&mut self.noisy, noisy.clone());
        for &number in before.iter().filter(|number| !noisy.contains(number)) {
            self.group_mut(number).is_noisy = false;
            self.reseat(number);
        }
        for &number in noisy.iter().filter(|number| !before.contains(number)) {
            self.group_mut(number).is_noisy = true;
            self.reseat(number);
        }
    }

    /// A message of this key is handed out, by a lease or for good.
    pub(super) fn handed(&mut self, key: Option<&Arc<[u8]>>, now: Ms) {
        if self.is_fair() {
            let noisy = key.and_then(|key| self.find(key));
            let quiet = noisy.is_none_or(|group| !group.is_noisy);
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

    /// Enters a group among those that time lets go, if it may not go now, or
    /// is not rested.
    fn time(&mut self, number: u32, now: Ms) {
        let group = self.group_mut(number);
        let rested = group.pace.rested();
        let rings = group.pace.rings();
        let rings = rings.or_else(|| (rested > now).then_some(rested));
        if rings.is_none() {
            group.pace = Pace::default();
        }
        if let Some(old) = std::mem::replace(&mut group.rings, rings) {
            self.rings.remove(&(old, number));
        }
        if let Some(at) = rings {
            self.rings.insert((at, number));
        }
        self.reseat(number);
    }

    /// Those whose time has come may go.
    pub(super) fn ring(&mut self, now: Ms) {
        for _ in 0..RUNG_AT_ONCE {
            let Some(&(at, number)) = self.rings.first() else {
                return;
            };
            if at > now {
                return;
            }
            let speed = self.rules.speed;
            self.group_mut(number).pace.settle(speed, now);
            self.time(number, now);
            self.forget_idle(number);
        }
    }

    /// Noisy groups of which something may go; the one with the fewest messages
    /// under leases first.
    fn noisy_heads(&self) -> impl Iterator<Item = u32> + use<> {
        let heads = self.noisy.iter().filter_map(|&number| {
            let group = self.group(number);
            let (seat, order) = group.seat?;
            (seat == Seat::Noisy).then_some((group.in_flight, order, number))
        });
        let mut heads: SmallVec<[(u64, Order, u32); 9]> = heads.collect();
        heads.sort_unstable();
        heads.into_iter().map(|(_, _, number)| number)
    }

    /// What goes first of noisy groups and fits, and whether its turn has come.
    pub(crate) fn noisy_that_fits(
        &self,
        fits: &mut impl FnMut(Head) -> bool,
    ) -> Option<((Order, Head), bool)> {
        let found = self.noisy_heads().find_map(|number| {
            let mut ready = self.group(number).ready.iter();
            let fitting = ready.find(|(_, (_, head))| fits(*head));
            fitting.map(|(&(_, place, id), &(rank, head))| ((rank, place, id), head))
        })?;
        Some((found, self.quiet_run >= QUIET_RUN))
    }

    /// Heads that may go, in their order.
    pub(crate) fn free_heads(&self) -> impl Iterator<Item = (Order, Head)> + '_ {
        self.free.iter().map(|(&order, &head)| (order, head))
    }

    /// What may be taken of a group of a queue that is not ordered, the head first.
    pub(crate) fn members(&self, key: &Arc<[u8]>) -> impl Iterator<Item = (Order, Head)> + '_ {
        let ready = self.find(key).map(|group| group.ready.iter());
        let ready = ready.into_iter().flatten();
        ready.map(|(&(_, place, id), &(rank, head))| ((rank, place, id), head))
    }

    /// The first head behind `walk` that may go and fits; those that a limit
    /// holds back too, if it is only to be looked at.
    pub(crate) fn head(
        &self,
        walk: Option<&Walk>,
        looks: bool,
        mut fits: impl FnMut(Head) -> bool,
    ) -> Option<(Order, Head)> {
        let passed = walk.and_then(|walk| walk.passed);
        let from = passed.map_or(Edge::Unbounded, Edge::Excluded);
        let mut first = |map: &BTreeMap<Order, Head>| {
            let mut heads = map.range((from, Edge::Unbounded));
            let found = heads.find(|&(_, &head)| fits(head));
            found.map(|(&order, &head)| (order, head))
        };
        let free = first(&self.free);
        let limited = match looks {
            true => first(&self.limited),
            false => None,
        };
        free.into_iter()
            .chain(limited)
            .min_by_key(|&(order, _)| order)
    }

    /// What a take that has got something of a group gets next of it.
    pub(crate) fn next_of_group(
        &self,
        walk: &Walk,
        looks: bool,
        leased: bool,
        now: Ms,
    ) -> Option<(Order, Head)> {
        let (key, last) = walk.follow.as_ref()?;
        let group = self.find(key)?;
        let from = Edge::Excluded((0, last.0, last.1));
        let next = group.ready.range((from, Edge::Unbounded)).next();
        let (&(_, place, id), &(rank, head)) = next?;
        let between = (Edge::Excluded(*last), Edge::Excluded((place, id)));
        if *last < (place, id) && group.blocking.range(between).next().is_some() {
            return None;
        }
        let max = self.rules.in_flight_max;
        let held = group.in_flight + if leased { walk.taken } else { 0 };
        let full = max > 0 && held >= max;
        let pace = group.pace.after(self.rules.speed, now, walk.taken);
        let fast = pace.next(self.rules.speed, now).is_some();
        (looks || !full && !fast).then_some(((rank, place, id), head))
    }

    /// True if a limit holds back a message of this key, when `walk` has come
    /// so far along a queue that is not ordered.
    pub(crate) fn is_limited(&self, walk: &Walk, key: &Arc<[u8]>, leased: bool, now: Ms) -> bool {
        let taken = walk.counts.get(key).copied().unwrap_or(0);
        let group = self.find(key);
        let max = self.rules.in_flight_max;
        let held = group.map_or(0, |group| group.in_flight) + if leased { taken } else { 0 };
        let pace = group.map_or_else(Pace::default, |group| group.pace);
        let pace = pace.after(self.rules.speed, now, taken);
        max > 0 && held >= max || pace.next(self.rules.speed, now).is_some()
    }

    /// The first that may go of what lies in known blocks, behind a walk that
    /// looks ahead along a queue that is not ordered. Of many keys that it has
    /// got something of not all are looked at.
    pub(crate) fn known_ahead(&self, walk: &Walk, leased: bool, now: Ms) -> Option<(Order, Head)> {
        const KEYS: usize = 64;
        if self.known.is_empty() {
            return None;
        }
        let is_cold = |head: Head| matches!(head, Head::Cold(_));
        let other = self.head(Some(walk), false, is_cold);
        #[expect(clippy::disallowed_methods, reason = "the first of all is chosen")]
        let keys = walk.counts.keys().take(KEYS);
        let of_keys = keys.filter(|key| !self.is_limited(walk, key, leased, now));
        let of_keys = of_keys.filter_map(|key| {
            let from = walk.passed.map_or(Edge::Unbounded, Edge::Excluded);
            let mut behind = self.find(key)?.ready.range((from, Edge::Unbounded));
            let cold = behind.find(|(_, (_, head))| is_cold(*head));
            cold.map(|(&pos, &(_, head))| (pos, head))
        });
        of_keys.chain(other).min_by_key(|&(order, _)| order)
    }

    /// Where a walk that looks ahead goes on.
    pub(crate) fn passed(walk: &Walk) -> Option<Order> {
        walk.passed
    }

    /// True if this message is the one that its group begins with, or if it
    /// has no group.
    pub(crate) fn is_head(&self, message: &Message) -> bool {
        let Some(group) = message.key().and_then(|key| self.find(key)) else {
            return true;
        };
        let place = (message.place, message.id);
        let first = group.ready.first_key_value();
        let first = first.map(|(&(_, place, id), _)| (place, id));
        first.is_none_or(|first| first >= place)
            && group.blocking.first().is_none_or(|first| *first >= place)
    }

    /// Companions of a message of an ordered queue in the order of their
    /// places, up to the first that may not go; those held back with them.
    pub(crate) fn companions(&self, best: &Message) -> impl Iterator<Item = u32> + '_ {
        let place = (best.place, best.id);
        let group = best.key().and_then(|key| self.find(key));
        let end = group.and_then(|group| {
            let behind = (Edge::Excluded(place), Edge::Unbounded);
            group.blocking.range(behind).next().copied()
        });
        let from = Edge::Excluded((0, best.place, best.id));
        let ready = group.map(|group| group.ready.range((from, Edge::Unbounded)));
        let mut ready = ready
            .into_iter()
            .flatten()
            .map_while(|(&(_, place, id), (_, head))| match head {
                Head::Here(slot) => Some(((place, id), *slot)),
                Head::Cold(_) => None,
            })
            .peekable();
        let held_back = group.map(|group| group.held_back.iter());
        let held_back = held_back.into_iter().flatten();
        let mut held_back = held_back.map(|(&place, &slot)| (place, slot)).peekable();
        let next = move || {
            let first = match (ready.peek(), held_back.peek()) {
                (Some(one), Some(other)) if other.0 < one.0 => held_back.next(),
                (None, _) => held_back.next(),
                (Some(_), _) => ready.next(),
            };
            first.filter(|(place, _)| end.is_none_or(|end| *place < end))
        };
        std::iter::from_fn(next).map(|(_, slot)| slot)
    }

    /// Whether a message may go, as far as open blocks are concerned.
    pub(crate) fn is_safe(&self, message: &Message) -> Safe {
        let place = message.place;
        let before = self
            .floors
            .first()
            .is_some_and(|&(floor, _)| floor <= place);
        if !before || !self.is_ordered() {
            return Safe::Yes;
        }
        let Some(group) = message.key().and_then(|key| self.find(key)) else {
            return Safe::Yes;
        };
        match group.looked {
            Some(looked) if looked.turn == self.turn && place < looked.up_to => Safe::Yes,
            Some(Looked {
                turn,
                block: Some(block),
                ..
            }) if turn == self.turn && self.floor_of.contains_key(&block) => Safe::Read(block),
            _ => Safe::Ask,
        }
    }

    /// The blocks in which messages of a key are.
    pub(crate) fn looked_up(&mut self, key: &Arc<[u8]>, blocks: impl Iterator<Item = BlockAt>) {
        let Some(&number) = self.numbers.get(key) else {
            return;
        };
        let floors = blocks.filter_map(|at| self.floor_of.get(&at).map(|&floor| (floor, at)));
        let first = floors.min();
        let looked = Looked {
            turn: self.turn,
            up_to: first.map_or(i64::MAX, |(floor, _)| floor),
            block: first.map(|(_, at)| at),
        };
        self.group_mut(number).looked = Some(looked);
    }

    /// The open block that begins first.
    pub(crate) fn first_open(&self) -> Option<(Order, BlockAt)> {
        self.open.first().copied()
    }

    /// Open blocks in their order.
    pub(crate) fn open_blocks(&self) -> impl Iterator<Item = BlockAt> + '_ {
        self.open.iter().map(|&(_, at)| at)
    }

    /// True if no more can be remembered of blocks in which nothing may go.
    pub(crate) fn knows_enough(&self) -> bool {
        self.known_firsts >= KNOWN_MAX
    }

    pub(crate) fn is_known(&self, at: BlockAt) -> bool {
        self.known.contains_key(&at)
    }

    /// What is to be remembered of messages that leave memory together.
    /// `read`: they were read from their block, so that it is known whether
    /// they may go.
    pub(super) fn survey<'a>(
        &self,
        messages: impl Iterator<Item = &'a Message>,
        read: bool,
    ) -> Survey {
        let mut survey = Survey {
            floor: i64::MAX,
            stuck: read,
            ..Survey::default()
        };
        let mut firsts: HashMap<Option<&Arc<[u8]>>, Order, Hash> = HashMap::default();
        let mut order_of: Vec<Option<&Arc<[u8]>>> = Vec::new();
        for message in messages {
            let order = (message.rank, message.place, message.id);
            if message.key().is_some() {
                survey.floor = survey.floor.min(message.place);
            }
            let first = firsts.entry(message.key()).or_insert_with(|| {
                order_of.push(message.key());
                order
            });
            if self.pos(order) < self.pos(*first) {
                *first = order;
            }
        }
        for key in order_of {
            let group = key.and_then(|key| self.find(key));
            let seat = group.and_then(|group| group.seat);
            survey.stuck &= group.is_some() && !matches!(seat, Some((Seat::Free | Seat::Noisy, _)));
            let first = firsts[&key];
            survey.firsts.push((key.cloned(), first));
        }
        survey
    }

    /// A block is in a run and not in memory. `survey`: what is in it.
    pub(super) fn shelve(&mut self, at: BlockAt, row: &Block, survey: Option<Survey>) {
        let ordered = self.is_ordered();
        let counts = match row.lane {
            Lane::Ready => true,
            Lane::Delayed => ordered,
            Lane::HeldBack | Lane::Buried | Lane::Archived => false,
        };
        if !counts || !self.covers_block(at, row) {
            return;
        }
        match survey {
            Some(survey) if self.is_worth_knowing(row.lane, &survey) => {
                self.know(at, row.lane, survey);
            }
            survey => self.leave_open(at, row, survey),
        }
    }

    /// True if a stored block is entered, or would be if it were there.
    fn covers_block(&self, at: BlockAt, row: &Block) -> bool {
        match self.building {
            Building::Blocks(lane, last) => {
                row.lane < lane || row.lane == lane && last >= Some((row.first, at))
            }
            _ => true,
        }
    }

    fn is_worth_knowing(&self, lane: Lane, survey: &Survey) -> bool {
        let room = self.known_firsts + survey.firsts.len() <= KNOWN_MAX;
        room && (survey.stuck || lane == Lane::Delayed)
    }

    fn know(&mut self, at: BlockAt, lane: Lane, survey: Survey) {
        let mut firsts: Vec<(Option<u32>, Pos)> = Vec::with_capacity(survey.firsts.len());
        for (key, order) in survey.firsts {
            let pos = self.pos(order);
            match (key, lane) {
                (Some(key), _) => {
                    let number = self.number_of(&key);
                    let group = self.group_mut(number);
                    let before = group.members();
                    match lane {
                        Lane::Delayed => {
                            group.blocking.insert((pos.1, pos.2));
                        }
                        _ => {
                            group.ready.insert(pos, (order.0, Head::Cold(at)));
                        }
                    }
                    self.members = self.members - before + self.group(number).members();
                    firsts.push((Some(number), pos));
                    self.reseat(number);
                }
                // Those without a key that are delayed hold nobody up.
                (None, Lane::Delayed) => {}
                (None, _) => {
                    self.free.insert(order, Head::Cold(at));
                    self.freed = true;
                    firsts.push((None, order));
                }
            }
        }
        self.known_firsts += firsts.len();
        self.known.insert(at, firsts.into_boxed_slice());
    }

    fn leave_open(&mut self, at: BlockAt, row: &Block, survey: Option<Survey>) {
        if row.lane == Lane::Ready {
            self.open.insert((row.first, at));
        }
        if !self.is_ordered() || !row.keyed {
            return;
        }
        let told = match row.lane == Lane::Ready && row.first.0 == row.last.0 {
            true => row.first.1,
            false => i64::MIN,
        };
        let floor = survey.as_ref().map_or(told, |survey| survey.floor);
        self.floors.insert((floor, at));
        self.floor_of.insert(at, floor);
        match survey {
            None => self.turn += 1,
            Some(survey) => {
                for key in survey.firsts.into_iter().filter_map(|(key, _)| key) {
                    if let Some(&number) = self.numbers.get(&key) {
                        self.group_mut(number).looked = None;
                    }
                }
            }
        }
    }

    /// A block is in memory, unreadable or gone.
    pub(super) fn unshelve(&mut self, at: BlockAt, row: &Block) {
        if row.lane == Lane::Ready {
            self.open.remove(&(row.first, at));
        }
        if let Some(floor) = self.floor_of.remove(&at) {
            self.floors.remove(&(floor, at));
        }
        let Some(firsts) = self.known.remove(&at) else {
            return;
        };
        self.known_firsts -= firsts.len();
        for &(number, pos) in &firsts {
            let Some(number) = number else {
                self.free.remove(&pos);
                continue;
            };
            let group = self.group_mut(number);
            let before = group.members();
            match row.lane {
                Lane::Delayed => {
                    group.blocking.remove(&(pos.1, pos.2));
                }
                _ => {
                    group.ready.remove(&pos);
                }
            }
            self.members = self.members - before + self.group(number).members();
            self.reseat(number);
            self.forget_idle(number);
        }
    }

    /// Something left a block that is not in memory (replay).
    pub(super) fn thin(&mut self, at: BlockAt, row: &Block) {
        if self.known.contains_key(&at) {
            self.unshelve(at, row);
            self.leave_open(at, row, None);
        }
    }

    /// Frees up to `max` entries of what is not needed any more; true if some
    /// is left.
    pub(super) fn dismantle(&mut self, max: usize) -> bool {
        for _ in 0..max {
            if let Some(last) = self.list.last_mut() {
                let Some(group) = last else {
                    self.list.pop();
                    continue;
                };
                let some = group.ready.pop_first().is_some()
                    || group.held_back.pop_first().is_some()
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

    /// The same of what is there, built anew; for [`Durable::verify`].
    ///
    /// # Errors
    /// The first disagreement found.
    pub(super) fn verify(&self, slow: &Self) -> Result<(), String> {
        if self.numbers.len() != self.list.iter().flatten().count() {
            return Err("key groups are lost".to_owned());
        }
        let (mut members, mut firsts) = (0, 0);
        for group in self.list.iter().flatten() {
            members += group.members();
            let none = Group::new(group.key.clone());
            let other = slow.find(&group.key).unwrap_or(&none);
            let here = |(pos, (rank, head)): (&Pos, &(u32, Head))| match head {
                Head::Here(slot) => Some((*pos, *rank, *slot)),
                Head::Cold(_) => None,
            };
            let ours: Vec<_> = group.ready.iter().filter_map(here).collect();
            let theirs: Vec<_> = other.ready.iter().filter_map(here).collect();
            let virtual_blocks = group.blocking.difference(&other.blocking);
            let known = |place: &&Place| {
                let mut lists = self.known.iter().flat_map(|(_, list)| list.iter());
                lists.any(|&(_, (_, at, id))| (at, id) == **place)
            };
            let blocks = virtual_blocks.filter(|place| !known(place)).count() == 0
                && other.blocking.is_subset(&group.blocking);
            let same = ours == theirs
                && group.held_back == other.held_back
                && blocks
                && group.in_flight == other.in_flight;
            if !same || group.is_idle() {
                return Err(format!("group {group:?} should be {other:?}"));
            }
            let seat = self.seat_of(group).map(|(seat, order, _)| (seat, order));
            let head = group.ready.first_key_value().map(|(_, (_, head))| *head);
            let entered = match seat {
                Some((Seat::Free, order)) => self.free.get(&order).copied() == head,
                Some((Seat::Limited, order)) => self.limited.get(&order).copied() == head,
                Some((Seat::Noisy, _)) | None => true,
            };
            if seat != group.seat || !entered {
                return Err(format!("{group:?} should be seated {seat:?}"));
            }
        }
        for key in slow.numbers.keys() {
            if !self.numbers.contains_key(key) {
                return Err(format!("no group of {key:?}"));
            }
        }
        let seated = |which: Seat| {
            let seats = self.list.iter().flatten().filter_map(|group| group.seat);
            seats.filter(|(seat, _)| *seat == which).count()
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
                .filter_map(|g| g.seat)
                .filter(|(s, _)| *s == Seat::Free)
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
            seated(Seat::Limited),
            seated(Seat::Free) + free + keyless,
            slow.in_flight,
        );
        if sums != should {
            return Err(format!("sums of groups {sums:?} are not {should:?}"));
        }
        Ok(())
    }

    /// The stored blocks it knows of; for [`Durable::verify`].
    pub(super) fn has_block(&self, at: BlockAt, row: &Block) -> bool {
        let open = self.open.contains(&(row.first, at));
        let floor = self.floor_of.contains_key(&at);
        let known = self.known.contains_key(&at);
        match row.lane {
            Lane::Ready => known != open && (known || floor == (self.is_ordered() && row.keyed)),
            Lane::Delayed if self.is_ordered() => known || floor || !row.keyed,
            Lane::Delayed | Lane::HeldBack | Lane::Buried | Lane::Archived => true,
        }
    }
}
