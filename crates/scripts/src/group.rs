//! Process groups of scripts: ended whole, and known again after a crash of
//! the server.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// Between two looks whether a group is gone. Processes that are no children
/// of ours tell nobody when they end.
const POLL: Duration = Duration::from_millis(10);

/// Record of a running script until it ends: enough to tell its group from any other, whose numbers
/// may be the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Number of the group, and of the process that began it.
    pub(crate) group: i32,
    /// When that process began, in ticks since the boot.
    pub(crate) start: u64,
    pub(crate) boot: String,
    /// `RQ_MSG_DIR` of all its processes.
    pub(crate) dir: String,
}

impl Record {
    /// Of a process that leads a group.
    pub(crate) fn of(pid: Pid, dir: &Path) -> io::Result<Self> {
        let group = pid.as_raw_nonzero().get();
        Ok(Self {
            group,
            start: Stat::of(group)?.start,
            boot: boot_id()?,
            dir: dir.to_string_lossy().into_owned(),
        })
    }

    /// Writes it. Not synced: a power failure ends the group as well.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let text = format!(
            "{} {} {}\n{}\n",
            self.group, self.start, self.boot, self.dir
        );
        // A crash amidst the writing comes before the script is let go.
        fs::write(path, text)
    }

    fn read(path: &Path) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        let (first, rest) = text.split_once('\n')?;
        let dir = rest.strip_suffix('\n')?;
        let mut words = first.split(' ');
        Some(Self {
            group: words.next()?.parse().ok().filter(|&group| group > 1)?,
            start: words.next()?.parse().ok()?,
            boot: words.next()?.to_owned(),
            dir: dir.to_owned(),
        })
    }

    /// True if the group lives and is the one that was recorded: it is still
    /// led by that process, or one of it has the script's environment.
    fn lives(&self) -> bool {
        let members = members(self.group);
        if members.is_empty() {
            return false;
        }
        let leader = Stat::of(self.group).ok();
        if leader.is_some_and(|stat| stat.group == self.group && stat.start == self.start) {
            return true;
        }
        let wanted = format!("RQ_MSG_DIR={}", self.dir);
        members.iter().any(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment
                .split(|&byte| byte == 0)
                .any(|entry| entry == wanted.as_bytes())
        })
    }
}

/// Sends a signal to a whole group. That it is gone is fine.
pub(crate) fn signal(group: Pid, signal: Signal) {
    let _gone = kill_process_group(group, signal);
}

/// Ends the groups an earlier process of the server left: TERM, after `grace`
/// KILL. Returns when all are gone.
pub(crate) fn end_leftovers(records: &Path, grace: Duration) -> io::Result<()> {
    let boot = boot_id()?;
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut left: Vec<(Record, Pid)> = Vec::new();
    for entry in fs::read_dir(records)? {
        let path = entry?.path();
        if let Some(record) = Record::read(&path)
            && record.boot == boot
            && let Some(pid) = Pid::from_raw(record.group)
            && record.lives()
        {
            tracing::info!(
                group = record.group,
                dir = record.dir,
                "a script of the last start still runs"
            );
            signal(pid, Signal::TERM);
            left.push((record, pid));
        }
        paths.push(path);
    }
    let term_until = Instant::now() + grace;
    // KILL needs no grace, only the kernel's time.
    let kill_until = term_until + Duration::from_secs(5);
    let mut killed = false;
    loop {
        left.retain(|(record, _)| record.lives());
        if left.is_empty() {
            break;
        }
        let now = Instant::now();
        if now >= term_until && !killed {
            killed = true;
            for (_, pid) in &left {
                signal(*pid, Signal::KILL);
            }
        }
        if now >= kill_until {
            let groups: Vec<i32> = left.iter().map(|(record, _)| record.group).collect();
            return Err(io::Error::other(format!(
                "process groups of scripts do not end: {groups:?}"
            )));
        }
        std::thread::sleep(POLL);
    }
    for path in paths {
        fs::remove_file(path)?;
    }
    Ok(())
}

/// The part of `/proc` about one process.
struct Stat {
    zombie: bool,
    group: i32,
    start: u64,
}

impl Stat {
    fn of(pid: i32) -> io::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        Self::parse(&text).ok_or_else(|| io::Error::other("/proc/PID/stat not understood"))
    }

    /// The name, second of the fields, may hold anything, also spaces and
    /// brackets; proc_pid_stat(5) counts from 1.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        Some(Self {
            zombie: matches!(*fields.first()?, "Z" | "X"),
            group: fields.get(5 - 3)?.parse().ok()?,
            start: fields.get(22 - 3)?.parse().ok()?,
        })
    }
}

/// The living processes of a group.
fn members(group: i32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&pid| Stat::of(pid).is_ok_and(|stat| stat.group == group && !stat.zombie))
        .collect()
}

fn boot_id() -> io::Result<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_brackets() {
        let text = "12 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 9";
        let stat = Stat::parse(text).expect("a stat");
        assert_eq!((stat.zombie, stat.group, stat.start), (false, 7, 4711));
        assert!(Stat::parse("12 (a").is_none());
    }

    #[test]
    fn records_there_and_back() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("x");
        let pid = rustix::process::getpid();
        let record = Record::of(pid, Path::new("/a b/job")).expect("record");
        record.write(&path).expect("written");
        assert_eq!(Record::read(&path), Some(record));
        fs::write(&path, "12 x").expect("written");
        assert_eq!(Record::read(&path), None);
    }

    #[test]
    fn a_group_of_the_same_number_is_let_live() {
        let folder = tempfile::tempdir().expect("folder");
        let mut child = std::os::unix::process::CommandExt::process_group(
            &mut std::process::Command::new("sleep"),
            0,
        )
        .arg("600")
        .spawn()
        .expect("spawned");
        let pid = Pid::from_child(&child);
        let mut record = Record::of(pid, Path::new("/none")).expect("record");
        record.start += 1;
        record.write(&folder.path().join("other")).expect("written");
        end_leftovers(folder.path(), Duration::from_secs(60)).expect("ended");
        assert!(child.try_wait().expect("waited").is_none(), "it lives");
        record.start -= 1;
        record.write(&folder.path().join("own")).expect("written");
        end_leftovers(folder.path(), Duration::from_secs(60)).expect("ended");
        assert!(!child.wait().expect("ended").success());
        assert_eq!(fs::read_dir(folder.path()).expect("read").count(), 0);
    }
}
