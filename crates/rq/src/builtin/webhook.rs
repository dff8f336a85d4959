//! Tells an address what became of a message: the first parameter is the
//! address, the second the message.

use std::time::Duration;

use super::client::Client;
use super::{COUNT_MAX, End, Hosts, count, later, log, not_among, variable};

/// How long a receiver has to answer, with the connection to it.
pub(super) const TIME: Duration = Duration::from_secs(10);
/// RQ's unit of the time until the next try, s.
const UNIT_S: u64 = 60;

pub(super) fn run(hosts: &Hosts, client: Client) -> End {
    if count() > COUNT_MAX {
        return End::Err(format!("RQ_COUNT > {COUNT_MAX} FAIL"));
    }
    let url = variable("RQ_PARAM1");
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return End::Err(format!("no address: {url}"));
    }
    if !hosts.allow(&url) {
        return not_among("webhook_hosts", &url);
    }
    let payload = variable("RQ_PARAM2");
    let fields = [("x_format", "json"), ("payload", payload.as_str())];
    log(&format!("telling {url}"));
    match client.form(&url, &fields) {
        Ok(reply) if (200..300).contains(&reply.status) => End::Done(reply.status.to_string()),
        Ok(reply) => later(UNIT_S, format!("{url} answered {}", reply.shown())),
        Err(why) => later(UNIT_S, format!("could not reach {url}: {why}")),
    }
}
