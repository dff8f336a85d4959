//! The audit of operations on the server.

use std::net::IpAddr;

use crate::Did;

/// Where it is written.
pub trait AuditLog: Send + Sync {
    /// `who`, at `from`, did `act` to `what`, and this came of it.
    fn note(&self, who: &str, from: Option<IpAddr>, act: &str, what: &str, result: &str) {
        self.note_did(who, from, act, what, result, Did::default());
    }

    /// The same of an act that came to something.
    fn note_did(
        &self,
        who: &str,
        from: Option<IpAddr>,
        act: &str,
        what: &str,
        result: &str,
        did: Did,
    );

    /// The same of an act that is done in steps: those that follow one another
    /// are few lines, with their number. `goes_on`: this is not the first.
    fn note_step(
        &self,
        goes_on: bool,
        who: &str,
        from: Option<IpAddr>,
        act: &str,
        what: &str,
        result: (&str, Did),
    );
}
