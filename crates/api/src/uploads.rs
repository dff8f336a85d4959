//! Large bodies that are stored as they come: each keeps a thread, so there are few at a time.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quintet_http::locked;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::problem::Problem;

/// At a time at most; more wait.
const UPLOADS: usize = 8;
/// Of these those of one address. Of IPv6 a /64 counts as one address.
const OF_ADDRESS: usize = UPLOADS / 2;
/// Bytes that an upload brings in a second at least, beside the listener's `timeout` for all of it.
const RATE: u64 = 16 << 10;

quintet_types::defaults! {
    /// The uploads of a listener.
    pub(super) struct Uploads {
        turns: Arc<Semaphore> = Arc::new(Semaphore::new(UPLOADS)),
        addresses: Mutex<HashMap<IpAddr, Arc<Semaphore>>> = Mutex::default(),
    }
}

/// An upload's turn, until this is dropped.
pub(super) struct Turn {
    _of_address: Option<OwnedSemaphorePermit>,
    _turn: OwnedSemaphorePermit,
}

impl Uploads {
    /// Waits for a turn of an upload from `peer`, for `at_most`.
    ///
    /// # Errors
    /// Too many others are under way.
    pub(super) async fn turn(
        &self,
        peer: Option<IpAddr>,
        at_most: Duration,
    ) -> Result<Turn, Problem> {
        let of_address = peer.map(|peer| self.of(peer));
        let turn = async {
            let of_address = match of_address {
                Some(of_address) => Some(of_address.acquire_owned().await?),
                None => None,
            };
            Ok::<_, tokio::sync::AcquireError>(Turn {
                _of_address: of_address,
                _turn: Arc::clone(&self.turns).acquire_owned().await?,
            })
        };
        match tokio::time::timeout(at_most, turn).await {
            Ok(turn) => turn.map_err(|_| Problem::stopping()),
            Err(_) => Err(Problem::too_many_uploads()),
        }
    }

    fn of(&self, peer: IpAddr) -> Arc<Semaphore> {
        let address = match peer.to_canonical() {
            IpAddr::V6(six) => Ipv6Addr::from_bits(six.to_bits() >> 64 << 64).into(),
            four => four,
        };
        let mut addresses = locked(&self.addresses);
        // Nobody of these uploads now, nor waits for it.
        addresses.retain(|_, turns| Arc::strong_count(turns) > 1);
        let turns = addresses.entry(address);
        Arc::clone(turns.or_insert_with(|| Arc::new(Semaphore::new(OF_ADDRESS))))
    }
}

/// True if so many bytes took longer to come than an upload may.
pub(super) fn is_slow(bytes: u64, took: Duration, timeout: Duration) -> bool {
    took > timeout + Duration::from_secs(bytes / RATE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_half_of_the_turns_and_others_get_an_error_without_one() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let uploads = Uploads::default();
            let turn = async |last: u8| {
                let peer = IpAddr::from([192, 0, 2, last]);
                uploads.turn(Some(peer), Duration::from_millis(1)).await
            };
            let mut turns = Vec::new();
            for address in [1, 2] {
                for _ in 0..OF_ADDRESS {
                    turns.push(turn(address).await.expect("half"));
                }
                assert_eq!(turn(address).await.err().map(|p| p.status), Some(503));
            }
            assert_eq!(turn(3).await.err().map(|p| p.status), Some(503), "all");
            turns.pop();
            assert!(turn(3).await.is_ok());
            turns.clear();
            assert!(turn(1).await.is_ok());
            let addresses = uploads.addresses.lock().expect("whole").len();
            assert!(addresses <= 2, "those that are gone are forgotten");
        });
    }

    #[test]
    fn an_upload_may_not_trickle() {
        let timeout = Duration::from_secs(30);
        assert!(!is_slow(1, timeout, timeout));
        assert!(is_slow(1, timeout + Duration::from_secs(1), timeout));
        assert!(!is_slow(RATE * 100, timeout * 3, timeout));
        assert!(is_slow(RATE * 100, timeout * 5, timeout));
    }
}
