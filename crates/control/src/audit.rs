//! The audit file: what was done, a line of JSON each. The server writes it, and the command line
//! reads it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use quintet_client::AuditLine;

/// The file's name in the data directory; the one before it has [`OLDER`]
/// behind it.
pub const FILE: &str = "audit.log";
const OLDER: &str = ".1";

/// Where the file before it is.
pub fn older(path: &Path) -> PathBuf {
    let mut older = path.as_os_str().to_owned();
    older.push(OLDER);
    PathBuf::from(older)
}

/// The acts of a data directory from `since_ms` on, oldest first.
///
/// # Errors
/// The files are there and cannot be read.
pub fn read(data: &Path, since_ms: u64) -> io::Result<Vec<AuditLine>> {
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
        let read = lines.filter_map(|line| serde_json::from_slice::<AuditLine>(line).ok());
        acts.extend(read.filter(|act| act.at_ms >= since_ms));
    }
    Ok(acts)
}

/// Bytes of the files that [`newest`] reads at most.
pub const NEWEST_BYTES: usize = 256 << 10;

/// The newest `most` acts of a data directory, oldest of them first. The files are read from their
/// end, [`NEWEST_BYTES`] of them at most.
///
/// # Errors
/// The files are there and cannot be read.
pub fn newest(data: &Path, most: usize) -> io::Result<Vec<AuditLine>> {
    let path = data.join(FILE);
    let (mut acts, mut left) = (Vec::new(), NEWEST_BYTES);
    for path in [path.clone(), older(&path)] {
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let len = file.metadata()?.len();
        let mut text = vec![0; left.min(usize::try_from(len).unwrap_or(usize::MAX))];
        let from = len - text.len() as u64;
        file.read_exact_at(&mut text, from)?;
        left -= text.len();
        // The end of a line that began before is no act; nor is a line that a crash cut off.
        let lines = text.rsplit(|byte| *byte == b'\n');
        let read = lines.filter_map(|line| serde_json::from_slice::<AuditLine>(line).ok());
        acts.extend(read.take(most - acts.len()));
        if acts.len() == most || from > 0 {
            break;
        }
    }
    acts.reverse();
    Ok(acts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines are of commit 8486fd84.
    #[test]
    fn old_acts_are_read() {
        for (old, end) in [
            (
                r#"{"at_ms":1,"who":"uid 0","from":"","act":"purge","what":"q","result":"ok"}"#,
                " uid 0 - purge q ok",
            ),
            (
                r#"{"at_ms":1,"who":"eve","from":"::1","act":"login","what":"","result":"refused","steps":2}"#,
                " eve ::1 login - refused (2 steps more)",
            ),
        ] {
            let act: AuditLine = serde_json::from_str(old).unwrap();
            assert!(act.line().ends_with(end), "{}", act.line());
            assert_eq!(serde_json::to_string(&act).unwrap(), old);
        }
    }
}
