//! Faults for the real binary: a small library in C that is preloaded into a
//! server under test, and this side of the file that steers it.
//!
//! It sits between the server and libc. For the files below the data directory
//! and for accepted connections it can
//!
//! - cut the power: undo what was written and not synced since, all of it or
//!   pages chosen by the seed, then end the process as `kill -9` does;
//! - fail, shorten, delay calls, or cut the power before or after one, by
//!   rules: the n-th, so many of them, or by chance from the seed;
//! - shift the wall clock;
//! - stop a single thread, by a signal whose handler waits.
//!
//! It counts every call, so a test can tell that none goes past it. What does:
//! rustix, which asks the kernel itself (`statvfs`, socket options, process
//! limits, the monotonic clock, pipes of scripts), and `copy_file_range` and
//! its like; no byte of the log or of a connection goes that way, which
//! `crates/server/tests/faults/preloaded.rs` compares with what the kernel counted.
//!
//! Only a process whose executable is called `quintet` is meant; its children
//! are not. Limits of the undoing: a removed file of more than 4 KiB is gone at
//! once, name and content, as are a directory and a file of more than 16 MiB that
//! a rename replaced; what `O_TRUNC` cut does not come back. Data directories are
//! given as absolute paths.
//!
//! # The control file
//!
//! [`WORDS`] words of 64 bits in the machine's byte order, mapped shared by
//! the server and written with `pwrite` by the test, a word at a time.
//!
//! | word | what |
//! |---|---|
//! | 0 | magic |
//! | 1 | process id of the server; set by the library |
//! | 2 | seed |
//! | 3 | what the wall clock is shifted by, ms, signed |
//! | 4 | bits: 1 undo pages, 2 undo names (created, linked, renamed, removed; also of directories), 4 only some pages, 8 syncs do not reach the disk (and are faster) |
//! | 5 | not 0: cut the power now; 0 again when that is done |
//! | 6 | how often the power was cut |
//! | 7 | bytes undone, in all |
//! | 8 | bytes written and not synced now |
//! | 9 | rules in use |
//! | 10, 11 | bytes of calls named read and write, as the kernel counts them |
//! | 12 | the thread that is to stand still; 0: none |
//! | 13 | the thread that stands still; set by the library |
//! | 64 + 4 c | of each [`Call`] c: how often called; of these for our files and sockets; bytes, of all; failed by a rule |
//! | 256 + 16 r | of each rule r: armed, call, kinds of files, action, its value, matches to skip, how often to fire (0: always), chance in a million (0: always); then matches and firings, set by the library |

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Length of the control file, in words of 8 bytes.
pub const WORDS: usize = 2048;
/// Rules there can be.
pub const RULES: usize = 64;

const MAGIC: u64 = 0x3153_4c54_5541_4651;
const PID: usize = 1;
const SEED: usize = 2;
const CLOCK_MS: usize = 3;
const UNDO: usize = 4;
const CUT: usize = 5;
const CUTS: usize = 6;
const UNDONE: usize = 7;
const UNSYNCED: usize = 8;
const RULES_USED: usize = 9;
const READ: usize = 10;
const WRITTEN: usize = 11;
const HOLD: usize = 12;
const HELD: usize = 13;
const CALLS_AT: usize = 64;
const CALL_WORDS: usize = 4;
const RULES_AT: usize = 256;
const RULE_WORDS: usize = 16;
const MATCHED: usize = 8;
const FIRED: usize = 9;

const SOURCE: &str = include_str!("faults.c");

/// A kind of call. Reads and writes of a connection count as [`Call::Recv`] and
/// [`Call::Send`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// `open`, `openat` of a file that should be there.
    Open,
    /// The same with `O_CREAT`.
    Create,
    /// `read`, `pread`, `readv`.
    Read,
    /// `write`, `pwrite`, `writev`.
    Write,
    /// `fsync`, `fdatasync`.
    Sync,
    /// `ftruncate`.
    Truncate,
    /// `rename`.
    Rename,
    /// `unlink`, `unlinkat`.
    Unlink,
    /// `link`, `linkat`.
    Link,
    /// `accept4`, `accept`.
    Accept,
    /// `recv`, `recvfrom`, reads of a connection.
    Recv,
    /// `send`, `sendto`, `sendmsg`, writes of a connection.
    Send,
    /// Looks at the wall clock; only counted.
    Clock,
}

/// Kinds of files, as bits.
pub mod files {
    /// `segment-*`.
    pub const SEGMENT: u64 = 1;
    /// `spare-*`.
    pub const SPARE: u64 = 2;
    /// `run-*`.
    pub const RUN: u64 = 4;
    /// The data directory and directories in it.
    pub const DIRECTORY: u64 = 8;
    /// Other files below the data directory.
    pub const OTHER: u64 = 16;
    /// Accepted connections.
    pub const SOCKET: u64 = 32;
    /// Everything else; only where asked for.
    pub const OUTSIDE: u64 = 64;
    /// All but those outside.
    pub const OURS: u64 = 0;
}

/// Numbers of errors, as the kernel gives them on Linux.
pub mod errno {
    /// A signal came.
    pub const EINTR: i32 = 4;
    /// The device failed.
    pub const EIO: i32 = 5;
    /// No memory.
    pub const ENOMEM: i32 = 12;
    /// No files left in the system.
    pub const ENFILE: i32 = 23;
    /// No files left in the process.
    pub const EMFILE: i32 = 24;
    /// The file would be too large.
    pub const EFBIG: i32 = 27;
    /// The disk is full.
    pub const ENOSPC: i32 = 28;
    /// The other side broke off.
    pub const ECONNRESET: i32 = 104;
    /// The quota is used up.
    pub const EDQUOT: i32 = 122;
}

/// Effect of a rule on a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Fails it with this error; a sync that fails loses what it was about.
    Fail(i32),
    /// Half of the bytes, at least one.
    Short,
    /// Holds it up by so many microseconds first.
    Delay(u32),
    /// Cuts the power instead.
    CutBefore,
    /// Cuts the power once it is done: a reply is sent, a file is gone.
    CutAfter,
}

/// Which calls, and what becomes of them.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Calls of this kind.
    pub call: Call,
    /// On these [`files`].
    pub files: u64,
    /// The effect.
    pub action: Action,
    /// Matching calls left alone first.
    pub skip: u64,
    /// How often at most; 0: without end.
    pub count: u64,
    /// Chance in a million; 0: always.
    pub ppm: u64,
}

impl Rule {
    /// Every such call on our files or sockets.
    pub fn every(call: Call, action: Action) -> Self {
        Self {
            call,
            files: files::OURS,
            action,
            skip: 0,
            count: 0,
            ppm: 0,
        }
    }

    /// The next one only.
    pub fn once(call: Call, action: Action) -> Self {
        Self::every(call, action).times(1)
    }

    /// On these [`files`] only.
    pub fn on(self, files: u64) -> Self {
        Self { files, ..self }
    }

    /// After so many matches.
    pub fn after(self, skip: u64) -> Self {
        Self { skip, ..self }
    }

    /// At most so often.
    pub fn times(self, count: u64) -> Self {
        Self { count, ..self }
    }

    /// The rule applies to a call with a chance of `ppm` in a million.
    pub fn by_chance(self, ppm: u64) -> Self {
        Self { ppm, ..self }
    }
}

/// How often a kind of call was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Calls {
    /// By anybody in the process.
    pub all: u64,
    /// Of these for our files and sockets.
    pub ours: u64,
    /// Bytes read or written by all of them.
    pub bytes: u64,
    /// Failed by a rule.
    pub failed: u64,
}

/// The part that a power cut undoes; see word 4.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Undo {
    /// Nothing: a cut is a `kill -9`.
    Nothing,
    /// Every byte that was not synced.
    Pages,
    /// Those, and names created, given or removed whose directory was not synced.
    PagesAndNames,
    /// About half of the pages, by the seed: a disk that writes as it likes.
    SomePages,
}

/// The control file of a server under test.
#[derive(Debug)]
pub struct Faults {
    library: PathBuf,
    control: PathBuf,
    data: PathBuf,
    file: File,
}

impl Faults {
    /// Builds the library in `build`, if it is not there, and makes the control
    /// file `control` for servers on `data`, an absolute path.
    ///
    /// # Errors
    /// There is no C compiler (`CC`, or else `cc`), or a file cannot be written.
    pub fn new(build: &Path, control: &Path, data: &Path) -> io::Result<Self> {
        if !data.is_absolute() {
            return Err(io::Error::other("the data directory must be absolute"));
        }
        let library = build_library(build)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(control)?;
        file.set_len(WORDS as u64 * 8)?;
        let faults = Self {
            library,
            control: control.to_owned(),
            data: data.to_owned(),
            file,
        };
        faults.set(0, MAGIC);
        faults.undo(Undo::Pages);
        Ok(faults)
    }

    /// Has a server that is about to start listen to this. Counts and rules
    /// stay from one server to the next.
    pub fn attach(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("QUINTET_FAULTS", &self.control)
            .env("QUINTET_FAULTS_DATA", &self.data);
    }

    /// True once a server has found the file.
    pub fn is_attached(&self) -> bool {
        self.get(PID) != 0
    }

    /// For what is by chance.
    pub fn seed(&self, seed: u64) {
        self.set(SEED, seed);
    }

    /// Sets the part that a cut undoes; to be called before the server starts.
    pub fn undo(&self, what: Undo) {
        let bits = match what {
            Undo::Nothing => 0,
            Undo::Pages => 1,
            Undo::PagesAndNames => 3,
            Undo::SomePages => 5,
        };
        self.set(UNDO, bits | self.get(UNDO) & 8);
    }

    /// Syncs no longer reach the disk, only count as if. For tests with many.
    pub fn skip_syncs(&self) {
        self.set(UNDO, self.get(UNDO) | 8);
    }

    /// The wall clock of the server shows this much more, from now on.
    pub fn shift_clock(&self, ms: i64) {
        self.set(CLOCK_MS, ms.cast_unsigned());
    }

    /// Cuts the power. The server's process ends by SIGKILL within a few ms; a
    /// server that starts later does not hear of it.
    pub fn cut(&self) {
        self.set(CUT, 1);
    }

    /// Stops the thread with this id until another is held; with 0 all go on. A thread in a call
    /// that signals do not interrupt stops when the call ends.
    pub fn hold(&self, thread: u64) {
        self.set(HOLD, thread);
    }

    /// The id of the thread that stands still, or 0.
    pub fn held(&self) -> u64 {
        self.get(HELD)
    }

    /// How often the power was cut.
    pub fn cuts(&self) -> u64 {
        self.get(CUTS)
    }

    /// Bytes undone by all cuts.
    pub fn undone(&self) -> u64 {
        self.get(UNDONE)
    }

    /// Bytes written and not synced.
    pub fn unsynced(&self) -> u64 {
        self.get(UNSYNCED)
    }

    /// Sets rule `at`, below [`RULES`], and its counts to 0. Running calls may
    /// still be under the one before.
    pub fn rule(&self, at: usize, rule: Rule) {
        assert!(at < RULES, "there are {RULES} rules");
        let base = RULES_AT + at * RULE_WORDS;
        let (action, value) = match rule.action {
            Action::Fail(errno) => (0, u64::from(errno.unsigned_abs())),
            Action::Short => (1, 0),
            Action::Delay(us) => (2, u64::from(us)),
            Action::CutBefore => (3, 0),
            Action::CutAfter => (4, 0),
        };
        self.set(base, 0);
        let words = [
            rule.call as u64,
            rule.files,
            action,
            value,
            rule.skip,
            rule.count,
            rule.ppm,
            0,
            0,
        ];
        for (word, value) in words.into_iter().enumerate() {
            self.set(base + 1 + word, value);
        }
        self.set(base, 1);
        let used = self.get(RULES_USED).max(at as u64 + 1);
        self.set(RULES_USED, used);
    }

    /// Ends rule `at`; its counts stay.
    pub fn end_rule(&self, at: usize) {
        self.set(RULES_AT + at * RULE_WORDS, 0);
    }

    /// Ends all rules.
    pub fn end_rules(&self) {
        for at in 0..RULES {
            self.end_rule(at);
        }
    }

    /// How often a call was one that rule `at` is about, and how often the rule
    /// did something.
    pub fn fired(&self, at: usize) -> (u64, u64) {
        let base = RULES_AT + at * RULE_WORDS;
        (self.get(base + MATCHED), self.get(base + FIRED))
    }

    /// How often this was called, over all servers.
    pub fn calls(&self, call: Call) -> Calls {
        let base = CALLS_AT + call as usize * CALL_WORDS;
        Calls {
            all: self.get(base),
            ours: self.get(base + 1),
            bytes: self.get(base + 2),
            failed: self.get(base + 3),
        }
    }

    /// Bytes read and written by calls of these names and their like, on
    /// whatever they were: `rchar` and `wchar` of `/proc/PID/io`.
    pub fn bytes(&self) -> (u64, u64) {
        (self.get(READ), self.get(WRITTEN))
    }

    fn get(&self, word: usize) -> u64 {
        let mut bytes = [0; 8];
        self.file
            .read_exact_at(&mut bytes, word as u64 * 8)
            .expect("the control file was made as long");
        u64::from_ne_bytes(bytes)
    }

    fn set(&self, word: usize, value: u64) {
        self.file
            .write_all_at(&value.to_ne_bytes(), word as u64 * 8)
            .expect("the control file was made as long");
    }
}

/// The library, built in `folder` from the source in this crate. Its name has
/// the source's hash, so that it is built again when that changes.
fn build_library(folder: &Path) -> io::Result<PathBuf> {
    let hash = hash_of(SOURCE.as_bytes());
    let folder = &preloadable(folder);
    let library = folder.join(format!("faults-{hash:016x}.so"));
    if library.exists() {
        return Ok(library);
    }
    std::fs::create_dir_all(folder)?;
    // Several tests may build it at once; each renames a file of its own.
    let thread = std::thread::current().id();
    let own = format!("faults-{hash:016x}-{}-{thread:?}", std::process::id());
    let own = own.replace(['(', ')'], "");
    let source = folder.join(format!("{own}.c"));
    let built = folder.join(format!("{own}.so"));
    std::fs::write(&source, SOURCE)?;
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output = Command::new(compiler)
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"])
        .args(["-U_FORTIFY_SOURCE", "-o"])
        .arg(&built)
        .arg(&source)
        .args(["-ldl", "-lpthread"])
        .output()?;
    std::fs::remove_file(&source)?;
    if !output.status.success() {
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(io::Error::other(format!("faults.c: {printed}")));
    }
    std::fs::rename(&built, &library)?;
    Ok(library)
}

fn hash_of(bytes: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// The folder, or one among the temporary files in its place: `LD_PRELOAD` is a list that blanks
/// and colons divide (ld.so(8)), and knows no escapes.
fn preloadable(folder: &Path) -> PathBuf {
    let bytes = folder.as_os_str().as_encoded_bytes();
    if !bytes.iter().any(|byte| matches!(byte, b' ' | b':')) {
        return folder.to_owned();
    }
    std::env::temp_dir().join(format!("quintet-faults-{:016x}", hash_of(bytes)))
}
