//! The rules.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fmt,
};

use super::{Answer, At, Body, Call, ClientRequest, History};

/// A rule that is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Which: `R1` to `R7`.
    pub rule: &'static str,
    /// By what.
    pub why: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.why)
    }
}

impl Error for Broken {}

fn broken(rule: &'static str, why: String) -> Result<(), Broken> {
    Err(Broken { rule, why })
}

/// A message as the history has it.
#[derive(Default)]
struct Story<'a> {
    put: Option<&'a Call>,
    /// Takes that were answered with it, in the order they were asked.
    takes: Vec<&'a Call>,
    /// Commands that end a lease on it.
    settles: Vec<&'a Call>,
}

/// A history, by message and by queue.
struct IndexedHistory<'a> {
    history: &'a History,
    stories: BTreeMap<Body, Story<'a>>,
    /// Takes that were not answered, by queue.
    unknown: BTreeMap<u8, Vec<&'a Call>>,
}

/// When a command was answered with what it is for.
fn done(call: &Call) -> Option<At> {
    match (call.ask, call.answered?) {
        (ClientRequest::Put(_), (at, _, Answer::Stored(_)))
        | (ClientRequest::Take { .. }, (at, _, Answer::Got(_)))
        | (ClientRequest::Finish(_) | ClientRequest::Release(_), (at, _, Answer::Done)) => Some(at),
        _ => None,
    }
}

fn epoch(call: &Call) -> u64 {
    call.answered.map_or(0, |(_, epoch, _)| epoch)
}

fn removes(call: &Call) -> bool {
    call.ask == ClientRequest::Take { removes: true }
}

impl<'a> IndexedHistory<'a> {
    fn new(history: &'a History) -> Result<Self, Broken> {
        let mut indexed = Self {
            history,
            stories: BTreeMap::new(),
            unknown: BTreeMap::new(),
        };
        for call in &history.calls {
            if let ClientRequest::Put(body) = call.ask {
                indexed.stories.entry(body).or_default().put = Some(call);
            }
        }
        for call in &history.calls {
            match (call.ask, call.answered) {
                (ClientRequest::Put(_), _) => {}
                (ClientRequest::Finish(body) | ClientRequest::Release(body), _) => {
                    indexed.stories.entry(body).or_default().settles.push(call);
                }
                (ClientRequest::Take { .. }, Some((at, _, Answer::Got(body)))) => {
                    // One that waits may be asked before there is anything.
                    let put =
                        |story: &&mut Story<'_>| story.put.is_some_and(|put| put.requested < at);
                    match indexed.stories.get_mut(&body).filter(put) {
                        Some(story) => story.takes.push(call),
                        None => {
                            let why = format!("{body} was handed out, and nobody had put it");
                            return Err(Broken { rule: "R1", why });
                        }
                    }
                }
                (ClientRequest::Take { .. }, None) => {
                    indexed.unknown.entry(call.queue).or_default().push(call)
                }
                (ClientRequest::Take { .. }, Some(_)) => {}
            }
        }
        Ok(indexed)
    }

    /// Takes of this queue whose decision nobody knows, that may have been decided between the two.
    fn may_have_taken(&self, queue: u8, from: At, until: At) -> bool {
        let unknown = self.unknown.get(&queue).into_iter().flatten();
        let mut within = unknown.filter(|call| call.requested < until && call.left > from);
        within.next().is_some()
    }

    /// When a lease was certainly held no longer.
    fn lease_end(&self, take: &Call, story: &Story<'_>) -> At {
        if removes(take) {
            return At::MAX;
        }
        let settled = story.settles.iter();
        let settled = settled
            .filter(|call| call.connection == take.connection && Some(call.requested) > done(take));
        let settled = settled.map(|call| call.requested).min();
        let closed = self.history.closed.get(&take.connection).copied();
        settled.into_iter().chain(closed).min().unwrap_or(At::MAX)
    }

    /// R1: what was acknowledged is there until it is removed.
    fn kept(&self) -> Result<(), Broken> {
        let mut missing: BTreeMap<u8, Vec<&Call>> = BTreeMap::new();
        for story in self.stories.values() {
            let Some(put) = story.put.filter(|put| done(put).is_some()) else {
                continue;
            };
            let taken = story.takes.iter().any(|take| removes(take));
            // One that was refused did nothing.
            let finished = story.settles.iter().any(|call| {
                matches!(call.ask, ClientRequest::Finish(_))
                    && (call.answered.is_none() || done(call).is_some())
            });
            if !taken && !finished {
                missing.entry(put.queue).or_default().push(put);
            }
        }
        for (queue, mut puts) in missing {
            // Each may have been taken by one take that was not answered, and was asked on a
            // connection that was there after the put.
            let unknown = self.unknown.get(&queue).into_iter().flatten();
            let mut takes: Vec<At> = unknown.filter(|t| removes(t)).map(|t| t.left).collect();
            takes.sort_unstable_by(|a, b| b.cmp(a));
            puts.sort_unstable_by_key(|put| std::cmp::Reverse(put.requested));
            for (at, put) in puts.iter().enumerate() {
                if takes.get(at).is_none_or(|left| *left < put.requested) {
                    let why = format!("{:?} was acknowledged and is not there: {put:?}", put.ask);
                    return broken("R1", why);
                }
            }
        }
        Ok(())
    }

    /// R2: after an acknowledged removal a message is not handed out; R3: a removing take's message
    /// is handed out by no other.
    fn gone(&self) -> Result<(), Broken> {
        for (body, story) in &self.stories {
            let removed = story.takes.iter().filter(|take| removes(take));
            if removed.clone().count() > 1 {
                return broken("R3", format!("{body} was taken away twice"));
            }
            let finished = story.settles.iter();
            let finished = finished.filter(|call| matches!(call.ask, ClientRequest::Finish(_)));
            let gone = removed.chain(finished).filter_map(|call| done(call)).min();
            let again = story.takes.iter().find(|take| Some(take.requested) > gone);
            if let (Some(gone), Some(again)) = (gone, again) {
                let why = format!("{body} was removed at {gone} and handed out again: {again:?}");
                return broken("R2", why);
            }
        }
        Ok(())
    }

    /// R4: of two messages of a queue the one put first is taken first.
    fn in_order(&self) -> Result<(), Broken> {
        let mut queues: BTreeMap<u8, Vec<(&Call, &Call)>> = BTreeMap::new();
        for story in self.stories.values() {
            if let (Some(put), Some(take)) = (story.put, story.takes.first()) {
                queues.entry(put.queue).or_default().push((put, take));
            }
        }
        for (queue, pairs) in queues {
            for (first, first_take) in &pairs {
                let Some(stored) = done(first) else { continue };
                for (second, second_take) in &pairs {
                    let Some(got) = done(second_take) else {
                        continue;
                    };
                    let overtaken = stored < second.requested && got < first_take.requested;
                    // Somebody who was never answered may have held the first.
                    if overtaken && !self.may_have_taken(queue, first.requested, got) {
                        let why = format!("{second_take:?} was before {first_take:?}");
                        return broken("R4", why);
                    }
                }
            }
        }
        Ok(())
    }

    /// R5: two leases on a message overlap only across a claim.
    fn held_once(&self) -> Result<(), Broken> {
        for story in self.stories.values() {
            for (at, one) in story.takes.iter().enumerate() {
                for other in &story.takes[at + 1..] {
                    let (Some(a), Some(b)) = (done(one), done(other)) else {
                        continue;
                    };
                    let both = a.max(b);
                    let held =
                        both < self.lease_end(one, story) && both < self.lease_end(other, story);
                    if held && epoch(one) == epoch(other) {
                        return broken("R5", format!("{one:?} and {other:?} hold the same"));
                    }
                }
            }
        }
        Ok(())
    }

    /// R6: that there is nothing is wrong if something was there all the while.
    fn nothing_there(&self) -> Result<(), Broken> {
        let empty = self.history.calls.iter().filter_map(|call| {
            let (at, _, answer) = call.answered?;
            (answer == Answer::Empty).then_some((call, at))
        });
        for (call, at) in empty {
            for (body, story) in &self.stories {
                let Some(put) = story.put.filter(|put| put.queue == call.queue) else {
                    continue;
                };
                let before = done(put).is_some_and(|stored| stored < call.requested);
                let taken = story.takes.first().is_some_and(|take| take.requested < at);
                if before && !taken && !self.may_have_taken(call.queue, put.requested, at) {
                    return broken("R6", format!("{body} was there: {call:?}"));
                }
            }
        }
        Ok(())
    }

    /// R7: ids are given once, and rise in each shard.
    fn ids(&self) -> Result<(), Broken> {
        let mut seen = BTreeSet::new();
        let mut puts: Vec<(At, At, u64)> = Vec::new();
        for call in &self.history.calls {
            if let (ClientRequest::Put(_), Some((at, _, Answer::Stored(id)))) =
                (call.ask, call.answered)
            {
                if !seen.insert(id) {
                    return broken("R7", format!("{id} was given twice: {call:?}"));
                }
                puts.push((call.requested, at, id));
            }
        }
        // In the order they were answered, which is that in which they are looked at.
        puts.sort_unstable_by_key(|(_, at, _)| *at);
        for (number, (requested, _, id)) in puts.iter().enumerate() {
            let earlier = puts[..number].iter().filter(|(_, at, _)| at < requested);
            let shard = id >> SHARD_SHIFT;
            if let Some((.., other)) =
                { earlier }.find(|(.., other)| other >> SHARD_SHIFT == shard && other > id)
            {
                return broken("R7", format!("{id} was given after {other}"));
            }
        }
        Ok(())
    }
}

/// Bits of an id below its shard's number.
const SHARD_SHIFT: u32 = 55;

/// Every rule.
pub(super) fn check(history: &History) -> Result<(), Broken> {
    let indexed = IndexedHistory::new(history)?;
    indexed.kept()?;
    indexed.gone()?;
    indexed.in_order()?;
    indexed.held_once()?;
    indexed.nothing_there()?;
    indexed.ids()
}
