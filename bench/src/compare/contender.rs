//! The servers compared, each on a loopback port and a directory of its own.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use quintet_bench::{Load, Protocol, Target, Usage};
use serde::Deserialize;
use tempfile::TempDir;

use crate::common::peers::{Ground, Process, free_port};

/// Connections that each Quintet must take; the others' are in their settings.
const CONNECTIONS: &str = "16384";
/// The program that is measured, and the one that it is compared with (`--against`).
const QUINTET: &str = "quintet";
const AGAINST: &str = "against";

/// A server and what else weighs on it, as `bench/compare.toml` describes them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Contender {
    /// Its name in `bench/compare.toml`.
    #[serde(skip)]
    pub(crate) key: String,
    /// The server, for people.
    #[serde(rename = "name")]
    pub(crate) server: String,
    pub(super) program: String,
    pub(crate) protocol: String,
    /// It keeps messages on disk.
    pub(crate) durable: bool,
    pub(super) settings: Vec<String>,
    pub(super) place: Vec<String>,
    pub(super) as_root: Vec<String>,
    pub(super) version_flag: Option<String>,
    /// Connections that are open and silent.
    pub(crate) idle: usize,
    /// Ten connections put and take messages of 8 MiB meanwhile.
    pub(crate) background: bool,
}

impl Contender {
    /// For people.
    pub(crate) fn name(&self) -> String {
        let mut name = self.server.clone();
        if self.idle > 0 {
            name += &format!(", {} idle", self.idle);
        }
        if self.background {
            name += ", 8 MiB messages";
        }
        name
    }

    /// The same of the binary that this one is compared with; `None` of a peer.
    pub(crate) fn against(&self) -> Option<Self> {
        (self.program == QUINTET).then(|| Self {
            program: AGAINST.to_owned(),
            server: self.server.replace("Quintet", AGAINST),
            ..self.clone()
        })
    }

    fn program(&self, ground: &Ground) -> Option<PathBuf> {
        match self.program.as_str() {
            QUINTET => Some(ground.quintet.clone()),
            AGAINST => ground.against.clone(),
            "quintet-bench" => std::env::current_exe().ok(),
            name => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                let more = ["/usr/bin", "/usr/sbin"].map(PathBuf::from);
                let folders = std::env::split_paths(&path).chain(more);
                let mut programs = folders.map(|folder| folder.join(name));
                programs.find(|program| program.is_file())
            }
        }
    }

    /// It can be started here.
    pub(crate) fn is_installed(&self, ground: &Ground) -> bool {
        let program = self.program(ground);
        program.is_some_and(|program| program.is_file())
    }

    /// Its version, as it tells it.
    pub(crate) fn version(&self, ground: &Ground) -> Option<String> {
        let flag = self.version_flag.as_deref().unwrap_or("--version");
        let output = Command::new(self.program(ground)?).arg(flag).output();
        let output = output.ok()?;
        let text = String::from_utf8_lossy(&output.stdout);
        Some(text.lines().next()?.trim().to_owned())
    }

    /// Its settings, without the port and the directory, for people.
    pub(crate) fn describe_settings(&self) -> String {
        let settings = self.settings.iter().map(|word| match word.as_str() {
            "" => "\"\"",
            word => word,
        });
        let text = settings.collect::<Vec<_>>().join(" ");
        match self.program == QUINTET {
            true => format!("{text} (connections_max = {CONNECTIONS})"),
            false => text,
        }
    }

    /// A load in its protocol.
    ///
    /// # Errors
    /// There is no such protocol.
    pub(crate) fn load(&self, target: &Target) -> Result<Load> {
        let protocol = Protocol::named(&self.protocol).map_err(anyhow::Error::msg)?;
        Ok(Load::new(target.clone(), protocol))
    }

    /// Starts it on a directory of its own and waits until it listens.
    ///
    /// # Errors
    /// It is not installed, or does not come to listen.
    pub(crate) fn start(&self, ground: &Ground) -> Result<Peer> {
        let dir = ground.dir()?;
        let program = self.program(ground);
        let program = program.with_context(|| format!("{} is not installed", self.server))?;
        let (port, path) = (free_port()?.to_string(), dir.path());
        let place = self.place.iter().map(|word| {
            let word = word.replace("{port}", &port);
            word.replace("{dir}", &path.to_string_lossy())
        });
        let mut command = Command::new(program);
        command.args(&self.settings).args(place);
        if rustix::process::geteuid().is_root() {
            command.args(&self.as_root);
        }
        let (process, targets) = match self.program.as_str() {
            QUINTET | AGAINST => {
                let config = format!("connections_max = {CONNECTIONS}\n");
                Process::quintet(&mut command, path, &config, &[self.protocol.as_str()])?
            }
            "quintet-bench" => Process::with_targets(&mut command, path)?,
            _ => Process::at(&port, &mut command, path)?,
        };
        Ok(Peer {
            target: targets.into_values().next().context("no address")?,
            process,
            _dir: dir,
        })
    }
}

/// A running server; killed when dropped, and its directory removed.
pub(crate) struct Peer {
    pub(crate) target: Target,
    process: Process,
    _dir: TempDir,
}

impl Peer {
    /// Its usage so far.
    ///
    /// # Errors
    /// It has ended.
    pub(crate) fn usage(&self) -> Result<Usage> {
        Usage::of(self.process.0.id())
    }
}
