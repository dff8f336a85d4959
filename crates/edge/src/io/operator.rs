//! Requests of sessions to the server as a whole.

use quintet_client::TellReload;
use quintet_types::Principal;
use quintet_wire::{HostRequest, ServerResponse};

use crate::edge::Listening;

/// Answers what sessions ask of the server as a whole: numbers, the configuration, orders.
pub trait Operator: Send + Sync {
    /// Answers a session of this listener at once.
    fn answer(
        &self,
        ask: HostRequest,
        listening: &Listening,
        principal: Principal,
    ) -> ServerResponse;

    /// Has the configuration read again; another thread calls `notify`.
    fn reload(&self, principal: Principal, notify: TellReload);
}
