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
pub struct Wait {
    /// Whole seconds, rounded up.
    pub seconds: u64,
}

/// What failed lately. Bounded; where it is full the address that failed
/// longest ago is forgotten.
#[derive(Default)]
pub struct Throttle {
    failed: HashMap<Place, Failures>,
}

/// An IPv4 address; of IPv6 the network a customer is given.
type Place = [u8; 8];

#[derive(Clone, Copy)]
struct Failures {
    count: u32,
    last_ms: u64,
}

impl Throttle {
    /// Whether somebody at `address` may try at `now_ms`. A try counts as
    /// failed until [`Throttle::succeeded`], so that many at once count too.
    ///
    /// # Errors
    /// How long not.
    pub fn may_try(&mut self, address: IpAddr, now_ms: u64) -> Result<(), Wait> {
        let place = place_of(address);
        if let Some(failures) = self.failed.get(&place) {
            let since = now_ms.saturating_sub(failures.last_ms);
            if since >= FORGOTTEN_MS {
                self.failed.remove(&place);
            } else if let Some(left) = wait_ms(failures.count).checked_sub(since)
                && left > 0
            {
                let seconds = left.div_ceil(1000);
                return Err(Wait { seconds });
            }
        }
        if self.failed.len() >= ADDRESSES_MAX && !self.failed.contains_key(&place) {
            self.make_room(now_ms);
        }
        let failures = self.failed.entry(place).or_insert(Failures {
            count: 0,
            last_ms: now_ms,
        });
        failures.count = failures.count.saturating_add(1);
        failures.last_ms = now_ms;
        Ok(())
    }

    /// A try at `address` was none of those that failed.
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

fn place_of(address: IpAddr) -> Place {
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
        }
        let mut now = 0;
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(throttle.may_try(at(1), now), Err(Wait { seconds }));
            assert_eq!(throttle.may_try(at(2), now), Ok(()), "another address");
            throttle.succeeded(at(2));
            now += seconds * 1000;
            assert_eq!(throttle.may_try(at(1), now - 1), Err(Wait { seconds: 1 }));
            assert_eq!(throttle.may_try(at(1), now), Ok(()));
        }
        throttle.succeeded(at(1));
        assert_eq!(throttle.may_try(at(1), now), Ok(()));
        // What lies back far enough is forgotten.
        for _ in 0..FREE {
            let _either = throttle.may_try(at(3), now);
        }
        assert!(throttle.may_try(at(3), now).is_err());
        assert_eq!(throttle.may_try(at(3), now + FORGOTTEN_MS), Ok(()));
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one() {
        let mut throttle = Throttle::default();
        for last in 0..FREE {
            let address: IpAddr = format!("2001:db8:1:2::{last}").parse().expect("an address");
            assert_eq!(throttle.may_try(address, 0), Ok(()));
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
            assert_eq!(throttle.may_try(address(n), n as u64), Ok(()));
        }
        assert_eq!(throttle.failed.len(), ADDRESSES_MAX);
        assert!(!throttle.failed.contains_key(&place_of(address(0))));
    }
}
