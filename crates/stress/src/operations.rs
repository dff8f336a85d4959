//! Faults of a server while its clients work, and their end.

use std::time::{Duration, Instant};

use quintet_faults::{Action, Call, Faults, Rule, errno, files};
use quintet_sim::Random;
use rustix::process::Signal;

use crate::hostile;
use crate::load::Load;
use crate::server::Server;

/// An attack by a client.
type Hostile = fn(&Load, &crate::protocols::Addresses, &mut Random, Instant);

enum How {
    /// Calls that fail, are cut short or held up; it must survive them.
    Calls(&'static [(Call, Action, u64, u64)]),
    /// The wall clock is set: forward or back.
    Clock(i64),
    /// SIGSTOP, and SIGCONT.
    Pause,
    Client(Hostile),
}

/// A kind of trouble in the middle of a round.
pub(crate) struct Act {
    pub(crate) name: &'static str,
    how: How,
    /// It may end the server, as documented.
    pub(crate) may_end: bool,
}

const fn act(name: &'static str, how: How) -> Act {
    Act {
        name,
        how,
        may_end: false,
    }
}

const NO_SPACE: Action = Action::Fail(errno::ENOSPC);
const NO_FILES: Action = Action::Fail(errno::EMFILE);
const AGAIN: Action = Action::Fail(errno::EINTR);
const ALL: u64 = files::OURS;
/// By chance of one in ten.
const SOME: u64 = 100_000;

/// Rules are: call, what becomes of it, on which files, chance in a million.
pub(crate) const ACTS: &[Act] = &[
    act(
        "ENOSPC",
        How::Calls(&[
            (Call::Write, NO_SPACE, ALL, 0),
            (Call::Create, NO_SPACE, ALL, 0),
            (Call::Truncate, NO_SPACE, ALL, 0),
        ]),
    ),
    act(
        "EMFILE",
        How::Calls(&[
            (Call::Open, NO_FILES, ALL, 0),
            (Call::Create, NO_FILES, ALL, 0),
            (Call::Accept, NO_FILES, ALL, 0),
        ]),
    ),
    act(
        "EINTR",
        How::Calls(&[
            (Call::Read, AGAIN, ALL, SOME),
            (Call::Write, AGAIN, ALL, SOME),
            (Call::Sync, AGAIN, ALL, SOME),
            (Call::Recv, AGAIN, ALL, SOME),
            (Call::Send, AGAIN, ALL, SOME),
            (Call::Accept, AGAIN, ALL, SOME),
        ]),
    ),
    act(
        "short reads and writes",
        How::Calls(&[
            (Call::Write, Action::Short, ALL, SOME),
            (Call::Read, Action::Short, ALL, SOME),
            (Call::Send, Action::Short, ALL, SOME),
            (Call::Recv, Action::Short, ALL, SOME),
        ]),
    ),
    act(
        "slow syncs",
        How::Calls(&[(Call::Sync, Action::Delay(40_000), ALL, 0)]),
    ),
    Act {
        name: "EIO of a read",
        how: How::Calls(&[(Call::Read, Action::Fail(errno::EIO), files::RUN, 0)]),
        may_end: true,
    },
    act("clock forward", How::Clock(1)),
    act("clock back", How::Clock(-1)),
    act("pause", How::Pause),
    act("half-sent bodies", How::Client(hostile::halves)),
    act("unread replies", How::Client(hostile::unread)),
    act("garbage", How::Client(hostile::garbage)),
    act("connection flood", How::Client(hostile::flood)),
    act("web pages", How::Client(hostile::pages)),
    act("a byte at a time", How::Client(hostile::slow)),
];

impl Act {
    /// Does it for `time`. Returns how often something happened.
    pub(crate) fn run(
        &self,
        server: &Server,
        faults: &Faults,
        load: &Load,
        clock: &mut i64,
        random: &mut Random,
        time: Duration,
    ) -> u64 {
        match self.how {
            How::Calls(calls) => {
                // The kinds one after the other, so that a failing write does
                // not keep a server from all that comes behind it.
                let mut fired = 0;
                for (call, action, files, ppm) in calls {
                    let rule = Rule::every(*call, *action).on(*files).by_chance(*ppm);
                    faults.rule(0, rule.after(random.below(3)));
                    std::thread::sleep(time / calls.len() as u32);
                    // Its count is read before the next takes its place.
                    faults.end_rule(0);
                    fired += faults.fired(0).1;
                }
                fired
            }
            How::Clock(sign) => {
                let steps = [3_000, 60_000, 3_600_000, 86_400_000, 31_536_000_000];
                *clock += sign * steps[random.index(steps.len())];
                faults.shift_clock(*clock);
                std::thread::sleep(time);
                1
            }
            How::Pause => {
                server.signal(Signal::STOP);
                std::thread::sleep(Duration::from_millis(50 + random.below(400)));
                server.signal(Signal::CONT);
                1
            }
            How::Client(client) => {
                client(load, &server.addresses, random, Instant::now() + time);
                1
            }
        }
    }

    /// A hostile client, and no fault.
    pub(crate) fn is_client(&self) -> bool {
        matches!(self.how, How::Client(_))
    }
}

/// How a round ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    Kill,
    /// SIGTERM: it has to end well.
    Term,
    /// The power fails.
    Cut,
    /// The power fails at a call by chance.
    CutAtCall,
    /// A sync fails: the server has to end.
    Sync,
    /// A write to the log fails for good.
    Write,
}

pub(crate) const ENDINGS: [(Ending, &str); 6] = [
    (Ending::Kill, "kill -9"),
    (Ending::Term, "SIGTERM"),
    (Ending::Cut, "power cut"),
    (Ending::CutAtCall, "power cut at a call"),
    (Ending::Sync, "failed sync (EIO)"),
    (Ending::Write, "failed write (EIO)"),
];

/// A cut before or after some call to come.
pub(crate) fn cut_at_call(random: &mut Random, calls: &[Call], within: u64) -> Rule {
    let action = [Action::CutBefore, Action::CutAfter][random.index(2)];
    let call = calls[random.index(calls.len())];
    Rule::once(call, action).after(random.below(within))
}
