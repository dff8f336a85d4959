//! A thread's part while what others should acknowledge waits: clients that are not read from, and
//! replies that are given up.

use std::time::Duration;

use super::conn::Pause;
use super::thread::IoThread;

/// While clients are not read from it is looked so often whether they may be.
const LOOK: Duration = Duration::from_millis(20);
/// Between two looks whose replies are given up.
const UNANSWERED_LOOK: Duration = Duration::from_secs(1);

impl IoThread {
    /// When there is something to see to without an event.
    pub(super) fn next_check_of_unacked(&self) -> Option<Duration> {
        let held = !self.due.held.is_empty() && self.shared.edge.core.is_shared();
        match (self.waiting.unread.is_empty(), held) {
            (false, _) => Some(LOOK),
            (true, true) => Some(UNANSWERED_LOOK),
            (true, false) => None,
        }
    }

    /// Lets those go on that were not read from, and closes those whose replies are given up.
    pub(super) fn see_to_unacked(&mut self) {
        if !self.waiting.choked {
            for slot in std::mem::take(&mut self.waiting.unread) {
                if let Some(conn) = self.conns.get_mut(slot) {
                    conn.pause = Pause::No;
                    self.due.mark_again(slot, conn);
                }
            }
        }
        let now = self.turn.instant;
        if now.duration_since(self.waiting.unanswered_checked) < UNANSWERED_LOOK {
            return;
        }
        self.waiting.unanswered_checked = now;
        for slot in self.due.held.clone() {
            let waited = self.conns.get_mut(slot).map(|conn| conn.out.waited(now));
            if waited.is_some_and(|waited| self.shared.edge.core.gives_up(waited)) {
                self.close(slot);
            }
        }
    }
}
