//! Messages in runs of a queue with message groups: known and open blocks.

use std::sync::Arc;

use hashbrown::HashMap;

use super::super::{Hash, Order};
use super::{BlockScan, Building, Eligibility, Head, KNOWN_MAX, KeyGroups, Pos};
use quintet_types::{Message, StateIndex};

use crate::cold::{Block, BlockAt};

/// Content of a block, as it was in memory.
#[derive(Debug, Default)]
pub(in crate::store) struct Survey {
    /// The first message of each key, and of those without one.
    firsts: Vec<(Option<Arc<[u8]>>, Order)>,
    /// The lowest place.
    floor: i64,
    /// Nothing of it may go now.
    stuck: bool,
}

impl Survey {
    pub(in crate::store) fn is_stuck(&self) -> bool {
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
    LookUp,
}

impl KeyGroups {
    /// Whether a message may go, as far as open blocks are concerned.
    pub(crate) fn is_safe(&self, message: &Message) -> Safe {
        let position = message.position;
        let before = self
            .floors
            .first()
            .is_some_and(|&(floor, _)| floor <= position);
        if !before || !self.is_ordered() {
            return Safe::Yes;
        }
        let Some(group) = message.key().and_then(|key| self.find(key)) else {
            // Of no group that is known.
            return Safe::Yes;
        };
        match group.scanned {
            Some(scanned) if scanned.turn == self.turn && position < scanned.up_to => Safe::Yes,
            Some(BlockScan {
                turn,
                block: Some(block),
                ..
            }) if turn == self.turn && self.floor_of.contains_key(&block) => Safe::Read(block),
            _ => Safe::LookUp,
        }
    }

    /// The blocks in which messages of a key are.
    pub(crate) fn looked_up(&mut self, key: &Arc<[u8]>, blocks: impl Iterator<Item = BlockAt>) {
        let Some(&number) = self.numbers.get(key) else {
            // Its last message may have left while the run was read.
            return;
        };
        let floors = blocks.filter_map(|at| self.floor_of.get(&at).map(|&floor| (floor, at)));
        let first = floors.min();
        let scanned = BlockScan {
            turn: self.turn,
            up_to: first.map_or(i64::MAX, |(floor, _)| floor),
            block: first.map(|(_, at)| at),
        };
        self.group_mut(number).scanned = Some(scanned);
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

    /// The record of messages that leave memory together. `read`: they were read from their block,
    /// so that it is known whether they may go.
    pub(in crate::store) fn survey<'a>(
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
            let order = message.order();
            if message.key().is_some() {
                survey.floor = survey.floor.min(message.position);
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
            let is = group.and_then(|group| group.eligibility);
            let may_go = matches!(is, Some((Eligibility::Free | Eligibility::OverShare, _)));
            survey.stuck &= group.is_some() && !may_go;
            let first = firsts[&key];
            survey.firsts.push((key.cloned(), first));
        }
        survey
    }

    /// A block is in a run and not in memory. `survey`: what is in it.
    pub(in crate::store) fn shelve(&mut self, at: BlockAt, row: &Block, survey: Option<Survey>) {
        let ordered = self.is_ordered();
        let counts = match row.state_index {
            StateIndex::Ready => true,
            StateIndex::Delayed => ordered,
            StateIndex::NotSelectable | StateIndex::Buried | StateIndex::Archived => false,
        };
        if !counts || !self.covers_block(at, row) {
            // It holds up no group, or the building has not come to it.
            return;
        }
        match survey {
            Some(survey) if self.is_worth_knowing(row.state_index, &survey) => {
                self.know(at, row.state_index, survey);
            }
            survey => self.leave_open(at, row, survey),
        }
    }

    /// True if a stored block is entered, or would be if it were there.
    fn covers_block(&self, at: BlockAt, row: &Block) -> bool {
        match self.building {
            Building::Blocks(state_index, last) => {
                row.state_index < state_index
                    || row.state_index == state_index && last >= Some((row.first, at))
            }
            Building::Reserved(_)
            | Building::Delayed(_)
            | Building::NotSelectable(_)
            | Building::Ready(_)
            | Building::Done => true,
        }
    }

    fn is_worth_knowing(&self, state_index: StateIndex, survey: &Survey) -> bool {
        let room = self.known_firsts + survey.firsts.len() <= KNOWN_MAX;
        room && (survey.stuck || state_index == StateIndex::Delayed)
    }

    fn know(&mut self, at: BlockAt, state_index: StateIndex, survey: Survey) {
        let mut firsts: Vec<(Option<u32>, Pos)> = Vec::with_capacity(survey.firsts.len());
        for (key, order) in survey.firsts {
            let pos = self.pos(order);
            match (key, state_index) {
                (Some(key), _) => {
                    let number = self.number_of(&key);
                    let group = self.group_mut(number);
                    let before = group.members();
                    match state_index {
                        StateIndex::Delayed => {
                            group.blocking.insert((pos.1, pos.2), ());
                        }
                        StateIndex::Ready
                        | StateIndex::NotSelectable
                        | StateIndex::Buried
                        | StateIndex::Archived => {
                            group.ready.insert(pos, (order.0, Head::Cold(at)));
                        }
                    }
                    self.members = self.members - before + self.group(number).members();
                    firsts.push((Some(number), pos));
                    self.update_eligibility(number);
                }
                // Those without a key that are delayed hold nobody up.
                (None, StateIndex::Delayed) => {}
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
        if row.state_index == StateIndex::Ready {
            self.open.insert((row.first, at));
        }
        if !self.is_ordered() || !row.keyed {
            // By the settings its keys have no order, or no put gave it a key.
            return;
        }
        let bound = match row.state_index == StateIndex::Ready && row.first.0 == row.last.0 {
            true => row.first.1,
            false => i64::MIN,
        };
        let floor = survey.as_ref().map_or(bound, |survey| survey.floor);
        self.floors.insert((floor, at));
        self.floor_of.insert(at, floor);
        match survey {
            None => self.turn += 1,
            Some(survey) => {
                for key in survey.firsts.into_iter().filter_map(|(key, _)| key) {
                    if let Some(&number) = self.numbers.get(&key) {
                        self.group_mut(number).scanned = None;
                    }
                }
            }
        }
    }

    /// A block is in memory, unreadable or gone.
    pub(in crate::store) fn unshelve(&mut self, at: BlockAt, row: &Block) {
        if row.state_index == StateIndex::Ready {
            self.open.remove(&(row.first, at));
        }
        if let Some(floor) = self.floor_of.remove(&at) {
            let was = self.floors.remove(&(floor, at));
            assert!(was, "the floor of a block is among the floors");
        }
        let Some(firsts) = self.known.remove(&at) else {
            // An open block: nothing of it is known.
            return;
        };
        let counted = self.known_firsts >= firsts.len();
        assert!(counted, "the known part of a block was counted");
        self.known_firsts -= firsts.len();
        for &(number, pos) in &firsts {
            let Some(number) = number else {
                // The first without a key.
                self.free.remove(&pos);
                continue;
            };
            let group = self.group_mut(number);
            let before = group.members();
            match row.state_index {
                StateIndex::Delayed => {
                    group.blocking.remove(&(pos.1, pos.2));
                }
                StateIndex::Ready
                | StateIndex::NotSelectable
                | StateIndex::Buried
                | StateIndex::Archived => {
                    group.ready.remove(&pos);
                }
            }
            self.members = self.members - before + self.group(number).members();
            self.update_eligibility(number);
            self.forget_idle(number);
        }
    }

    /// Something left a block that is not in memory (replay).
    pub(in crate::store) fn thin(&mut self, at: BlockAt, row: &Block) {
        if self.known.contains_key(&at) {
            self.unshelve(at, row);
            self.leave_open(at, row, None);
        }
    }
}
