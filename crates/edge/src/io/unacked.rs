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
        let held = !self.held.is_empty() && self.edge.core.is_shared();
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
                    self.mark_dirty_again(slot);
                }
            }
        }
        if self.instant.duration_since(self.unanswered_checked) < UNANSWERED_LOOK {
            return;
        }
        self.unanswered_checked = self.instant;
        for slot in self.held.clone() {
            let waited = self
                .conns
                .get_mut(slot)
                .map(|conn| conn.out.waited(self.instant));
            if waited.is_some_and(|waited| self.edge.core.gives_up(waited)) {
                self.close(slot);
            }
        }
    }
}
