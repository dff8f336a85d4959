//! A member of a group: follows the log, takes it over when its owner is silent, and says that it
//! lives while it owns. It decides nothing: [`Ownership`] does; the member asks,
//! reads and appends.
//!
//! Everything that happens to it is put into its inbox, by any thread, and seen to in
//! [`Ticks::tick`], by the one that drives it: the same in simulated time as with threads.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use quintet_log::{LogError, Options, Recovery, ReplayFrame, Storage};

use crate::{
    Acks, Action, Claimed, ClusterId, Distrusted, Ends, EntryLookup, Event, Fences, Limits, Moment,
    Ownership, ReplyFn, Result, Role, Seq, Status, Stream, StreamLog, Successor, Tail, TailEvent,
    Tally, Ticks, Timing, World, Writer,
    bid::{Bid, Claimant},
    copy::{Copy, Judged},
    doubts::Doubts,
    inbox::{Inbox, Input},
    recent::Recent,
};

/// How often it is looked what the stream has: how far behind this member is, and what of its
/// mirror can go.
const LOOK: Duration = Duration::from_secs(5);
/// How often another leader is requested at most. Far longer than servers need to change it.
const DISTRUST: Duration = Duration::from_secs(2);

/// Parts of a member.
pub struct Membership {
    /// The group's stream.
    pub stream: Arc<dyn Stream>,
    /// Gives an empty directory for a mirror each time it is called: when the log is read again,
    /// the one before is worth nothing.
    pub mirror: Box<dyn FnMut() -> Result<Arc<dyn Storage>> + Send>,
    /// How a mirror is laid out; it is scratch, whatever this says.
    pub options: Options,
    /// Which cluster's stream it must be.
    pub cluster: ClusterId,
    /// Random number of the process's life.
    pub writer: Writer,
    /// This node's name; at most 255 bytes.
    pub node: String,
    /// Where proxies reach it; at most 65,535 bytes.
    pub peer_address: String,
    /// How much may be sent and not acknowledged.
    pub limits: Limits,
    /// How long things take.
    pub timing: Timing,
    /// Time and waiting.
    pub world: Arc<dyn World>,
    /// All, but in tests.
    #[doc(hidden)]
    pub fences: Fences,
}

/// The user of a member: receives the log's frames, and takes over the state that they led to.
/// Called by the thread that drives the member; of the member it may ask only its status.
pub trait Duty: Send {
    /// The state that the frames led to.
    type State: Send;

    /// Before the first frame; what there was is worth nothing.
    fn begin(&mut self) -> Result<Self::State, String>;

    /// Takes in the next frame.
    ///
    /// # Errors
    /// The frame does not fit; the text says why. The cause may be an earlier one: the log is read
    /// again, and the member stops if it comes to the same.
    fn frame(&mut self, state: &mut Self::State, frame: ReplayFrame<'_>) -> Result<(), String>;

    /// Whether what the frames so far led to could be served at once, as far as was found out since
    /// [`Duty::check`] asked for it. Where it could not this member claims nothing.
    fn is_complete(&self, _state: &Self::State) -> bool {
        true
    }

    /// A log of version 1 does not say where it begins, and a damaged copy can begin anywhere:
    /// whether every server's copy begins with this entry and lacks none, as far as was found out.
    /// This member claims nothing before.
    fn begins_everywhere(&mut self, _first: Seq) -> bool {
        true
    }

    /// Told every few seconds while it follows, and before it claims, with what the frames so far
    /// led to.
    fn check(&mut self, _state: &Self::State) {}

    /// This member owns the log now. Nothing was decided yet in its epoch.
    fn own(&mut self, owned: Owned<Self::State>);

    /// Nothing was appended for the time of a heartbeat, or nothing in a new segment says who
    /// reigns: it is to be said ([`StreamLog::heartbeat`]).
    fn heartbeat(&mut self);

    /// The log has another owner, or cannot be believed: nothing may be answered from now on. The
    /// member is over.
    fn step_down(&mut self, why: LogError);

    /// It cannot follow any more, and has owned nothing. The member is over.
    fn failed(&mut self, why: LogError);

    /// Its role, the epoch or the owner changed.
    fn changed(&mut self, status: &Status);

    /// This node's wall clock is ahead of the owner's time by so many ms, which is too far, or is
    /// not any more.
    fn clock(&mut self, _ahead_ms: i64, _off: bool) {}

    /// The copy on this server is damaged, and how, and another server was asked to lead; or the
    /// copy of the one that leads is whole.
    fn damaged(&mut self, _copy: Option<(&str, &str)>) {}
}

/// A log that was claimed, with what was read of it.
pub struct Owned<S> {
    /// The log, nothing of whose epoch but the claim is appended.
    pub log: StreamLog,
    pub recovery: Recovery,
    /// The time of the owner before less this machine's clock ([`World::now`]), ms: as frames came
    /// that it was appending. `None`: none came, as when all nodes were started anew.
    pub lead_ms: Option<i64>,
    pub state: S,
}

/// A member that is driven for as long as somebody holds it.
pub struct Member<D: Duty> {
    world: Arc<dyn World>,
    inbox: Arc<Inbox>,
    status: Arc<Mutex<Status>>,
    inner: Mutex<Inner<D>>,
}

struct Inner<D: Duty> {
    made: Membership,
    duty: D,
    inbox: Arc<Inbox>,
    ownership: Ownership,
    phase: Phase<D::State>,
    status: Arc<Mutex<Status>>,
    /// The number of the newest question where the stream ends.
    requests: u64,
    /// When the stream is checked next.
    next_check: Moment,
    /// The stream's last entry, as far as known.
    last: Seq,
    /// An entry that was refused, for which everything was read again.
    refused: Option<u64>,
    tally: Tally,
    /// See [`Owned::lead_ms`]. Frames come late, and never too soon.
    lead_ms: Recent,
    /// The owner's time less this machine's wall clock, ms.
    behind_ms: Recent,
    clock_ahead_ms: Option<i64>,
    /// How what the leader has is damaged, if it is.
    damage: Option<String>,
    /// The servers whose copies were found damaged.
    doubts: Doubts,
    /// When another leader may be asked for.
    distrusts: Moment,
    /// Until then nothing is read: another leader was requested.
    rests: Moment,
    /// Compare with this entry once the leader's copy is known to be whole.
    comparing: Option<Seq>,
    /// The owner had handed off when this member claimed.
    parted: bool,
}

enum Phase<S> {
    Following(Box<Following<S>>),
    Claiming(Box<Following<S>>, Bid),
    Owner { acks: Acks, status: Status },
    Over(Role),
}

struct Following<S> {
    copy: Copy,
    state: S,
    tail: Option<Tail>,
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// `a - b`, for times of any size.
fn difference(a: u64, b: u64) -> i64 {
    let apart = i64::try_from(a.abs_diff(b)).unwrap_or(i64::MAX);
    if a < b { -apart } else { apart }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<D: Duty + 'static> Member<D> {
    /// Begins to follow.
    ///
    /// # Errors
    /// There is no mirror to be had, or `duty` does not begin.
    pub fn start(made: Membership, duty: D) -> Result<Arc<Self>> {
        Self::start_as(made, duty, false)
    }

    /// The same; `drained`: as after [`Member::drain`].
    ///
    /// # Errors
    /// As [`Member::start`].
    pub fn start_as(mut made: Membership, mut duty: D, drained: bool) -> Result<Arc<Self>> {
        let following = begin(&mut made, &mut duty)?;
        let (world, inbox) = (Arc::clone(&made.world), Arc::new(Inbox::default()));
        let status = Arc::new(Mutex::new(Status {
            since: world.now(),
            ..Status::default()
        }));
        let inner = Inner {
            ownership: Ownership::drained(made.timing, drained),
            made,
            duty,
            inbox: Arc::clone(&inbox),
            phase: Phase::Following(following),
            status: Arc::clone(&status),
            requests: 0,
            next_check: Moment::ZERO,
            last: Seq(0),
            refused: None,
            tally: Tally::default(),
            lead_ms: Recent::default(),
            behind_ms: Recent::default(),
            clock_ahead_ms: None,
            damage: None,
            doubts: Doubts::default(),
            distrusts: Moment::ZERO,
            rests: Moment::ZERO,
            comparing: None,
            parted: false,
        };
        let member = Arc::new(Self {
            world,
            inbox,
            status,
            inner: Mutex::new(inner),
        });
        let driven: Weak<Self> = Arc::downgrade(&member);
        member.world.drive(driven);
        Ok(member)
    }

    /// From now on others should own rather than this member: it takes over only when there was
    /// nobody else for ten times as long. Or not so any more.
    pub fn drain(&self, drained: bool) {
        self.inbox.push(Input::Drain(drained));
        self.world.remind();
    }

    /// How it stands.
    pub fn status(&self) -> Status {
        lock(&self.status).clone()
    }
}

impl<D: Duty> Drop for Member<D> {
    /// Ends the member, so its driver need not.
    fn drop(&mut self) {
        self.world.remind();
    }
}

impl<D: Duty> Ticks for Member<D> {
    fn deadline(&self) -> Option<Moment> {
        if self.inbox.is_rung() {
            return Some(Moment::ZERO);
        }
        let inner = lock(&self.inner);
        let next_check = match &inner.phase {
            Phase::Following(_) => Some(inner.next_check),
            Phase::Claiming(..) | Phase::Owner { .. } => None,
            Phase::Over(_) => return None,
        };
        let ownership = inner.ownership.deadline();
        [next_check, ownership].into_iter().flatten().min()
    }

    fn tick(&self, _now: Moment) {
        let mut inner = lock(&self.inner);
        while let Some(input) = self.inbox.pop() {
            inner.handle(input);
        }
        inner.go_on();
        inner.publish();
    }
}

/// Nothing read yet, into a new mirror.
fn begin<D: Duty>(made: &mut Membership, duty: &mut D) -> Result<Box<Following<D::State>>> {
    let (name, mirror) = (made.stream.name(), (made.mirror)()?);
    let state = duty.begin().map_err(|why| LogError::Replay {
        file: name.clone(),
        offset: 0,
        why,
    })?;
    Ok(Box::new(Following {
        copy: Copy::new(name, made.cluster, mirror, &made.options),
        state,
        tail: None,
    }))
}

impl<D: Duty> Inner<D> {
    fn step(&mut self, event: Event) {
        let action = self.ownership.step(self.made.world.now(), event);
        self.act(action);
    }

    fn act(&mut self, action: Option<Action>) {
        match action {
            None | Some(Action::Own(_)) => {}
            Some(Action::AskEnds) => self.ask(),
            Some(Action::Compare(seq)) => self.compare(seq),
            Some(Action::Claim(_)) => self.claim(),
            Some(Action::Heartbeat) => self.duty.heartbeat(),
            // The part that reports that the log is lost knows why.
            Some(Action::StepDown) => {}
            Some(Action::ReadAgain) => self.read_again(),
        }
    }

    /// Puts the answer to a question into the inbox.
    fn to_inbox<T: 'static>(&self, input: impl FnOnce(T) -> Input + Send + 'static) -> ReplyFn<T> {
        let (inbox, world) = (Arc::clone(&self.inbox), Arc::clone(&self.made.world));
        Box::new(move |answer| {
            inbox.push(input(answer));
            world.remind();
        })
    }

    /// Asks where the stream begins and ends.
    fn ask(&mut self) {
        self.requests += 1;
        let number = self.requests;
        let callback = self.to_inbox(move |ends| Input::Ends(number, ends));
        self.made.stream.ends(callback);
    }

    fn compare(&mut self, seq: Seq) {
        // `Ownership` asks again soon, until the member has what it lacks or another owns.
        if !self.could_serve() {
            return;
        }
        if seq == Seq(0) {
            // The stream never had an entry, and this member read none.
            return self.step(Event::Compared(Some(true)));
        }
        // First whether what the leader has is whole: nobody claims behind a damaged copy.
        self.comparing = Some(seq);
        self.ask();
    }

    fn get(&mut self, seq: Seq) {
        let callback = self.to_inbox(move |found| Input::EntryRead(seq, found));
        self.made.stream.get(seq, callback);
    }

    fn could_serve(&mut self) -> bool {
        let Phase::Following(following) = &self.phase else {
            return true;
        };
        self.duty.check(&following.state);
        let copy = &following.copy;
        let is_told = !copy.has_begun() || copy.reported_begins().is_some();
        self.duty.is_complete(&following.state)
            && (is_told || self.duty.begins_everywhere(copy.beginning().seq))
    }

    /// Follows from the place behind what was read; from `first`, if nothing was.
    fn follow(&mut self, first: Seq) {
        let Phase::Following(following) = &mut self.phase else {
            return;
        };
        let from = match following.copy.has_begun() {
            true => following.copy.next(),
            false => first,
        };
        // The one before ends first, so that nothing of it comes behind this.
        following.tail = None;
        let (number, inbox) = (self.inbox.next_tail(), Arc::clone(&self.inbox));
        let world = Arc::clone(&self.made.world);
        let each = move |event| {
            inbox.notify(number, event);
            world.remind();
        };
        following.tail = Some(self.made.stream.tail(from, Box::new(each)));
    }

    fn claim(&mut self) {
        let over = Phase::Over(Role::Stopped);
        let Phase::Following(mut following) = std::mem::replace(&mut self.phase, over) else {
            unreachable!("only who follows claims");
        };
        self.parted = following.copy.handoff.is_some();
        // What stands where the claim should be is found out by the claim.
        following.tail = None;
        self.inbox.next_tail();
        let made = &self.made;
        let claimant = Claimant {
            stream: Arc::clone(&made.stream),
            world: Arc::clone(&made.world),
            cluster: made.cluster,
            writer: made.writer,
            node: made.node.clone(),
            peer_address: made.peer_address.clone(),
            limits: made.limits,
            lease: made.timing.lease,
            fences: made.fences,
        };
        let now = ms(made.world.now());
        let time = self
            .lead_ms
            .largest()
            .map(|lead| now.saturating_add_signed(lead));
        let time = time.unwrap_or_else(|| made.world.wall_ms());
        let bid = claimant.claim(&following.copy, time);
        bid.appender.listen(self.bell());
        // It may be answered already.
        self.inbox.ring();
        self.phase = Phase::Claiming(following, bid);
    }

    /// Has itself looked at.
    fn bell(&self) -> Arc<dyn Fn() + Send + Sync> {
        let (inbox, world) = (Arc::clone(&self.inbox), Arc::clone(&self.made.world));
        Arc::new(move || {
            inbox.ring();
            world.remind();
        })
    }

    /// Throws away the copy that was read.
    fn read_again(&mut self) {
        self.inbox.next_tail();
        self.ownership = self.ownership.again();
        self.last = Seq(0);
        self.comparing = None;
        self.doubts.read_again();
        match begin(&mut self.made, &mut self.duty) {
            Ok(following) => self.phase = Phase::Following(following),
            Err(error) => self.fail(error),
        }
    }

    fn fail(&mut self, error: LogError) {
        self.inbox.next_tail();
        self.phase = Phase::Over(Role::Stopped);
        self.duty.failed(error);
    }

    fn handle(&mut self, input: Input) {
        match input {
            Input::Tail(TailEvent::Entry(seq, entry)) => self.take(seq, &entry),
            Input::Tail(TailEvent::Purged(_)) => self.read_again(),
            Input::Ends(number, ends) if number == self.requests => self.ends(ends),
            Input::Ends(..) => {}
            Input::EntryRead(seq, found) => self.found(seq, &found),
            Input::Distrusted(came) => self.distrusted(came),
            Input::Drain(drained) => self.step(Event::Drain(drained)),
        }
    }

    fn take(&mut self, seq: Seq, entry: &bytes::Bytes) {
        let Phase::Following(following) = &mut self.phase else {
            return;
        };
        let Following { copy, state, .. } = &mut **following;
        let duty = &mut self.duty;
        let (before, parted, time) = (copy.epoch(), copy.handoff.is_some(), copy.time_ms);
        match copy.take(seq, entry, &mut |frame| duty.frame(state, frame)) {
            Ok(()) => {
                let epoch = copy.epoch();
                // The first owner takes nothing over.
                if epoch > before && before > quintet_log::Epoch(0) && self.ownership.is_standby() {
                    self.tally.claimed(parted);
                }
                let successor = copy.handoff.as_deref().map(|to| match to {
                    to if to == self.made.node => Successor::Us,
                    "" if duty.is_complete(state) => Successor::Anyone,
                    _ => Successor::Other,
                });
                self.last = self.last.max(seq);
                let newest = copy.time_ms;
                // A frame with others behind it was appended some time ago.
                if newest > time && self.ownership.is_standby() && self.last == seq {
                    let world = &self.made.world;
                    self.lead_ms.add(difference(newest, ms(world.now())));
                    self.behind_ms.add(difference(newest, world.wall_ms()));
                }
                self.step(Event::Read(seq, epoch));
                if let Some(successor) = successor {
                    self.step(Event::Handoff(successor));
                }
            }
            // It may be what was read before that is not so: everything is read once more.
            Err(LogError::BadEntry { .. } | LogError::Replay { .. })
                if self.refused != Some(seq.0) =>
            {
                self.refused = Some(seq.0);
                self.tally.divergences += 1;
                self.read_again();
            }
            Err(LogError::BadEntry { entry, why, .. }) => {
                self.tally.divergences += 1;
                let why = format!("its entry {entry} cannot be used: {why}");
                self.doubts.refused(why);
                self.read_again();
            }
            Err(error) => self.fail(error),
        }
    }

    fn ends(&mut self, ends: Option<Ends>) {
        let begin = if let (Phase::Following(following), Some(ends)) = (&mut self.phase, &ends) {
            self.last = self.last.max(ends.last);
            let now = self.made.world.now();
            if now < self.rests {
                return self.step(Event::Ends(None));
            }
            if let Some(why) = self.doubts.leads(ends) {
                self.rests = now + LOOK;
                return self.distrust(ends.clone(), why);
            }
            let (copy, fences) = (&mut following.copy, self.made.fences);
            let read = copy.next().before();
            let behind = self.doubts.ends(ends, read, now);
            match behind.map_or_else(|| copy.judge(ends), Judged::Damaged) {
                _ if !fences.beginning => {}
                Judged::Whole => {}
                Judged::ReadAgain => return self.read_again(),
                Judged::Damaged(why) => return self.distrust(ends.clone(), why),
            }
            if copy.has_begun() && read == ends.last {
                self.damage = None;
                self.doubts.is_whole(ends.leader.as_deref());
            }
            // Where nobody has said where it begins, that is believed of what was read.
            let known = copy.reported_begins().is_some() || copy.next() > ends.last;
            if known && let Err(error) = copy.forget_below(ends.first, fences) {
                return self.fail(error);
            }
            following.tail.is_none().then_some(ends.first)
        } else {
            None
        };
        if let Some(first) = begin {
            self.follow(first);
        }
        self.step(Event::Ends(ends.as_ref().map(|ends| ends.last)));
        if ends.is_some()
            && let Some(seq) = self.comparing.take()
        {
            self.get(seq);
        }
    }

    /// The leader's copy is damaged. Nothing is believed of it, as if nobody led, and another
    /// server is asked to.
    fn distrust(&mut self, ends: Ends, why: String) {
        self.damage = Some(why);
        let now = self.made.world.now();
        if now >= self.distrusts {
            self.distrusts = now + DISTRUST;
            let callback = self.to_inbox(Input::Distrusted);
            let stream = Arc::clone(&self.made.stream);
            let (tried, doubted) = (self.doubts.tried(), self.doubts.distrusted());
            stream.distrust(ends, tried, doubted, callback);
        }
        self.step(Event::Ends(None));
    }

    fn distrusted(&mut self, came: Distrusted) {
        let Some(damage) = self.damage.clone() else {
            return;
        };
        match came {
            Distrusted::Unknown => {}
            Distrusted::Requested(server) => {
                self.duty.damaged(Some((&server, &damage)));
                self.doubts.distrust(&server);
            }
            // No server has what this node has: it keeps its mirror and waits.
            Distrusted::NoOther(_) if self.doubts.is_behind() => {}
            Distrusted::NoOther(server) => {
                let error = LogError::BadEntry {
                    log: self.made.stream.name(),
                    entry: self.last.0,
                    why: format!("of the copy on {server}: {damage}"),
                };
                self.fail(error);
            }
        }
    }

    fn found(&mut self, seq: Seq, found: &EntryLookup) {
        let Phase::Following(following) = &self.phase else {
            return;
        };
        let Some((last, entry)) = &following.copy.last else {
            return;
        };
        // Of what was asked before something else was read.
        if *last != seq {
            return;
        }
        let same = match found {
            EntryLookup::Entry(there) => Some(there == entry),
            EntryLookup::Nothing | EntryLookup::Unknown => None,
        };
        self.tally.divergences += u64::from(same == Some(false));
        self.step(Event::Compared(same));
    }

    /// Does what time and answers have made possible.
    fn go_on(&mut self) {
        let now = self.made.world.now();
        match &mut self.phase {
            Phase::Over(_) => return,
            Phase::Following(following) => {
                if following.tail.is_some() && self.inbox.is_over() {
                    let next = following.copy.next();
                    self.follow(next);
                }
                if now >= self.next_check {
                    self.next_check = now + LOOK;
                    self.read_clock();
                    if let Phase::Following(following) = &self.phase {
                        self.duty.check(&following.state);
                    }
                    self.ask();
                }
            }
            Phase::Claiming(..) => self.bid(),
            Phase::Owner { acks, .. } => {
                let (appended, sent, check) = (acks.appended(), acks.sent(), acks.check());
                self.ownership.step(appended, Event::Appended);
                if let Some(sent) = sent {
                    self.ownership.step(now, Event::Acknowledged(sent));
                }
                if acks.wants_heartbeat() && check.is_ok() {
                    self.duty.heartbeat();
                }
                match check {
                    Ok(()) | Err(LogError::NoSpace { .. }) => {}
                    Err(error) => {
                        self.step(Event::Fenced);
                        self.phase = Phase::Over(Role::Deposed);
                        self.duty.step_down(error);
                        return;
                    }
                }
            }
        }
        self.step(Event::Tick);
    }

    /// Compares the wall clock with the owner's time: by the frame that came soonest.
    fn read_clock(&mut self) {
        self.lead_ms.end();
        let (true, Some(behind)) = (self.behind_ms.end(), self.behind_ms.largest()) else {
            return;
        };
        let ahead = -behind;
        let is_off = |ahead: i64| u128::from(ahead.unsigned_abs()) > Status::CLOCK_OFF.as_millis();
        let before = self.clock_ahead_ms.replace(ahead);
        if before.is_some_and(is_off) != is_off(ahead) {
            self.duty.clock(ahead, is_off(ahead));
            self.step(Event::Clock(is_off(ahead)));
        }
    }

    /// Looks what became of the claim, or its padding.
    fn bid(&mut self) {
        let Phase::Claiming(following, bid) = &mut self.phase else {
            return;
        };
        loop {
            match bid.is_settled() {
                Ok(false) => return,
                Ok(true) => {}
                Err(LogError::Fenced { .. }) => return self.outbid(),
                // Something was purged where the claim should be, so there is another owner; what
                // the stream cannot have is found by reading it.
                Err(_) => return self.read_again(),
            }
            match bid.pad(&mut following.copy) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return self.fail(error),
            }
        }
        let over = Phase::Over(Role::Stopped);
        let Phase::Claiming(following, bid) = std::mem::replace(&mut self.phase, over) else {
            unreachable!("just looked at");
        };
        let Following { copy, state, .. } = *following;
        if copy.epoch() > quintet_log::Epoch(1) {
            self.tally.claimed(self.parted);
        }
        let status = self.of_copy(&copy, Role::Owner);
        let (log, recovery) = bid.finish(copy);
        let (acks, epoch) = (log.acks(), log.epoch());
        self.phase = Phase::Owner { acks, status };
        self.step(Event::Claimed(Claimed::Stands(epoch)));
        // Others learn who owns before anybody is served.
        self.publish();
        self.duty.own(Owned {
            log,
            recovery,
            lead_ms: self.lead_ms.largest(),
            state,
        });
    }

    /// Somebody else was first: read on.
    fn outbid(&mut self) {
        let over = Phase::Over(Role::Stopped);
        if let Phase::Claiming(following, _) = std::mem::replace(&mut self.phase, over) {
            let next = following.copy.next();
            self.phase = Phase::Following(following);
            self.follow(next);
            self.step(Event::Claimed(Claimed::Taken));
        }
    }

    fn of_copy(&self, copy: &Copy, role: Role) -> Status {
        let read = copy.next().before();
        Status {
            role,
            epoch: copy.tip().map_or_else(Default::default, |tip| tip.epoch),
            owner: copy.claim.clone(),
            read,
            last: self.last.max(read),
            since: Moment::ZERO,
            tally: self.tally,
            begins: copy.reported_begins(),
            clock_ahead_ms: None,
            damage: None,
            distrusted: Vec::new(),
        }
    }

    /// Lets others know how it stands.
    fn publish(&mut self) {
        let standby = match self.ownership.is_standby() {
            true => Role::Standby,
            false => Role::Reading,
        };
        let mut now = match &self.phase {
            Phase::Following(following) => self.of_copy(&following.copy, standby),
            Phase::Claiming(following, _) => self.of_copy(&following.copy, Role::Claiming),
            Phase::Owner { status, .. } => status.clone(),
            Phase::Over(role) => Status {
                role: *role,
                ..lock(&self.status).clone()
            },
        };
        now.tally = self.tally;
        now.damage.clone_from(&self.damage);
        now.distrusted = self.doubts.distrusted().to_vec();
        if let Phase::Following(_) = &self.phase {
            now.clock_ahead_ms = self.clock_ahead_ms;
        }
        let mut status = lock(&self.status);
        now.since = status.since;
        if now.role != status.role {
            now.since = self.made.world.now();
        }
        let differs =
            (now.role, now.epoch) != (status.role, status.epoch) || now.owner != status.owner;
        let mended = now.damage.is_none() && status.damage.is_some();
        *status = now.clone();
        drop(status);
        if differs {
            self.duty.changed(&now);
        }
        if mended {
            self.duty.damaged(None);
        }
    }
}
