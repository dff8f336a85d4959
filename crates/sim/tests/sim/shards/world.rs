//! Several real shards, and clients whose commands are cut into the steps
//! that a server does under one lock, in any order a scheduler likes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use quintet_engine::*;
use quintet_types::*;

/// Something a client does.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Put(Name),
    Take(Take),
    Watch(Option<Take>),
    Rewatch(Take),
    WatchQueue(Name, bool),
    /// Stops waiting, if it waits (a client closed its side).
    Stop,
    /// Gives back what it holds.
    Release,
    HangUp,
    /// Time passes, and each shard does what is due.
    Pass(u64),
}

/// The unfinished work of a client.
#[derive(Debug)]
enum Doing {
    Nothing,
    Across(Box<Across>),
    /// The same in every shard; the next one.
    Each(Each, usize),
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Each {
    Leave,
    Stop,
    Unwatch,
    Release,
    HangUp,
    Tick,
}

#[derive(Debug)]
struct Mail {
    delivery: Delivery,
    /// Of a subscription that was replaced since.
    old: bool,
    /// Its message was given back before it was read.
    returned: bool,
}

#[derive(Debug)]
struct Actor {
    client_id: ClientId,
    program: VecDeque<Op>,
    doing: Doing,
    mail: VecDeque<Mail>,
    waits: Option<Take>,
    stands: Option<Take>,
    gone: bool,
    /// Ends of the leases it had when its take began.
    had: BTreeMap<Label, Ms>,
    /// Ends of those it has got since: they may count too.
    got: BTreeMap<Label, Ms>,
    /// When it must have learned that a lease ends soon.
    warn: Option<Ms>,
    /// How long before that, in the wait that has just ended.
    margin: Option<u64>,
    /// The step after which it stood in all its lines, or in which it let time
    /// pass, and the time then.
    since: (u64, Ms),
}

/// A number that names a message; its body.
type Label = u64;

/// True if the delivery brings leases on some of these.
fn brings_lease_of(delivery: &Delivery, labels: &BTreeSet<Label>) -> bool {
    let Outcome::Messages(messages) = &delivery.outcome else {
        return false;
    };
    let mut messages = messages.iter();
    messages.any(|m| m.state == State::Reserved && labels.contains(&label(m)))
}

#[derive(Debug)]
pub(crate) struct World {
    engines: Vec<Engine>,
    logs: Vec<Vec<Fact>>,
    actors: Vec<Actor>,
    now: Ms,
    steps: u64,
    /// Every label put, and where it was last seen to go.
    put: Label,
    removed: BTreeSet<Label>,
    held: BTreeMap<Label, ClientId>,
}

pub(crate) fn label(message: &Message) -> Label {
    let bytes = message.body.as_small().expect("a small body");
    Label::from_le_bytes(bytes.try_into().expect("a label"))
}

impl World {
    pub(crate) fn new(shards: u8, programs: Vec<Vec<Op>>) -> Self {
        let actors = programs.into_iter().zip(1..).map(|(program, n)| Actor {
            client_id: ClientId(n),
            program: program.into(),
            doing: Doing::Nothing,
            mail: VecDeque::new(),
            waits: None,
            stands: None,
            gone: false,
            had: BTreeMap::new(),
            got: BTreeMap::new(),
            warn: None,
            margin: None,
            since: (0, Ms(0)),
        });
        Self {
            engines: (0..shards)
                .map(|n| Engine::new(n, shards, Settings::default()))
                .collect(),
            logs: vec![Vec::new(); shards.into()],
            actors: actors.collect(),
            now: Ms(1_000_000),
            steps: 0,
            put: 0,
            removed: BTreeSet::new(),
            held: BTreeMap::new(),
        }
    }

    /// The clients that can do a step.
    pub(crate) fn enabled(&self) -> Vec<usize> {
        let all = self.actors.iter().enumerate();
        let ready = all.filter(|(_, actor)| match actor.doing {
            Doing::Across(_) | Doing::Each(..) => true,
            Doing::Nothing if !actor.mail.is_empty() => true,
            Doing::Nothing => match actor.program.front() {
                None => false,
                // A client that waits does nothing else.
                Some(Op::Stop | Op::HangUp) => true,
                Some(_) => actor.waits.is_none(),
            },
        });
        ready.map(|(at, _)| at).collect()
    }

    /// One step of a client that is enabled.
    pub(crate) fn step(&mut self, at: usize) {
        self.steps += 1;
        match std::mem::replace(&mut self.actors[at].doing, Doing::Nothing) {
            Doing::Across(across) => self.step_across(at, across),
            Doing::Each(each, shard) => self.step_each(at, each, shard),
            Doing::Nothing => match self.actors[at].mail.pop_front() {
                Some(mail) => self.receive(at, mail),
                None => self.begin(at),
            },
        }
        for engine in &self.engines {
            engine.verify().expect("indexes agree");
        }
    }

    fn begin(&mut self, at: usize) {
        let shards = self.engines.len();
        let Some(op) = self.actors[at].program.pop_front() else {
            return;
        };
        let client_id = self.actors[at].client_id;
        if matches!(op, Op::Watch(_)) {
            let mail = self.actors[at].mail.iter_mut();
            mail.for_each(|mail| mail.old |= mail.delivery.standing);
        }
        match op {
            Op::Put(queue) => {
                let shard = shard_of_queue(queue.as_bytes(), shards);
                let put = Put {
                    queue,
                    body: Body::new(&self.put.to_le_bytes()),
                    ..Put::default()
                };
                self.put += 1;
                self.ask(shard, client_id, Command::Put(put));
            }
            Op::Take(take) => {
                let had = self.leases_of(client_id);
                let actor = &mut self.actors[at];
                (actor.had, actor.got) = (had, BTreeMap::new());
                (actor.waits, actor.warn) = (Some(take.clone()), None);
                match Across::new(client_id, &take, shards) {
                    Some(across) => actor.doing = Doing::Across(Box::new(across)),
                    None => {
                        let shard = shard_of_queue(take.queues[0].as_bytes(), shards);
                        let answer = self.ask(shard, client_id, Command::Take(take));
                        self.answered(at, answer);
                    }
                }
            }
            Op::Watch(Some(take)) => {
                let across = Across::watch(client_id, take.clone(), shards);
                self.actors[at].stands = Some(take);
                self.step_across(at, Box::new(across));
            }
            Op::Rewatch(take) => {
                let across = Across::rewatch(client_id, take.clone(), shards);
                if let Some(stands) = &mut self.actors[at].stands {
                    *stands = take;
                }
                self.step_across(at, Box::new(across));
            }
            Op::WatchQueue(queue, on) => {
                if let Some(stands) = &mut self.actors[at].stands {
                    stands.queues.retain(|name| *name != queue);
                    if on {
                        stands.queues.push(queue.clone());
                    }
                }
                let shard = shard_of_queue(queue.as_bytes(), shards);
                let answer = self.ask(shard, client_id, Command::WatchQueue { queue, on });
                assert!(matches!(answer, Answer::Now(Outcome::Done, _)));
            }
            Op::Watch(None) => {
                self.actors[at].stands = None;
                self.step_each(at, Each::Unwatch, 0);
            }
            Op::Stop if self.actors[at].waits.is_none() => {}
            Op::Stop => self.actors[at].doing = Doing::Each(Each::Stop, 0),
            Op::Release => self.actors[at].doing = Doing::Each(Each::Release, 0),
            Op::HangUp => {
                let actor = &mut self.actors[at];
                actor.gone = true;
                (actor.waits, actor.stands) = (None, None);
                actor.program.clear();
                actor.doing = Doing::Each(Each::HangUp, 0);
            }
            Op::Pass(ms) => {
                self.now = self.now + ms;
                self.actors[at].since = (self.steps, self.now);
                self.actors[at].doing = Doing::Each(Each::Tick, 0);
            }
        }
    }

    fn step_across(&mut self, at: usize, mut across: Box<Across>) {
        let Some(shard) = across.shard() else { return };
        let mut deliveries = Vec::new();
        let answer = across.step(
            self.now,
            &mut self.engines[shard],
            &mut self.logs[shard],
            &mut deliveries,
        );
        self.post(shard, deliveries);
        if across.shard().is_some() {
            self.actors[at].doing = Doing::Across(across);
        }
        if let Some(answer) = answer {
            self.answered(at, answer);
        }
    }

    fn step_each(&mut self, at: usize, each: Each, shard: usize) {
        let client_id = self.actors[at].client_id;
        // What is given back may be another's before the step is over.
        let here = self.labels_in(shard);
        if each == Each::Tick {
            self.forget_lapsed(shard);
        }
        if matches!(each, Each::HangUp | Each::Release) {
            self.held
                .retain(|label, holder| *holder != client_id || !here.contains(label));
        }
        let mut deliveries = Vec::new();
        let (engine, log) = (&mut self.engines[shard], &mut self.logs[shard]);
        match each {
            Each::Leave => engine.leave_lines(client_id),
            Each::Tick => engine.tick(self.now, log, &mut deliveries),
            Each::HangUp => engine.disconnect(self.now, client_id, log, &mut deliveries),
            Each::Stop => {
                self.ask(shard, client_id, Command::StopWaiting);
            }
            Each::Unwatch => {
                self.ask(shard, client_id, Command::Watch(None));
            }
            Each::Release => {
                for mail in &mut self.actors[at].mail {
                    mail.returned |= brings_lease_of(&mail.delivery, &here);
                }
                let how = How::Release {
                    priority: None,
                    due: When::Now,
                    back_to: None,
                };
                let command = Command::SettleHeld {
                    queue: None,
                    how,
                    max: u32::MAX,
                };
                self.ask(shard, client_id, command);
            }
        }
        self.post(shard, deliveries);
        if shard + 1 < self.engines.len() {
            self.actors[at].doing = Doing::Each(each, shard + 1);
        } else if each == Each::Tick {
            self.check_everybody_was_warned(self.actors[at].since);
        }
    }

    /// Leases that end in the next tick of the shard: nobody holds them, nor
    /// gets them by what is on its way.
    fn forget_lapsed(&mut self, shard: usize) {
        let now = self.now;
        let lapsed: BTreeSet<Label> = self
            .leases_in(shard)
            .filter(|(_, _, until)| *until <= now)
            .map(|(label, ..)| label)
            .collect();
        self.held.retain(|label, _| !lapsed.contains(label));
        for mail in self.actors.iter_mut().flat_map(|actor| &mut actor.mail) {
            mail.returned |= brings_lease_of(&mail.delivery, &lapsed);
        }
    }

    /// The shard's leases with a deadline: message, holder, end.
    fn leases_in(&self, shard: usize) -> impl Iterator<Item = (Label, ClientId, Ms)> + use<> {
        let facts = self.engines[shard].image().into_iter();
        facts.filter_map(|fact| match fact {
            Fact::Image(message, Some(lease)) => {
                Some((label(&message), lease.client_id, lease.until?))
            }
            _ => None,
        })
    }

    fn leases_of(&self, client_id: ClientId) -> BTreeMap<Label, Ms> {
        let all = (0..self.engines.len()).flat_map(|shard| self.leases_in(shard));
        let its = all.filter(|(_, holder, _)| *holder == client_id);
        its.map(|(label, _, until)| (label, until)).collect()
    }

    fn labels_in(&self, shard: usize) -> BTreeSet<Label> {
        let facts = self.engines[shard].image();
        let labels = facts.iter().filter_map(|fact| match fact {
            Fact::Image(message, _) => Some(label(message)),
            _ => None,
        });
        labels.collect()
    }

    fn ask(&mut self, shard: usize, client_id: ClientId, command: Command) -> Answer {
        let caller = Caller {
            client_id,
            ..Caller::default()
        };
        let mut deliveries = Vec::new();
        let (engine, log) = (&mut self.engines[shard], &mut self.logs[shard]);
        let answer = engine.submit(self.now, caller, command, log, &mut deliveries);
        self.post(shard, deliveries);
        answer
    }

    /// Leaves a shard's deliveries with their clients.
    fn post(&mut self, shard: usize, deliveries: Vec<Delivery>) {
        for delivery in deliveries {
            let leases = self.leases_of(delivery.to);
            let to = self.actors.iter_mut().find(|a| a.client_id == delivery.to);
            let to = to.expect("a client of this world");
            to.got.extend(leases);
            // A subscription is served until its end has come to the shard.
            let before = match &to.doing {
                Doing::Each(Each::Unwatch, next) => shard >= *next,
                _ => false,
            };
            to.mail.push_back(Mail {
                old: before && delivery.standing,
                delivery,
                returned: false,
            });
        }
    }

    /// The answer to a take or a watch.
    fn answered(&mut self, at: usize, answer: Answer) {
        let Answer::Now(outcome, _) = answer else {
            // What it had all along was counted.
            let (now, actor) = (self.leases_of(self.actors[at].client_id), &self.actors[at]);
            let mut ends = actor.had.clone();
            ends.retain(|label, until| now.get(label) == Some(until));
            let first = ends.into_values().min();
            let margin = actor.waits.as_ref().and_then(|take| take.deadline_soon_ms);
            let warn = first.zip(margin).map(|(until, margin)| until - margin);
            self.actors[at].warn = warn;
            self.actors[at].since = (self.steps, self.now);
            return;
        };
        match outcome {
            Outcome::DeadlineSoon => self.warned(at),
            // That the subscription is set.
            Outcome::Done => {}
            Outcome::Messages(messages) => {
                self.actors[at].waits = None;
                self.got(at, messages);
            }
            Outcome::Empty => self.actors[at].waits = None,
            other => panic!("a take answers {other:?}"),
        }
    }

    fn receive(&mut self, at: usize, mail: Mail) {
        let Mail {
            delivery,
            old,
            returned,
        } = mail;
        let actor = &mut self.actors[at];
        if !actor.gone {
            if delivery.claimed {
                actor.doing = Doing::Each(Each::Leave, 0);
            }
            if !delivery.standing {
                let waited = actor.waits.take();
                assert!(waited.is_some(), "a second outcome of one wait");
                actor.margin = waited.and_then(|take| take.deadline_soon_ms);
            } else if !old {
                let stood = actor.stands.take();
                assert!(stood.is_some(), "a consumer served twice");
            }
        }
        match delivery.outcome {
            Outcome::Messages(_) if returned => {}
            Outcome::Messages(messages) => self.got(at, messages),
            Outcome::DeadlineSoon => self.warned(at),
            Outcome::Empty => {}
            other => panic!("a wait ends with {other:?}"),
        }
    }

    /// A client has read that a lease of its ends soon: so it must be.
    fn warned(&mut self, at: usize) {
        let now = self.now;
        let actor = &mut self.actors[at];
        if actor.gone {
            return;
        }
        let margin = match (actor.waits.take(), actor.margin) {
            (Some(take), _) => take.deadline_soon_ms,
            (None, margin) => margin,
        };
        let margin = margin.expect("the client asked for DEADLINE_SOON");
        let mut ends = actor.had.values().chain(actor.got.values());
        assert!(
            ends.any(|&until| until - margin <= now),
            "DEADLINE_SOON too early"
        );
    }

    /// A client has messages; one that is gone loses none.
    fn got(&mut self, at: usize, messages: Handed) {
        let (client_id, gone) = (self.actors[at].client_id, self.actors[at].gone);
        for message in messages {
            let (label, reserved) = (label(&message), message.state == State::Reserved);
            if reserved && gone {
                // Its leases went with it.
                continue;
            }
            assert!(!self.removed.contains(&label), "{label} came twice");
            if reserved {
                let before = self.held.insert(label, client_id);
                assert_eq!(before, None, "{label} is held twice");
            } else if gone {
                let shard = shard_of_id(message.id, self.engines.len());
                self.ask(shard, client_id, Command::Restore(vec![message]));
            } else {
                self.removed.insert(label);
            }
        }
    }

    /// Everything has come to rest.
    pub(crate) fn check(&mut self) {
        assert!(self.enabled().is_empty());
        self.do_due_work();
        self.check_everybody_was_warned((self.steps + 1, self.now));
        self.check_nothing_is_lost();
        self.check_nobody_waits_in_vain();
        self.check_lines();
    }

    /// The work of a server's timer.
    fn do_due_work(&mut self) {
        for round in 0.. {
            assert!(round < 1000, "something is always due");
            let mut due = false;
            for shard in 0..self.engines.len() {
                if self.engines[shard].next_deadline() > self.now {
                    continue;
                }
                due = true;
                self.forget_lapsed(shard);
                let mut deliveries = Vec::new();
                let (engine, log) = (&mut self.engines[shard], &mut self.logs[shard]);
                engine.tick(self.now, log, &mut deliveries);
                self.post(shard, deliveries);
            }
            while let Some(&at) = self.enabled().first() {
                self.step(at);
            }
            if !due {
                return;
            }
        }
    }

    /// All shards have done what was due at a time, from a step on: those who
    /// waited before it know of leases of theirs that end soon.
    fn check_everybody_was_warned(&self, (step, time): (u64, Ms)) {
        for actor in self.actors.iter().filter(|actor| actor.waits.is_some()) {
            let waited = actor.since.0 < step;
            let late = actor.warn.is_some_and(|warn| warn <= time);
            let notified = actor.mail.iter().any(|mail| !mail.delivery.standing);
            assert!(
                !waited || !late || notified,
                "{:?} got no DEADLINE_SOON before its lease ended",
                actor.client_id
            );
        }
    }

    fn check_nothing_is_lost(&self) {
        let mut stored: Vec<Label> = Vec::new();
        let mut reserved = BTreeSet::new();
        for engine in &self.engines {
            for fact in engine.image() {
                if let Fact::Image(message, _) = fact {
                    stored.push(label(&message));
                    if message.state == State::Reserved {
                        reserved.insert(label(&message));
                    }
                }
            }
        }
        stored.extend(&self.removed);
        stored.sort_unstable();
        assert_eq!(stored, (0..self.put).collect::<Vec<_>>(), "stored or taken");
        let held: BTreeSet<Label> = self.held.keys().copied().collect();
        assert_eq!(reserved, held, "reserved for those who know");
    }

    fn check_nobody_waits_in_vain(&mut self) {
        let mut requested: Vec<Name> = Vec::new();
        for actor in self.actors.iter().filter(|actor| !actor.gone) {
            for take in actor.waits.iter().chain(&actor.stands) {
                requested.extend(take.queues.iter().cloned());
            }
        }
        for queue in requested {
            let shard = shard_of_queue(queue.as_bytes(), self.engines.len());
            let command = Command::Peek(Peek::Ready(queue.clone()));
            let Answer::Now(outcome, _) = self.ask(shard, ClientId(999), command) else {
                panic!("a peek waits");
            };
            let empty = matches!(outcome, Outcome::Refused(_) | Outcome::Empty);
            assert!(empty, "somebody waits on {queue}, which has {outcome:?}");
        }
    }

    /// The shards know of those who wait, and of nobody else.
    fn check_lines(&mut self) {
        for shard in 0..self.engines.len() {
            let waits_here = |take: &&Take| {
                let mut queues = take.queues.iter();
                queues.any(|q| shard_of_queue(q.as_bytes(), self.engines.len()) == shard)
            };
            let live = || self.actors.iter().filter(|actor| !actor.gone);
            let waits = live().flat_map(|actor| &actor.waits).filter(waits_here);
            // A subscription stands everywhere.
            let stands = live().flat_map(|actor| &actor.stands);
            let expected = (waits.count() + stands.count()) as u64;
            let Answer::Now(Outcome::Stats(stats), _) =
                self.ask(shard, ClientId(999), Command::Stats(StatsOf::Shard))
            else {
                panic!("no numbers");
            };
            let StatsReply::Shard(stats) = *stats else {
                panic!("other numbers");
            };
            assert_eq!(stats.waiters, expected, "in the lines of shard {shard}");
        }
    }
}
