//! Conditions for the start of a node: all that fail are named at once.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use quintet_config::{Cluster, Config, SyncPolicy};
use quintet_jetstream::{Info, JetStream, Names, Servers};

/// The longest message servers must take: an entry, with its head and some room.
const PAYLOAD_MIN: usize = 512 << 10;
/// The longest piece of a large body: an entry's.
const CHUNK_MAX: u64 = 256 << 10;
/// The longest reply of a monitoring address, bytes.
const MONITOR_MAX: u64 = 16 << 20;
/// How long a monitoring address may take.
const MONITOR: Duration = Duration::from_secs(5);

/// Checks the configuration and the data directory before a node begins.
pub fn before(config: &Config) -> Result<()> {
    let mut faults = config.cluster.faults();
    if config.sync != SyncPolicy::Always {
        faults.push("sync must be \"always\" in a cluster".to_owned());
    }
    if config.chunk_bytes > CHUNK_MAX {
        faults.push("chunk_bytes must be at most \"256KiB\" in a cluster".to_owned());
    }
    let names = match std::fs::read_dir(&config.data) {
        // The start makes it.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        names => Some(names.context("cannot list the data directory")?),
    };
    let is_log = |name: &str| name.starts_with("segment-") || name.ends_with(".qrun");
    let local = names.into_iter().flatten().flatten().find_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        is_log(&name).then_some(name)
    });
    if let Some(name) = local {
        faults.push(format!(
            "{} holds the messages of a standalone server ({name}). A cluster does not take them \
             over by itself: run `quintet cluster adopt` before the cluster has a log, and use \
             another directory here; or move the messages with `quintet export` and `quintet \
             import`",
            config.data.display()
        ));
    }
    report("this node cannot be part of a cluster", &faults)
}

fn report(what: &str, faults: &[String]) -> Result<()> {
    if faults.is_empty() {
        return Ok(());
    }
    bail!("{what}:\n  {}", faults.join("\n  "))
}

/// The names of a cluster's only group, 0: where its log and runs are.
pub fn names(cluster: &Cluster) -> Names {
    Names::of(&cluster.name, 0)
}

/// How the servers are reached.
pub fn servers(cluster: &Cluster) -> Result<Servers> {
    let file = |path: &str| (!path.is_empty()).then(|| PathBuf::from(path));
    let user = match cluster.user.as_str() {
        "" => None,
        user => {
            let path = &cluster.password_file;
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read password_file = {path:?}"))?;
            let password = text.lines().next().unwrap_or_default();
            Some((user.to_owned(), password.to_owned()))
        }
    };
    Ok(Servers {
        addresses: cluster.nats.clone(),
        near: cluster.near.clone(),
        credentials: file(&cluster.credentials),
        user,
        tls_ca: file(&cluster.tls_ca),
        tls_identity: file(&cluster.tls_cert).zip(file(&cluster.tls_key)),
    })
}

/// Checks the servers for settings that would lose messages.
pub fn of_servers(stream: &JetStream, cluster: &Cluster) -> Result<()> {
    let mut faults = Vec::new();
    for server in stream.servers() {
        let least = &cluster.nats_version_min;
        if !is_at_least(&server.version, numbers(least)) {
            faults.push(format!(
                "the NATS server {} has version {}, not {least} or later: older ones lose \
                 acknowledged messages at a power failure or from a damaged disk. See \"Versions \
                 of nats-server\" in docs/cluster.md; nats_version_min sets the least version",
                server.name, server.version
            ));
        }
        if server.max_payload < PAYLOAD_MIN {
            faults.push(format!(
                "the NATS server {} accepts messages of at most {} bytes: set max_payload: 1MB",
                server.name, server.max_payload
            ));
        }
    }
    if cluster.monitor.is_empty() {
        tracing::warn!(
            "cannot tell whether the NATS servers sync each message: set sync_interval: always in \
             their jetstream section, and cluster.monitor here"
        );
    }
    let (mut requested, mut silent) = (0, Vec::new());
    for address in &cluster.monitor {
        let syncs = monitored(address, "/jsz").and_then(|about| syncs(&about));
        requested += usize::from(syncs.is_ok());
        match syncs {
            Ok(true) => {}
            Ok(false) if cluster.allow_unsafe => {}
            Ok(false) => faults.push(format!(
                "the NATS server monitored at {address} does not sync each message: set \
                 sync_interval: always in its jetstream section"
            )),
            Err(error) => silent.push(format!("cannot ask {address}: {error:#}")),
        }
    }
    // One machine may be gone.
    if requested > 0 {
        silent.iter().for_each(|why| tracing::warn!("{why}"));
    } else {
        faults.append(&mut silent);
    }
    report("the NATS servers are not suitable for a cluster", &faults)
}

/// The stream's settings that would lose messages.
pub fn of_stream(stream: &JetStream, info: &Info, cluster: &Cluster) -> Vec<String> {
    let replicas = match cluster.allow_unsafe {
        true => 1,
        false => replicas(cluster),
    };
    stream.faults(info, replicas)
}

/// On how many servers JetStream keeps what is the cluster's.
pub fn replicas(cluster: &Cluster) -> usize {
    usize::try_from(cluster.replicas).unwrap_or(3)
}

fn is_at_least(version: &str, least: [u64; 3]) -> bool {
    numbers(version) >= least
}

fn numbers(version: &str) -> [u64; 3] {
    // What stands behind a dash is a preview of it.
    let plain = version.split('-').next().unwrap_or_default();
    let mut numbers = plain
        .split('.')
        .map(|part| part.parse::<u64>().unwrap_or(0));
    [(); 3].map(|()| numbers.next().unwrap_or(0))
}

/// Whether the server that tells this about JetStream syncs each message.
///
/// # Errors
/// JetStream has ended there, as on a full disk: it is as if that machine were gone.
fn syncs(about: &serde_json::Value) -> Result<bool> {
    ensure!(about["disabled"] != true, "JetStream is not enabled there");
    Ok(about["config"]["sync_always"] == true)
}

/// Asks the monitoring address of a NATS server for this path. It tries each address of the name.
pub fn monitored(address: &str, path: &str) -> Result<serde_json::Value> {
    let host = address.trim_start_matches("http://").trim_end_matches('/');
    let mut connected = None;
    for at in host.to_socket_addrs()? {
        let socket = TcpStream::connect_timeout(&at, MONITOR);
        let done = socket.is_ok();
        connected = Some(socket);
        if done {
            break;
        }
    }
    let mut socket = connected.with_context(|| format!("there is no {host}"))??;
    socket.set_read_timeout(Some(MONITOR))?;
    write!(socket, "GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n")?;
    let mut reply = Vec::new();
    socket.take(MONITOR_MAX).read_to_end(&mut reply)?;
    let reply = String::from_utf8_lossy(&reply);
    let (_, body) = reply.split_once("\r\n\r\n").context("no HTTP reply")?;
    serde_json::from_str(body).context("no JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        for (version, fits) in [
            ("2.15.1", true),
            ("2.15.10", true),
            ("2.16.0-preview.1", true),
            ("3.0.0", true),
            ("2.15.0", false),
            ("2.12.8", false),
            ("2.9.25", false),
            ("", false),
        ] {
            assert_eq!(is_at_least(version, numbers("2.15.1")), fits, "{version}");
        }
    }

    #[test]
    fn a_server_that_has_ended_jetstream_is_one_that_is_gone() {
        let parsed = |text: &str| syncs(&serde_json::from_str(text).expect("JSON"));
        assert!(parsed(r#"{"config": {"sync_always": true}}"#).expect("an answer"));
        assert!(!parsed(r#"{"config": {"store_dir": "/s"}}"#).expect("an answer"));
        assert!(parsed(r#"{"disabled": true, "config": {}}"#).is_err());
    }
}
