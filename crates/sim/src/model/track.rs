//! Tracked messages: one line for each, written again whenever something happens to it.

use quintet_types::{
    ByName, CommandError, Message, MessageId, MessageResult, NamedAction, Outcome, ResultState,
    State, TRACK_NOTE_BYTES_MAX, Track, TrackState, cut,
};

use super::Model;

impl Model {
    /// Something happened to a message, which is there.
    pub(super) fn notify(&mut self, id: MessageId) {
        let Some(item) = self.item(id) else { return };
        let (message, now) = (&item.message, self.now);
        let state = match message.state {
            State::Reserved => TrackState::Reserved,
            State::Buried => TrackState::Buried,
            State::Done | State::Relayed => TrackState::Done,
            State::Prepared => TrackState::Waiting,
            State::Ready if message.failures() == 0 => TrackState::Waiting,
            State::Ready if message.due().is_some() => TrackState::Failed,
            State::Ready => TrackState::Waiting,
        };
        self.notify_as(id, state, now);
    }

    /// It is about to be removed.
    pub(super) fn ends(&mut self, id: MessageId, state: TrackState) {
        self.notify_as(id, state, self.now);
    }

    fn notify_as(&mut self, id: MessageId, state: TrackState, now: quintet_types::Ms) {
        let is_tracked = |message: &Message| message.extra.as_ref().is_some_and(|e| e.tracked);
        let Some(message) = self.item(id).map(|item| item.message.clone()) else {
            return;
        };
        if !is_tracked(&message) {
            return;
        }
        self.tracks.retain(|(other, _)| *other != id);
        let keep_ms = self.settings.track_keep_ms;
        if self.settings_of(message.queue).memory || keep_ms == 0 {
            return;
        }
        let progress = message.progress();
        let extra = message.extra.expect("it is tracked");
        let mut note = match extra.cancelled {
            Some(cancelled) if state == TrackState::Cancelled => cancelled.reason.to_vec(),
            _ => extra.status.to_vec(),
        };
        note.truncate(cut(&note, TRACK_NOTE_BYTES_MAX).len());
        let track = Track {
            queue: self.queue(message.queue).name.clone(),
            name: extra.name.expect("a tracked message has a name"),
            state,
            percent: progress,
            note: note.into(),
            changed: now,
            until: now + keep_ms,
        };
        while self.tracks.len() >= self.settings.tracked_max as usize {
            let first = self.tracks.iter().map(|(id, track)| (track.until, *id));
            let Some((_, first)) = first.min() else {
                return;
            };
            self.tracks.retain(|(other, _)| *other != first);
        }
        self.tracks.push((id, track));
    }

    /// Of one that nobody holds.
    pub(super) fn say_of_track(&mut self, by_name: &ByName) -> Result<Outcome, CommandError> {
        let (percent, text) = match &by_name.action {
            NamedAction::Progress(percent, text) => (*percent, text.clone()),
            NamedAction::Until(_) => (None, None),
            NamedAction::Cancel(cancel) => {
                let (id, track) = self.track_named(by_name)?;
                return match (self.message(id), track.state) {
                    (Ok(_), _) => self.cancel(id, cancel),
                    (_, TrackState::Cancelled) => Err(CommandError::AlreadyCancelled),
                    (_, TrackState::Done) => Err(CommandError::AlreadyDone),
                    _ => Err(CommandError::NotFound),
                };
            }
            _ => return Err(CommandError::NotFound),
        };
        let (id, mut track) = self.track_named(by_name)?;
        if let Ok(message) = self.message(id) {
            if message.state == State::Reserved {
                return Err(CommandError::NotFound);
            }
            self.note_progress(id, percent, text);
        } else if track.state == TrackState::Cancelled {
            return Ok(Outcome::Cancelled);
        } else if percent.is_some() || text.is_some() {
            track.percent = percent.or(track.percent);
            track.note = text.unwrap_or(track.note);
            track.changed = self.now;
            track.until = self.now + self.settings.track_keep_ms;
            self.tracks.retain(|(other, _)| *other != id);
            self.tracks.push((id, track));
        }
        Ok(Outcome::Done)
    }

    /// The one that was put last.
    pub(super) fn tracked(&self, by_name: &ByName) -> Result<Outcome, CommandError> {
        let (id, track) = self.track_named(by_name)?;
        Ok(Outcome::Tracked(id, Box::new(track)))
    }

    fn track_named(&self, by_name: &ByName) -> Result<(MessageId, Track), CommandError> {
        let found = self.tracks.iter().filter(|(_, track)| {
            let queue = by_name.queue.as_ref();
            *track.name == *by_name.name
                && track.until > self.now
                && queue.is_none_or(|queue| *queue == track.queue)
        });
        let found = found.max_by_key(|(id, _)| *id);
        found.cloned().ok_or(CommandError::NotFound)
    }

    /// Those whose time is over.
    pub(super) fn end_tracks(&mut self) {
        let now = self.now;
        self.tracks.retain(|(_, track)| track.until > now);
    }
}

impl Model {
    /// The result of a message at once; the waits for one have tests of their own.
    pub(super) fn result(&self, id: MessageId) -> Result<Outcome, CommandError> {
        if let Some(item) = self.item(id) {
            let Some((state, text)) = item.message.result() else {
                return Ok(Outcome::Empty);
            };
            let queue = self.queue(item.message.queue).name.clone();
            return Ok(Outcome::Result(Box::new(MessageResult {
                id,
                queue,
                state,
                text,
            })));
        }
        let track = self.tracks.iter().find(|(other, _)| *other == id);
        let (_, track) = track.ok_or(CommandError::NotFound)?;
        let text_of = || (!track.note.is_empty()).then(|| track.note.clone());
        let (state, text) = match track.state {
            TrackState::Done => (ResultState::Done, None),
            TrackState::Failed => (ResultState::Failed, text_of()),
            TrackState::Cancelled => (ResultState::Cancelled, text_of()),
            TrackState::Gone => (ResultState::Gone, None),
            TrackState::Waiting | TrackState::Reserved | TrackState::Buried => {
                return Err(CommandError::NotFound);
            }
        };
        Ok(Outcome::Result(Box::new(MessageResult {
            id,
            queue: track.queue.clone(),
            state,
            text,
        })))
    }
}
