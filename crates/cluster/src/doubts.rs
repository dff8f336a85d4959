//! The servers whose copies of the stream a member found damaged.

use std::sync::Arc;

use crate::Ends;

type Leader = Option<Arc<str>>;

/// The memory of one member.
#[derive(Default)]
pub(crate) struct Doubts {
    /// Those found since a whole copy led.
    tried: Vec<String>,
    /// Those that have not led with a whole copy since.
    distrusted: Vec<String>,
    /// The servers that have led since the log was read from its beginning.
    leaders: Vec<Leader>,
    /// The error of an entry that was read twice and refused, and the leaders meanwhile.
    stuck: Option<(String, Vec<Leader>)>,
}

impl Doubts {
    /// The log is read from its beginning.
    pub(crate) fn read_again(&mut self) {
        self.leaders.clear();
    }

    /// An entry was read twice and refused. The log is read from its beginning.
    pub(crate) fn refused(&mut self, why: String) {
        self.stuck = Some((why, std::mem::take(&mut self.leaders)));
    }

    /// The leader's stream ends like this; why its copy is damaged, if an entry was refused. Where
    /// several servers led meanwhile nobody knows whose entry it was.
    pub(crate) fn leads(&mut self, ends: &Ends) -> Option<String> {
        let stuck = self.stuck.take();
        let stuck = stuck.filter(|(_, leaders)| *leaders == [ends.leader.clone()]);
        if stuck.is_none() && !self.leaders.contains(&ends.leader) {
            self.leaders.push(ends.leader.clone());
        }
        stuck.map(|(why, _)| why)
    }

    /// The leader's copy is whole.
    pub(crate) fn is_whole(&mut self, leader: Option<&str>) {
        self.tried.clear();
        self.distrusted.retain(|name| Some(&**name) != leader);
    }

    /// Another server was asked to lead in place of this one.
    pub(crate) fn distrust(&mut self, server: &str) {
        for names in [&mut self.tried, &mut self.distrusted] {
            if !names.iter().any(|name| name == server) {
                names.push(server.to_owned());
            }
        }
    }

    /// Those found since a whole copy led.
    pub(crate) fn tried(&self) -> &[String] {
        &self.tried
    }

    /// Those that have not led with a whole copy since they were found.
    pub(crate) fn distrusted(&self) -> &[String] {
        &self.distrusted
    }
}
