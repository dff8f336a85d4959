//! Each NATS server's own copy of the log, asked of its monitoring address: what JetStream calls
//! current may lack entries that its store has lost.

use anyhow::{Context as _, Result, ensure};
use quintet_cluster::{Ends, Seq};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::checks::monitored;

/// A server's copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Store {
    /// The server's name; empty: it does not answer.
    pub(crate) server: String,
    pub(crate) address: String,
    /// How it is damaged, if it is.
    pub(crate) damage: Option<String>,
    /// Why nothing is known of it.
    pub(crate) silent: Option<String>,
}

impl Store {
    /// It is known to have everything that it should.
    pub(crate) fn is_whole(&self) -> bool {
        self.damage.is_none() && self.silent.is_none()
    }
}

/// The copies of `stream` on the servers with these monitoring addresses. `begins`: the entry that
/// the log begins with, as all up to another say; asked after the servers were.
pub(super) fn look(
    addresses: &[String],
    stream: &str,
    begins: impl Fn() -> Option<(Seq, Seq)>,
) -> Vec<Store> {
    let told: Vec<_> = std::thread::scope(|scope| {
        let asked: Vec<_> = addresses
            .iter()
            .map(|address| scope.spawn(move || ask(address, stream)))
            .collect();
        asked
            .into_iter()
            .map(|asked| asked.join().unwrap_or_else(|_| Ok(None)))
            .collect()
    });
    let begins = begins();
    let stores = addresses.iter().zip(told).filter_map(|(address, told)| {
        let address = address.clone();
        match told {
            Ok(Some((server, ends, deleted))) => Some(Store {
                server,
                address,
                damage: damage(&ends, deleted, begins),
                silent: None,
            }),
            // A server that does not keep this stream.
            Ok(None) => None,
            Err(error) => Some(Store {
                address,
                silent: Some(format!("{error:#}")),
                ..Store::default()
            }),
        }
    });
    stores.collect()
}

/// The server's name, where its copy begins and ends, and how many entries it calls deleted.
fn ask(address: &str, stream: &str) -> Result<Option<(String, Ends, u64)>> {
    let about = monitored(address, "/varz")?;
    let server = about["server_name"].as_str().context("it has no name")?;
    let told = monitored(address, "/jsz?streams=1")?;
    let copy = copy(&told, stream)?;
    Ok(copy.map(|(ends, deleted)| (server.to_owned(), ends, deleted)))
}

/// # Errors
/// Several accounts have a stream of this name: nobody can tell which is ours.
fn copy(told: &Value, stream: &str) -> Result<Option<(Ends, u64)>> {
    let list = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
    let accounts = list(told, "account_details");
    let streams = accounts.iter().flat_map(|one| list(one, "stream_detail"));
    let mut named = streams.filter(|one| one["name"] == stream);
    let Some(found) = named.next() else {
        return Ok(None);
    };
    ensure!(
        named.next().is_none(),
        "several accounts have a stream {stream}"
    );
    let state = |name: &str| found["state"][name].as_u64().unwrap_or(0);
    let ends = Ends {
        first: Seq(state("first_seq").max(1)),
        last: Seq(state("last_seq")),
        count: state("messages"),
        leader: None,
    };
    Ok(Some((ends, state("num_deleted"))))
}

/// How a copy is damaged. The log never deletes single entries, and begins where its owner says.
fn damage(ends: &Ends, deleted: u64, begins: Option<(Seq, Seq)>) -> Option<String> {
    let Ends {
        first, last, count, ..
    } = *ends;
    if ends.missing() > 0 || deleted > 0 {
        let missing = ends.missing().max(deleted);
        return Some(format!(
            "it has {count} entries from {first} to {last}, {missing} are missing"
        ));
    }
    let (begins, known) = begins?;
    if begins >= first || last == Seq(0) || last > known {
        return None;
    }
    Some(format!(
        "it begins with entry {first}, the log with entry {begins}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(state: &str) -> Value {
        let text = format!(
            r#"{{"account_details": [{{"name": "$G", "stream_detail": [
                {{"name": "KV_other", "state": {{"messages": 1}}}},
                {{"name": "Q_quintet_0", "state": {state}}}]}}]}}"#
        );
        serde_json::from_str(&text).expect("JSON")
    }

    #[test]
    fn a_copy_with_less_than_it_should_have_is_damaged() {
        for (state, begins, says) in [
            (
                r#"{"messages": 10, "first_seq": 1, "last_seq": 10}"#,
                1,
                None,
            ),
            // What was given up may be there yet.
            (
                r#"{"messages": 10, "first_seq": 1, "last_seq": 10}"#,
                5,
                None,
            ),
            (r#"{"messages": 0, "first_seq": 0, "last_seq": 0}"#, 0, None),
            (
                r#"{"messages": 9, "first_seq": 1, "last_seq": 10}"#,
                1,
                Some("9 entries from 1 to 10, 1 are missing"),
            ),
            (
                r#"{"messages": 8, "first_seq": 3, "last_seq": 10, "num_deleted": 2}"#,
                3,
                Some("2 are missing"),
            ),
            (
                r#"{"messages": 8, "first_seq": 3, "last_seq": 10}"#,
                1,
                Some("begins with entry 3, the log with entry 1"),
            ),
        ] {
            let found = copy(&told(state), "Q_quintet_0").expect("one");
            let (ends, deleted) = found.expect("it is there");
            let damage = damage(&ends, deleted, Some((Seq(begins), Seq(10))));
            match says {
                None => assert_eq!(damage, None, "{state}"),
                Some(says) => assert!(damage.expect("damage").contains(says), "{state}"),
            }
        }
        assert_eq!(copy(&told("{}"), "Q_another_0").expect("none"), None);
        // Another account has one of that name.
        let mut twice = told("{}");
        let accounts = twice["account_details"].as_array_mut().expect("accounts");
        accounts.push(accounts[0].clone());
        assert!(copy(&twice, "Q_quintet_0").is_err());
        // Of what was not read it may have been said that it begins there.
        let later = Ends::whole(Seq(3), Seq(10));
        assert_eq!(damage(&later, 0, Some((Seq(1), Seq(9)))), None);
    }
}
