//! Modes of the files that the server writes: readable by its own account alone.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::Mode;

/// Permissions that others have no use for.
const OTHERS: u32 = 0o077;
/// Files that are named; the others are counted.
const NAMED: usize = 5;

/// The umask this process was started with.
static GIVEN: OnceLock<u32> = OnceLock::new();

/// From now on directories are made 0700 and files 0600, whatever the umask
/// was: logs, runs, backups and exports hold messages.
pub fn keep_private() {
    let before = rustix::process::umask(Mode::from_bits_truncate(OTHERS));
    GIVEN.get_or_init(|| before.bits());
}

/// The umask at the start of the process, for what is not ours: scripts, and who
/// may connect to a listener's socket.
pub fn initial_umask() -> u32 {
    GIVEN.get().copied().unwrap_or(0o022)
}

/// Warns of a data directory, and of files in it, that other accounts may
/// read.
pub fn warn_wider(data: &Path) {
    let wide = wider(data);
    let Some((first, _)) = wide.split_first() else {
        return;
    };
    let named: Vec<String> = wide.iter().take(NAMED).map(Wide::to_string).collect();
    let more = match wide.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    tracing::warn!(
        "other accounts can read messages: {}{more}; run chmod -R go= {}",
        named.join(", "),
        first.path.display()
    );
}

/// Something others may do something with.
#[derive(PartialEq, Eq, Debug)]
struct Wide {
    path: PathBuf,
    mode: u32,
}

impl std::fmt::Display for Wide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({:04o})", self.path.display(), self.mode)
    }
}

/// The directory, if others may enter it, and then what in it they may read.
/// In one that they cannot enter nothing is theirs to read.
fn wider(data: &Path) -> Vec<Wide> {
    let wide = |path: &Path| {
        let about = fs::symlink_metadata(path).ok()?;
        let kind = about.file_type();
        // Nobody reads through a socket, and a link has no mode of its own.
        if kind.is_socket() || kind.is_symlink() {
            return None;
        }
        let mode = about.permissions().mode() & 0o7777;
        (mode & OTHERS != 0).then(|| Wide {
            path: path.to_owned(),
            mode,
        })
    };
    let Some(dir) = wide(data) else {
        return Vec::new();
    };
    let mut all = vec![dir];
    let entries = fs::read_dir(data).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    all.extend(paths.iter().filter_map(|path| wide(path)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_others_may_read_are_named() {
        let dir = tempfile::tempdir().expect("a folder");
        let set = |path: &Path, mode: u32| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
        };
        let file = dir.path().join("a");
        fs::write(&file, "x").expect("written");
        set(&file, 0o644);
        set(dir.path(), 0o700);
        assert_eq!(wider(dir.path()), []);
        set(dir.path(), 0o750);
        let named: Vec<String> = wider(dir.path()).iter().map(Wide::to_string).collect();
        assert!(
            named[0].ends_with("(0750)") && named[1].ends_with("a (0644)"),
            "{named:?}"
        );
        set(&file, 0o600);
        assert_eq!(wider(dir.path()).len(), 1);
        assert_eq!(wider(&dir.path().join("none")), []);
    }
}
