//! Requests that take several commands: kicks of many jobs, and numbers of
//! tubes, which come page by page.

use quintet_types::{
    Command, ListState, MESSAGES_PER_STEP, Ms, Outcome, QueuePage, StatsOf, StatsReply,
};

use super::reply::BeanstalkReply;
use super::tubes::Referred;
use super::{Shared, stats};
use crate::output::Output;
use crate::owed::Owed;
use crate::session::{Next, ServerResponse};

/// Asks for a page of queues.
pub(super) fn queues(from: (u8, u32)) -> Command {
    Command::Stats(StatsOf::Queues { from })
}

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
            return owed.again(counted, queues((0, 0)));
        }
        (
            BeanstalkReply::Counted(server, tubes),
            ServerResponse::Engine(Outcome::Stats(page), _),
        ) => {
            let (count, next) = match page_of(page) {
                Some(page) => (stats::tubes(&page.queues).count(), page.next),
                None => (0, None),
            };
            let tubes = tubes + count;
            if let Some(from) = next {
                return owed.again(BeanstalkReply::Counted(server, tubes), queues(from));
            }
            stats::server(&server, tubes, shared, output);
        }
        (BeanstalkReply::Tubes(mut tubes), ServerResponse::Engine(Outcome::Stats(page), _)) => {
            if let Some(page) = page_of(page) {
                stats::tubes(&page.queues).for_each(|name| tubes.add(name));
                if let Some(from) = page.next {
                    return owed.again(BeanstalkReply::Tubes(tubes), queues(from));
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

fn page_of(reply: &StatsReply) -> Option<&QueuePage> {
    if let StatsReply::Queues(page) = reply {
        Some(page)
    } else {
        None
    }
}

/// The next step of a kick, whose last step kicked `now` jobs: delayed ones only if no buried one
/// was kicked (`protocols/beanstalkd.md`, section 3).
fn kicks_on(state: ListState, now: u64, kicked: u64, left: u64) -> Option<ListState> {
    if left > 0 && now >= MESSAGES_PER_STEP {
        return Some(state);
    }
    let none = left > 0 && kicked == 0 && state == ListState::Buried;
    none.then_some(ListState::Delayed)
}
