//! How much one address or one user may use at once.

use std::net::IpAddr;

use hashbrown::{HashMap, HashSet};
use ipnet::IpNet;

use crate::users::User;

/// Subject of a row of limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Each address that is not this machine's own.
    Addresses,
    /// Each address in a network.
    Network(IpNet),
    Users,
    /// Each member of a group.
    Group(String),
    User(String),
}

impl Subject {
    /// True if it is about addresses, not users.
    pub fn is_address(&self) -> bool {
        matches!(self, Self::Addresses | Self::Network(_))
    }

    /// Of two that fit, the one with the greater number counts.
    fn nearness(&self) -> u32 {
        match self {
            Self::Addresses | Self::Users => 0,
            Self::Network(network) => 1 + u32::from(network.prefix_len()),
            Self::Group(_) => 1,
            Self::User(_) => 2,
        }
    }
}

/// Limits at one time; `None`: not set. 0: no limit.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections that are open.
    pub connections_max: Option<u64>,
    /// Requests, over all connections.
    pub requests_per_second: Option<u64>,
    /// Requests that may come at once after a rest; `None` and 0: those of a
    /// second.
    pub requests_burst: Option<u64>,
    /// Bytes of memory that requests and replies on their way take.
    pub bytes_in_flight_max: Option<u64>,
    /// Logins and handshakes that fail.
    pub failures_per_minute: Option<u64>,
    /// Of a user: queues that it has made and that are there.
    pub queues_max: Option<u64>,
    /// Of a user: bytes of bodies in these.
    pub bytes_stored_max: Option<u64>,
}

impl Limits {
    fn lay_over(&self, below: &mut Self) {
        let lay = |over: Option<u64>, below: &mut Option<u64>| *below = over.or(*below);
        lay(self.connections_max, &mut below.connections_max);
        lay(self.requests_per_second, &mut below.requests_per_second);
        lay(self.requests_burst, &mut below.requests_burst);
        lay(self.bytes_in_flight_max, &mut below.bytes_in_flight_max);
        lay(self.failures_per_minute, &mut below.failures_per_minute);
        lay(self.queues_max, &mut below.queues_max);
        lay(self.bytes_stored_max, &mut below.bytes_stored_max);
    }

    /// Queues and bytes that the queues a user made may come to, if either is limited; 0: it is
    /// not.
    pub fn stored(&self) -> Option<(u64, u64)> {
        let stored = (
            self.queues_max.unwrap_or(0),
            self.bytes_stored_max.unwrap_or(0),
        );
        (stored != (0, 0)).then_some(stored)
    }

    /// True if nothing that is used at once is limited.
    pub fn is_none(&self) -> bool {
        let says = [
            self.connections_max,
            self.requests_per_second,
            self.bytes_in_flight_max,
            self.failures_per_minute,
        ];
        says.into_iter().all(|limit| limit.unwrap_or(0) == 0)
    }
}

/// A row of the configuration.
#[derive(Clone, Debug)]
pub struct Limit {
    pub subject: Subject,
    pub limits: Limits,
}

/// All of them: answers for an address or a user.
#[derive(Debug, Default)]
pub struct LimitTable {
    /// The nearest last.
    rows: Vec<Limit>,
    /// Of each user.
    groups: HashMap<String, Vec<String>>,
}

impl LimitTable {
    /// A table of these. Of the rows that fit somebody the nearest counts, key
    /// by key: a user's own before a group's before all users', a longer
    /// network before a shorter; of two that are as near, the later.
    /// `named_elsewhere`: somebody else, a hook, may know users too.
    ///
    /// # Errors
    /// All that is wrong, a line each.
    pub fn new(
        mut rows: Vec<Limit>,
        users: &[User],
        named_elsewhere: bool,
    ) -> Result<Self, Vec<String>> {
        let names: HashSet<&str> = users.iter().map(|user| user.name.as_str()).collect();
        let mut wrong = Vec::new();
        for row in &rows {
            match &row.subject {
                Subject::User(name) if !named_elsewhere && !names.contains(name.as_str()) => {
                    wrong.push(format!("[[limit]] user = \"{name}\" names no [[user]]"));
                }
                Subject::Group(group) if !users.iter().any(|user| user.groups.contains(group)) => {
                    wrong.push(format!("[[limit]] group = \"{group}\" has no member"));
                }
                Subject::Addresses
                | Subject::Network(_)
                | Subject::Users
                | Subject::Group(_)
                | Subject::User(_) => {}
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        rows.sort_by_key(|row| row.subject.nearness());
        let groups = users
            .iter()
            .map(|user| (user.name.clone(), user.groups.clone()));
        Ok(Self {
            rows,
            groups: groups.collect(),
        })
    }

    /// Limits of each address like this one.
    pub fn of_address(&self, address: IpAddr) -> Limits {
        let address = address.to_canonical();
        self.laid(|subject| match subject {
            Subject::Addresses => !address.is_loopback(),
            Subject::Network(network) => network.contains(&address),
            Subject::Users | Subject::Group(_) | Subject::User(_) => false,
        })
    }

    /// The limits that hold for a user: of all users, of its groups and its own.
    pub fn of_user(&self, name: &str) -> Limits {
        let groups = self.groups.get(name).map_or(&[][..], Vec::as_slice);
        self.laid(|subject| match subject {
            Subject::Users => true,
            Subject::Group(group) => groups.contains(group),
            Subject::User(user) => user == name,
            Subject::Addresses | Subject::Network(_) => false,
        })
    }

    /// True if some user may not use all there is.
    pub fn limits_users(&self) -> bool {
        self.rows.iter().any(|row| !row.subject.is_address())
    }

    fn laid(&self, fits: impl Fn(&Subject) -> bool) -> Limits {
        let mut limits = Limits::default();
        for row in self.rows.iter().filter(|row| fits(&row.subject)) {
            row.limits.lay_over(&mut limits);
        }
        limits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(subject: Subject, connections: Option<u64>, requests: Option<u64>) -> Limit {
        Limit {
            subject,
            limits: Limits {
                connections_max: connections,
                requests_per_second: requests,
                ..Limits::default()
            },
        }
    }

    fn network(text: &str) -> Subject {
        Subject::Network(text.parse().expect("a network"))
    }

    fn both(limits: Limits) -> (Option<u64>, Option<u64>) {
        (limits.connections_max, limits.requests_per_second)
    }

    #[test]
    fn the_nearest_row_counts_key_by_key() {
        let rows = vec![
            row(network("10.1.0.0/16"), Some(7), None),
            row(Subject::Addresses, Some(1), Some(100)),
            row(network("10.0.0.0/8"), Some(5), Some(50)),
            row(network("10.0.0.0/8"), Some(6), None),
            row(network("2001:db8::/32"), Some(9), None),
        ];
        let table = LimitTable::new(rows, &[], false).expect("fine");
        let of = |text: &str| both(table.of_address(text.parse().expect("an address")));
        assert_eq!(of("192.0.2.1"), (Some(1), Some(100)));
        assert_eq!(of("10.2.0.1"), (Some(6), Some(50)));
        assert_eq!(of("10.1.0.1"), (Some(7), Some(50)));
        assert_eq!(of("::ffff:10.1.0.1"), (Some(7), Some(50)));
        assert_eq!(of("2001:db8::1"), (Some(9), Some(100)));
        for own in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(of(own), (None, None), "{own}");
        }
        assert!(!table.limits_users());
        let named = vec![row(network("127.0.0.0/8"), Some(3), None)];
        let named = LimitTable::new(named, &[], false).expect("fine");
        let own = "127.0.0.1".parse().expect("an address");
        assert_eq!(named.of_address(own).connections_max, Some(3));
    }

    #[test]
    fn a_user_s_own_row_counts_before_its_group_s_and_all_users() {
        let users =
            [("ann", &["ops"][..]), ("bob", &["ops"]), ("cyd", &[])].map(|(name, groups)| User {
                name: name.to_owned(),
                groups: groups.iter().map(|group| (*group).to_owned()).collect(),
                ..User::default()
            });
        let rows = vec![
            row(Subject::User("ann".to_owned()), Some(0), None),
            row(Subject::Group("ops".to_owned()), Some(8), Some(80)),
            row(Subject::Users, Some(4), Some(40)),
        ];
        let table = LimitTable::new(rows.clone(), &users, false).expect("fine");
        assert_eq!(both(table.of_user("ann")), (Some(0), Some(80)));
        assert_eq!(both(table.of_user("bob")), (Some(8), Some(80)));
        assert_eq!(both(table.of_user("cyd")), (Some(4), Some(40)));
        assert!(table.limits_users());
        let nobody = LimitTable::new(rows, &[], false).expect_err("nobody there");
        assert_eq!(nobody.len(), 2, "{nobody:?}");
    }

    #[test]
    fn an_absent_limit_and_limit_zero_limit_nothing() {
        assert!(Limits::default().is_none());
        let none = Limits {
            connections_max: Some(0),
            requests_burst: Some(5),
            ..Limits::default()
        };
        assert!(none.is_none());
        let some = Limits {
            failures_per_minute: Some(1),
            ..none
        };
        assert!(!some.is_none());
    }
}
