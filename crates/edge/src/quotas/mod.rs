//! Usage of addresses and users, and their limits: `[[limit]]`.

mod accounts;
mod meter;
mod quota;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use quintet_auth::{LimitTable, Limits, Place, place_of};
use quintet_client::{Arrivals, Share, ThrottledClient};
use quintet_config::Config;
use quintet_host::{Point, locked};
use quintet_types::{Account, Principal};

use accounts::Accounts;
pub(crate) use meter::Meter;
use quota::Quota;
pub(crate) use quota::Stay;

/// Where so many addresses and users have no connection, what they sent and
/// failed lately is forgotten; it is looked at before twice as many are there.
const REMEMBERED_MAX: usize = 65_536;
/// Below so many nobody is forgotten.
const REMEMBERED_LEAST: usize = 1024;
/// A request over HTTP that would have to wait for longer is refused.
const HTTP_WAIT_MAX: Duration = Duration::from_secs(5);

/// Holder of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Of {
    Address,
    User,
}

quintet_types::named! {
    /// The limit that a client has reached.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Limited, name {
        Connections = "connections",
        /// Of HTTP alone: others wait.
        Requests = "requests",
        BytesInFlight = "bytes_in_flight",
        Failures = "failures",
    }
}

impl Limited {
    /// The error that a client gets, in English.
    pub fn text(self, of: Of) -> &'static str {
        match (self, of) {
            (Self::Connections, Of::Address) => "too many connections from this address",
            (Self::Connections, Of::User) => "too many connections of this user",
            (Self::Requests, Of::Address) => "too many requests from this address",
            (Self::Requests, Of::User) => "too many requests of this user",
            (Self::BytesInFlight, Of::Address) => "too many bytes in flight from this address",
            (Self::BytesInFlight, Of::User) => "too many bytes in flight of this user",
            (Self::Failures, _) => "too many logins or handshakes from this address have failed",
        }
    }
}

/// When a request over HTTP may be answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    In(Duration),
    /// Not soon: in so much time.
    Not(Duration, Of),
}

/// The user or address of a usage.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Whose {
    Place(Place),
    User(Principal),
}

/// The owner of a usage, also as the table knows it, and its limits.
type LimitedUse = (Whose, LimitSubject, Limits);

/// As whom the table knows it.
#[derive(Clone)]
enum LimitSubject {
    Address(IpAddr),
    User(Arc<str>),
}

impl LimitSubject {
    fn limits(&self, table: &LimitTable) -> Limits {
        match self {
            Self::Address(address) => table.of_address(*address),
            Self::User(name) => table.of_user(name),
        }
    }
}

/// All of them. Bounded: by those with connections, and [`REMEMBERED_MAX`].
pub struct Quotas {
    started: Instant,
    table: RwLock<Arc<LimitTable>>,
    accounts: Accounts,
    used: Mutex<Used>,
    /// By limit, of addresses and of users.
    refused: [[AtomicU64; 2]; Limited::ALL.len()],
    /// Requests that had to wait.
    delayed: [AtomicU64; 2],
}

struct Used {
    by: HashMap<Whose, (LimitSubject, Arc<Quota>)>,
    /// So many, and those of whom nothing has to be remembered are forgotten.
    cleanup_at: usize,
}

impl Quotas {
    /// By the configuration.
    ///
    /// # Errors
    /// All that is wrong with its limits.
    pub fn new(config: &Config, started: Instant) -> Result<Self> {
        let table = config
            .limit_table()
            .map_err(|why| anyhow!(why.join("; ")))?;
        Ok(Self {
            started,
            table: RwLock::new(Arc::new(table)),
            accounts: Accounts::default(),
            used: Mutex::new(Used {
                by: HashMap::new(),
                cleanup_at: REMEMBERED_LEAST,
            }),
            refused: Default::default(),
            delayed: Default::default(),
        })
    }

    /// By another table: for all that come, and those there are that had limits.
    pub fn reload(&self, table: LimitTable) {
        let mut used = locked(&self.used);
        for (known, quota) in used.by.values_mut() {
            quota.set(&known.limits(&table));
        }
        self.accounts.reload(&table);
        let at = self.table.write();
        *at.unwrap_or_else(|poisoned| poisoned.into_inner()) = Arc::new(table);
    }

    /// The account of the queues that this user made, if they are limited.
    pub fn account(&self, maker: &[u8]) -> Option<Arc<Account>> {
        self.accounts.of(maker, &self.table())
    }

    fn table(&self) -> Arc<LimitTable> {
        let table = self.table.read();
        Arc::clone(&table.unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// Time as quotas count it, ns.
    pub fn now_ns(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.started);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    /// How long after `now` it is `at_ns`.
    pub fn until(&self, at_ns: u64, now: Instant) -> Duration {
        Duration::from_nanos(at_ns.saturating_sub(self.now_ns(now)))
    }

    /// A connection comes from `address`; a unix socket has none.
    ///
    /// # Errors
    /// It is one too many, or too much failed there.
    pub fn arrive(&self, address: Option<IpAddr>) -> Result<Meter, Limited> {
        let stay = self.stay(address)?;
        Ok(Meter::new(stay))
    }

    /// The same, for callers that count only that.
    ///
    /// # Errors
    /// The same.
    pub fn stay(&self, address: Option<IpAddr>) -> Result<Option<Stay>, Limited> {
        let Some(address) = address else {
            return Ok(None);
        };
        let now_ns = self.now_ns(Instant::now());
        let entered = self.with(self.address(address), |quota| {
            let fails = quota.fails_too_often(now_ns).then_some(Limited::Failures);
            let entered = match fails {
                Some(limited) => Err(limited),
                None => Arc::clone(&quota).enter().ok_or(Limited::Connections),
            };
            entered.inspect_err(|_| quota.holds_back(now_ns))
        });
        let entered = entered.transpose();
        if let Err(limited) = &entered {
            self.refuse(*limited, Of::Address);
            tracing::debug!(%address, "connection refused: {}", limited.text(Of::Address));
        }
        entered
    }

    /// A connection is that of a user from now on.
    ///
    /// # Errors
    /// It is one too many; it stays whose it was.
    pub fn become_of(
        &self,
        meter: &mut Meter,
        user: Principal,
        name: Option<Arc<str>>,
    ) -> Result<(), Limited> {
        let now_ns = self.now_ns(Instant::now());
        let entered = self.with(self.user(user, name), |quota| {
            let entered = Arc::clone(&quota).enter();
            if entered.is_none() {
                quota.holds_back(now_ns);
            }
            entered
        });
        match entered {
            Some(None) => {
                self.refuse(Limited::Connections, Of::User);
                Err(Limited::Connections)
            }
            entered => {
                meter.become_of(entered.flatten());
                Ok(())
            }
        }
    }

    /// A login or a handshake failed.
    pub fn failed(&self, address: Option<IpAddr>) {
        let Some(address) = address else { return };
        let now_ns = self.now_ns(Instant::now());
        self.with(self.address(address), |quota| quota.failed(now_ns));
    }

    /// A request over HTTP comes from `address`.
    pub fn pace_address(&self, address: Option<IpAddr>, now: Instant) -> Pace {
        let of = address.and_then(|address| self.address(address));
        self.pace(of, Of::Address, now)
    }

    /// A request over HTTP comes from this user, whatever its connection.
    pub fn pace_user(&self, user: Principal, name: Option<Arc<str>>, now: Instant) -> Pace {
        self.pace(self.user(user, name), Of::User, now)
    }

    /// A request over HTTP from `address`, of `user` if it has one, holds so
    /// many bytes more, until what is answered is dropped.
    ///
    /// # Errors
    /// The owner of the limit that would be exceeded.
    pub fn hold(
        &self,
        address: Option<IpAddr>,
        user: Option<(Principal, Option<Arc<str>>)>,
        bytes: u64,
    ) -> Result<Vec<Share>, Of> {
        let address = address.and_then(|address| self.address(address));
        let user = user.and_then(|(user, name)| self.user(user, name));
        let mut held = Vec::new();
        for (whose, of) in [(address, Of::Address), (user, Of::User)] {
            let shared = self.with(whose, |quota| {
                let share = quota.bytes.take(bytes);
                if share.is_none() {
                    quota.holds_back(self.now_ns(Instant::now()));
                }
                share
            });
            match shared {
                None => {}
                Some(Some(share)) => held.push(share),
                Some(None) => {
                    self.refuse(Limited::BytesInFlight, of);
                    return Err(of);
                }
            }
        }
        Ok(held)
    }

    fn pace(&self, whose: Option<LimitedUse>, of: Of, now: Instant) -> Pace {
        let whose = whose.filter(|(_, _, limits)| limits.requests_per_second.unwrap_or(0) > 0);
        let now_ns = self.now_ns(now);
        let due = self.with(whose, |quota| {
            let Some(rate) = quota.rate() else {
                return Ok(now_ns);
            };
            let at = quota.requests.reserve(rate, now_ns);
            if at > now_ns {
                quota.holds_back(now_ns);
            }
            if self.until(at, now) > HTTP_WAIT_MAX {
                quota.requests.give_back(rate);
                return Err(at);
            }
            Ok(at)
        });
        match due {
            None => Pace::In(Duration::ZERO),
            Some(Ok(at)) => {
                let wait = self.until(at, now);
                if !wait.is_zero() {
                    self.delay(of);
                }
                Pace::In(wait)
            }
            Some(Err(at)) => {
                self.refuse(Limited::Requests, of);
                Pace::Not(self.until(at, now), of)
            }
        }
    }

    fn address(&self, address: IpAddr) -> Option<LimitedUse> {
        let limits = self.table().of_address(address);
        let whose = Whose::Place(place_of(address));
        (!limits.is_none()).then_some((whose, LimitSubject::Address(address), limits))
    }

    fn user(&self, user: Principal, name: Option<Arc<str>>) -> Option<LimitedUse> {
        if user == Principal::SERVER || user == Principal::ANONYMOUS {
            return None;
        }
        let table = self.table();
        if !table.limits_users() {
            return None;
        }
        let name = name?;
        let limits = table.of_user(&name);
        (!limits.is_none()).then_some((Whose::User(user), LimitSubject::User(name), limits))
    }

    /// Does something with somebody's quota, if it has limits.
    fn with<T>(&self, whose: Option<LimitedUse>, work: impl FnOnce(Arc<Quota>) -> T) -> Option<T> {
        let (whose, known, limits) = whose?;
        let mut used = locked(&self.used);
        if used.by.len() >= used.cleanup_at && !used.by.contains_key(&whose) {
            used.drop_idle(self.now_ns(Instant::now()));
        }
        let (_, quota) = used
            .by
            .entry(whose)
            .or_insert_with(|| (known, Quota::new(&limits)));
        Some(work(Arc::clone(quota)))
    }

    /// Counts what a limit has refused.
    pub fn refuse(&self, limited: Limited, of: Of) {
        self.refused[limited as usize][of as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that has to wait.
    pub fn delay(&self, of: Of) {
        self.delayed[of as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Clients that a limit throttled, `most` of them at most, the latest first.
    pub fn throttled(&self, now: Instant, most: usize) -> Vec<ThrottledClient> {
        let now_ns = self.now_ns(now);
        let used = locked(&self.used);
        let all = used.by.values();
        let all = all.map(|(known, quota)| (known, quota, quota.throttled()));
        let mut all: Vec<_> = all.filter(|(.., (times, _))| *times > 0).collect();
        all.sort_unstable_by_key(|(.., (_, at_ns))| std::cmp::Reverse(*at_ns));
        all.truncate(most);
        let listed = all
            .into_iter()
            .map(|(known, quota, (times, at_ns))| ThrottledClient {
                who: match known {
                    LimitSubject::Address(address) => format!("address {address}"),
                    LimitSubject::User(name) => format!("user {name}"),
                },
                now: quota.reached(now_ns).map(Limited::name).collect(),
                times,
                ago_ms: now_ns.saturating_sub(at_ns) / 1_000_000,
            });
        listed.collect()
    }

    /// Counts of errors, by limit and holder.
    pub fn command_errors(&self) -> Vec<Point> {
        let each = Limited::ALL.into_iter().flat_map(|limited| {
            let counts = &self.refused[limited as usize];
            points(counts).map(move |(of, count)| (vec![limited.name().into(), of], count))
        });
        each.collect()
    }

    /// Requests that had to wait, by whose limit it was.
    pub fn delays(&self) -> Vec<Point> {
        points(&self.delayed)
            .map(|(of, count)| (vec![of], count))
            .collect()
    }
}

impl Arrivals for Quotas {
    fn arrive(&self, address: IpAddr) -> Option<Box<dyn Any + Send>> {
        let stay = self.stay(Some(address)).ok()?;
        Some(Box::new(stay))
    }

    fn failed(&self, address: IpAddr) {
        self.failed(Some(address));
    }
}

fn points(counts: &[AtomicU64; 2]) -> impl Iterator<Item = (std::borrow::Cow<'static, str>, f64)> {
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
    [
        ("address".into(), count(&counts[Of::Address as usize])),
        ("user".into(), count(&counts[Of::User as usize])),
    ]
    .into_iter()
}

impl Used {
    fn drop_idle(&mut self, now_ns: u64) {
        self.by.retain(|_, (_, quota)| !quota.is_idle(now_ns));
        let idle = self.by.values().filter(|(_, of)| !of.has_connections());
        if idle.count() >= REMEMBERED_MAX {
            self.by.retain(|_, (_, quota)| quota.has_connections());
        }
        self.cleanup_at = (self.by.len() * 2).max(REMEMBERED_LEAST);
    }
}
