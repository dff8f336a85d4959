//! The wait of a request for its turn among those of its address or user.

use std::net::IpAddr;
use std::sync::Arc;

use quintet_types::Principal;

use crate::clients::Client;
use crate::gate::{Gate, Pace};
use crate::never::or_never;
use crate::reply::Problem;

/// Waits until a request may be answered, as `gate` says, but not beyond the stop of the server,
/// which ends the waits of `client`.
///
/// # Errors
/// 429, with the time after which it may be; or the server stops.
pub async fn pace(
    gate: Option<&Arc<dyn Gate>>,
    peer: Option<IpAddr>,
    principal: Option<Principal>,
    client: Option<&Client>,
) -> Result<(), Problem> {
    let Some(gate) = gate else { return Ok(()) };
    match gate.pace(peer, principal) {
        Pace::In(wait) if wait.is_zero() => Ok(()),
        Pace::In(wait) => {
            tokio::select! {
                () = tokio::time::sleep(wait) => Ok(()),
                () = or_never(client.map(Client::is_stopped)) => Err(Problem::Stopping),
            }
        }
        Pace::Not(why, wait) => Err(Problem::TooMany(why, wait)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quintet_client::{Did, Share};
    use quintet_types::{Name, Operation, Verb};

    use super::*;
    use crate::clients::Clients;
    use crate::gate::{Answer, Counted, Full, LoginCredentials, Tell};

    /// Everybody waits for an hour.
    struct Slow;

    impl Gate for Slow {
        fn is_used(&self) -> bool {
            false
        }
        fn log_in(&self, _: Option<IpAddr>, _: LoginCredentials<'_>, notify: Tell) {
            notify(Answer::No);
        }
        fn arrive(&self, _: Option<IpAddr>) -> Result<Counted, &'static str> {
            Ok(None)
        }
        fn failed(&self, _: Option<IpAddr>) {}
        fn pace(&self, _: Option<IpAddr>, _: Option<Principal>) -> Pace {
            Pace::In(Duration::from_secs(3600))
        }
        fn hold(
            &self,
            _: Option<IpAddr>,
            _: Option<Principal>,
            _: u64,
        ) -> Result<Vec<Share>, Full> {
            Ok(Vec::new())
        }
        fn may(&self, _: Principal, _: Verb, _: &Name) -> bool {
            true
        }
        fn may_server(&self, _: Principal) -> bool {
            true
        }
        fn may_read_metrics(&self, _: Principal) -> bool {
            true
        }
        fn name_of(&self, _: Principal) -> Option<Arc<str>> {
            None
        }
        fn counts(&self, _: Principal, _: u64) -> bool {
            true
        }
        fn note(&self, _: Principal, _: Option<IpAddr>, _: (Operation, &str), _: (u16, Did)) {}
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_stop_ends_waits_for_the_pace() {
        let clients = Arc::new(Clients::default());
        let present = clients.come("http", &"here".into(), None, false);
        let gate: Arc<dyn Gate> = Arc::new(Slow);
        let waits = pace(Some(&gate), None, None, Some(present.client()));
        let began = tokio::time::Instant::now();
        let stops = async {
            tokio::task::yield_now().await;
            clients.stop();
        };
        let (paced, ()) = tokio::join!(waits, stops);
        assert_eq!(paced, Err(Problem::Stopping));
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
