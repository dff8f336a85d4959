//! Taking, and waiting for it.

use std::cmp::Reverse;
use std::collections::VecDeque;

use quintet_types::{
    AT_ONCE_MS, Bound, ClientId, CommandError, End, LeaseOwner, LeaseRequest, LeaseTime, Message,
    MessageId, Ms, Name, Outcome, Pick, QueueId, Rate, Return, State, Take, Wait,
};

use super::{Item, Model, ModelLease, TakeRecord, Waiter};

impl Model {
    pub(super) fn take(
        &mut self,
        client_id: ClientId,
        take: Take,
    ) -> Result<Option<Outcome>, CommandError> {
        if take.must_exist {
            for name in &take.queues {
                self.there(name)?;
            }
        }
        let only = match take.queues.as_slice() {
            [name] => self.find(name),
            _ => None,
        };
        if only.is_some_and(|queue| self.settings_of(queue).down) {
            return Err(CommandError::QueueDown);
        }
        let limit = take
            .lease
            .map_or(take.refuse_if_held, |lease| lease.held_max) as usize;
        let held = self.held(client_id);
        let counted = match (take.held_anywhere, take.queues.as_slice()) {
            (true, _) => held.len(),
            (false, [name]) => held.iter().filter(|&&id| self.name_of(id) == *name).count(),
            (false, _) => 0,
        };
        if limit > 0 && counted >= limit {
            return Err(CommandError::HeldLimit);
        }
        if let Some(outcome) = self.take_again(&take) {
            return Ok(Some(outcome));
        }
        if let Some(outcome) = self.take_now(client_id, &take) {
            return Ok(Some(outcome));
        }
        let ends = held
            .iter()
            .filter_map(|&id| self.item(id)?.lease.as_ref()?.until);
        let warn = take
            .deadline_soon_ms
            .and_then(|margin| Some(ends.min()? - margin));
        if warn.is_some_and(|at| at <= self.now) {
            return Ok(Some(Outcome::DeadlineSoon));
        }
        let until = match take.wait {
            Wait::No => Some(self.now),
            Wait::For(ms) => Some(self.now + ms),
            Wait::Until(at) => Some(at),
            Wait::Forever => None,
        };
        if until.is_some_and(|until| until <= self.now) {
            return Ok(Some(Outcome::Empty));
        }
        self.stand_in_line(Waiter {
            client_id,
            standing: false,
            take,
            until,
            warn,
        })?;
        Ok(None)
    }

    /// The leases that the last take with this token gave, if none of them has ended or changed.
    fn take_again(&mut self, take: &Take) -> Option<Outcome> {
        let (queue, token, ask) = self.with_token(take)?;
        let now = self.now;
        let mut known = self.tokens.iter().rev();
        let known = known.find(|known| (known.queue, &*known.token) == (queue, token))?;
        if known.ends <= now {
            return None;
        }
        let sum = known.sum;
        if sum > 0 && take.token_sum > 0 && sum != take.token_sum {
            let first = known
                .granted
                .first()
                .map_or(MessageId(0), |granted| granted.0);
            return Some(Outcome::Refused(CommandError::TokenUsed(first)));
        }
        let mut handed = Vec::new();
        for &(id, number, until) in &known.granted {
            let item = self.item(id)?;
            let message = &item.message;
            let as_granted = |held: &ModelLease| held.bound == Bound::Time && held.until == until;
            if message.queue != queue
                || message.reserves != number
                || message.cancelled().is_some()
                || !item.lease.as_ref().is_some_and(as_granted)
            {
                return None;
            }
            handed.push(id);
        }
        let (ends, token) = (known.ends, token.into());
        let (mut granted, mut messages) = (Vec::new(), Vec::new());
        for id in handed {
            let span_ms = self.span_of(id, &ask);
            let until = (span_ms > 0).then(|| now + span_ms);
            let lease = self.item_mut(id).lease.as_mut().expect("it is leased");
            if until.is_some() {
                lease.until = until;
            }
            let since = lease.since;
            let mut message = self.message(id).expect("it is there").clone();
            let extra = message.extra_mut();
            if extra.first_leased == Ms(0) {
                extra.first_leased = since;
            }
            granted.push((id, message.reserves, until));
            if shows_ttr(&ask) {
                message.ttr_ms = message.ttr_ms.or(Some(span_ms));
            }
            messages.push(message);
        }
        self.tokens.push(TakeRecord {
            queue,
            token,
            sum,
            granted,
            ends,
        });
        Some(Outcome::Messages(messages.into_iter().collect()))
    }

    /// The queue, the token and the lease of a take that may be sent again.
    fn with_token<'a>(&self, take: &'a Take) -> Option<(QueueId, &'a [u8], LeaseRequest)> {
        let (token, ask) = (take.token.as_deref()?, take.lease?);
        let lasts = ask.owner == LeaseOwner::Time && ask.time != LeaseTime::Over && !take.peek;
        match take.queues.as_slice() {
            [name] if lasts => Some((self.find(name)?, token, ask)),
            _ => None,
        }
    }

    fn note_token(&mut self, take: &Take, handed: &[Message]) {
        if let Some((queue, token, _)) = self.with_token(take) {
            let until = |id| self.item(id)?.lease.as_ref()?.until;
            let granted = handed.iter().map(|m| (m.id, m.reserves, until(m.id)));
            let taken = TakeRecord {
                queue,
                token: token.into(),
                sum: take.token_sum,
                granted: granted.collect(),
                ends: self.now + 300_000,
            };
            self.tokens.push(taken);
        }
    }

    pub(super) fn watch(
        &mut self,
        client_id: ClientId,
        take: Option<Box<Take>>,
    ) -> Result<Outcome, CommandError> {
        let at = self.standing(client_id);
        let Some(take) = take else {
            self.waiters
                .retain(|waiter| waiter.client_id != client_id || !waiter.standing);
            self.tidy();
            return Ok(Outcome::Done);
        };
        if let Some(outcome) = self.take_now(client_id, &take) {
            at.map(|at| self.waiters.remove(at));
            self.deliveries.push((client_id, true, outcome));
        } else if let Some(at) = at {
            if let Err(command_error) = self.make_all(&take) {
                self.waiters.remove(at);
                self.tidy();
                return Err(command_error);
            }
            self.waiters[at].take = *take;
        } else {
            let take = *take;
            self.stand_in_line(Waiter {
                client_id,
                standing: true,
                take,
                until: None,
                warn: None,
            })?;
        }
        self.tidy();
        Ok(Outcome::Done)
    }

    pub(super) fn rewatch(
        &mut self,
        client_id: ClientId,
        take: Box<Take>,
    ) -> Result<Outcome, CommandError> {
        match self.standing(client_id) {
            Some(_) => self.watch(client_id, Some(take)),
            None => Ok(Outcome::Done),
        }
    }

    pub(super) fn watch_queue(
        &mut self,
        client_id: ClientId,
        queue: Name,
        on: bool,
    ) -> Result<Outcome, CommandError> {
        let Some(at) = self.standing(client_id) else {
            return Ok(Outcome::Done);
        };
        let mut take = self.waiters[at].take.clone();
        take.queues.retain(|name| *name != queue);
        if on {
            take.queues.push(queue);
        }
        self.watch(client_id, Some(Box::new(take)))
    }

    fn standing(&self, client_id: ClientId) -> Option<usize> {
        let mut waiters = self.waiters.iter();
        waiters.position(|waiter| waiter.client_id == client_id && waiter.standing)
    }

    pub(super) fn stop_waiting(&mut self, client_id: ClientId) -> Outcome {
        let at = self
            .waiters
            .iter()
            .position(|w| w.client_id == client_id && !w.standing);
        if let Some(at) = at {
            self.waiters.remove(at);
            self.deliveries.push((client_id, false, Outcome::Empty));
        }
        Outcome::Done
    }

    fn stand_in_line(&mut self, waiter: Waiter) -> Result<(), CommandError> {
        if self.waiters.len() >= self.settings.waiters_max as usize {
            return Err(CommandError::TooManyWaiters);
        }
        self.make_all(&waiter.take)?;
        self.waiters.push(waiter);
        Ok(())
    }

    fn make_all(&mut self, take: &Take) -> Result<(), CommandError> {
        for name in &take.queues {
            self.find_or_make(name)?;
        }
        Ok(())
    }

    /// Serves the longest waiting first. A take by one behind may have kept back something that
    /// fits one who could not frame it.
    pub(super) fn serve(&mut self) {
        let mut at = 0;
        while let Some(waiter) = self.waiters.get(at).cloned() {
            match self.take_now(waiter.client_id, &waiter.take) {
                Some(outcome) => {
                    self.waiters.remove(at);
                    self.deliveries
                        .push((waiter.client_id, waiter.standing, outcome));
                    // A queue that it alone waited on leaves room for another.
                    self.tidy();
                    at = 0;
                }
                None => at += 1,
            }
        }
    }

    /// By the moment they give up or are to be warned.
    pub(super) fn end_waits(&mut self) {
        let over = |at: Option<Ms>| at.is_some_and(|at| at <= self.now);
        let ends = |w: &Waiter| w.until.into_iter().chain(w.warn).min();
        let mut ended = self.waiters.clone();
        ended.retain(|waiter| over(ends(waiter)));
        ended.sort_by_key(ends);
        for waiter in &ended {
            let outcome = match over(waiter.until) {
                true => Outcome::Empty,
                false => Outcome::DeadlineSoon,
            };
            self.deliveries
                .push((waiter.client_id, waiter.standing, outcome));
        }
        let now = self.now;
        self.waiters
            .retain(|waiter| ends(waiter).is_none_or(|at| at > now));
    }

    fn take_now(&mut self, client_id: ClientId, take: &Take) -> Option<Outcome> {
        let wanted = take.messages_max.max(1) as usize;
        if take.peek {
            let mut seen = self.candidates(take);
            // Only one queue is walked along.
            let one = take.queues.iter().all(|name| *name == take.queues[0]);
            seen.truncate(if one { wanted } else { 1 });
            return (!seen.is_empty()).then(|| Outcome::Messages(seen.into_iter().collect()));
        }
        let mut handed: Vec<Message> = Vec::new();
        while handed.len() < wanted {
            let Some(best) = self.candidates(take).into_iter().next() else {
                break;
            };
            for id in self.group_of(&best, take) {
                handed.push(match &take.lease {
                    None => {
                        let message = self.message(id).expect("it is there").clone();
                        self.remove(id);
                        self.totals(message.queue).taken += 1;
                        self.queue_mut(message.queue).used = self.now;
                        self.handed_out(message.queue);
                        message
                    }
                    Some(ask) => self.lease(client_id, id, ask),
                });
            }
        }
        for (message, ask) in handed.iter().zip(take.lease.iter().cycle()) {
            if !take.peek && self.is_over(message.id, ask) {
                self.give_back(message.id, end_of(ask));
            }
        }
        if !handed.is_empty() {
            self.note_token(take, &handed);
        }
        (!handed.is_empty()).then(|| Outcome::Messages(handed.into_iter().collect()))
    }

    /// All that the take could get, the best first.
    fn candidates(&self, take: &Take) -> Vec<Message> {
        let queues: Vec<QueueId> = take
            .queues
            .iter()
            .filter_map(|name| self.find(name))
            .collect();
        let mut requested = queues.clone();
        requested.sort();
        requested.dedup();
        let mut lines: Vec<VecDeque<Message>> = Vec::new();
        for &queue in &requested {
            let limited = !take.peek && self.is_limited(queue);
            if !self.serves(queue) || limited {
                continue;
            }
            let line = self.line_of(queue, take);
            if requested.len() == 1 {
                return line;
            }
            lines.push(line.into());
        }
        // A queue's own order holds: below priority 0 its messages go by age all the same.
        let mut found: Vec<Message> = Vec::new();
        let place = |line: &&mut VecDeque<Message>| {
            let first = line.front()?;
            let age = match take.end {
                End::Oldest => (first.position, first.id),
                End::Newest => (-first.position, MessageId(u64::MAX - first.id.0)),
            };
            Some((self.risen(first), age))
        };
        let best = |lines: &mut [VecDeque<Message>]| {
            let full = lines.iter_mut().filter(|line| !line.is_empty());
            full.min_by_key(place)?.pop_front()
        };
        while let Some(message) = best(&mut lines) {
            found.push(message);
        }
        if take.pick == Pick::InOrder {
            found.sort_by_key(|m| queues.iter().position(|&queue| queue == m.queue));
        }
        found
    }

    /// Messages of a queue that the take would get, one after the other.
    fn line_of(&self, queue: QueueId, take: &Take) -> Vec<Message> {
        let here = self.items.iter().map(|item| &item.message);
        let here = here.filter(|m| m.queue == queue && m.selectable && self.is_ready(m));
        let here = here.filter(|m| !m.is_expired(self.now));
        let here = here.filter(|m| take.body_max.is_none_or(|max| m.body.len() <= max));
        let mut line: Vec<Message> = here.cloned().collect();
        match take.end {
            End::Oldest => line.sort_by_key(Message::order),
            End::Newest => {
                line.sort_by_key(|m| (m.order().0, Reverse(m.position), Reverse(m.id)));
            }
        }
        line
    }

    fn is_limited(&self, queue: QueueId) -> bool {
        let max = self.settings_of(queue).in_flight_max;
        let held =
            |item: &&Item| item.message.queue == queue && item.message.state == State::Reserved;
        let full = max > 0 && self.items.iter().filter(held).count() as u64 >= max;
        full || self.is_too_fast(queue)
    }

    fn interval_ns(&self, queue: QueueId) -> u64 {
        let rate = self.settings_of(queue).take_rate;
        match rate.count {
            0 => 0,
            count => rate.per_ms * 1_000_000 / u64::from(count),
        }
    }

    fn is_too_fast(&self, queue: QueueId) -> bool {
        let (interval, burst) = (self.interval_ns(queue), self.settings_of(queue).take_burst);
        let early = (u64::from(burst.max(1)) - 1) * interval + 999_999;
        interval > 0 && self.queue(queue).paced_ns > self.now.0 * 1_000_000 + early
    }

    /// A queue had another rate and burst: nothing waits longer than behind a burst of the new ones.
    pub(super) fn change_speed(&mut self, queue: QueueId, before: (Rate, u32)) {
        let (rate, burst) = {
            let settings = self.settings_of(queue);
            (settings.take_rate, settings.take_burst)
        };
        let (interval, now) = (self.interval_ns(queue), self.now.0 * 1_000_000);
        if (rate, burst) != before && interval > 0 {
            let most = now + u64::from(burst.max(1)) * interval + 999_999;
            let queue = self.queue_mut(queue);
            queue.paced_ns = queue.paced_ns.min(most);
        }
    }

    fn handed_out(&mut self, queue: QueueId) {
        let (interval, now) = (self.interval_ns(queue), self.now.0 * 1_000_000);
        if interval > 0 {
            let queue = self.queue_mut(queue);
            queue.paced_ns = queue.paced_ns.max(now) + interval;
        }
    }

    fn serves(&self, queue: QueueId) -> bool {
        let settings = self.settings_of(queue);
        let paused = match self.queue(queue).pause {
            Some(Some(until)) => until > self.now,
            Some(None) => true,
            None => false,
        };
        !settings.down && !settings.paused && !paused
    }

    fn group_of(&self, best: &Message, take: &Take) -> Vec<MessageId> {
        let mut group = vec![best.id];
        let (Some(limit), Some(key)) = (take.group, best.key()) else {
            return group;
        };
        let mut others: Vec<&Message> = self
            .items
            .iter()
            .map(|item| &item.message)
            .filter(|m| m.queue == best.queue && m.id != best.id && m.key() == Some(key))
            .filter(|m| self.is_ready(m) && !m.is_expired(self.now))
            .filter(|m| take.body_max.is_none_or(|max| m.body.len() <= max))
            .collect();
        others.sort_by_key(|m| {
            (
                !m.selectable,
                m.order().0,
                Reverse(m.position),
                Reverse(m.id),
            )
        });
        let mut bytes = best.body.len() + key.len() as u64;
        for other in others {
            bytes += other.body.len() + key.len() as u64;
            if group.len() as u64 >= u64::from(limit.messages_max) || bytes > limit.bytes_max {
                break;
            }
            group.push(other.id);
        }
        group
    }

    fn span_of(&self, id: MessageId, ask: &LeaseRequest) -> u64 {
        let message = self.message(id).expect("it is there");
        let default = self.settings_of(message.queue).default_ttr_ms;
        match ask.time {
            LeaseTime::OwnTtr => message.ttr_ms.unwrap_or(0),
            LeaseTime::TtrOrDefault | LeaseTime::TtrOrOver => {
                match message.ttr_ms.unwrap_or(default) {
                    AT_ONCE_MS => 0,
                    ms => ms,
                }
            }
            LeaseTime::TtrOrDefaultElse(ms) => match message.ttr_ms.unwrap_or(default) {
                0 => ms,
                AT_ONCE_MS => 0,
                own => own,
            },
            LeaseTime::Fixed(ms) => ms,
            LeaseTime::TtrElse(ms) => message.ttr_ms.unwrap_or(ms),
            LeaseTime::Over => 0,
        }
    }

    fn is_over(&self, id: MessageId, ask: &LeaseRequest) -> bool {
        let message = self.message(id).expect("it is there");
        let default = self.settings_of(message.queue).default_ttr_ms;
        let ttr_ms = message.ttr_ms.unwrap_or(default);
        ask.time == LeaseTime::Over
            || matches!(
                ask.time,
                LeaseTime::TtrOrDefault | LeaseTime::TtrOrDefaultElse(_)
            ) && ttr_ms == AT_ONCE_MS
            || ask.time == LeaseTime::TtrOrOver && ttr_ms <= AT_ONCE_MS
    }

    fn lease(&mut self, client_id: ClientId, id: MessageId, ask: &LeaseRequest) -> Message {
        let turn = self.turn();
        let (now, epoch) = (self.now, self.epoch);
        let queue = self.item_mut(id).message.queue;
        self.totals(queue).leases += 1;
        self.queue_mut(queue).used = now;
        self.handed_out(queue);
        let span_ms = self.span_of(id, ask);
        let over = self.is_over(id, ask);
        let item = self.item_mut(id);
        let until = match over {
            true => Some(now),
            false => (span_ms > 0).then(|| now + span_ms),
        };
        let bound = match ask.owner {
            LeaseOwner::Connection => Bound::Connection,
            LeaseOwner::Process => Bound::Process,
            LeaseOwner::TimeElseConnection if until.is_none() => Bound::Connection,
            LeaseOwner::Time | LeaseOwner::TimeElseConnection => Bound::Time,
        };
        item.message.state = State::Reserved;
        item.message.reserves += 1;
        item.message.extra_mut().due = None;
        item.lease = Some(ModelLease {
            client_id,
            bound,
            until,
            span_ms,
            back_to: ask.back_to,
            turn,
            epoch,
            since: until.map_or(Ms(0), |until| Ms(until.0 - span_ms)),
        });
        let mut handed = item.message.clone();
        if shows_ttr(ask) {
            let given_ms = if over { AT_ONCE_MS } else { span_ms };
            let instead = matches!(ask.time, LeaseTime::TtrOrDefaultElse(_));
            let own = handed.ttr_ms.filter(|ms| *ms > 0 || !instead);
            handed.ttr_ms = own.or(Some(given_ms));
        }
        handed
    }

    pub(super) fn reserve_id(
        &mut self,
        client_id: ClientId,
        id: MessageId,
        ask: LeaseRequest,
    ) -> Result<Outcome, CommandError> {
        let message = self.message(id)?;
        if !matches!(message.state, State::Ready | State::Buried) {
            return Err(CommandError::NotFound);
        }
        if self.settings_of(message.queue).down {
            return Err(CommandError::QueueDown);
        }
        let name = self.name_of(id);
        let held = self
            .held(client_id)
            .into_iter()
            .filter(|&other| self.name_of(other) == name);
        if ask.held_max > 0 && held.count() >= ask.held_max as usize {
            return Err(CommandError::HeldLimit);
        }
        let handed = self.lease(client_id, id, &ask);
        if self.is_over(id, &ask) {
            self.give_back(id, end_of(&ask));
        }
        Ok(Outcome::Messages([handed].into_iter().collect()))
    }
}

/// Why a lease ends that is over in its own step.
fn end_of(ask: &LeaseRequest) -> Return {
    match ask.time == LeaseTime::Over {
        true => Return::Released,
        false => Return::Timeout,
    }
}

/// True if the consumer is shown a time that is not the message's own.
fn shows_ttr(ask: &LeaseRequest) -> bool {
    matches!(
        ask.time,
        LeaseTime::TtrOrDefault
            | LeaseTime::TtrOrDefaultElse(_)
            | LeaseTime::TtrOrOver
            | LeaseTime::TtrElse(_)
    )
}
