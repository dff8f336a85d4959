//! Failed logins, by address: after a few each next try waits longer.

use std::net::IpAddr;

use hashbrown::HashMap;

/// Failures that cost nothing.
const FREE: u32 = 5;
/// The first wait, ms; each further failure doubles it ...
const FIRST_MS: u64 = 1000;
/// ... up to this.
const LONGEST_MS: u64 = 60_000;
/// An address is forgotten when nothing failed for so long, ms.
const FORGOTTEN_MS: u64 = 15 * 60_000;
/// Addresses remembered at most.
const ADDRESSES_MAX: usize = 65_536;

/// For how long nobody at an address may try again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryAfter {
    /// Whole seconds, rounded up.
    pub seconds: u64,
}

/// Recent failures. Bounded; where it is full the address that failed longest ago is forgotten.
#[derive(Default)]
pub struct Throttle {
    failed: HashMap<Place, Failures>,
}

/// Where clients count as one: an IPv4 address; of IPv6 the network a customer
/// is given.
pub type Place = [u8; 8];

#[derive(Clone, Copy)]
struct Failures {
    count: u32,
    last_ms: u64,
}

impl Throttle {
    /// Whether somebody at `address` may try at `now_ms`.
    ///
    /// # Errors
    /// How long not.
    pub fn may_try(&self, address: IpAddr, now_ms: u64) -> Result<(), RetryAfter> {
        let Some(failures) = self.failed.get(&place_of(address)) else {
            return Ok(());
        };
        let since = now_ms.saturating_sub(failures.last_ms);
        match wait_ms(failures.count).checked_sub(since) {
            Some(left) if left > 0 => Err(RetryAfter {
                seconds: left.div_ceil(1000),
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// Counts a failed login; after several of them the address must wait.
    pub fn failed(&mut self, address: IpAddr, now_ms: u64) {
        let place = place_of(address);
        if self.failed.len() >= ADDRESSES_MAX && !self.failed.contains_key(&place) {
            self.make_room(now_ms);
        }
        let failures = self.failed.entry(place).or_insert(Failures {
            count: 0,
            last_ms: now_ms,
        });
        if now_ms.saturating_sub(failures.last_ms) >= FORGOTTEN_MS {
            failures.count = 0;
        }
        failures.count = failures.count.saturating_add(1);
        failures.last_ms = now_ms;
    }

    /// A try at `address` succeeded: what failed before is forgotten.
    pub fn succeeded(&mut self, address: IpAddr) {
        self.failed.remove(&place_of(address));
    }

    fn make_room(&mut self, now_ms: u64) {
        self.failed
            .retain(|_, failures| now_ms.saturating_sub(failures.last_ms) < FORGOTTEN_MS);
        if self.failed.len() >= ADDRESSES_MAX {
            let oldest = self
                .failed
                .iter()
                .min_by_key(|(_, failures)| failures.last_ms);
            if let Some(place) = oldest.map(|(place, _)| *place) {
                self.failed.remove(&place);
            }
        }
    }
}

/// How long after the last of so many failures the next try may come.
fn wait_ms(count: u32) -> u64 {
    match count.checked_sub(FREE) {
        None => 0,
        Some(more) => FIRST_MS
            .saturating_mul(1u64.checked_shl(more).unwrap_or(u64::MAX))
            .min(LONGEST_MS),
    }
}

/// Where a client at `address` counts.
pub fn place_of(address: IpAddr) -> Place {
    let mut place = [0; 8];
    match address.to_canonical() {
        IpAddr::V4(v4) => place[4..].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => place.copy_from_slice(&v6.octets()[..8]),
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn each_failure_beyond_a_few_doubles_the_wait() {
        let mut throttle = Throttle::default();
        for _ in 0..FREE {
            assert_eq!(throttle.may_try(at(1), 0), Ok(()));
            throttle.failed(at(1), 0);
        }
        let mut now = 0;
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(throttle.may_try(at(1), now), Err(RetryAfter { seconds }));
            assert_eq!(throttle.may_try(at(2), now), Ok(()), "another address");
            now += seconds * 1000;
            let almost = throttle.may_try(at(1), now - 1);
            assert_eq!(almost, Err(RetryAfter { seconds: 1 }));
            assert_eq!(throttle.may_try(at(1), now), Ok(()));
            throttle.failed(at(1), now);
        }
        throttle.succeeded(at(1));
        assert_eq!(throttle.may_try(at(1), now), Ok(()));
        // What lies back far enough is forgotten.
        for _ in 0..FREE {
            throttle.failed(at(3), now);
        }
        assert!(throttle.may_try(at(3), now).is_err());
        throttle.failed(at(3), now + FORGOTTEN_MS);
        assert_eq!(throttle.may_try(at(3), now + FORGOTTEN_MS), Ok(()));
        // A clock that is set back keeps nobody out for longer.
        for _ in 0..50 {
            throttle.failed(at(4), now);
        }
        assert_eq!(throttle.may_try(at(4), 0), Err(RetryAfter { seconds: 60 }));
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one() {
        let mut throttle = Throttle::default();
        for last in 0..FREE {
            let address: IpAddr = format!("2001:db8:1:2::{last}").parse().expect("an address");
            throttle.failed(address, 0);
        }
        let address = "2001:db8:1:2:ffff::".parse().expect("an address");
        assert!(throttle.may_try(address, 0).is_err());
        let other = "2001:db8:1:3::".parse().expect("an address");
        assert_eq!(throttle.may_try(other, 0), Ok(()));
    }

    #[test]
    fn it_remembers_so_many_and_no_more() {
        let mut throttle = Throttle::default();
        let address = |n: usize| IpAddr::from(u32::try_from(n).expect("small").to_be_bytes());
        for n in 0..ADDRESSES_MAX + 10 {
            throttle.failed(address(n), n as u64);
        }
        assert_eq!(throttle.failed.len(), ADDRESSES_MAX);
        assert!(!throttle.failed.contains_key(&place_of(address(0))));
    }
}
