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
    /// Data directory of a node on this machine [default: the first with a node of ./data,
    /// $XDG_RUNTIME_DIR/quintet, /run/quintet, /var/lib/quintet].
    #[arg(long, value_name = "DIR", env = "QUINTET_DATA")]
    data: Option<PathBuf>,
}

impl Node {
    /// The data directory that is named, or the first with a node that listens, or `./data`.
    pub(super) fn data(&self) -> PathBuf {
        super::with_listener(super::directories(self.data.as_ref()), NODE_SOCKET)
    }
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

/// # Errors
/// A node of a cluster runs on one of these data directories and serves nobody: names the owner.
pub(super) fn name_owner(directories: &[PathBuf]) -> Result<()> {
    let runs_on = |dir: &&PathBuf| UnixStream::connect(dir.join(NODE_SOCKET)).is_ok();
    let Some(dir) = directories.iter().find(runs_on) else {
        return Ok(());
    };
    let report = report(dir)?;
    let (here, dir) = (&report.told_by, dir.display());
    let Some(owner) = report.owner() else {
        bail!(
            "the node {here} on {dir} does not own the queues, and no other node does now: quintet \
             cluster status --data {dir} shows why"
        );
    };
    let address = report.nodes.iter().find(|node| node.node == owner);
    let address = address.map_or(String::new(), |node| format!(" ({})", node.address));
    bail!(
        "the node {here} on {dir} does not own the queues; {owner}{address} does: run this on its \
         machine, or ask any node with --server https://HOST:PORT"
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use quintet_nodes::{NodeReport, NodeResponse};

    use super::*;

    /// The error about the directory of a node that answers with this report.
    fn describe(report: &ClusterReport) -> String {
        let dir = tempfile::tempdir().expect("a folder");
        let node = UnixListener::bind(dir.path().join(NODE_SOCKET)).expect("a socket");
        let answer = serde_json::to_string(report).expect("JSON");
        let node = std::thread::spawn(move || {
            // The first client only looks whether a node runs.
            for stream in node.incoming().take(2) {
                let mut stream = stream.expect("a client");
                let mut question = String::new();
                let read = BufReader::new(&stream).read_line(&mut question);
                if read.expect("a question") > 0 {
                    writeln!(stream, "{answer}").expect("sent");
                }
            }
        });
        let elsewhere = dir.path().join("elsewhere");
        let error = name_owner(&[elsewhere.clone(), dir.path().to_owned()]);
        node.join().expect("it ends");
        assert!(name_owner(&[elsewhere]).is_ok());
        error.expect_err("it serves nobody").to_string()
    }

    #[test]
    fn the_first_directory_on_which_a_node_listens_is_asked() {
        let dir = tempfile::tempdir().expect("a folder");
        let all = ["ended", "runs", "runs-too"].map(|name| dir.path().join(name));
        let nodes = all.each_ref().map(|data| {
            std::fs::create_dir(data).expect("a folder");
            UnixListener::bind(data.join(NODE_SOCKET)).expect("a socket")
        });
        let [ended, _runs, _too] = nodes;
        // Its socket stays.
        drop(ended);
        let found = crate::with_listener(all.to_vec(), NODE_SOCKET);
        assert_eq!(found, all[1]);
        let named = Node {
            data: Some(all[0].clone()),
        };
        assert_eq!(named.data(), all[0]);
    }

    #[test]
    fn a_node_that_does_not_own_names_the_owner() {
        let owner = NodeReport {
            node: "b".to_owned(),
            role: "owner".to_owned(),
            ..NodeReport::default()
        };
        let mut report = ClusterReport {
            told_by: "a".to_owned(),
            nodes: vec![NodeResponse {
                node: "b".to_owned(),
                address: "b:4600".to_owned(),
                report: Some(owner),
                silent: None,
            }],
            ..ClusterReport::default()
        };
        let error = describe(&report);
        assert!(error.contains("b (b:4600) does: run this"), "{error}");
        assert!(error.contains("--server https://"), "{error}");
        report.nodes.clear();
        let error = describe(&report);
        assert!(error.contains("no other node does now"), "{error}");
    }
}
