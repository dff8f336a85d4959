//! Where things lie under the root folder.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

use quintet_client::FOLDER;
use quintet_types::Message;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::config::check_queue_name;
use crate::fault::Fault;
use crate::ids::{parse_short, short_id};
use crate::record::attr_text;

/// The root folder.
///
/// | path | what |
/// |---|---|
/// | `config/NAME.down`, `config/NAME.pause` | admin states of queues |
/// | `queue/NAME/config.json` | settings of a queue made over HTTP or by scandir |
/// | `queue/NAME/msg/DAY/ID/job/` | the folder a message's script runs in, with its `stdio.log` |
/// | `queue/NAME/msg/DAY/ID/attach/` | its attachments |
/// | `config/rq_router_rules.toml` | rules of `rq_router` |
/// | `log/rq_router.log` | what its rules log |
/// | `config/queuemgr.pid`, `queue/NAME/queue.pid` | number of the process that looks after all, and after a queue, while it does |
/// | `lock` | locked while a service runs |
/// | `run/ID` | the process group of a running script |
/// | `scandir/`, `timers/` | links |
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    root: PathBuf,
}

/// The root folder is taken until this is dropped, or the process ends.
#[derive(Debug)]
pub(crate) struct RootLock(File);

impl Drop for RootLock {
    fn drop(&mut self) {
        // Closing alone is not enough: a child that was just forked has the
        // file open until it becomes its program.
        rustix::fs::flock(&self.0, FlockOperation::Unlock).ok();
    }
}

impl Paths {
    /// Makes the folders that are not there, durably: what is kept in them is.
    pub(crate) fn make(root: &Path) -> io::Result<Self> {
        let missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
        let made: Vec<&Path> = root.ancestors().take_while(missing).collect();
        let folders = ["config", "log", "queue", "run", "scandir", "timers"];
        let whole = folders.iter().all(|name| root.join(name).is_dir());
        for name in folders {
            std::fs::create_dir_all(root.join(name))?;
        }
        if !whole {
            sync_dir(root)?;
        }
        for folder in made {
            sync_dir(folder.canonicalize()?.parent().unwrap_or(Path::new("/")))?;
        }
        // Scripts run elsewhere and get full paths.
        let root = root.canonicalize()?;
        Ok(Self { root })
    }

    /// Takes the folder: two services would delete each other's files and
    /// end each other's scripts.
    pub(crate) fn lock(&self) -> io::Result<RootLock> {
        let file = File::create(self.root.join("lock"))?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|errno| {
            let root = self.root.display();
            match errno {
                Errno::AGAIN => io::Error::other(format!("{root} is in use by another server")),
                other => other.into(),
            }
        })?;
        Ok(RootLock(file))
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.root.join("config")
    }

    pub(crate) fn queues(&self) -> PathBuf {
        self.root.join("queue")
    }

    pub(crate) fn queue(&self, queue: &str) -> PathBuf {
        self.root.join("queue").join(queue)
    }

    pub(crate) fn queue_config(&self, queue: &str) -> PathBuf {
        self.queue(queue).join("config.json")
    }

    pub(crate) fn queue_pid(&self, queue: &str) -> PathBuf {
        self.queue(queue).join("queue.pid")
    }

    pub(crate) fn manager_pid(&self) -> PathBuf {
        self.config().join("queuemgr.pid")
    }

    /// Removes all files with the number of a process, as nothing runs.
    pub(crate) fn forget_pids(&self) {
        forget(&self.manager_pid());
        for queue in names_in(&self.queues()).unwrap_or_default() {
            forget(&self.queue_pid(&queue));
        }
    }

    pub(crate) fn records(&self) -> PathBuf {
        self.root.join("run")
    }

    pub(crate) fn scandir(&self) -> PathBuf {
        self.root.join("scandir")
    }

    pub(crate) fn timers(&self) -> PathBuf {
        self.root.join("timers")
    }

    pub(crate) fn absolute(&self, dir: &Path) -> PathBuf {
        self.root.join(dir)
    }

    /// A message's folder, from the root on. The attribute `dir` says so if
    /// the message has files and so may have moved since they were written.
    pub(crate) fn dir(&self, queue: &str, message: &Message) -> PathBuf {
        attr_text(message, FOLDER)
            .map(PathBuf::from)
            .filter(|dir| is_message_dir(dir))
            .unwrap_or_else(|| own_dir(queue, message))
    }
}

/// The folder a message has where it is now.
pub(crate) fn own_dir(queue: &str, message: &Message) -> PathBuf {
    let id = short_id(message);
    let day = id.split('.').next().unwrap_or_default().to_owned();
    Path::new("queue")
        .join(queue)
        .join("msg")
        .join(day)
        .join(id)
}

/// Folders of messages, from the root on.
///
/// # Errors
/// One on the way cannot be read; that there is none is no error.
pub(crate) fn message_dirs(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut dirs = Vec::new();
    for queue in names_in(&root.join("queue"))? {
        let messages: PathBuf = ["queue", &queue, "msg"].iter().collect();
        for day in names_in(&root.join(&messages))? {
            let of_day = messages.join(&day);
            for id in names_in(&root.join(&of_day))? {
                dirs.push(of_day.join(id));
            }
        }
    }
    dirs.retain(|dir| is_message_dir(dir));
    Ok(dirs)
}

/// Names in a folder that are text; none if it is not there, or no folder.
pub(crate) fn names_in(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string().ok());
    }
    Ok(names)
}

/// True for what [`own_dir`] makes. Anybody may set attributes: nothing else
/// is followed.
pub(crate) fn is_message_dir(dir: &Path) -> bool {
    let mut words = Vec::new();
    for part in dir.components() {
        let Component::Normal(word) = part else {
            return false;
        };
        words.push(word.to_str().unwrap_or("/"));
    }
    match words[..] {
        ["queue", queue, "msg", day, id] => {
            check_queue_name(queue).is_ok() && parse_short(id).is_some() && id.starts_with(day)
        }
        _ => false,
    }
}

/// Says whether an attachment or another file beside a message may have this
/// name: a file name, no dot file, none of `~?[]%\|$&<>*/`.
///
/// # Errors
/// [`Fault::BadName`] with RQ's text.
pub fn check_file_name(name: &str) -> Result<(), Fault> {
    if name.is_empty() || name.len() > 255 {
        return Err(Fault::BadName(format!(
            "Attachment name is empty or too long: {name}"
        )));
    }
    if name.starts_with('.') {
        return Err(Fault::BadName(format!(
            "Attachment name as a dot-file not allowed: {name}"
        )));
    }
    let bad = |c: char| c.is_control() || "~?[]%\\|$&<>*/".contains(c);
    if name.chars().any(bad) {
        return Err(Fault::BadName(format!(
            "Attachment name has invalid character. not allowed: {name}"
        )));
    }
    Ok(())
}

/// Writes the number of this process into a file, whole. It reports the
/// present, so it need not outlive a power cut.
pub(crate) fn write_pid(path: &Path) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(folder)?;
    let new = path.with_extension("pid.new");
    std::fs::write(&new, format!("{}\n", std::process::id()))?;
    std::fs::rename(&new, path)
}

/// Removes a file, if it is there.
pub(crate) fn forget(path: &Path) {
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::debug!("cannot remove {}: {error}", path.display());
    }
}

/// Replaces a file whole: a crash leaves the old one or the new one.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = folder.join(format!(".{name}.new"));
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    sync_dir(folder)
}

/// Makes a folder of a message, and those it is in. A cleanup that removes its
/// day, empty until then, may come between.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    make_folder_by(|| std::fs::create_dir_all(folder))
}

/// How often a folder is tried to be made. Each try that fails has met a cleanup
/// of its own, and a cleanup removes a day once; a choice.
const TRIES: u32 = 100;

/// Makes a folder in this way.
fn make_folder_by(mut make: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    let mut made = make();
    for _ in 1..TRIES {
        match &made {
            Err(error) if error.kind() == io::ErrorKind::NotFound => made = make(),
            _ => break,
        }
    }
    made
}

/// Makes names in a folder durable.
pub(crate) fn sync_dir(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Makes names in `attach/` of a message's folder durable, and those of the folders that lead
/// there from `queue/`, which [`Paths::make`] has made so.
pub(crate) fn sync_up(attach: &Path) -> io::Result<()> {
    /// `attach`, those of the message, its day, all messages and the queue, and `queue`.
    const FOLDERS: usize = 6;
    attach.ancestors().take(FOLDERS).try_for_each(sync_dir)
}

/// Removes a file for good, if it is there: a power cut does not bring it back.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let removed = std::fs::remove_file(path)
        // Of one that is not there: it may have been removed a moment ago, by a call that failed.
        .or_else(unless_gone)
        .and_then(|()| sync_dir(path.parent().unwrap_or(Path::new("/"))));
    // Nor need its folder be there.
    removed.or_else(unless_gone)
}

fn unless_gone(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound {
        return Ok(());
    }
    Err(error)
}

/// Removes a folder with all in it; that it is gone already is fine.
pub(crate) fn remove_tree(folder: &Path) {
    match std::fs::remove_dir_all(folder) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        // The next cleanup tries again.
        Err(error) => tracing::warn!(folder = %folder.display(), %error, "folder not removed"),
    }
}

/// The links in a folder, by their names. A file that is being written is none.
pub(crate) fn links(folder: &Path) -> impl Iterator<Item = (String, PathBuf)> + use<> {
    let all = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let links = all.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
    links.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
}

/// Reads a file that is meant to be small.
pub(crate) fn read_small(path: &Path) -> Result<Vec<u8>, Fault> {
    use std::io::Read;
    const BYTES_MAX: u64 = 1 << 20;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?
        .take(BYTES_MAX + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(Fault::Failed("over 1 MiB".to_owned()));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_folder_is_free_although_its_file_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let paths = Paths::make(folder.path()).unwrap();
        let held = paths.lock().unwrap();
        assert!(paths.lock().is_err());
        // As a child has it between its fork and its exec.
        let _child = held.0.try_clone().unwrap();
        drop(held);
        paths.lock().unwrap();
    }

    #[test]
    fn a_folder_whose_day_a_cleanup_removes_is_made_again() {
        let root = tempfile::tempdir().unwrap();
        let day = root.path().join("20200101");
        let folder = day.join("id/attach");
        let mut cleanups = TRIES - 1;
        let made = make_folder_by(|| {
            if cleanups == 0 {
                return std::fs::create_dir_all(&folder);
            }
            // The day is made, and removed before anything is in it.
            cleanups -= 1;
            std::fs::create_dir(&day)?;
            std::fs::remove_dir(&day)?;
            std::fs::create_dir(day.join("id"))
        });
        made.unwrap();
        assert!(folder.is_dir());
        // Whatever else is wrong is said, at the first try.
        let mut tries = 0;
        let refused = make_folder_by(|| {
            tries += 1;
            std::fs::write(root.path().join("file"), "")?;
            std::fs::create_dir_all(root.path().join("file/id"))
        });
        assert_eq!(
            (refused.unwrap_err().kind(), tries),
            (io::ErrorKind::NotADirectory, 1)
        );
    }

    /// The same with a thread that cleans up, fewer times than a folder is tried
    /// to be made: so it must come, in either order.
    #[test]
    fn a_folder_is_made_while_cleanups_remove_its_day() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let root = tempfile::tempdir().unwrap();
        let day = root.path().join("20200101");
        for _ in 0..200 {
            let over = AtomicBool::new(false);
            let made = std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut removed = 0;
                    while removed < TRIES - 1 && !over.load(Ordering::Acquire) {
                        removed += u32::from(std::fs::remove_dir(&day).is_ok());
                    }
                });
                let made = make_folder(&day.join("id/attach"));
                over.store(true, Ordering::Release);
                made
            });
            made.unwrap();
            remove_tree(&day);
        }
    }

    #[test]
    fn folders_of_messages() {
        let day = "queue/test/msg/20091109";
        let good = format!("{day}/20091109.0558.57.780.7509656");
        assert!(is_message_dir(Path::new(&good)));
        for bad in [
            "/queue/test/msg/20091109/20091109.0558.57.780.7509656",
            "queue/../msg/20091109/20091109.0558.57.780.7509656",
            "queue/test/msg/20091108/20091109.0558.57.780.7509656",
            "queue/test/msg/20091109/..",
            "queue/test/msg",
            "",
        ] {
            assert!(!is_message_dir(Path::new(bad)), "{bad}");
        }
    }

    #[test]
    fn names_of_files() {
        for name in ["a", "data.tar.gz", "a b", "ü", "a..b"] {
            assert_eq!(check_file_name(name), Ok(()), "{name}");
        }
        for name in [
            "", ".", "..", ".x", "a/b", "../x", "a\\b", "a\0", "a\n", "x*", "$x", "~",
        ] {
            assert!(check_file_name(name).is_err(), "{name:?}");
        }
        assert!(check_file_name(&"x".repeat(256)).is_err());
    }
}
