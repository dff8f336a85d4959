//! Clients that hung up while nothing could be written.

use super::thread::IoThread;

impl IoThread {
    /// While nothing can be written, who has hung up will not hear of what was
    /// removed for it, whenever that is written: it goes back. At other times
    /// closing one side is a way to wait for the last reply.
    pub(super) fn part_from_the_gone(&mut self) {
        if !self.edge.core.is_stuck() {
            return;
        }
        for slot in self.conns.slots() {
            let conn = self.conns.get_mut(slot);
            if conn.is_some_and(|conn| conn.inbox.feed.is_closed() && conn.out.owes()) {
                self.close(slot);
            }
        }
    }
}
