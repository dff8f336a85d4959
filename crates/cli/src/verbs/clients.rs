//! `quintet leases` and `clients`: who is there, and who holds what.

use std::io::{Write as _, stdout};

use anyhow::{Context as _, Result, bail};
use quintet_types::CommandError;
use serde_json::{Value, json};

use super::super::Where;
use super::super::api::{Api, part};
use super::super::client::Refused;
use super::super::progress::count_of;
use super::super::table::{age, named, print_list, say, seen, table};

#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  quintet leases work\n  quintet leases --json | grep \
                        '\"user\":\"ann\"'\n  quintet leases release 1234\n\nCONNECTION is the id \
                        in `quintet clients`; a lease that only its time ends can outlive its \
                        connection. SINCE is the time when the lease began, or was last \
                        extended. WORKER is the name that the holder gives itself."
)]
pub(in super::super) struct Leases {
    /// Only leases of this queue; for a queue named "release", write -- release.
    queue: Option<String>,
    /// Print a line of JSON for each lease.
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    act: Option<LeaseAct>,
}

#[derive(clap::Subcommand)]
enum LeaseAct {
    /// End leases: their messages are ready again.
    Release(ReleaseLeases),
}

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet leases release 1234 1235\n  quintet leases release 0042\n  \
                  quintet leases release --queue work\n  quintet leases release --connection \
                  4294967299\n\nIn a queue with retry_delay or retry_max a release counts as a \
                  failure, unless retry_on leaves it out: its message is delayed, or a dead letter \
                  after the last try. The connections stay open, and may take the messages again."
)]
struct ReleaseLeases {
    #[command(flatten)]
    at: Where,
    /// Ids of reserved messages, or the last digits of an id if they name one lease only.
    #[arg(required_unless_present_any = ["connection", "queue"])]
    ids: Vec<String>,
    /// All leases of this connection: its id, or four or more of the last digits.
    #[arg(long, value_name = "ID", value_parser = digits)]
    connection: Option<String>,
    /// All leases of messages of this queue.
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Print the number as JSON.
    #[arg(long)]
    json: bool,
}

impl ReleaseLeases {
    /// By the whole id; if there is no such message, by its last digits.
    fn release(&self, id: &str) -> Result<()> {
        let by_id = |id: &str| {
            let path = format!("/messages/{}/release", part(id));
            self.at.api("POST", &path, None).map(drop)
        };
        let is_end = id.starts_with('0') && id.bytes().all(|byte| byte.is_ascii_digit());
        if !is_end {
            let done = by_id(id);
            let none = |error: &anyhow::Error| Refused::is(error, CommandError::NotFound);
            if !done.as_ref().is_err_and(none) {
                return done.with_context(|| format!("message {id}"));
            }
        }
        let ends = self.ending_in(id)?;
        match &ends[..] {
            [] => bail!("no message has the id {id}, and no lease has an id that ends with it"),
            [one] => by_id(one).with_context(|| format!("message {one}")),
            many => bail!("several leases end in {id}: {}", many.join(", ")),
        }
    }

    /// Ids of reserved messages that end in these digits, five at most.
    fn ending_in(&self, digits: &str) -> Result<Vec<String>> {
        let mut ids = Vec::new();
        let mut api = Api::connect(&self.at)?;
        for queue in held(&mut api)? {
            each_lease(&mut api, &queue, |lease| {
                let id = lease["message"].to_string();
                ids.extend(Some(id).filter(|id| id.ends_with(digits)));
                Ok(ids.len() < 5)
            })?;
        }
        Ok(ids)
    }

    fn run(self) -> Result<()> {
        let mut released = 0;
        for id in &self.ids {
            self.release(id)?;
            released += 1;
        }
        if let Some(digits) = &self.connection {
            let id = connection(&self.at, digits)?;
            let done = self
                .at
                .api("POST", &format!("/connections/{id}/release"), None)?;
            released += done["messages"].as_u64().unwrap_or(0);
        }
        if let Some(queue) = &self.queue {
            let path = format!("/queues/{}/leases/release", part(queue));
            let mut cursor = Value::Null;
            loop {
                let done = self
                    .at
                    .api("POST", &path, Some(&json!({ "cursor": cursor })))?;
                released += done["messages"].as_u64().unwrap_or(0);
                cursor = done["cursor"].clone();
                if cursor.is_null() {
                    break;
                }
            }
        }
        let text = format!("{} released", count_of(released, "message"));
        say(self.json, json!({ "messages": released }), text)
    }
}

impl Leases {
    pub(in super::super) fn run(self, at: Where) -> Result<()> {
        if let Some(LeaseAct::Release(release)) = self.act {
            return release.run();
        }
        let mut api = Api::connect(&at)?;
        let queues = match &self.queue {
            Some(queue) => vec![queue.clone()],
            None => held(&mut api)?,
        };
        let columns = || COLUMNS.split(',');
        let mut rows: Vec<Vec<String>> = vec![columns().map(str::to_owned).collect()];
        for queue in queues {
            let found = each_lease(&mut api, &queue, |response| {
                let lease = lease(response, &queue);
                match self.json {
                    true => writeln!(stdout(), "{lease}")?,
                    false => rows.push(columns().map(|column| cell(&lease, column)).collect()),
                }
                Ok(true)
            })?;
            if !found && self.queue.is_some() {
                bail!("there is no queue {}{}", named(&queue), api.nearest(&queue));
            }
        }
        if !self.json {
            table(&rows, &mut stdout().lock())?;
        }
        Ok(())
    }
}

/// The queues that have reserved messages.
fn held(api: &mut Api) -> Result<Vec<String>> {
    let all = api.queues()?.into_iter();
    let held = all.filter(|queue| queue["reserved"].as_u64() != Some(0));
    let names = held.filter_map(|queue| queue["name"].as_str().map(str::to_owned));
    Ok(names.collect())
}

/// Shows the leases of a queue to `see` until it says that it has seen enough; false: there is no
/// such queue.
fn each_lease(
    api: &mut Api,
    queue: &str,
    mut see: impl FnMut(&Value) -> Result<bool>,
) -> Result<bool> {
    let path = format!("/queues/{}/leases?max=1000", part(queue));
    let seen = api.each_page(("GET", &path), ("cursor", "cursor"), |page| {
        let mut leases = page["leases"].as_array().into_iter().flatten();
        leases.try_fold(true, |goes_on, lease| anyhow::Ok(goes_on && see(lease)?))
    });
    match seen {
        Err(error) if Refused::is(&error, CommandError::QueueNotFound) => Ok(false),
        seen => seen.map(|()| true),
    }
}

/// A lease of the API, as this command tells it.
fn lease(response: &Value, queue: &str) -> Value {
    let number = |key: &str| response[key].as_u64();
    let span = number("held_ms").zip(number("left_ms"));
    let since = number("until_ms").zip(span);
    let since = since.map(|(until, (held, left))| until.saturating_sub(held + left));
    let status = match (&response["status_base64"], &response["status"]) {
        (Value::String(coded), _) => json!({ "base64": coded }),
        (_, status) if status == "" => Value::Null,
        (_, status) => status.clone(),
    };
    json!({
        "id": response["message"],
        "queue": queue,
        "bound": response["bound"],
        "connection": response["connection"],
        "protocol": response["protocol"],
        "voice": response["protocol"], // its old name, for one release
        "peer": response["peer"],
        "user": response["user"],
        "worker": response["worker"],
        "since_ms": since,
        "until_ms": response["until_ms"],
        "progress": response["progress"],
        "status": status,
    })
}

/// Columns of `leases`.
const COLUMNS: &str = "id,queue,connection,peer,user,worker,since,ends in,progress";

fn cell(lease: &Value, column: &str) -> String {
    let now = quintet_host::wall_ms();
    let time = |key: &str, span: fn(u64, u64) -> u64| match lease[key].as_u64() {
        Some(at) => age(span(now, at)),
        None => "-".to_owned(),
    };
    match column {
        "queue" => queue(&lease["queue"]),
        "connection" if lease["bound"] == "process" => "script".to_owned(),
        "since" => time("since_ms", |now, at| now.saturating_sub(at)),
        "ends in" => time("until_ms", |now, at| at.saturating_sub(now)),
        "progress" => progress(lease),
        key => shown(&lease[key]),
    }
}

/// Percent and text, as far as they are known.
fn progress(lease: &Value) -> String {
    let percent = lease["progress"]
        .as_u64()
        .map(|percent| format!("{percent} %"));
    let text = lease["status"].as_str().filter(|text| !text.is_empty());
    let text = text.map(seen);
    match (percent, text) {
        (None, None) => "-".to_owned(),
        (percent, text) => percent
            .into_iter()
            .chain(text)
            .collect::<Vec<_>>()
            .join(" "),
    }
}

#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  quintet clients\n  quintet clients --json\n  quintet clients close \
                        4294967299\n\nThe list has connections of all protocols, of HTTP and of \
                        the control socket. Closing one ends its waits and its leases. Leases \
                        that were taken over HTTP belong to their tokens and stay."
)]
pub(in super::super) struct Clients {
    /// Print a line of JSON for each connection.
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    act: Option<Act>,
}

#[derive(clap::Subcommand)]
enum Act {
    /// Close a connection: its waits and its leases end.
    #[command(after_help = "Example:\n  quintet clients close 4294967299")]
    Close {
        #[command(flatten)]
        at: Where,
        /// Id of the connection, or four or more of its last digits.
        #[arg(value_parser = digits)]
        id: String,
    },
}

impl Clients {
    pub(in super::super) fn run(self, at: Where) -> Result<()> {
        if let Some(Act::Close { at, id }) = self.act {
            let id = connection(&at, &id)?;
            at.api("DELETE", &format!("/connections/{id}"), None)?;
            writeln!(stdout(), "connection {id} closed")?;
            return Ok(());
        }
        let all = Api::connect(&at)?.list(CONNECTIONS, "id")?;
        let columns = "id protocol peer user idle unread leases activity";
        print_list(&all, self.json, columns, |client, column| match column {
            "idle" => age(client["idle_ms"].as_u64().unwrap_or(0)),
            "unread" => shown(&client["unread_bytes"]),
            "activity" => activity(client),
            key => shown(&client[key]),
        })
    }
}

/// The queues that a connection waits on, or its request.
fn activity(client: &Value) -> String {
    let waits = client["waits_on"].as_array().into_iter().flatten();
    let waits: Vec<String> = waits.map(queue).collect();
    match (&waits[..], client["asks"].as_str()) {
        ([], None) => "-".to_owned(),
        ([], Some(asks)) => shown(&asks.into()),
        _ => format!("waits on {}", waits.join(" ")),
    }
}

/// The id of a connection, or an end of it.
fn digits(text: &str) -> Result<String, String> {
    match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Ok(text.to_owned()),
        false => Err("takes the id of a connection, or its last digits".to_owned()),
    }
}

/// The id that is meant by these digits.
fn connection(at: &Where, digits: &str) -> Result<String> {
    let all = Api::connect(at)?.list(CONNECTIONS, "id")?;
    meant(all.iter().map(|one| one["id"].to_string()), digits)
}

/// Fewer digits are a whole id: that of a connection that is gone must not be the end of another's.
const END_MIN: usize = 4;

/// The only one of the ids that ends with these digits; else the digits themselves, as an id.
fn meant(ids: impl Iterator<Item = String>, digits: &str) -> Result<String> {
    let mut ending: Vec<String> = ids.filter(|id| id.ends_with(digits)).collect();
    let is_whole = digits.len() < END_MIN || ending.iter().any(|id| id == digits);
    match ending.pop() {
        Some(id) if !is_whole && ending.is_empty() => Ok(id),
        Some(id) if !is_whole => bail!(
            "several connections end in {digits}: {}, {id}",
            ending.join(", ")
        ),
        None if digits.len() > 1 && digits.starts_with('0') => {
            bail!("no connection has an id that ends in {digits}")
        }
        Some(_) | None => Ok(digits.to_owned()),
    }
}

/// All connections.
pub(in super::super) const CONNECTIONS: &str = "/connections";

/// A queue's name in a column.
pub(in super::super) fn queue(value: &Value) -> String {
    value.as_str().map_or_else(|| "-".to_owned(), named)
}

/// A value in a column; a dash for what is not known.
pub(in super::super) fn shown(value: &Value) -> String {
    match value.as_str() {
        None if value.is_null() => "-".to_owned(),
        None => value.to_string(),
        Some("") => "-".to_owned(),
        Some(text) => seen(text),
    }
}

#[cfg(test)]
mod tests {
    use clap::Args as _;

    use super::*;

    #[test]
    fn the_help_of_a_release_says_when_it_is_a_failure() {
        let mut release = ReleaseLeases::augment_args(clap::Command::new("release"));
        let help = release.render_help().to_string();
        assert!(
            help.contains("retry_max") && help.contains("retry_on"),
            "{help}"
        );
    }

    #[test]
    fn the_last_digits_of_an_id_name_its_connection_if_they_name_no_other() {
        let ids = ["3", "21474836481", "8589936481", "4294967299", "7299"];
        let meant = |digits: &str| {
            let all = ids.iter().map(|id| (*id).to_owned());
            meant(all, digits).map_err(|error| error.to_string())
        };
        let is = |id: &str| Ok(id.to_owned());
        assert_eq!(meant("4836481"), is("21474836481"));
        assert_eq!(meant("4294967299"), is("4294967299"));
        assert_eq!(meant("7299"), is("7299"), "a whole id is no end");
        assert_eq!(meant("299"), is("299"), "too short for an end");
        assert_eq!(meant("5555"), is("5555"), "the server knows none");
        assert!(meant("0003").is_err(), "no id is written so");
        let several = "several connections end in 6481: 21474836481, 8589936481";
        assert_eq!(meant("6481"), Err(several.to_owned()));
        assert!(digits("").is_err() && digits("x").is_err());
        assert_eq!(digits("0042"), is("0042"));
    }
}
