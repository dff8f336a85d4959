//! Messages in a folder that RQ itself has used: they are directories there,
//! and nothing here reads them.

use std::fmt;
use std::fs;
use std::path::Path;

/// The states whose messages wait or ask for somebody; RQ has a folder for
/// each (seed `rq`, section 1). Quintet's own folders have other names.
const STATES: [&str; 4] = ["prep", "que", "run", "err"];

/// Messages of one queue in one state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unread {
    pub queue: String,
    /// `prep`, `que`, `run` or `err`.
    pub state: &'static str,
    /// How many, 1 at least.
    pub count: u64,
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {} of {}", self.count, self.state, self.queue)
    }
}

/// Messages that RQ has left in its folder `root`, by queue and state. A folder that cannot be read
/// counts as one without messages: the start reports the error.
pub fn unread(root: &Path) -> Vec<Unread> {
    let mut all = Vec::new();
    for queue in folders(&root.join("queue")) {
        for state in STATES {
            let messages = folders(&queue.join(state)).into_iter();
            let count = messages.filter(|one| one.join("msg").is_file()).count();
            if count > 0 {
                let name = queue.file_name().unwrap_or_default();
                all.push(Unread {
                    queue: name.to_string_lossy().into_owned(),
                    state,
                    count: count as u64,
                });
            }
        }
    }
    all
}

fn folders(of: &Path) -> Vec<std::path::PathBuf> {
    let mut found: Vec<_> = fs::read_dir(of)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_rq_are_counted() {
        let root = tempfile::tempdir().expect("a folder");
        assert_eq!(unread(root.path()), []);
        let message = |path: &str| {
            let folder = root.path().join("queue").join(path);
            fs::create_dir_all(&folder).expect("made");
            fs::write(folder.join("msg"), "{}").expect("written");
        };
        message("mail/que/20091109.0558.57.780.7509656");
        message("mail/que/20091109.0558.57.780.7509657");
        message("mail/err/20091109.0558.57.780.7509658");
        message("img/prep/20091109.0558.57.780.7509659");
        // Those that are over, and our own.
        message("img/done/20091109/05/58/20091109.0558.57.780.7509660");
        message("img/msg/20091109/20091109.0558.57.780.1");
        fs::create_dir_all(root.path().join("queue/img/que")).expect("made");
        let shown: Vec<String> = unread(root.path()).iter().map(Unread::to_string).collect();
        assert_eq!(
            shown,
            ["1 in prep of img", "2 in que of mail", "1 in err of mail"]
        );
    }
}
