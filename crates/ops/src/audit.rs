//! Operations on the server and their authors: a line each in the log, target `audit`, and in a
//! file of the data directory that is only appended to.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use quintet_client::{AuditLine, AuditLog, Entry};
pub use quintet_control::audit::newest;
use quintet_control::audit::{FILE, older};
use quintet_host::{locked, wall_ms};

/// Bytes of the file before it becomes the older one, which is then lost.
const BYTES_MAX: u64 = 8 << 20;
/// Steps of one act are a line for so long, ms.
const STEPS_MS: u64 = 10_000;

/// Bytes of an act, and of its subject, that are written down: a client chooses how long they are.
const TEXT_MAX: usize = 255;

fn start_of(text: &str) -> &str {
    let mut end = text.len().min(TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The file that is appended to.
pub struct Audit {
    path: PathBuf,
    open: Mutex<Option<(File, u64)>>,
    /// An act in steps that goes on: its last line, with the steps since.
    steps: Mutex<Option<AuditLine>>,
}

impl Audit {
    /// In the data directory. That it cannot be written is said with the first
    /// line.
    pub fn new(data: &Path) -> Self {
        Self {
            path: data.join(FILE),
            open: Mutex::new(None),
            steps: Mutex::new(None),
        }
    }

    /// Writes down steps that were counted and not yet reported, if no more came
    /// for a while.
    pub fn report_steps(&self) {
        let over = |last: &mut AuditLine| wall_ms().abs_diff(last.at_ms) >= STEPS_MS;
        let finished = locked(&self.steps).take_if(over);
        self.write_steps(finished);
    }

    /// The same of all that were counted: the server stops.
    pub fn report_all_steps(&self) {
        let finished = locked(&self.steps).take();
        self.write_steps(finished);
    }

    fn write_steps(&self, finished: Option<AuditLine>) {
        if let Some(finished) = finished.filter(|finished| finished.steps > 0) {
            self.write_act(&finished);
        }
    }

    fn write_act(&self, act: &AuditLine) {
        let (who, from, result) = (&*act.who, &*act.from, &*act.result_text());
        let (name, what) = (&*act.act, &*act.what);
        tracing::info!(target: "audit", who, from, act = name, what, result);
        if let Err(error) = self.append(act) {
            tracing::error!("cannot write {}: {error}", self.path.display());
        }
    }

    /// The file becomes the older one; a new one takes its place.
    fn rotate(&self) -> io::Result<File> {
        match fs::rename(&self.path, older(&self.path)) {
            // An earlier rotation went so far and could not open a new file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
        File::options().create(true).append(true).open(&self.path)
    }

    fn append(&self, act: &AuditLine) -> io::Result<()> {
        let mut line = serde_json::to_vec(act)?;
        line.push(b'\n');
        let mut open = locked(&self.open);
        let (mut file, mut size) = match open.take() {
            Some(open) => open,
            None => {
                let mut options = OpenOptions::new();
                let options = options.create(true).append(true).read(true);
                let file = options.open(&self.path)?;
                let size = file.metadata()?.len();
                let mut last = [b'\n'];
                if let Some(at) = size.checked_sub(1) {
                    file.read_exact_at(&mut last, at)?;
                }
                // A line that a crash or a full disk cut off takes no other with it.
                if last != *b"\n" {
                    line.insert(0, b'\n');
                }
                (file, size)
            }
        };
        let mut rotated = Ok(());
        if size > 0 && size + line.len() as u64 > BYTES_MAX {
            match self.rotate() {
                Ok(new) => (file, size) = (new, 0),
                // The line goes into the file that there is.
                Err(error) => rotated = Err(error),
            }
        }
        // One write, so that a line is there whole or not at all.
        file.write_all(&line)?;
        *open = Some((file, size + line.len() as u64));
        rotated
    }
}

impl AuditLog for Audit {
    fn write(&self, entry: &Entry<'_>) {
        let name = entry.operation.name();
        let act = AuditLine {
            at_ms: wall_ms(),
            who: entry.who.to_owned(),
            from: entry.from.map(|from| from.to_string()).unwrap_or_default(),
            act: start_of(entry.said.unwrap_or(name)).to_owned(),
            operation: name.to_owned(),
            what: start_of(entry.what).to_owned(),
            result: entry.result.to_owned(),
            steps: 0,
            messages: entry.did.messages,
            new_id: entry.did.new_id,
        };
        let Some(goes_on) = entry.step else {
            return self.write_act(&act);
        };
        let mut steps = locked(&self.steps);
        if let Some(last) = steps
            .as_mut()
            .filter(|last| goes_on && is_step_of(&act, last))
        {
            last.steps += 1;
            last.messages = match (last.messages, act.messages) {
                (Some(before), Some(more)) => Some(before + more),
                (before, more) => before.or(more),
            };
            return;
        }
        // The line that is written now counts its own messages.
        let before = steps.replace(AuditLine {
            messages: None,
            ..act.clone()
        });
        drop(steps);
        self.write_steps(before);
        self.write_act(&act);
    }
}

fn is_step_of(act: &AuditLine, of: &AuditLine) -> bool {
    let since = act.at_ms.checked_sub(of.at_ms);
    since.is_some_and(|ms| ms < STEPS_MS)
        && (&act.who, &act.from, &act.act, &act.what, &act.result)
            == (&of.who, &of.from, &of.act, &of.what, &of.result)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use quintet_client::Did;
    use quintet_control::audit::read;
    use quintet_types::Operation;

    use super::*;

    /// Somebody flushed something.
    fn note(audit: &Audit, who: &str, result: &str) {
        audit.write(&Entry {
            who,
            result,
            ..Entry::of(Operation::Flush)
        });
    }

    #[test]
    fn the_audit_is_read_back() {
        let dir = tempfile::tempdir().expect("a folder");
        let audit = Audit::new(dir.path());
        assert_eq!(read(dir.path(), 0).expect("read"), []);
        audit.write(&Entry {
            who: "ann",
            what: "work \u{1b}[0m",
            ..Entry::of(Operation::Flush)
        });
        audit.write(&Entry {
            from: Some(IpAddr::from([192, 0, 2, 7])),
            result: "wrong",
            ..Entry::of(Operation::Login)
        });
        let mut file = OpenOptions::new()
            .append(true)
            .open(dir.path().join(FILE))
            .expect("open");
        file.write_all(b"{\"at_ms\": 1, \"who\"").expect("written");
        let operations = read(dir.path(), 0).expect("read");
        assert_eq!(operations.len(), 2);
        assert!(
            operations[1].line().contains(" - 192.0.2.7 login - wrong"),
            "{}",
            operations[1].line()
        );
        assert_eq!(read(dir.path(), u64::MAX).expect("read"), []);
        // It takes no other with it.
        drop(audit);
        note(&Audit::new(dir.path()), "bob", "ok");
        let operations = read(dir.path(), 0).expect("read");
        assert_eq!(operations.last().map(|act| &*act.who), Some("bob"));
        assert_eq!(operations.len(), 3);
    }

    #[test]
    fn long_texts_are_cut_and_the_newest_lines_are_read_from_the_end() {
        let dir = tempfile::tempdir().expect("a folder");
        let audit = Audit::new(dir.path());
        let long = format!("x{}", "é".repeat(200));
        audit.write(&Entry {
            said: Some(&long),
            what: &long,
            ..Entry::of(Operation::Unknown)
        });
        let act = newest(dir.path(), 1).expect("read").remove(0);
        assert_eq!((act.act.len(), act.what.len()), (255, 255));
        let who = |most| {
            let lines = newest(dir.path(), most).expect("read").into_iter();
            lines.map(|line| line.who).collect::<Vec<_>>()
        };
        // As older versions wrote them: a client chose how long.
        let result = "x".repeat(100 << 10);
        for who in ["1", "2", "3", "4"] {
            note(&audit, who, &result);
        }
        assert_eq!(who(500), ["3", "4"], "256 KiB have no more");
        assert_eq!(who(1), ["4"]);
        // The file before it is read, too.
        fs::rename(dir.path().join(FILE), older(&dir.path().join(FILE))).expect("renamed");
        note(&Audit::new(dir.path()), "5", "ok");
        assert_eq!(who(500), ["3", "4", "5"]);
        assert_eq!(who(2), ["4", "5"]);
    }

    #[test]
    fn an_act_in_steps_is_a_line_and_the_number_of_the_others() {
        let dir = tempfile::tempdir().expect("a folder");
        let audit = Audit::new(dir.path());
        let did = Did {
            messages: Some(2),
            new_id: None,
        };
        let step = |goes_on, who: &str| {
            audit.write(&Entry {
                who,
                what: "a b",
                did,
                step: Some(goes_on),
                ..Entry::of(Operation::Move)
            });
        };
        step(false, "ann");
        (0..3).for_each(|_| step(true, "ann"));
        // Another's, and one that only says that it goes on.
        step(true, "bob");
        // The same again from its beginning.
        step(false, "bob");
        step(true, "bob");
        audit.report_all_steps();
        let operations = read(dir.path(), 0).expect("read");
        let finished = |act: &AuditLine| format!("{} {}", act.who, act.result_text());
        let finished: Vec<String> = operations.iter().map(finished).collect();
        let expected = [
            "ann ok, 2 messages",
            "ann ok, 6 messages (3 steps more)",
            "bob ok, 2 messages",
            "bob ok, 2 messages",
            "bob ok, 2 messages (1 step more)",
        ];
        assert_eq!(finished, expected);
    }

    #[test]
    fn it_takes_so_much_and_keeps_the_newest() {
        let dir = tempfile::tempdir().expect("a folder");
        let audit = Audit::new(dir.path());
        let long = "x".repeat(64 << 10);
        let lines = 2 * BYTES_MAX / (64 << 10) + 20;
        for number in 0..lines {
            note(&audit, &number.to_string(), &long);
        }
        let size = |path: PathBuf| fs::metadata(path).expect("there").len();
        let path = dir.path().join(FILE);
        assert!(size(path.clone()) <= BYTES_MAX && size(older(&path)) <= BYTES_MAX);
        let operations = read(dir.path(), 0).expect("read");
        let newest = operations.last().expect("some").who.clone();
        assert_eq!(newest, (lines - 1).to_string());
        assert!(operations.len() as u64 >= lines / 3);
    }

    /// The older file's name is a folder's, which a rename cannot replace.
    #[test]
    fn a_rotation_that_fails_loses_no_line() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join(FILE);
        let obstacle = older(&path).join("file");
        fs::create_dir(older(&path)).expect("made");
        fs::write(&obstacle, "").expect("made");
        let audit = Audit::new(dir.path());
        let long = "x".repeat(64 << 10);
        let lines = BYTES_MAX / (64 << 10) + 3;
        let note = |number: u64| note(&audit, &number.to_string(), &long);
        (0..lines).for_each(note);
        fs::remove_dir_all(older(&path)).expect("removed");
        let noted = |operations: Vec<AuditLine>| {
            operations
                .into_iter()
                .map(|act| act.who)
                .collect::<Vec<_>>()
        };
        let all = |lines: u64| {
            (0..lines)
                .map(|number| number.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(noted(read(dir.path(), 0).expect("read")), all(lines));
        note(lines);
        assert!(older(&path).is_file(), "the next line rotates");
        assert_eq!(noted(read(dir.path(), 0).expect("read")), all(lines + 1));
    }

    #[test]
    fn a_rotation_that_got_half_way_is_finished_by_the_next_line() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join(FILE);
        let audit = Audit::new(dir.path());
        let long = "x".repeat(64 << 10);
        let note = |number: u64| note(&audit, &number.to_string(), &long);
        let size = || fs::metadata(&path).map_or(0, |about| about.len());
        let mut lines = 0;
        while size() + (128 << 10) <= BYTES_MAX {
            note(lines);
            lines += 1;
        }
        // The file was renamed, and a new one could not be opened.
        fs::rename(&path, older(&path)).expect("renamed");
        (0..2).for_each(|more| note(lines + more));
        assert!(path.is_file(), "a new file is opened");
        let noted = read(dir.path(), 0).expect("read").len() as u64;
        assert_eq!(noted, lines + 2);
    }
}
