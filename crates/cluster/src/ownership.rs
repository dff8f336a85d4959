//! The owner of a group: a pure machine. Its input is the observations of a node and their times,
//! its output the next actions.
//!
//! A claim in the log is what makes an owner; all this decides is who should try, and when. The
//! only sign of an owner's life is that the log moves, so what deposes one is silence, and of that
//! only such in which the stream's leader answers: without a leader no owner can append.

use std::time::Duration;

use quintet_log::Epoch;

use crate::{Moment, Seq};

/// How long things take.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// An owner appends something at least so often.
    pub heartbeat: Duration,
    /// So long after an acknowledged entry was sent its owner may answer without another. At least
    /// two heartbeats.
    pub lease: Duration,
    /// So much silence lets this node claim. At least one and a half leases; more for those that
    /// should not be the first to try.
    pub takeover_after: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(500),
            lease: Duration::from_secs(2),
            takeover_after: Duration::from_secs(3),
        }
    }
}

/// A leader is asked so often whether something has moved.
const ASK_EVERY: Duration = Duration::from_millis(250);
/// A question that has no answer by then has none: there is no leader. Far less than servers take
/// to elect another.
const ANSWER: Duration = Duration::from_secs(1);
/// A node that is drained claims only after so many times the silence others wait for: there is
/// nobody else.
const DRAINED_TIMES: u32 = 10;

/// Something a node saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It has read and applied everything up to this entry, of this epoch.
    Read(Seq, Epoch),
    /// The last entry was the owner's handoff.
    Handoff(Successor),
    /// Whether others should own rather than this node, from now on.
    Drain(bool),
    /// Whether this node's clock is off, from now on: others should claim rather than this node.
    Clock(bool),
    /// [`Action::AskEnds`] was answered; `None`: nobody did.
    Ends(Option<Seq>),
    /// [`Action::Compare`] was answered: whether the leader has what was read. `None`: nobody did.
    Compared(Option<bool>),
    /// Result of [`Action::Claim`].
    Claimed(Claimed),
    /// The owner handed something to its log.
    Appended,
    /// An entry that was sent then is acknowledged.
    Acknowledged(Moment),
    /// The log has another owner.
    Fenced,
    /// Time has passed.
    Tick,
}

/// The designated successor of an owner that left in good order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Successor {
    /// This node.
    Us,
    /// Any node that can, and this node can.
    Anyone,
    /// Another node; or this one could not serve at once.
    Other,
}

/// Result of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// It stands, and its padding is filled.
    Stands(Epoch),
    /// Somebody else's entry stands in its place.
    Taken,
}

/// The next step of a node on its way to the ownership or in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask the leader where the stream ends.
    AskEnds,
    /// Ask the leader for the last entry that was read, and compare.
    Compare(Seq),
    /// Append a claim behind this entry, all of which up to there was applied.
    Claim(Seq),
    /// Own: begin the epoch and let clients in.
    Own(Epoch),
    /// Append a heartbeat.
    Heartbeat,
    /// Answer nothing more; close every connection.
    StepDown,
    /// The copy differs from the stream: throw it away and read again.
    ReadAgain,
}

/// Whether a node owns the log of its group, and what it does about it.
#[derive(Clone, Debug)]
pub struct Ownership {
    timing: Timing,
    state: State,
    /// The newest entry that was read.
    read: Seq,
    epoch: Epoch,
    /// The newest entry is the owner's handoff.
    handoff: Option<Successor>,
    drained: bool,
    /// Its clock is off.
    off: bool,
}

#[derive(Clone, Debug)]
enum State {
    /// Reads, and has not come to the end yet.
    Catching(RepeatedRequest),
    Standby(Silence),
    /// Its last entry is being compared.
    Comparing(RepeatedRequest),
    /// Its claim is on its way.
    Claiming,
    Owner {
        /// When something was appended last.
        appended: Moment,
        /// Until when answers need no append of their own.
        lease: Moment,
    },
    Deposed,
}

#[derive(Clone, Copy, Debug, Default)]
struct RepeatedRequest {
    /// When it was sent last.
    requested_at: Option<Moment>,
    answered: bool,
}

#[derive(Clone, Copy, Debug)]
struct Silence {
    /// Up to here it is settled what counts.
    since: Moment,
    /// Silence that counts, before that.
    counted: Duration,
    /// A question since then was not answered.
    doubt: bool,
    request: RepeatedRequest,
}

impl Silence {
    fn new(now: Moment) -> Self {
        Self {
            since: now,
            counted: Duration::ZERO,
            doubt: false,
            request: RepeatedRequest::default(),
        }
    }
}

impl RepeatedRequest {
    /// Whether to ask now; notes that it was.
    fn due(&mut self, now: Moment) -> bool {
        let due = self.next().is_none_or(|next| now >= next);
        if due {
            self.requested_at = Some(now);
            self.answered = false;
        }
        due
    }

    fn next(&self) -> Option<Moment> {
        let wait = if self.answered { ASK_EVERY } else { ANSWER };
        self.requested_at.map(|requested_at| requested_at + wait)
    }
}

impl Ownership {
    /// A node that has read nothing.
    ///
    /// # Panics
    /// If the times do not go together: then a new owner could begin in an old one's lease.
    pub fn new(timing: Timing) -> Self {
        assert!(
            timing.lease >= 2 * timing.heartbeat && 2 * timing.takeover_after >= 3 * timing.lease,
            "two beats fit in a lease, and one and a half leases in a takeover"
        );
        Self {
            timing,
            state: State::Catching(RepeatedRequest::default()),
            read: Seq(0),
            epoch: Epoch(0),
            handoff: None,
            drained: false,
            off: false,
        }
    }

    /// The same of a node that others should own rather than, if it is `drained`.
    ///
    /// # Panics
    /// As [`Ownership::new`].
    pub fn drained(timing: Timing, drained: bool) -> Self {
        Self {
            drained,
            ..Self::new(timing)
        }
    }

    /// The same node, which is to read everything again.
    pub(crate) fn again(&self) -> Self {
        Self {
            off: self.off,
            ..Self::drained(self.timing, self.drained)
        }
    }

    /// So much silence lets this node claim. An owner that has handed off answers nothing, so
    /// nobody waits for its lease; who was not named leaves two heartbeats to who was, and a node
    /// whose clock is off leaves two more to others.
    fn patience(&self) -> Duration {
        let more = match self.off {
            true => 2 * self.timing.heartbeat,
            false => Duration::ZERO,
        };
        more + match self.handoff {
            _ if self.drained => DRAINED_TIMES * self.timing.takeover_after,
            Some(Successor::Us | Successor::Anyone) => Duration::ZERO,
            Some(Successor::Other) => 2 * self.timing.heartbeat,
            None => self.timing.takeover_after,
        }
    }

    /// Whether this node owns the group, as far as it knows.
    pub fn is_owner(&self) -> bool {
        matches!(self.state, State::Owner { .. })
    }

    /// Whether it could take over.
    pub fn is_standby(&self) -> bool {
        matches!(self.state, State::Standby(_) | State::Comparing(_))
    }

    /// Whether what needs no append may be answered at `now`, with a clock that does not stand
    /// while the machine sleeps. Asked when a reply leaves, not before.
    pub fn has_lease(&self, now: Moment) -> bool {
        matches!(self.state, State::Owner { lease, .. } if now < lease)
    }

    /// When [`Event::Tick`] is needed next.
    pub fn deadline(&self) -> Option<Moment> {
        match &self.state {
            State::Catching(request) | State::Comparing(request) => {
                Some(request.next().unwrap_or(Moment::ZERO))
            }
            State::Standby(silence) => {
                let first = silence.since + 2 * self.timing.heartbeat;
                Some(silence.request.next().unwrap_or(first))
            }
            State::Owner { appended, .. } => Some(*appended + self.timing.heartbeat),
            State::Claiming | State::Deposed => None,
        }
    }

    /// Takes in what happened at `now`, and says what to do, if anything.
    pub fn step(&mut self, now: Moment, event: Event) -> Option<Action> {
        match event {
            Event::Read(seq, epoch) => self.read(now, seq, epoch),
            Event::Handoff(successor) => {
                self.handoff = Some(successor);
                self.claim_after_silence(now)
            }
            Event::Drain(drained) => {
                self.drained = drained;
                None
            }
            Event::Clock(off) => {
                self.off = off;
                None
            }
            Event::Ends(last) => self.ends(now, last),
            Event::Compared(same) => self.compared(now, same),
            Event::Claimed(Claimed::Stands(epoch)) => {
                let State::Claiming = self.state else {
                    return None;
                };
                self.epoch = epoch;
                // Nothing it sent after the claim is acknowledged yet, and the claim was sent at
                // a moment it does not know here: the lease begins with the first heartbeat.
                self.state = State::Owner {
                    appended: now,
                    lease: Moment::ZERO,
                };
                Some(Action::Own(epoch))
            }
            Event::Claimed(Claimed::Taken) => {
                if let State::Claiming = self.state {
                    self.handoff = None;
                    self.state = State::Standby(Silence::new(now));
                }
                None
            }
            Event::Appended => {
                if let State::Owner { appended, .. } = &mut self.state {
                    *appended = now;
                }
                None
            }
            Event::Acknowledged(sent) => {
                if let State::Owner { lease, .. } = &mut self.state {
                    *lease = (*lease).max(sent + self.timing.lease);
                }
                None
            }
            Event::Fenced => self.depose(),
            Event::Tick => self.tick(now),
        }
    }

    fn depose(&mut self) -> Option<Action> {
        let owner = self.is_owner();
        self.state = State::Deposed;
        owner.then_some(Action::StepDown)
    }

    fn read(&mut self, now: Moment, seq: Seq, epoch: Epoch) -> Option<Action> {
        if seq <= self.read {
            return None;
        }
        self.read = seq;
        self.handoff = None;
        if self.is_owner() && epoch > self.epoch {
            return self.depose();
        }
        self.epoch = self.epoch.max(epoch);
        match &mut self.state {
            // Somebody lives: the silence begins anew.
            State::Standby(_) | State::Comparing(_) => {
                self.state = State::Standby(Silence::new(now));
            }
            State::Catching(_) | State::Claiming | State::Owner { .. } | State::Deposed => {}
        }
        None
    }

    fn ends(&mut self, now: Moment, last: Option<Seq>) -> Option<Action> {
        let read = self.read;
        match &mut self.state {
            State::Catching(request) => {
                request.answered = true;
                if last.is_none_or(|last| last > read) {
                    return None;
                }
                self.state = State::Standby(Silence::new(now));
            }
            State::Standby(silence) => {
                if silence.request.answered {
                    return None;
                }
                silence.request.answered = true;
                match last {
                    // What is stored and not read yet is a sign of life.
                    Some(last) if last > read => {
                        *silence = Silence::new(now);
                        return None;
                    }
                    Some(last) if last == read => {
                        // When it was asked the log had not moved; what came since is not known.
                        let requested_at = silence.request.requested_at.unwrap_or(now);
                        if !std::mem::take(&mut silence.doubt) {
                            silence.counted += requested_at.saturating_sub(silence.since);
                        }
                        silence.since = requested_at;
                    }
                    // Nobody, or somebody who is behind: no leader.
                    _ => {
                        silence.doubt = true;
                        return None;
                    }
                }
            }
            _ => return None,
        }
        self.claim_after_silence(now)
    }

    /// Begins to take over, if there was silence enough.
    fn claim_after_silence(&mut self, now: Moment) -> Option<Action> {
        match &self.state {
            State::Standby(silence) if silence.counted >= self.patience() => {}
            _ => return None,
        }
        let mut request = RepeatedRequest::default();
        request.due(now);
        self.state = State::Comparing(request);
        Some(Action::Compare(self.read))
    }

    fn compared(&mut self, now: Moment, same: Option<bool>) -> Option<Action> {
        let State::Comparing(_) = self.state else {
            return None;
        };
        match same {
            Some(true) => {
                self.state = State::Claiming;
                Some(Action::Claim(self.read))
            }
            Some(false) => {
                *self = self.again();
                Some(Action::ReadAgain)
            }
            None => {
                // No leader: what was counted is not worth much any more.
                self.state = State::Standby(Silence::new(now));
                None
            }
        }
    }

    fn tick(&mut self, now: Moment) -> Option<Action> {
        let due = self.deadline().is_some_and(|due| due <= now);
        let read = self.read;
        match &mut self.state {
            _ if !due => None,
            State::Catching(request) => request.due(now).then_some(Action::AskEnds),
            State::Comparing(request) => request.due(now).then_some(Action::Compare(read)),
            State::Standby(silence) => {
                // It is due only when the one before was answered, or never will be.
                silence.doubt |=
                    silence.request.requested_at.is_some() && !silence.request.answered;
                silence.request.due(now).then_some(Action::AskEnds)
            }
            State::Owner { appended, .. } => {
                *appended = now;
                Some(Action::Heartbeat)
            }
            State::Claiming | State::Deposed => None,
        }
    }
}
