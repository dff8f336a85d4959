//! One request over one of RQ's sockets.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use quintet_scripts::socket;
use serde_json::Value;

/// Longer than a server takes for any answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// RQ's folder.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    /// Asks the manager.
    pub(crate) fn manager(&self, command: &str, argument: &str) -> Result<Value> {
        let path = self.0.join("config/queuemgr.sock");
        ask(&path, command, argument)
    }

    /// Asks a queue.
    pub(crate) fn queue(&self, name: &str, command: &str, argument: &Value) -> Result<Value> {
        quintet_scripts::check_queue_name(name).context("404 - Queue not found")?;
        let path = self.0.join("queue").join(name).join("queue.sock");
        if !path.exists() {
            // The manager knows whether it is the queue or the server.
            self.manager("ping", "")?;
            anyhow::bail!("404 - Queue not found");
        }
        let argument = match argument.is_null() {
            true => String::new(),
            false => argument.to_string(),
        };
        ask(&path, command, &argument)
    }
}

fn ask(path: &Path, command: &str, argument: &str) -> Result<Value> {
    let mut stream = UnixStream::connect(path).map_err(|error| {
        let nobody = [ErrorKind::NotFound, ErrorKind::ConnectionRefused];
        match nobody.contains(&error.kind()) {
            true => anyhow::anyhow!(
                "no server answers at {}: is it running, and is this RQ's folder (--root)?",
                path.display()
            ),
            false => anyhow::Error::new(error).context(format!("cannot reach {}", path.display())),
        }
    })?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = format!("{command} {argument}");
    stream.write_all(&socket::frame(request.as_bytes()))?;
    stream.shutdown(Shutdown::Write)?;
    let mut reply = Vec::new();
    stream
        .read_to_end(&mut reply)
        .context("no answer from the server")?;
    let payload = socket::parse(&reply).context("the server's answer is damaged")?;
    serde_json::from_slice(payload).context("the server's answer is not JSON")
}
