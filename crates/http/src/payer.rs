//! In whose limits the body of a request counts while it is in memory.

use std::net::IpAddr;
use std::sync::Arc;

use quintet_client::Share;
use quintet_types::Principal;

use crate::gate::{Full, Gate};
use crate::reply::Problem;
use crate::settings::Settings;

/// Bytes that a connection may hold without their being counted.
pub(crate) const FREE_BYTES: u64 = 8 << 10;

/// Among a request's extensions. Without a gate only what all may hold together
/// bounds it.
#[derive(Clone, Default)]
pub struct Payer {
    /// The gate that counts.
    pub gate: Option<Arc<dyn Gate>>,
    /// `None`: a unix socket.
    pub peer: Option<IpAddr>,
    /// `None`: nobody is known.
    pub principal: Option<Principal>,
}

/// Memory that a request holds, until this is dropped.
#[derive(Default, Debug)]
pub struct RequestMemory {
    of_all: Option<Share>,
    /// Of its address and its user, a share each time it grew.
    own: Vec<Share>,
}

impl RequestMemory {
    /// Takes so many bytes more. The first piece, which every one may have, is
    /// not counted.
    ///
    /// # Errors
    /// All hold as much as they may, or the request's address or user does.
    pub fn grow(&mut self, settings: &Settings, payer: &Payer, more: usize) -> Result<(), Problem> {
        let more = more as u64;
        if self.of_all.is_none() && self.own.is_empty() && more <= FREE_BYTES {
            return Ok(());
        }
        if let Some(memory) = &settings.memory {
            let held = match &mut self.of_all {
                Some(share) => share.grow(more),
                none => {
                    *none = memory.take(more);
                    none.is_some()
                }
            };
            held.then_some(()).ok_or(Problem::NoMemory)?;
        }
        if let Some(gate) = &payer.gate {
            let taken = gate.hold(payer.peer, payer.principal, more);
            let taken = taken.map_err(|Full(why, again)| Problem::TooMany(why, again))?;
            self.own.extend(taken);
        }
        Ok(())
    }
}
