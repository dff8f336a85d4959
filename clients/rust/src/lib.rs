//! The server that the tests talk to: the real binary, which `QUINTET` names.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Longer than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The program under test.
///
/// # Panics
/// `QUINTET` is not set.
pub fn quintet() -> Command {
    Command::new(std::env::var_os("QUINTET").expect("QUINTET names the program"))
}

/// A running `quintet serve` with one listener, killed when it is dropped.
pub struct Server {
    child: Child,
    folder: PathBuf,
    /// Where it listens.
    pub address: String,
}

impl Server {
    /// Starts one that keeps its data in `folder`, with a listener of `protocol` at `address` that
    /// has these `options`, as lines of the configuration file.
    ///
    /// # Panics
    /// It does not start.
    pub fn start(folder: &Path, protocol: &str, address: &str, options: &str) -> Self {
        let config = folder.join("quintet.toml");
        // Small files: a server under test writes little.
        let text = format!(
            "segment_bytes = \"4MiB\"\nspare_segments = 1\n[[listen]]\nprotocol = \"{protocol}\"\naddress = \"{address}\"\n{options}\n"
        );
        std::fs::write(&config, text).expect("written");
        let mut child = quintet()
            .args(["serve", "--data"])
            .arg(folder.join("data"))
            .arg("--config")
            .arg(config)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let mut address = None;
        for line in lines {
            let line = line.expect("text");
            if let Some(told) = line.strip_prefix(&format!("listening {protocol} ")) {
                address = Some(told.to_owned());
            }
            if line == "quintet ready" {
                break;
            }
        }
        Self {
            child,
            folder: folder.to_owned(),
            address: address.expect("it listens"),
        }
    }

    /// `kill -9`, and a start on the same data at the same address.
    ///
    /// # Panics
    /// It does not start.
    pub fn kill_and_start(self, protocol: &str, options: &str) -> Self {
        let (folder, address) = (self.folder.clone(), self.address.clone());
        drop(self);
        Self::start(&folder, protocol, &address, options)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
