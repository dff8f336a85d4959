//! Tracked messages: noting what becomes of them, and answering who asks.

use super::Stop;
use quintet_types::{
    ByName, CommandError, Message, MessageId, Name, NamedAction, Outcome, Principal, Removal,
    State, TRACK_NOTE_BYTES_MAX, Track, TrackState, Verb, cut,
};

use crate::engine::{Cx, Engine};
use crate::fact::{Fact, Journal};
use crate::store::Tracks;

/// Outcomes that one tick forgets.
const STEPS: usize = 256;
/// Tracked messages of one name that are looked at in one step. A client that gives more of them
/// the same name finds those that were put last.
const NAMESAKES_MAX: usize = 256;

/// The change to a message that may be tracked in a fact that is about to be applied.
pub(crate) enum Tells {
    Changed(MessageId),
    /// It is no more; what is known of it then.
    Ended(MessageId, Option<Box<Track>>),
    /// It is another shard's from now on.
    Left(MessageId),
}

impl Engine {
    #[cold]
    pub(crate) fn of_tracked(&self, fact: &Fact) -> Option<Tells> {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "all others say nothing of how a message fares"
        )]
        Some(match fact {
            Fact::Put(message) | Fact::Restored(message) | Fact::Arrived { message, .. } => {
                Tells::Changed(message.id)
            }
            Fact::Leased { at, .. }
            | Fact::Reheld { at, .. }
            | Fact::Released { at, .. }
            | Fact::Buried { at, .. }
            | Fact::Archived { at, .. }
            | Fact::Kicked { at }
            | Fact::Moved { at, .. }
            | Fact::Committed { at }
            | Fact::Edited { at, .. } => Tells::Changed(at.id),
            Fact::Sent { at, .. } => Tells::Left(at.id),
            Fact::Removed { at, why } => {
                let state = match (why.succeeded()?, why) {
                    (true, _) => TrackState::Done,
                    (false, Removal::Failed) => TrackState::Failed,
                    (false, Removal::Cancelled) => TrackState::Cancelled,
                    (false, _) => TrackState::Gone,
                };
                let message = self
                    .store
                    .message(at.id)
                    .filter(|known| known.is_tracked())?;
                Tells::Ended(at.id, self.track_of(message, state))
            }
            _ => return None,
        })
    }

    /// Notes what became of a message, if it is tracked.
    #[cold]
    pub(crate) fn note_track<J: Journal>(&mut self, cx: &mut Cx<'_, J>, tells: Tells) {
        match tells {
            Tells::Changed(id) => self.track(cx, id),
            Tells::Ended(id, track) => self.keep_track(cx, id, track),
            Tells::Left(id) => self.forget_track(cx, id),
        }
    }

    /// Notes how a message is, if it is tracked.
    #[cold]
    pub(crate) fn track<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: MessageId) {
        if let Some(message) = self.store.message(id).filter(|known| known.is_tracked()) {
            let track = self.track_of(message, TrackState::of(message));
            self.keep_track(cx, id, track);
        }
    }

    /// `None`: it is not kept. A message that no restart would find is not, nor what is known of
    /// it.
    fn track_of(&self, message: &Message, state: TrackState) -> Option<Box<Track>> {
        let queue = self.store.expect_queue(message.queue);
        if queue.live.settings.memory || self.settings.track_keep_ms == 0 {
            return None;
        }
        let extra = message.extra.as_deref()?;
        let note = match (&extra.cancelled, state) {
            (Some(cancelled), TrackState::Cancelled) => &cancelled.reason,
            _ => &extra.status,
        };
        let note = cut(note, TRACK_NOTE_BYTES_MAX);
        Some(Box::new(Track {
            queue: queue.name.clone(),
            name: extra.name.clone()?,
            state,
            percent: message.progress(),
            note: note.into(),
            changed: self.now,
            until: self.after(self.settings.track_keep_ms),
        }))
    }

    fn keep_track<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        id: MessageId,
        track: Option<Box<Track>>,
    ) {
        let Some(track) = track else {
            // By the settings no track of it is kept.
            return self.forget_track(cx, id);
        };
        let restated = Tracks::restated_size_of(&track);
        // Where there is no room those go that would go first.
        loop {
            let tracks = &self.store.tracks;
            let others = tracks.len() - usize::from(tracks.has(id));
            if others < self.settings.tracked_max as usize && self.may_restate(restated).is_ok() {
                break;
            }
            match self.store.tracks.first_end() {
                Some((_, first)) => self.forget_track(cx, first),
                None => return,
            }
        }
        let track = Some(track);
        self.fact_alone(cx, Fact::Tracked { id, track });
    }

    pub(super) fn forget_track<J: Journal>(&mut self, cx: &mut Cx<'_, J>, id: MessageId) {
        if self.store.tracks.has(id) {
            self.fact_alone(cx, Fact::Tracked { id, track: None });
        }
    }

    /// Forgets those whose time is over.
    pub(crate) fn end_tracks<J: Journal>(&mut self, cx: &mut Cx<'_, J>) {
        for _ in 0..STEPS {
            match self.store.tracks.first_end() {
                Some((at, id)) if at <= self.now => self.forget_track(cx, id),
                _ => break,
            }
        }
    }

    /// Notes a report about a tracked message that nobody holds: before it is taken, or after it is
    /// done. Of several of the name it is the one that was put last. If that was cancelled, its
    /// holder hears of it and the reason stays.
    pub(super) fn say_of_track<J: Journal>(
        &mut self,
        cx: &mut Cx<'_, J>,
        by_name: &ByName,
    ) -> Result<Outcome, Stop> {
        let (percent, text) = match &by_name.action {
            NamedAction::Progress(percent, text) => (*percent, text.as_deref()),
            // It is no lease's end that would be put off.
            NamedAction::Until(_) => (None, None),
            NamedAction::Cancel(cancel) => return self.cancel_tracked(cx, by_name, cancel),
            NamedAction::Track
            | NamedAction::Peek
            | NamedAction::Settle(_)
            | NamedAction::SettleHolding(..)
            | NamedAction::Extend(_) => {
                return Err(CommandError::NotFound.into());
            }
        };
        let (id, mut track) =
            self.track_named(cx.call().caller.principal, by_name, by_name.action.verb())?;
        if let Some(slot) = self.look_up(id)? {
            if self.store.messages.at(slot).state == State::Reserved {
                return Err(CommandError::NotFound.into());
            }
            self.say(cx, id, percent, text);
        } else if track.state == TrackState::Cancelled {
            return Ok(Outcome::Cancelled);
        } else if percent.is_some() || text.is_some() {
            track.percent = percent.map(|percent| percent.min(100)).or(track.percent);
            if let Some(text) = text {
                track.note = cut(text, TRACK_NOTE_BYTES_MAX).into();
            }
            (track.changed, track.until) = (self.now, self.after(self.settings.track_keep_ms));
            self.keep_track(cx, id, Some(Box::new(track)));
        }
        Ok(Outcome::Done)
    }

    /// The record of the tracked message of this name that was put last. Where no queue is named,
    /// those of queues that the requester may not look into do not count.
    pub(crate) fn tracked(
        &mut self,
        requester: Principal,
        by_name: &ByName,
    ) -> Result<Outcome, Stop> {
        let (id, track) = self.track_named(requester, by_name, Verb::Peek)?;
        Ok(Outcome::Tracked(id, Box::new(track)))
    }

    pub(super) fn track_named(
        &mut self,
        requester: Principal,
        by_name: &ByName,
        verb: Verb,
    ) -> Result<(MessageId, Track), CommandError> {
        let (now, named) = (self.now, by_name.queue.as_ref());
        let found = self.store.tracks.named(&by_name.name).take(NAMESAKES_MAX);
        let found = found.filter(|(_, track)| track.until > now);
        let found = found.filter(|(_, track)| named.is_none_or(|queue| *queue == track.queue));
        let found: Vec<_> = found.map(|(id, track)| (id, track.clone())).collect();
        let may =
            |engine: &mut Self, queue: &Name| named.is_some() || engine.may(requester, verb, queue);
        let found = found.into_iter().find(|(_, track)| may(self, &track.queue));
        found.ok_or(CommandError::NotFound)
    }
}
