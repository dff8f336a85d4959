//! Each NATS server's own copies of the log and of the buckets, asked of its monitoring address:
//! what JetStream calls current may lack entries that its store has lost.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use quintet_cluster::{Ends, Seq};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::checks::monitored;
use super::together;

/// A server's copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Store {
    /// The server's name; empty: it does not answer.
    pub server: String,
    pub address: String,
    /// How it is damaged, if it is.
    pub damage: Option<String>,
    /// The error that made the server stop writing to it or to a bucket until it is started again,
    /// in the server's words.
    #[serde(default)]
    pub frozen: Option<String>,
    /// Why nothing is known of it.
    pub silent: Option<String>,
}

impl Store {
    /// It is known to have everything that it should.
    pub fn is_whole(&self) -> bool {
        self.damage.is_none() && self.frozen.is_none() && self.silent.is_none()
    }
}

/// A server's copy of a bucket that is not what most servers have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketCopy {
    pub bucket: String,
    pub server: String,
    pub address: String,
    /// How it differs.
    pub how: String,
    /// It has the newest message, so it is not just behind.
    pub damaged: bool,
}

/// A difference that is the same after this is no message on its way.
const AGAIN: Duration = Duration::from_millis(500);

struct ServerReport {
    server: String,
    streams: Value,
    /// The server's fault; empty: none.
    health: String,
}

impl ServerReport {
    /// Servers of a cluster end JetStream when a disk is full.
    fn has_ended(&self) -> bool {
        self.health.contains("JetStream not enabled")
    }

    /// The error that froze one of these streams.
    fn frozen<'a>(&self, mut streams: impl Iterator<Item = &'a str>) -> Option<String> {
        let health = &self.health;
        let is_of = |stream: &str| health.contains(&format!(" > {stream}'"));
        let names_one = streams.any(is_of);
        let is_frozen = names_one && health.contains("write error");
        (self.has_ended() || is_frozen).then(|| health.clone())
    }
}

/// The copies of these streams that are not what most of the servers have, now and a moment later.
/// Buckets lack the messages of deleted objects, so only servers can be compared.
pub fn differing(addresses: &[String], buckets: &[String], replicas: usize) -> Vec<BucketCopy> {
    let inspect = || -> Vec<BucketCopy> {
        let report = ask_all(addresses);
        let all = buckets.iter();
        all.flat_map(|bucket| differing_in(addresses, &report, bucket, replicas))
            .collect()
    };
    let mut found = inspect();
    if !found.is_empty() {
        std::thread::sleep(AGAIN);
        let still = inspect();
        found.retain(|copy| still.contains(copy));
    }
    found
}

fn differing_in(
    addresses: &[String],
    report: &[Result<ServerReport>],
    bucket: &str,
    replicas: usize,
) -> Vec<BucketCopy> {
    let answered = addresses.iter().zip(report);
    let copies: Vec<(&String, &String, Option<Ends>)> = answered
        .filter_map(|(address, report)| {
            let report = report.as_ref().ok().filter(|report| !report.has_ended())?;
            let copy = copy(&report.streams, bucket).ok()?;
            Some((address, &report.server, copy.map(|(ends, _)| ends)))
        })
        .collect();
    let kept = || copies.iter().filter_map(|(.., ends)| ends.as_ref());
    let most = kept().find(|ends| kept().filter(|one| one == ends).count() * 2 > replicas);
    let Some(most) = most else {
        return Vec::new();
    };
    let differs = copies.iter().filter_map(|(address, server, ends)| {
        let text = |ends: &Ends| {
            format!(
                "{} messages from {} to {}",
                ends.count, ends.first, ends.last
            )
        };
        let (how, damaged) = match ends {
            Some(ends) if ends == most => return None,
            Some(ends) => (
                format!("has {}, and most servers have {}", text(ends), text(most)),
                ends.last == most.last,
            ),
            // Of more servers than replicas some have none.
            None if kept().count() >= replicas => return None,
            None => ("is missing".to_owned(), false),
        };
        Some(BucketCopy {
            bucket: bucket.to_owned(),
            server: (*server).clone(),
            address: (*address).clone(),
            how,
            damaged,
        })
    });
    differs.collect()
}

/// Asks all of them at the same time.
fn ask_all(addresses: &[String]) -> Vec<Result<ServerReport>> {
    let reports = together(addresses, |address| ask(address)).into_iter();
    reports
        .map(|report| report.unwrap_or_else(|| Err(anyhow!("it cannot be asked"))))
        .collect()
}

/// The copies of `stream` on the servers with these monitoring addresses, which also keep
/// `buckets`. `begins`: the entry that the log begins with, as all up to another say; asked after
/// the servers were.
pub fn inspect(
    addresses: &[String],
    stream: &str,
    buckets: &[String],
    begins: impl Fn() -> Option<(Seq, Seq)>,
) -> Vec<Store> {
    let report = ask_all(addresses);
    let names = || buckets.iter().map(String::as_str);
    let begins = begins();
    let stores = addresses
        .iter()
        .zip(report)
        .filter_map(|(address, report)| {
            let address = address.clone();
            let copied = report.and_then(|report| {
                let copy = copy(&report.streams, stream)?;
                Ok(match copy {
                    None if report.has_ended() => Some((report, None)),
                    None => None,
                    Some((ends, deleted)) => Some((report, damage(&ends, deleted, begins))),
                })
            });
            match copied {
                Ok(Some((report, damage))) => Some(Store {
                    frozen: report.frozen(std::iter::once(stream).chain(names())),
                    server: report.server,
                    address,
                    damage,
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

/// Whether all servers' copies of `stream` begin with this entry and lack none.
///
/// # Errors
/// Not so, or not known; by which server.
pub fn begin_with(addresses: &[String], stream: &str, first: Seq) -> Result<()> {
    all_begin_with(addresses, &ask_all(addresses), stream, first)
}

fn all_begin_with(
    addresses: &[String],
    report: &[Result<ServerReport>],
    stream: &str,
    first: Seq,
) -> Result<()> {
    let mut copies = 0;
    for (address, report) in addresses.iter().zip(report) {
        let report = report
            .as_ref()
            .map_err(|error| anyhow!("{address}: {error:#}"))?;
        let Some((ends, deleted)) = copy(&report.streams, stream)? else {
            ensure!(!report.has_ended(), "{address}: {}", report.health);
            continue;
        };
        if let Some(damage) = damage(&ends, deleted, None) {
            return Err(anyhow!("of {}: {damage}", report.server));
        }
        let (server, begins) = (&report.server, ends.first);
        ensure!(
            begins == first,
            "the copy of {server} begins with entry {begins}, the one that was read with {first}"
        );
        copies += 1;
    }
    ensure!(copies > 0, "no server keeps {stream}");
    Ok(())
}

fn ask(address: &str) -> Result<ServerReport> {
    let about = monitored(address, "/varz")?;
    let server = about["server_name"].as_str().context("it has no name")?;
    let report = monitored(address, "/jsz?streams=1")?;
    let health = monitored(address, "/healthz")?;
    Ok(ServerReport {
        server: server.to_owned(),
        streams: report,
        health: health["error"].as_str().unwrap_or_default().to_owned(),
    })
}

/// Where a server's copy of a stream begins and ends, and how many entries it calls deleted.
///
/// # Errors
/// Several accounts have a stream of this name: nobody can tell which is ours.
fn copy(report: &Value, stream: &str) -> Result<Option<(Ends, u64)>> {
    let list = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
    let accounts = list(report, "account_details");
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
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;

    use super::*;

    fn report_of(state: &str) -> Value {
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
            let found = copy(&report_of(state), "Q_quintet_0").expect("one");
            let (ends, deleted) = found.expect("it is there");
            let damage = damage(&ends, deleted, Some((Seq(begins), Seq(10))));
            match says {
                None => assert_eq!(damage, None, "{state}"),
                Some(says) => assert!(damage.expect("damage").contains(says), "{state}"),
            }
        }
        assert_eq!(copy(&report_of("{}"), "Q_another_0").expect("none"), None);
        // Another account has one of that name.
        let mut twice = report_of("{}");
        let accounts = twice["account_details"].as_array_mut().expect("accounts");
        accounts.push(accounts[0].clone());
        assert!(copy(&twice, "Q_quintet_0").is_err());
        // Of what was not read it may have been said that it begins there.
        let later = Ends::whole(Seq(3), Seq(10));
        assert_eq!(damage(&later, 0, Some((Seq(1), Seq(9)))), None);
    }

    /// A server's monitoring address, which answers for one look.
    fn monitor(server: &'static str, state: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("an address").to_string();
        std::thread::spawn(move || {
            for _ in ["/varz", "/jsz", "/healthz"] {
                let (client, _) = listener.accept().expect("it is asked");
                let mut head = BufReader::new(&client).lines().map_while(Result::ok);
                let requested = head.next().unwrap_or_default();
                head.take_while(|line| !line.is_empty()).for_each(drop);
                let body = match requested.split(' ').nth(1) {
                    Some("/varz") => serde_json::json!({"server_name": server}),
                    Some("/jsz?streams=1") => report_of(state),
                    _ => serde_json::json!({"status": "ok"}),
                };
                write!(&client, "HTTP/1.0 200 OK\r\n\r\n{body}").expect("answered");
            }
        });
        address
    }

    #[test]
    fn the_server_of_a_damaged_copy_is_named() {
        let whole = r#"{"messages": 10, "first_seq": 1, "last_seq": 10}"#;
        for (state, says) in [
            (
                r#"{"messages": 9, "first_seq": 1, "last_seq": 10}"#,
                "it has 9 entries from 1 to 10, 1 are missing",
            ),
            (
                r#"{"messages": 10, "first_seq": 1, "last_seq": 10, "num_deleted": 1}"#,
                "it has 10 entries from 1 to 10, 1 are missing",
            ),
            (
                r#"{"messages": 8, "first_seq": 3, "last_seq": 10}"#,
                "it begins with entry 3, the log with entry 1",
            ),
        ] {
            let addresses = [
                monitor("n0", whole),
                monitor("n1", state),
                monitor("n2", whole),
            ];
            let stores = inspect(&addresses, "Q_quintet_0", &[], || Some((Seq(1), Seq(10))));
            let report: Vec<(&str, Option<&str>, bool)> = stores
                .iter()
                .map(|store| {
                    let damage = store.damage.as_deref();
                    (store.server.as_str(), damage, store.is_whole())
                })
                .collect();
            assert_eq!(
                report,
                [
                    ("n0", None, true),
                    ("n1", Some(says), false),
                    ("n2", None, true)
                ]
            );
        }
    }

    #[test]
    fn a_beginning_that_nobody_has_stated_is_that_of_all_servers() {
        let addresses = ["n0:8222", "n1:8222", "n2:8222"].map(str::to_owned);
        let whole = r#"{"messages": 8, "first_seq": 3, "last_seq": 10}"#;
        let behind = r#"{"messages": 7, "first_seq": 3, "last_seq": 9}"#;
        let requested = |third: Result<Value>, stream: &str| {
            let all = [Ok(report_of(whole)), Ok(report_of(behind)), third];
            let all: Vec<Result<ServerReport>> = (0..)
                .zip(all)
                .map(|(at, streams)| {
                    Ok(ServerReport {
                        server: format!("n{at}"),
                        streams: streams?,
                        health: String::new(),
                    })
                })
                .collect();
            let requested = all_begin_with(&addresses, &all, stream, Seq(3));
            requested.map_err(|error| error.to_string())
        };
        let of = |third: &str| requested(Ok(report_of(third)), "Q_quintet_0");
        assert_eq!(of(whole), Ok(()));
        // One server more than there are replicas.
        assert_eq!(requested(Ok(Value::Null), "Q_quintet_0"), Ok(()));
        for (third, why) in [
            (
                r#"{"messages": 10, "first_seq": 1, "last_seq": 10}"#,
                "of n2 begins with entry 1",
            ),
            (
                r#"{"messages": 6, "first_seq": 5, "last_seq": 10}"#,
                "of n2 begins with entry 5",
            ),
            (
                r#"{"messages": 7, "first_seq": 3, "last_seq": 10}"#,
                "1 are missing",
            ),
        ] {
            let report = of(third).expect_err(third);
            assert!(report.contains(why), "{report}");
        }
        let report = requested(Err(anyhow!("timed out")), "Q_quintet_0").expect_err("silent");
        assert!(report.contains("n2:8222: timed out"), "{report}");
        assert!(requested(Ok(Value::Null), "Q_another_0").is_err());
    }

    #[test]
    fn a_bucket_that_most_servers_have_otherwise_is_named() {
        let addresses = ["n0:8222", "n1:8222", "n2:8222"].map(str::to_owned);
        let with = |states: [Option<&str>; 3]| -> Vec<Result<ServerReport>> {
            let report = (0..).zip(states).map(|(at, state)| {
                Ok(ServerReport {
                    server: format!("n{at}"),
                    streams: state.map_or(Value::Null, report_of),
                    health: String::new(),
                })
            });
            report.collect()
        };
        let found = |states| differing_in(&addresses, &with(states), "Q_quintet_0", 3);
        // Objects were deleted.
        let most = r#"{"messages": 8, "first_seq": 2, "last_seq": 10, "num_deleted": 1}"#;
        assert_eq!(found([Some(most); 3]), []);
        let lacks = r#"{"messages": 7, "first_seq": 3, "last_seq": 10}"#;
        let differs = found([Some(most), Some(lacks), Some(most)]);
        assert_eq!((&*differs[0].server, differs[0].damaged), ("n1", true));
        assert_eq!(
            differs[0].how,
            "has 7 messages from 3 to 10, and most servers have 8 messages from 2 to 10"
        );
        let behind = r#"{"messages": 7, "first_seq": 2, "last_seq": 9}"#;
        let differs = found([Some(behind), Some(most), Some(most)]);
        assert_eq!((&*differs[0].server, differs[0].damaged), ("n0", false));
        let differs = found([Some(most), Some(most), None]);
        assert_eq!(
            (&*differs[0].server, &*differs[0].how),
            ("n2", "is missing")
        );
        // Nobody can tell who is right.
        assert_eq!(found([Some(most), Some(lacks), Some(behind)]), []);
    }

    #[test]
    fn a_frozen_stream_is_reported_in_the_servers_words() {
        let health = "JetStream stream '$G > OBJ_Q_quintet_0_runs' write error: write 1.blk: no \
                      space left on device";
        let report = |health: &str| ServerReport {
            server: "n0".to_owned(),
            streams: Value::Null,
            health: health.to_owned(),
        };
        let names = ["Q_quintet_0", "OBJ_Q_quintet_0_runs"];
        let frozen = |health: &str| report(health).frozen(names.into_iter());
        assert_eq!(frozen(health), Some(health.to_owned()));
        let ended = "JetStream not enabled (10076)";
        assert_eq!(frozen(ended), Some(ended.to_owned()));
        assert_eq!(frozen(""), None);
        assert_eq!(
            frozen("JetStream stream '$G > Q_quintet_0' is not current"),
            None
        );
        assert_eq!(
            frozen("JetStream stream '$G > Q_quintet_01' write error"),
            None
        );
    }
}
