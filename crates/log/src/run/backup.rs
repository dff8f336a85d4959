//! Copying runs beside a backup of the log.

use crate::error::OfStorage as _;
use crate::{
    LogError, Result, Storage,
    run::{RunName, list_runs},
    storage::copy,
};

/// Files that joined a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunBackup {
    /// Runs that share their bytes with the original.
    pub linked: u64,
    /// Runs copied, where the file system cannot link.
    pub copied: u64,
    pub copied_bytes: u64,
}

/// Adds to `target` all runs of `source` that it does not have yet, durably, also while a server
/// makes and removes runs; one that goes away before it is had is passed over.
///
/// For a backup, call this before [`backup`](crate::backup()) and again after it: the first call
/// has the runs that are old enough to be removed meanwhile, the second those that were made
/// meanwhile. A run both made and removed between the two may be missing, so the caller, who can
/// read what the log in the backup names, looks whether all of it is there and starts over if not.
/// Runs that the log does not name do no harm.
///
/// # Errors
/// [`LogError::NoSpace`], [`LogError::Io`]; what was added stays.
pub fn backup_runs(source: &dyn Storage, target: &dyn Storage) -> Result<RunBackup> {
    let mut summary = RunBackup::default();
    let there = list_runs(target)?;
    for name in list_runs(source)? {
        if there.binary_search(&name).is_ok() {
            continue;
        }
        match add(source, target, name)? {
            Some(0) => summary.linked += 1,
            Some(bytes) => {
                summary.copied += 1;
                summary.copied_bytes += bytes;
            }
            None => {}
        }
    }
    target.sync_dir().or_io("sync", "the target")?;
    Ok(summary)
}

/// Adds one run and returns how many bytes were copied; `None` when it is gone.
fn add(source: &dyn Storage, target: &dyn Storage, name: RunName) -> Result<Option<u64>> {
    let file_name = name.to_string();
    // A finished run was synced before it got its name, so a link needs no sync of its own.
    match source.link_into(&file_name, target) {
        Ok(true) => return Ok(Some(0)),
        Ok(false) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(LogError::full_or_io("link", &file_name, 0, error)),
    }
    let file = match source.open_read(&file_name) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(LogError::io("open", &file_name, 0, error)),
    };
    let tmp = name.tmp();
    let add = || -> Result<Option<u64>> {
        let made = target.create(&tmp).or_full("create", &tmp)?;
        let bytes = copy((&*file, &file_name), (&*made, &tmp), 0, None)?;
        made.sync_data().or_full("sync", &tmp)?;
        target.rename(&tmp, &file_name).or_full("finish", &tmp)?;
        Ok(Some(bytes))
    };
    let added = add();
    if added.is_err() {
        // What cannot be removed now is removed when the backup is started as a server.
        target.remove(&tmp).ok();
    }
    added
}
