//! A consistent copy of a log that may be in use.
//!
//! Closed segments never change, so a second name is a copy. The last one is copied up to its last
//! good frame. A segment that goes away meanwhile makes the whole start over: the set of segments
//! must be one that existed.

use crate::{
    LogError, Position, Storage, StorageFile,
    scan::{Scan, Step, Window},
    segment::{
        SEGMENT_HEADER_BYTES, SegmentHeader, parse_segment_name, segment_name, segment_tmp_name,
    },
    storage::{read_full, write_all},
};

/// How often to start over. A segment goes away each time the log has moved on by a segment or
/// more, which takes far longer than linking a directory.
const ATTEMPTS: usize = 16;

/// Bytes copied at once.
const COPY_BYTES: usize = 1 << 20;

/// What a backup holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupSummary {
    /// Segments in it.
    pub segments: u64,
    /// How many of them share their bytes with the original.
    pub linked: u64,
    /// Bytes copied.
    pub copied_bytes: u64,
    /// Where the log in the backup ends.
    pub end: Position,
}

/// Makes a copy of the log in `target`, an existing directory without a log, also while a server
/// writes to `source`, in this process or another. The copy is durable when this returns, opens as
/// a log, and holds everything that was durable when this was called.
///
/// # Errors
/// [`LogError::NotEmpty`], [`LogError::Damaged`], [`LogError::NewerFormat`],
/// [`LogError::NoSpace`], [`LogError::Io`]. What was made in `target` is removed again.
pub fn backup(source: &dyn Storage, target: &dyn Storage) -> Result<BackupSummary, LogError> {
    if let Some(file) = segments_of(target)?.first() {
        return Err(LogError::NotEmpty { file: file.clone() });
    }
    for _ in 0..ATTEMPTS {
        match try_backup(source, target) {
            Ok(Some(summary)) => return Ok(summary),
            Ok(None) => remove_all(target)?,
            Err(error) => {
                remove_all(target)?;
                return Err(error);
            }
        }
    }
    let error = std::io::Error::other("its segments go away faster than they can be copied");
    Err(LogError::io("copy", "the log", 0, error))
}

/// `None` when a segment went away before it was had.
fn try_backup(
    source: &dyn Storage,
    target: &dyn Storage,
) -> Result<Option<BackupSummary>, LogError> {
    let names = segments_of(source)?;
    let mut summary = BackupSummary {
        segments: names.len() as u64,
        ..BackupSummary::default()
    };
    let mut window = Window::default();
    let mut linked = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let next = names.get(index + 1);
        let result = match next {
            Some(_) => link(source, target, name),
            None => Ok(false),
        };
        let result = match result {
            Ok(true) => {
                linked.push(name);
                continue;
            }
            Ok(false) => copy_segment(source, target, name, next, &mut window),
            Err(error) => Err(error),
        };
        // A file copied while it was recycled may have had any content: what tells is whether its
        // name is still there. That also explains an error.
        if !segments_of(source)?.contains(name) {
            return Ok(None);
        }
        let (bytes, end) = result?;
        summary.copied_bytes += bytes;
        summary.end = end;
    }
    // The server may not have synced them yet. Last, because it takes a while and they are safe.
    for name in &linked {
        target
            .open(name)
            .and_then(|file| file.sync_data())
            .map_err(|error| failed("sync", name, error))?;
    }
    target
        .sync_dir()
        .map_err(|error| LogError::io("sync", "the target", 0, error))?;
    summary.linked = linked.len() as u64;
    Ok(Some(summary))
}

fn link(source: &dyn Storage, target: &dyn Storage, name: &str) -> Result<bool, LogError> {
    source
        .link_into(name, target)
        .map_err(|error| failed("link", name, error))
}

fn header_of(source: &dyn Storage, name: &str) -> Result<SegmentHeader, LogError> {
    let file = source
        .open_read(name)
        .map_err(|error| failed("open", name, error))?;
    SegmentHeader::read(&*file, name)
}

fn copy_segment(
    source: &dyn Storage,
    target: &dyn Storage,
    name: &str,
    next: Option<&String>,
    window: &mut Window,
) -> Result<(u64, Position), LogError> {
    let limit = match next {
        Some(next) => Some(header_of(source, next)?.first),
        None => None,
    };
    let file = source
        .open_read(name)
        .map_err(|error| failed("open", name, error))?;
    let header = SegmentHeader::read(&*file, name)?;
    let mut scan = Scan::new(&*file, name, &header, limit, window)?;
    let mut end = header.first;
    loop {
        match scan.at(end)? {
            Step::Frame(frame) => end = frame.end(),
            Step::Limit => break,
            Step::Stop(_) if limit.is_none() => break,
            Step::Stop(stop) => {
                return Err(LogError::damaged(name, header.offset_of(end), stop.why));
            }
        }
    }
    let tmp = segment_tmp_name(header.number);
    let copy = target
        .create(&tmp)
        .map_err(|error| failed("create", &tmp, error))?;
    write_all(&*copy, 0, &header.encode()).map_err(|error| failed("write", &tmp, error))?;
    copy_bytes(&*file, name, &*copy, &tmp, header.offset_of(end))?;
    copy.sync_data()
        .and_then(|()| target.rename(&tmp, name))
        .map_err(|error| failed("finish", &tmp, error))?;
    Ok((header.offset_of(end), end))
}

/// Copies everything behind the header, up to `end`.
fn copy_bytes(
    from: &dyn StorageFile,
    name: &str,
    to: &dyn StorageFile,
    to_name: &str,
    end: u64,
) -> Result<(), LogError> {
    let mut bytes = vec![0; COPY_BYTES];
    let mut offset = SEGMENT_HEADER_BYTES;
    while offset < end {
        let want = usize::try_from(end - offset)
            .unwrap_or(usize::MAX)
            .min(COPY_BYTES);
        let read = read_full(from, offset, &mut bytes[..want])
            .map_err(|error| LogError::io("read", name, offset, error))?;
        if read == 0 {
            return Err(LogError::damaged(name, offset, "the file became shorter"));
        }
        write_all(to, offset, &bytes[..read]).map_err(|error| failed("write", to_name, error))?;
        offset += read as u64;
    }
    Ok(())
}

fn segments_of(storage: &dyn Storage) -> Result<Vec<String>, LogError> {
    let names = storage.list();
    let names = names.map_err(|error| LogError::io("list", "the log's directory", 0, error))?;
    let mut numbers: Vec<_> = names
        .iter()
        .filter_map(|name| parse_segment_name(name))
        .collect();
    numbers.sort_unstable();
    Ok(numbers.into_iter().map(segment_name).collect())
}

/// Removes what an attempt made; there was no log before.
fn remove_all(target: &dyn Storage) -> Result<(), LogError> {
    let names = target
        .list()
        .map_err(|error| LogError::io("list", "the target", 0, error))?;
    for name in names {
        if parse_segment_name(&name).is_some() || crate::segment::is_tmp_name(&name) {
            target
                .remove(&name)
                .map_err(|error| LogError::io("remove", &name, 0, error))?;
        }
    }
    Ok(())
}

fn failed(doing: &'static str, name: &str, error: std::io::Error) -> LogError {
    LogError::full_or_io(doing, name, 0, error)
}
