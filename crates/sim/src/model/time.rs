//! Effects of time: ends of leases, retention, expiry, queues that nobody uses.

use std::collections::BTreeSet;

use quintet_types::{Message, MessageId, Ms, QueueId, Return, State, Transfer};

use super::{IDLE_SCAN_MS, Model};

impl Model {
    /// By deadline; those of the same moment keep their own order when they go
    /// to the head.
    pub(super) fn end_leases(&mut self) {
        let mut over: Vec<(Ms, std::cmp::Reverse<MessageId>)> = Vec::new();
        for item in &self.items {
            if let Some(until) = item.lease.as_ref().and_then(|lease| lease.until)
                && until <= self.now
            {
                over.push((until, std::cmp::Reverse(item.message.id)));
            }
        }
        over.sort();
        for (_, id) in over {
            self.give_back(id.0, Return::Timeout);
        }
    }

    pub(super) fn end_retention(&mut self) {
        let now = self.now;
        let over: Vec<MessageId> = self
            .items
            .iter()
            .filter(|item| matches!(item.message.state, State::Done | State::Relayed))
            .filter(|item| {
                let kept = self.settings_of(item.message.queue).retention_ms;
                item.message
                    .extra
                    .as_ref()
                    .is_some_and(|e| e.changed + kept <= now)
            })
            .map(|item| item.message.id)
            .collect();
        for id in over {
            self.remove(id);
        }
    }

    /// Buried ones whose time is over, but those that are in runs.
    pub(super) fn end_buried(&mut self, late: &BTreeSet<MessageId>) {
        let over = |message: &&Message| {
            let until = message.extra.as_ref().and_then(|extra| extra.buried_until);
            message.state == State::Buried
                && until.is_some_and(|until| until <= self.now)
                && !late.contains(&message.id)
        };
        let messages = self.items.iter().map(|item| &item.message);
        let over: Vec<Message> = messages.filter(over).cloned().collect();
        for Message { id, queue, .. } in over {
            self.totals(queue).expired += 1;
            self.remove(id);
        }
    }

    pub(super) fn expire_all(&mut self) {
        self.expire_all_but(&BTreeSet::new());
    }

    pub(super) fn expire_all_but(&mut self, late: &BTreeSet<MessageId>) {
        self.end_buried(late);
        loop {
            let now = self.now;
            let over = self
                .items
                .iter()
                .map(|item| &item.message)
                .filter(|m| m.is_expired(now) && !late.contains(&m.id));
            let Some(id) = over.min_by_key(|m| (m.expires(), m.id)).map(|m| m.id) else {
                return;
            };
            self.expire(id);
        }
    }

    pub(super) fn expire(&mut self, id: MessageId) {
        let queue = self.item_mut(id).message.queue;
        // Made also beyond the limits.
        let to = self.settings_of(queue).expire_to;
        let to = to.map(|to| self.find(&to).unwrap_or_else(|| self.make(&to)));
        match to {
            Some(to) if to != queue => self.transfer(id, to, Transfer::Expired),
            _ => {
                self.totals(queue).expired += 1;
                self.remove(id);
            }
        }
    }

    /// Looked for once a second: empty queues that nobody refers to.
    pub(super) fn drop_idle(&mut self) {
        let now = self.now;
        if now < self.idle_scan {
            return;
        }
        self.idle_scan = now + IDLE_SCAN_MS;
        let numbers: Vec<QueueId> = self
            .queues
            .iter()
            .filter(|q| q.made && !q.dropped)
            .map(|q| q.number)
            .collect();
        for number in numbers {
            let queue = self.queue(number);
            let name = queue.name.clone();
            let used = !self.ids(number, |_| true).is_empty()
                || self.named().contains(&name)
                || queue.parent.is_some()
                || !queue.children.is_empty()
                || queue
                    .pause
                    .is_some_and(|until| until.is_none_or(|until| until > now))
                || queue.overrides != quintet_types::Overrides::default()
                || self.dedupe_records.iter().any(|dedupe_record| {
                    dedupe_record.queue == number && dedupe_record.until > now
                });
            let after = self.settings_of(number).idle_ms;
            if used {
                // It may be so until just before the next look.
                self.queue_mut(number).used = now + IDLE_SCAN_MS;
            } else if after > 0 && self.queue(number).used + after <= now {
                self.drop_queue(&name);
                self.tidy();
            }
        }
    }
}
