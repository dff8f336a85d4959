//! The servers whose copies of the stream a member found damaged.

use std::{sync::Arc, time::Duration};

use crate::{Ends, Moment, Seq};

type Leader = Option<Arc<str>>;

/// A leader may lack what was read for this long. A deposed one answers for a moment, and a new one
/// before it has applied everything.
const BEHIND: Duration = Duration::from_secs(5);

/// The memory of one member.
#[derive(Default)]
pub(crate) struct Doubts {
    /// Those found since a whole copy led.
    tried: Vec<String>,
    /// Servers that have not led with a whole copy since.
    distrusted: Vec<String>,
    /// The servers that have led since the log was read from its beginning.
    leaders: Vec<Leader>,
    /// The error of an entry that was read twice and refused, and the leaders meanwhile.
    stuck: Option<(String, Vec<Leader>)>,
    /// The leader whose copy ends before an entry that was read, and since when.
    behind: Option<(Leader, Moment)>,
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

    /// The leader's stream ends like this, and entry `read` was read. Returns why its copy is
    /// damaged, if it has ended before that entry for [`BEHIND`].
    pub(crate) fn ends(&mut self, ends: &Ends, read: Seq, now: Moment) -> Option<String> {
        let (leader, last) = (&ends.leader, ends.last);
        let same = self.behind.take().filter(|(before, _)| before == leader);
        if last >= read {
            return None;
        }
        let (_, since) = self.behind.insert(same.unwrap_or((leader.clone(), now)));
        (now >= *since + BEHIND)
            .then(|| format!("it ends with entry {last}, and this node has read entry {read}"))
    }

    /// Whether the leader's copy ends before an entry that was read.
    pub(crate) fn is_behind(&self) -> bool {
        self.behind.is_some()
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

    /// Servers that have not led with a whole copy since they were found.
    pub(crate) fn distrusted(&self) -> &[String] {
        &self.distrusted
    }
}
