//! Requests that take several commands: kicks of many jobs, and numbers of
//! tubes, which come page by page.

use quintet_types::{ListState, MESSAGES_PER_STEP, Ms, Outcome};

use super::reply::BeanstalkReply;
use super::tubes::Referred;
use super::{Shared, stats};
use crate::output::Output;
use crate::owed::Owed;
use crate::session::{Next, ServerResponse, page, page_of};

/// Writes a reply, or asks for more of what it is made of.
#[inline]
pub(super) fn go_on(
    reply: BeanstalkReply,
    response: &ServerResponse,
    (shared, tubes, now): (&Shared, &Referred, Ms),
    owed: &mut Owed<BeanstalkReply>,
    output: &mut Output,
) -> Next {
    match (reply, response) {
        (BeanstalkReply::Stats, ServerResponse::Server(server)) => {
            let counted = BeanstalkReply::Counted(server.clone(), 1);
            return owed.again(counted, page((0, 0)));
        }
        (
            BeanstalkReply::Counted(server, tubes),
            ServerResponse::Engine(outcome @ Outcome::Stats(_), _),
        ) => {
            let (count, next) = match page_of(outcome) {
                Some(found) => (stats::tubes(&found.queues).count(), found.next),
                None => (0, None),
            };
            let tubes = tubes + count;
            if let Some(from) = next {
                return owed.again(BeanstalkReply::Counted(server, tubes), page(from));
            }
            stats::server(&server, tubes, shared, output);
        }
        (
            BeanstalkReply::Tubes(mut tubes),
            ServerResponse::Engine(outcome @ Outcome::Stats(_), _),
        ) => {
            if let Some(found) = page_of(outcome) {
                stats::tubes(&found.queues).for_each(|name| tubes.add(name));
                if let Some(from) = found.next {
                    return owed.again(BeanstalkReply::Tubes(tubes), page(from));
                }
            }
            tubes.send(output);
        }
        (
            BeanstalkReply::Kicked(state, kicked, left),
            ServerResponse::Engine(Outcome::Count(now), _),
        ) => {
            let (kicked, left) = (kicked + now, left.saturating_sub(*now));
            if let Some(state) = kicks_on(state, *now, kicked, left) {
                let reply = BeanstalkReply::Kicked(state, kicked, left);
                return owed.again(reply, tubes.kick(state, left));
            }
            BeanstalkReply::Kicked(state, kicked, left).write(response, output);
        }
        (BeanstalkReply::StatsBatch, ServerResponse::Engine(Outcome::Batch(batch), _)) => {
            stats::batch(batch, now, output);
        }
        (BeanstalkReply::StatsTrack, ServerResponse::Engine(Outcome::Tracked(_, track), _)) => {
            stats::track(track, now, output);
        }
        (reply, response) => reply.write(response, output),
    }
    Next::Done
}

/// The next step of a kick, whose last step kicked `now` jobs: delayed ones only if no buried one
/// was kicked.
fn kicks_on(state: ListState, now: u64, kicked: u64, left: u64) -> Option<ListState> {
    if left > 0 && now >= MESSAGES_PER_STEP {
        return Some(state);
    }
    let none = left > 0 && kicked == 0 && state == ListState::Buried;
    none.then_some(ListState::Delayed)
}
