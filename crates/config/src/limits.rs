//! `[[limit]]`: what one address or one user may use at once.

use std::net::IpAddr;

use ipnet::IpNet;
use quintet_auth::{Limit, LimitTable, Limits, Subject, User};

use super::Config;
use super::auth::UserTable;
use super::schema::{Spec, keys};
use super::units::show_bytes;
use super::wrong::Wrong;

/// Every address or every user.
const ALL: &str = "*";
/// Failed logins and handshakes of an address elsewhere, in a minute.
const FAILURES_PER_MINUTE: u64 = 600;

/// A large message on its way takes up to a quarter of it.
const BYTES_LEAST: u64 = 1 << 20;

/// One `[[limit]]` table, as the file says it.
#[derive(Clone, Default)]
pub struct LimitRow {
    pub address: String,
    pub user: String,
    pub group: String,
    pub limits: Limits,
}

pub(crate) const LIMIT: &[Spec<LimitRow>] = keys! {
    "address" Text(address)
        "Each address in this network, such as \"10.0.0.0/8\", or \"*\": each but loopback. Of \
         IPv6 a /64 counts as one address.";
    "user" Text(user)
        "Or a user, or \"*\": each.";
    "group" Text(group)
        "Or each member of a group.";
    "connections_max" Given(limits.connections_max)
        "Connections at once; more are closed. 0: no limit, as in all of these.";
    "requests_per_second" Given(limits.requests_per_second)
        "Requests, over all connections; the server reads faster clients more slowly.";
    "requests_burst" Given(limits.requests_burst)
        "Requests at once after a rest; 0: those of a second.";
    "bytes_in_flight_max" GivenBytes(limits.bytes_in_flight_max)
        "Memory for requests and replies on their way, beyond 8KiB for each connection. Near it \
         the server stops reading; after a second it closes the largest connection.";
    "failures_per_minute" Given(limits.failures_per_minute)
        "Failed logins and handshakes of an address; beyond it new connections are closed.";
    "queues_max" Given(limits.queues_max)
        "Existing queues that a user has created; the user creates no more.";
    "bytes_stored_max" GivenBytes(limits.bytes_stored_max)
        "Bytes of messages in queues that a user has created, from any client; further puts into \
         these fail.";
};

impl LimitRow {
    fn limit(&self) -> Result<Limit, String> {
        let subject = match (&*self.address, &*self.user, &*self.group) {
            (ALL, "", "") => Subject::Addresses,
            (text, "", "") if !text.is_empty() => Subject::Network(network(text)?),
            ("", ALL, "") => Subject::Users,
            ("", user, "") if !user.is_empty() => Subject::User(user.to_owned()),
            ("", "", group) if !group.is_empty() => Subject::Group(group.to_owned()),
            _ => return Err("[[limit]] takes one of address, user and group".to_owned()),
        };
        if !subject.is_address() && self.limits.failures_per_minute.is_some() {
            return Err("[[limit]] failures_per_minute is for addresses".to_owned());
        }
        let stored = [self.limits.queues_max, self.limits.bytes_stored_max];
        if subject.is_address() && stored.iter().any(Option::is_some) {
            return Err(
                "[[limit]] queues_max and bytes_stored_max are for users: the creator of a \
                 queue is remembered by name"
                    .to_owned(),
            );
        }
        let bytes = self.limits.bytes_in_flight_max;
        if bytes.is_some_and(|bytes| (1..BYTES_LEAST).contains(&bytes)) {
            let supplied = show_bytes(bytes.unwrap_or_default());
            return Err(format!(
                "[[limit]] bytes_in_flight_max takes 0 or 1MiB and more; not {supplied}"
            ));
        }
        Ok(Limit {
            subject,
            limits: self.limits,
        })
    }
}

fn network(text: &str) -> Result<IpNet, String> {
    let address = text.parse::<IpAddr>().map(IpNet::from);
    let network = address.or_else(|_| text.parse::<IpNet>());
    network.map_err(|_| {
        format!(
            "[[limit]] address takes an IP address, a network such as 10.0.0.0/8, or \"*\"; not \
             \"{text}\""
        )
    })
}

/// The user of a limit.
fn user(table: &UserTable) -> User {
    User {
        name: table.name.clone(),
        groups: table.groups.clone(),
        ..User::default()
    }
}

impl Config {
    /// The first limit that is wrong.
    pub(crate) fn checked_limits(&self) -> Result<(), Wrong> {
        let mut rows = self.limits.iter().enumerate();
        rows.try_for_each(|(row, limit)| match limit.limit() {
            Ok(_) => Ok(()),
            Err(why) => Err(Wrong::from(why).of_row(row)),
        })
    }

    /// The limits of addresses and users.
    ///
    /// # Errors
    /// All that is wrong, a line each.
    pub fn limit_table(&self) -> Result<LimitTable, Vec<String>> {
        // One address elsewhere does not take what all have.
        let mut rows = vec![Limit {
            subject: Subject::Addresses,
            limits: Limits {
                connections_max: Some((self.connections_max / 2).max(1)),
                bytes_in_flight_max: Some(self.connection_memory_bytes() / 2),
                failures_per_minute: Some(FAILURES_PER_MINUTE),
                ..Limits::default()
            },
        }];
        let mut wrong = Vec::new();
        for row in &self.limits {
            match row.limit() {
                Ok(limit) => rows.push(limit),
                Err(why) => wrong.push(why),
            }
        }
        let users: Vec<User> = self.users.iter().map(user).collect();
        match LimitTable::new(rows, &users, self.names_users_elsewhere()) {
            Ok(table) if wrong.is_empty() => Ok(table),
            Ok(_) => Err(wrong),
            Err(more) => {
                wrong.extend(more);
                Err(wrong)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::from_text;

    #[test]
    fn rows_are_read_and_mistakes_are_gathered() {
        let config = from_text(
            "connections_max = 100\n[[limit]]\naddress = '10.0.0.0/8'\nconnections_max = 7\n\
             bytes_in_flight_max = '1MiB'\n[[limit]]\naddress = '*'\nrequests_per_second = 9\n",
        )
        .expect("read");
        let table = config.limit_table().expect("fine");
        let of = |text: &str| table.of_address(text.parse().expect("an address"));
        let near = of("10.9.9.9");
        assert_eq!(near.connections_max, Some(7));
        assert_eq!(near.bytes_in_flight_max, Some(1 << 20));
        assert_eq!(near.requests_per_second, Some(9));
        let other = of("192.0.2.1");
        assert_eq!(other.connections_max, Some(50));
        assert_eq!(other.failures_per_minute, Some(super::FAILURES_PER_MINUTE));
        assert!(of("127.0.0.1").is_none());

        let config = from_text(
            "[[limit]]\nconnections_max = 1\n[[limit]]\naddress = 'here'\n\
             [[limit]]\naddress = '*'\nuser = 'ann'\n[[limit]]\nuser = 'ann'\n\
             [[limit]]\ngroup = 'ops'\n[[limit]]\nuser = '*'\nfailures_per_minute = 1\n\
             [[limit]]\naddress = '*'\nbytes_in_flight_max = 5\n\
             [[limit]]\naddress = '*'\nqueues_max = 5\n",
        )
        .expect("read");
        let wrong = config.limit_table().expect_err("wrong");
        assert_eq!(wrong.len(), 8, "{wrong:#?}");
        for text in [
            "[[limit]]\nconection_max = 1",
            "[[limit]]\nconnections_max = '1'",
            "[[limit]]\nconnections_max = -1",
            "[limit]\nconnections_max = 1",
        ] {
            assert!(from_text(text).is_err(), "{text}");
        }
    }
}
