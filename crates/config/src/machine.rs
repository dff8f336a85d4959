//! Resources that the machine gives this process.

use std::fs;
use std::path::Path;

/// Bytes of memory there are for it: the machine's, or what its control group
/// or one above it may take, if that is less. `None`: nobody says.
pub(crate) fn memory() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    smallest(total(&meminfo), &groups, Path::new("/sys/fs/cgroup"))
}

fn total(meminfo: &str) -> Option<u64> {
    let kib = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())?;
    kib.checked_mul(1024)
}

/// The smallest of `total` and the limits of the groups that
/// `/proc/self/cgroup` names, and of those above them (cgroups(7), both
/// versions), below `root`.
fn smallest(total: Option<u64>, groups: &str, root: &Path) -> Option<u64> {
    let mut least = total;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            of if of.split(',').any(|one| one == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            let text = fs::read_to_string(root.join(group).join(file)).unwrap_or_default();
            // "max" is no number: no limit.
            if let Ok(limit) = text.trim().parse::<u64>() {
                least = Some(least.map_or(limit, |least| least.min(limit)));
            }
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_counts() {
        let root = tempfile::tempdir().expect("a folder");
        let write = |file: &str, text: &str| {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        };
        let total = total("MemTotal:        1000 kB\nMemFree: 1 kB\n");
        assert_eq!(total, Some(1_024_000));
        let found = |groups: &str| smallest(total, groups, root.path());
        assert_eq!(found(""), total);
        assert_eq!(found("0::/a/b\n"), total);
        write("a/b/memory.max", "max\n");
        assert_eq!(found("0::/a/b\n"), total);
        write("a/memory.max", "4096\n");
        assert_eq!(found("0::/a/b\n"), Some(4096));
        write("memory/c/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(found("4:cpu,memory:/c\n3:pids:/a\n"), total);
        write("memory/c/memory.limit_in_bytes", "8192\n");
        assert_eq!(found("4:cpu,memory:/c\n"), Some(8192));
        assert_eq!(found("garbage\n0:\n"), total);
    }
}
