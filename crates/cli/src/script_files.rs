//! The files of queue scripts in a backup: attachments, logs, settings.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use anyhow::{Context, Result};

/// Where they are in a data directory, unless `script_root` names another
/// place.
pub(super) const FOLDER: &str = "rq";

/// Process groups of scripts that run; nothing to a copy.
const RUNNING: &str = "run";

/// Copies the files that are not in the copy yet; answers how many. What goes
/// meanwhile is left out. To be done before the log is copied and after: a
/// file a message in the copied log names was there at one of the two times,
/// unless the message is gone since.
///
/// # Errors
/// Names the file.
pub(super) fn copy(data: &Path, target: &Path) -> Result<u64> {
    let from = data.join(FOLDER);
    let mut files = 0;
    if from.is_dir() {
        copy_folder(&from, &target.join(FOLDER), true, &mut files)?;
    }
    Ok(files)
}

fn copy_folder(from: &Path, to: &Path, top: bool, files: &mut u64) -> Result<()> {
    let entries = match fs::read_dir(from) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(|| format!("cannot read {}", from.display()))?,
    };
    make(to).with_context(|| format!("cannot create {}", to.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot read {}", from.display()))?;
        let (old, new) = (entry.path(), to.join(entry.file_name()));
        let kind = match entry.file_type() {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            kind => kind.with_context(|| format!("cannot read the type of {}", old.display()))?,
        };
        if kind.is_dir() {
            if !(top && entry.file_name() == RUNNING) {
                copy_folder(&old, &new, false, files)?;
            }
            continue;
        }
        let copied = if kind.is_symlink() {
            fs::read_link(&old).and_then(|to| std::os::unix::fs::symlink(to, &new))
        } else if kind.is_file() {
            copy_file(&old, &new)
        } else {
            // Sockets are made anew.
            continue;
        };
        match copied {
            Ok(()) => *files += 1,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot copy {}", old.display()));
            }
        }
    }
    Ok(())
}

/// Makes the names of all that was copied durable. What is in the files is already.
///
/// # Errors
/// Names the folder.
pub(super) fn sync(target: &Path) -> Result<()> {
    let copied = target.join(FOLDER);
    if copied.is_dir() {
        sync_folder(&copied)?;
        quintet_log::sync_name(&copied)
            .with_context(|| format!("cannot sync {}", target.display()))?;
    }
    Ok(())
}

fn sync_folder(folder: &Path) -> Result<()> {
    let cannot = || format!("cannot sync {}", folder.display());
    for entry in fs::read_dir(folder).with_context(cannot)? {
        let entry = entry.with_context(cannot)?;
        if entry.file_type().with_context(cannot)?.is_dir() {
            sync_folder(&entry.path())?;
        }
    }
    fs::File::open(folder)
        .and_then(|folder| folder.sync_all())
        .with_context(cannot)
}

fn make(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Attachments are never written again, only replaced: they can share their
/// bytes.
fn copy_file(old: &Path, new: &Path) -> io::Result<()> {
    let folder = old.parent().and_then(Path::file_name);
    if folder.is_some_and(|name| name == "attach") {
        match fs::hard_link(old, new) {
            Err(error) if error.kind() == ErrorKind::CrossesDevices => {}
            linked => return linked,
        }
    }
    if new.exists() {
        return Err(ErrorKind::AlreadyExists.into());
    }
    fs::copy(old, new)?;
    fs::File::open(new)?.sync_all()
}
