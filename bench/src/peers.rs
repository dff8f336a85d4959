//! The servers under load, each on a loopback port of its own.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

/// A running server; killed when dropped.
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    child: Child,
    _data: Option<TempDir>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It is ours and only this load's; nothing of it is kept.
        if self.child.kill().is_ok() {
            self.child.wait().ok();
        }
    }
}

impl Peer {
    /// memcached with one thread, as `BASELINES.md` measures it.
    pub(crate) fn memcached(binary: &Path) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child = Command::new(binary)
            .args([
                "-t",
                "1",
                "-l",
                "127.0.0.1",
                "-U",
                "0",
                "-c",
                "4096",
                "-u",
                "nobody",
                "-p",
            ])
            .arg(port.to_string())
            .spawn()
            .with_context(|| format!("{}: is memcached installed?", binary.display()))?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let peer = Self {
            name: "memcached -t 1".into(),
            address,
            child,
            _data: None,
        };
        let start = Instant::now();
        while TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err() {
            if start.elapsed() > Duration::from_secs(10) {
                bail!("memcached does not listen on {address}");
            }
            std::thread::yield_now();
        }
        Ok(peer)
    }

    /// Quintet with one sync policy, on a fresh data directory.
    pub(crate) fn quintet(binary: &Path, sync: &str) -> Result<Self> {
        let data = tempfile::tempdir()?;
        let mut child = Command::new(binary)
            .args([
                "serve",
                "--listen",
                "memcache=127.0.0.1:0",
                "--sync",
                sync,
                "--data",
            ])
            .arg(data.path().join("data"))
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{}: build it first", binary.display()))?;
        let out = child.stdout.take().context("no output")?;
        let mut address = None;
        for line in BufReader::new(out).lines() {
            let line = line?;
            if let Some(at) = line.strip_prefix("listening memcache ") {
                address = at.parse().ok();
            }
            if line == "quintet ready" {
                let name = format!("quintet sync={sync}");
                let address = address.context("no address before ready")?;
                return Ok(Self {
                    name,
                    address,
                    child,
                    _data: Some(data),
                });
            }
        }
        bail!("quintet ended before it was ready")
    }
}
