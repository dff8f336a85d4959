//! Tracked messages: each record against its message, and what is left of one that is gone.

use proptest::prelude::*;
use quintet_types::*;

use super::{Asked, Properties, Removals, Seen};
use crate::model::world::Checked;

/// The part of a message that its record has.
fn told(message: &Message) -> (State, QueueId, Option<u8>, &[u8]) {
    let status = message.extra.as_deref().map(|extra| &*extra.status);
    (
        message.state,
        message.queue,
        message.progress(),
        status.unwrap_or_default(),
    )
}

/// The states a record may tell. One that failed rests, and waits when its rest is over, of which
/// nothing is noted.
fn states(message: &Message) -> &'static [TrackState] {
    match message.state {
        State::Ready if message.failures() > 0 => &[TrackState::Waiting, TrackState::Failed],
        State::Ready | State::Prepared => &[TrackState::Waiting],
        State::Reserved => &[TrackState::Reserved],
        State::Buried => &[TrackState::Buried],
        State::Done | State::Relayed => &[TrackState::Done],
    }
}

impl Properties {
    /// Defects it sees: a change that is not noted, or noted wrongly; an end told as another one,
    /// or that changes afterwards; a record too many, or kept too long.
    pub(super) fn check_tracks(
        &self,
        settings: &Settings,
        removals: &Removals,
        seen: &Seen,
    ) -> Checked {
        let max = settings.tracked_max as usize;
        prop_assert!(seen.tracks.len() <= max, "{} records", seen.tracks.len());
        for (id, track) in &seen.tracks {
            prop_assert_eq!(track.until, track.changed + settings.track_keep_ms);
            if let Some(message) = seen.messages.get(id) {
                let states = states(message);
                prop_assert!(states.contains(&track.state), "{track:?} of {message:?}");
                let queue = seen.queues.get(&message.queue).map(|queue| &queue.name);
                prop_assert_eq!(Some(&track.queue), queue, "of {:?}", message);
                prop_assert_eq!(Some(&track.name), message.name(), "of {:?}", message);
                let (_, _, percent, status) = told(message);
                prop_assert_eq!((track.percent, &*track.note), (percent, status));
            }
        }
        for (id, message) in &seen.messages {
            let before = self.seen.messages.get(id);
            let same = before.is_some_and(|before| told(before) == told(message));
            let kept = seen.tracks.contains_key(id) || seen.tracks.len() >= max;
            let silent = !message.is_tracked() || settings.track_keep_ms == 0;
            prop_assert!(same || kept || silent, "no record of {message:?}");
        }
        for (id, track) in &seen.tracks {
            if seen.messages.contains_key(id) {
                continue;
            }
            let end = match removals.get(id) {
                Some(Removal::Taken | Removal::Finished) => Some(TrackState::Done),
                Some(Removal::Failed) => Some(TrackState::Failed),
                Some(Removal::Cancelled) => Some(TrackState::Cancelled),
                Some(Removal::Retention) => None,
                Some(_) => Some(TrackState::Gone),
                None => {
                    let gone = !self.seen.messages.contains_key(id);
                    let old = self.seen.tracks.get(id).filter(|_| gone);
                    old.map(|old| old.state)
                }
            };
            let state = Some(track.state);
            prop_assert_eq!(end.or(state), state, "the end of {:?}", id);
        }
        Ok(())
    }

    /// Defects it sees: a name finds another message than the last, or one that is not kept; the
    /// result of a message that is gone is not what its record has.
    pub(super) fn check_found(&self, now: Ms, asked: Option<Asked<'_>>) -> Checked {
        let Some(asked) = asked else { return Ok(()) };
        // Of one that waited for a run, the outcome may be that of an earlier wait of the client.
        let own = asked.at_once || matches!(asked.outcome, Some(Outcome::Result(_)));
        if let Command::AwaitResult { id, .. } = asked.command
            && !self.seen.messages.contains_key(id)
            && own
        {
            let state = self.seen.tracks.get(id).map(|track| track.state);
            let known = match state {
                Some(TrackState::Done) => Some(ResultState::Done),
                Some(TrackState::Failed) => Some(ResultState::Failed),
                Some(TrackState::Cancelled) => Some(ResultState::Cancelled),
                Some(TrackState::Gone) => Some(ResultState::Gone),
                Some(TrackState::Waiting | TrackState::Reserved | TrackState::Buried) | None => {
                    None
                }
            };
            let result = match asked.outcome {
                Some(Outcome::Result(result)) => Some(result.state),
                _ => None,
            };
            prop_assert_eq!(result, known, "the result of {:?}", id);
        }
        let Command::ByName(by_name) = asked.command else {
            return Ok(());
        };
        if by_name.action != NamedAction::Track {
            return Ok(());
        }
        let known = self.seen.tracks.iter().rev().find(|(_, track)| {
            let here = by_name.queue.as_ref();
            *track.name == *by_name.name
                && track.until > now
                && here.is_none_or(|queue| *queue == track.queue)
        });
        let found = match asked.outcome {
            Some(Outcome::Tracked(id, track)) => Some((id, &**track)),
            _ => None,
        };
        prop_assert_eq!(found, known, "found by {:?}", by_name);
        Ok(())
    }
}
