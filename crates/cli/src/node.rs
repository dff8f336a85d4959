//! Asking a node of a cluster on this machine.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use quintet_nodes::{ClusterReport, NODE_SOCKET};
use quintet_proxy::line::{Answer, Purpose, Question};

/// A node asks all others before it answers, which takes a few seconds where one is gone.
const PATIENCE: Duration = Duration::from_secs(30);

/// Which node is asked.
#[derive(clap::Args)]
pub(super) struct Node {
    /// Data directory of a node on this machine.
    #[arg(long, value_name = "DIR", default_value = "data", env = "QUINTET_DATA")]
    pub(super) data: PathBuf,
}

/// The report about its cluster of the node whose data directory this is.
pub(super) fn report(data: &Path) -> Result<ClusterReport> {
    let line = ask(data, Question::Status, PATIENCE)?;
    serde_json::from_str(&line)
        .context("cannot read the node's reply: are both of the same version?")
}

/// Asks the node whose data directory this is, and waits so long for its answer.
pub(super) fn ask(data: &Path, question: Question, patience: Duration) -> Result<String> {
    let path = data.join(NODE_SOCKET);
    #[expect(clippy::wildcard_enum_match_arm, reason = "as the system says it")]
    let stream = UnixStream::connect(&path).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => anyhow!(
            "no node of a cluster runs on {}: start one with `quintet serve --cluster \
             nats://HOST:4222 --data {}`, or name the directory of the running one with --data",
            data.display(),
            data.display()
        ),
        ErrorKind::PermissionDenied => anyhow!(
            "{} belongs to another user: run this as the user the server runs as",
            path.display()
        ),
        _ => anyhow!("cannot connect to {}: {error}", path.display()),
    })?;
    stream.set_read_timeout(Some(patience))?;
    (&stream).write_all(Purpose::Node(question).line(None).as_bytes())?;
    let mut line = String::new();
    let read = BufReader::new(&stream).read_line(&mut line);
    read.context(
        "the node does not respond: look into its log, which says whether it reaches NATS",
    )?;
    let line = line.trim_end_matches('\n');
    match Answer::read(line) {
        Some(Answer::Refused(why)) => bail!("the node rejected the request: {why}"),
        _ if line.is_empty() => bail!("the node closed the connection without a reply"),
        _ => Ok(line.to_owned()),
    }
}
