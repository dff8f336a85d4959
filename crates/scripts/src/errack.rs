//! Acknowledged errors (the fork's `errack`): an operator has seen what is in
//! `err`, and it no longer counts as such. To everybody else such a message is
//! buried as before.
//!
//! The mark is an attribute that names this very burial. So it is durable, and
//! ends by itself when the message is kicked and fails anew, or moves to
//! another queue.

use quintet_types::{
    Command, CommandError, ListState, Ms, Name, Outcome, Peek, QueueStats, locked,
};

use crate::acknowledged::{AsOf, COUNTS_MAX, Count};
use crate::fault::Fault;
use crate::guest::Guest;
use crate::messages::{Walk, done};
use crate::record::{ERRACK, change, is_acknowledged, mark, set};
use crate::service::Rq;

/// How often a list that broke off is begun again: messages leave it while it
/// is read, each time fewer.
const TRIES: u32 = 10;

impl Rq {
    /// Acknowledges all errors there are in a queue: those messages are in
    /// `errack`, until they are deleted or kicked. Answers how many that were.
    /// It is durable. Breaking off half way leaves some acknowledged; a repeat
    /// does the rest.
    ///
    /// # Errors
    /// [`Fault::QueueNotFound`], [`Fault::Down`], the engine's error.
    pub fn ack_errs(&self, queue: &str) -> Result<u64, Fault> {
        self.must_have(queue)?;
        self.must_be_up(queue)?;
        let _turn = locked(&self.errack.turn);
        // What fails from now on, nobody has seen; it comes last.
        let seen = self.client_api.now();
        let there = self.stats(queue).map_or(0, |stats| stats.gauges.buried);
        let mut number = 0;
        let mut whole = false;
        for _ in 0..TRIES {
            whole = self.ack_pages(queue, (seen, there), &mut number)?;
            if whole {
                break;
            }
        }
        locked(&self.errack.counts).remove(queue);
        if number > 0 {
            tracing::info!(queue, number, "errors acknowledged");
        }
        if whole {
            Ok(number)
        } else {
            Err(Fault::Failed(format!(
                "messages leave err too fast: {number} acknowledged"
            )))
        }
    }

    /// One way through what was buried at a time, so many. False if it broke
    /// off.
    fn ack_pages(
        &self,
        queue: &str,
        (seen, there): (Ms, u64),
        number: &mut u64,
    ) -> Result<bool, Fault> {
        let guest = Guest::new(&self.client_api, Box::new(|_, _| {}));
        let mut failed = None;
        let mut shown = 0;
        let walk = self.walk(queue, ListState::Buried, &mut |page| {
            for message in page {
                // An edit counts as a change too: one that somebody edits just
                // now is left for the next time.
                let changed = message.extra.as_ref().map_or(Ms(0), |extra| extra.changed);
                if changed > seen || is_acknowledged(queue, message) {
                    continue;
                }
                let mark = set(ERRACK, &mark(queue, message));
                guest.say(change(message.id, mark));
            }
            for outcome in guest.outcomes() {
                // Deleted or kicked meanwhile.
                if outcome == Outcome::Refused(CommandError::NotFound) {
                    continue;
                }
                match done(outcome) {
                    Ok(()) => *number += 1,
                    Err(fault) => failed = Some(fault),
                }
            }
            shown += page.len() as u64;
            failed.is_none() && shown < there
        });
        match failed {
            Some(fault) => Err(fault),
            None => Ok(walk != Walk::BrokeOff),
        }
    }

    /// How many of a queue's buried messages are acknowledged: those that were
    /// buried first, as all there are are acknowledged together.
    pub(crate) fn acknowledged(&self, queue: &str, stats: &QueueStats) -> u64 {
        let buried = stats.gauges.buried;
        let as_of = AsOf::new(stats);
        if buried == 0 {
            return 0;
        }
        if let Some(known) = locked(&self.errack.counts).get(queue)
            && known.as_of == as_of
        {
            return known.number.min(buried);
        }
        // Most queues have none: one look is enough.
        let first = self.ask(Command::Peek(Peek::Buried(Name::from(queue))));
        let any = matches!(&first, Outcome::Messages(messages)
            if messages.first().is_some_and(|message| is_acknowledged(queue, message)));
        let mut number = 0;
        let mut whole = true;
        if any {
            for _ in 0..TRIES {
                number = 0;
                let mut ended = false;
                let walk = self.walk(queue, ListState::Buried, &mut |page| {
                    let marked = page
                        .iter()
                        .take_while(|message| is_acknowledged(queue, message))
                        .count();
                    number += marked as u64;
                    ended = marked < page.len();
                    !ended
                });
                whole = walk == Walk::Whole || ended;
                if whole {
                    break;
                }
            }
        }
        let mut counts = locked(&self.errack.counts);
        if whole {
            counts.insert(queue.to_owned(), Count { as_of, number });
        }
        // Queues come and go.
        if counts.len() > COUNTS_MAX {
            counts.clear();
        }
        number.min(buried)
    }
}
