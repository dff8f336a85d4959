//! Who did what to the server: a line each in the log, target `audit`, and in a
//! file of the data directory that is only appended to.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use quintet_door::AuditLine;
use quintet_host::locked;
use serde::{Deserialize, Serialize};

use crate::config::end_text;
use crate::trust::wall_ms;

/// The file's name in the data directory; the one before it has [`OLDER`]
/// behind it.
const FILE: &str = "audit.log";
const OLDER: &str = ".1";
/// Bytes of the file before it becomes the older one, which is then lost.
const BYTES_MAX: u64 = 8 << 20;

/// One act.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Act {
    /// Wall clock, ms since 1970.
    pub(crate) at_ms: u64,
    /// A user, an account of this machine (`uid 0`), or nothing for the server.
    pub(crate) who: String,
    /// The client's address; nothing on this machine.
    pub(crate) from: String,
    /// `login`, `reload`, a command.
    pub(crate) act: String,
    /// Which queue or the like.
    pub(crate) what: String,
    /// `ok`, or the word of a refusal.
    pub(crate) result: String,
}

impl Act {
    /// As an operator reads it.
    pub(crate) fn line(&self) -> String {
        let shown = |text: &str| match text {
            "" => "-".to_owned(),
            text => text.to_owned(),
        };
        format!(
            "{} {} {} {} {} {}",
            end_text(self.at_ms),
            shown(&self.who),
            shown(&self.from),
            self.act,
            shown(&self.what),
            self.result
        )
    }
}

/// The file that is appended to.
pub(crate) struct Audit {
    path: PathBuf,
    open: Mutex<Option<(File, u64)>>,
}

impl Audit {
    /// In the data directory. That it cannot be written is said with the first
    /// line.
    pub(crate) fn new(data: &Path) -> Self {
        Self {
            path: data.join(FILE),
            open: Mutex::new(None),
        }
    }

    /// `who`, at `from`, did `act` to `what`, and this came of it.
    pub(crate) fn note(
        &self,
        who: &str,
        from: Option<IpAddr>,
        act: &str,
        what: &str,
        result: &str,
    ) {
        let from = from.map(|from| from.to_string()).unwrap_or_default();
        tracing::info!(target: "audit", who, from, act, what, result);
        let act = Act {
            at_ms: wall_ms(),
            who: who.to_owned(),
            from,
            act: act.to_owned(),
            what: what.to_owned(),
            result: result.to_owned(),
        };
        if let Err(error) = self.append(&act) {
            tracing::error!("cannot write {}: {error}", self.path.display());
        }
    }

    fn append(&self, act: &Act) -> io::Result<()> {
        let mut line = serde_json::to_vec(act)?;
        line.push(b'\n');
        let mut open = locked(&self.open);
        let (mut file, mut size) = match open.take() {
            Some(open) => open,
            None => {
                let file = OpenOptions::new()
                    .create(true)
                    .append(true)
                    .open(&self.path)?;
                let size = file.metadata()?.len();
                (file, size)
            }
        };
        if size > 0 && size + line.len() as u64 > BYTES_MAX {
            fs::rename(&self.path, older(&self.path))?;
            file = OpenOptions::new()
                .create(true)
                .append(true)
                .open(&self.path)?;
            size = 0;
        }
        // One write, so that a line is there whole or not at all.
        file.write_all(&line)?;
        *open = Some((file, size + line.len() as u64));
        Ok(())
    }
}

fn older(path: &Path) -> PathBuf {
    let mut older = path.as_os_str().to_owned();
    older.push(OLDER);
    PathBuf::from(older)
}

/// The acts of a data directory from `since_ms` on, oldest first.
///
/// # Errors
/// The files are there and cannot be read.
pub(crate) fn read(data: &Path, since_ms: u64) -> io::Result<Vec<Act>> {
    let path = data.join(FILE);
    let mut acts = Vec::new();
    for path in [older(&path), path] {
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        // A last line that a crash cut off is none.
        let lines = text.split(|byte| *byte == b'\n');
        let read = lines.filter_map(|line| serde_json::from_slice::<Act>(line).ok());
        acts.extend(read.filter(|act| act.at_ms >= since_ms));
    }
    Ok(acts)
}

/// The newest `most` acts of a data directory, oldest of them first.
///
/// # Errors
/// As of [`read`].
pub(crate) fn newest(data: &Path, most: usize) -> io::Result<Vec<AuditLine>> {
    let acts = read(data, 0)?;
    let older = acts.len().saturating_sub(most);
    let lines = acts.into_iter().skip(older).map(|act| AuditLine {
        at_ms: act.at_ms,
        who: act.who,
        from: act.from,
        act: act.act,
        what: act.what,
        result: act.result,
    });
    Ok(lines.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_read_back() {
        let dir = tempfile::tempdir().expect("a folder");
        let audit = Audit::new(dir.path());
        assert_eq!(read(dir.path(), 0).expect("read"), []);
        audit.note("ann", None, "flush", "work \u{1b}[0m", "ok");
        audit.note("", Some(IpAddr::from([192, 0, 2, 7])), "login", "", "wrong");
        let mut file = OpenOptions::new()
            .append(true)
            .open(dir.path().join(FILE))
            .expect("open");
        file.write_all(b"{\"at_ms\": 1, \"who\"").expect("written");
        let acts = read(dir.path(), 0).expect("read");
        assert_eq!(acts.len(), 2);
        assert!(
            acts[1].line().contains(" - 192.0.2.7 login - wrong"),
            "{}",
            acts[1].line()
        );
        assert_eq!(read(dir.path(), u64::MAX).expect("read"), []);
    }

    #[test]
    fn it_takes_so_much_and_keeps_the_newest() {
        let dir = tempfile::tempdir().expect("a folder");
        let audit = Audit::new(dir.path());
        let long = "x".repeat(64 << 10);
        let lines = 2 * BYTES_MAX / (64 << 10) + 20;
        for number in 0..lines {
            audit.note(&number.to_string(), None, "flush", &long, "ok");
        }
        let size = |path: PathBuf| fs::metadata(path).expect("there").len();
        let path = dir.path().join(FILE);
        assert!(size(path.clone()) <= BYTES_MAX && size(older(&path)) <= BYTES_MAX);
        let acts = read(dir.path(), 0).expect("read");
        let newest = acts.last().expect("some").who.clone();
        assert_eq!(newest, (lines - 1).to_string());
        assert!(acts.len() as u64 >= lines / 3);
    }
}
