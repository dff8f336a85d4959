//! Serving one connection: read, decode, decide, encode.

use quintet_tls::Scratch;
use quintet_types::Command;
use quintet_wire::{ClientRequest, HalfClose};

use super::conn::Pause;
use super::inbox::Feed;
use super::outbox::FREE_BYTES;
use super::read::{Input, REQUESTS, Stop};
use super::thread::IoThread;

impl IoThread {
    /// Serves a connection as far as its turn goes.
    pub(super) fn serve(&mut self, slot: u32) {
        let mut scratch = std::mem::take(&mut self.turn.scratch);
        let mut records = std::mem::take(&mut self.turn.records);
        let stop = self.serve_with(slot, &mut scratch, &mut records);
        self.turn.scratch = scratch;
        self.turn.records = records;
        if let Some(conn) = self.conns.get_mut(slot) {
            // The budget of all connections knows what this one holds now.
            conn.charge(&self.shared.edge.connection_memory);
            if matches!(stop, Stop::Again) {
                self.due.mark_again(slot, conn);
            }
        }
        match stop {
            Stop::Again => {}
            Stop::Quiet => self.after_quiet(slot),
            Stop::Dead => self.close(slot),
            Stop::Broken(error) => match self.fail(slot, &error) {
                true => self.after_quiet(slot),
                false => self.close(slot),
            },
        }
    }

    fn serve_with(&mut self, slot: u32, scratch: &mut [u8], records: &mut Scratch) -> Stop {
        let mut input = Input::new(scratch, records);
        let stop = loop {
            if let Err(stop) = self.step(slot, &mut input) {
                break stop;
            }
        };
        if let Some(conn) = self.conns.get_mut(slot)
            && !conn.phase.closes()
        {
            input.leave(&mut conn.inbox.bytes);
            if conn.inbox.bytes.is_empty() && conn.inbox.bytes.capacity() > FREE_BYTES / 2 {
                // A connection that rests owns no buffer.
                conn.inbox.bytes = Vec::new();
            }
        }
        stop
    }

    /// Decides what was read of a connection, or reads more.
    ///
    /// # Errors
    /// Why nothing more is done for it now.
    #[inline]
    fn step(&mut self, slot: u32, input: &mut Input<'_>) -> Result<(), Stop> {
        let dry = self.take_in(slot, input)?;
        if !self.turn.asks.is_empty() {
            input.requests += self.turn.asks.len();
            self.decide(slot);
            if let Some(conn) = self.conns.get_mut(slot)
                && let Some(ClientRequest::EngineAlone(_)) = conn.inbox.pending.front()
            {
                // Pages of a long reply: others get a turn in between.
                input.requests += REQUESTS / 4;
            }
            return Ok(());
        }
        match dry {
            true => self.read_more(slot, input),
            false => Ok(()),
        }
    }

    /// A connection has nothing more to do; sees to one whose client closed
    /// its side.
    fn after_quiet(&mut self, slot: u32) {
        let Some(conn) = self.conns.get_mut(slot) else {
            return;
        };
        if conn.phase.closes() {
            self.due.mark_dirty(slot, conn);
            return;
        }
        if conn.phase.waits() {
            if !conn.inbox.feed.is_closed() || conn.half_close.is_some() {
                return;
            }
            let answer = conn.session.half_closed();
            conn.half_close = Some(answer);
            match answer {
                HalfClose::Close if conn.out.is_empty() => self.close(slot),
                HalfClose::Close => {
                    // What was answered before it still leaves.
                    conn.close_after_flush();
                    self.due.mark_dirty(slot, conn);
                    self.stop_waiting(slot);
                }
                HalfClose::StopWaiting => self.stop_waiting(slot),
                HalfClose::LastWord => {}
            }
            return;
        }
        if conn.inbox.feed == Feed::Ended && conn.pause == Pause::No {
            // No complete request is left. What was decided is still answered.
            if conn.half_close.is_none() {
                let answer = conn.session.half_closed();
                conn.half_close = Some(answer);
                if answer == HalfClose::LastWord {
                    conn.inbox.pending.push_back(ClientRequest::Close);
                    self.due.mark_again(slot, conn);
                    return;
                }
            }
            conn.close_after_flush();
            self.due.mark_dirty(slot, conn);
        }
    }

    pub(super) fn stop_waiting(&mut self, slot: u32) {
        if let Some(conn) = self.conns.get_mut(slot) {
            let caller = conn.caller;
            self.with_access(|access| access.submit(caller, Command::StopWaiting));
        }
    }
}
