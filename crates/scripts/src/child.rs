//! A script as a process: its pipes, its log, its end.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::group::{self, Record};
use crate::options::Limits;
use crate::pipe::{Parser, ScriptLine};
use crate::queue::Running;
use crate::verdict::Exit;

/// Bytes read from a pipe at a time.
const CHUNK: usize = 16 << 10;

/// Bytes of answers a script has not read. With more, nothing is read from it
/// until it reads: it can stall itself, nobody else.
const ANSWERS_BYTES_MAX: usize = 64 << 10;

/// Bytes read from each pipe once the script has ended. A pipe holds 64 KiB
/// unless somebody made it larger; one that a process in another group keeps
/// filling is let go.
const LAST_BYTES_MAX: usize = 1 << 20;

/// A running script.
pub(crate) struct Child<'a> {
    process: std::process::Child,
    group: Pid,
    pidfd: OwnedFd,
    says: Option<OwnedFd>,
    answers: Option<OwnedFd>,
    pending: Vec<u8>,
    output: Option<OwnedFd>,
    log: Log,
    parser: Parser,
    limits: &'a Limits,
    running: &'a Running,
}

/// Input for the start of a script.
pub(crate) struct Start<'a> {
    pub(crate) launcher: &'a [OsString],
    pub(crate) words: &'a [OsString],
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) job: &'a Path,
    pub(crate) record: &'a Path,
    /// Said in the log's first line.
    pub(crate) script: &'a Path,
    pub(crate) limits: &'a Limits,
    pub(crate) running: &'a Running,
}

/// How a script ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) exit: Exit,
    /// Its time was over.
    pub(crate) late: bool,
    /// The server ends.
    pub(crate) stopped: bool,
    /// Its message is cancelled.
    pub(crate) cancelled: bool,
}

/// How often it is looked whether a message is cancelled.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl<'a> Child<'a> {
    /// Starts it. It does nothing before its group is written down.
    pub(crate) fn start(start: Start<'a>) -> io::Result<Self> {
        let (read_by_script, answers) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let (says, written_by_script) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let (output, log_of_script) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let mut log = Log::open(&start.job.join("stdio.log"), start.limits.log_bytes_max)?;
        for ours in [&answers, &says, &output] {
            let flags = rustix::fs::fcntl_getfl(ours)?;
            rustix::fs::fcntl_setfl(ours, flags | OFlags::NONBLOCK)?;
        }
        let no_launcher = || io::Error::new(io::ErrorKind::InvalidInput, "no launcher");
        let (program, first) = start.launcher.split_first().ok_or_else(no_launcher)?;
        let process = Command::new(program)
            .args(first)
            .arg(start.limits.address_space_bytes.to_string())
            .arg(format!("{:o}", start.limits.umask))
            .args(start.words)
            .envs(start.environment)
            .current_dir(start.job)
            .stdin(Stdio::from(read_by_script))
            .stdout(Stdio::from(written_by_script))
            .stderr(Stdio::from(log_of_script))
            .process_group(0)
            .spawn()?;
        let group = Pid::from_child(&process);
        let prepared = rustix::process::pidfd_open(group, PidfdFlags::empty())
            .map_err(io::Error::from)
            .and_then(|pidfd| {
                Record::of(group, start.job)?.write(start.record)?;
                log.begin(process.id(), start.script);
                rustix::io::write(&answers, b"\n")?;
                Ok(pidfd)
            });
        let mut process = process;
        let pidfd = prepared.inspect_err(|_| {
            // Without a record it may not run.
            group::signal(group, Signal::KILL);
            let _reaped = process.wait();
        })?;
        Ok(Self {
            process,
            group,
            pidfd,
            says: Some(says),
            answers: Some(answers),
            pending: Vec::new(),
            output: Some(output),
            log,
            parser: Parser::new(start.limits.text_bytes_max),
            limits: start.limits,
            running: start.running,
        })
    }

    /// Lives with it until it ends. Each line it says goes to `hear`; what
    /// that answers goes back to it. `cancelled` answers the time that a script whose message is
    /// cancelled has left.
    pub(crate) fn attend(
        mut self,
        mut hear: impl FnMut(&ScriptLine) -> Option<String>,
        cancelled: impl Fn() -> Option<Duration>,
    ) -> io::Result<Ended> {
        let begun = Instant::now();
        let run_time = Some(self.limits.run_time).filter(|time| !time.is_zero());
        let late_at = run_time.map(|time| begun + time);
        let mut kill_at: Option<Instant> = None;
        let (mut late, mut killed) = (false, false);
        let (mut ends, mut cancels, mut next_check) = (false, false, begun + LOOK_EVERY);
        loop {
            let requests = self.running.requests();
            let now = Instant::now();
            let over = late_at.is_some_and(|at| at <= now);
            if !ends && (requests.destroy || requests.stop || over) {
                ends = true;
                late = over && !requests.destroy && !requests.stop && !cancels;
                group::signal(self.group, Signal::TERM);
                let at = now + self.limits.grace;
                kill_at = Some(kill_at.map_or(at, |earlier| earlier.min(at)));
            }
            if kill_at.is_none() && next_check <= now {
                next_check = now + LOOK_EVERY;
                if let Some(left) = cancelled() {
                    cancels = true;
                    group::signal(self.group, Signal::TERM);
                    kill_at = Some(now + left);
                }
            }
            if !killed && kill_at.is_some_and(|at| at <= now) {
                killed = true;
                group::signal(self.group, Signal::KILL);
            }
            let next = match (killed, kill_at) {
                (true, _) => None,
                (false, Some(at)) => {
                    Some(late_at.filter(|_| !ends).map_or(at, |late| late.min(at)))
                }
                (false, None) => Some(late_at.map_or(next_check, |late| late.min(next_check))),
            };
            let ended = self.wait(next.map(|at| at.saturating_duration_since(now)))?;
            if ended {
                // A zombie keeps its number, so this is its group and no other.
                group::signal(self.group, Signal::KILL);
            }
            self.copy_output(ended);
            self.listen(ended, &mut hear);
            self.answer();
            if ended {
                break;
            }
        }
        let status = self.process.wait()?;
        let exit = match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, signal) => Exit::Signal(signal.unwrap_or(0)),
        };
        Ok(Ended {
            exit,
            late,
            stopped: self.running.requests().stop,
            cancelled: cancels,
        })
    }

    /// Waits until something can be done; true if the script has ended.
    fn wait(&mut self, at_most: Option<Duration>) -> io::Result<bool> {
        // What is too long for the system is for ever.
        let timeout = at_most.and_then(|time| Timespec::try_from(time).ok());
        let mut files = vec![
            PollFd::new(&self.pidfd, PollFlags::IN),
            PollFd::new(&self.running.wake, PollFlags::IN),
        ];
        if let Some(output) = &self.output {
            files.push(PollFd::new(output, PollFlags::IN));
        }
        if let Some(says) = &self.says
            && self.pending.len() < ANSWERS_BYTES_MAX
        {
            files.push(PollFd::new(says, PollFlags::IN));
        }
        if let Some(answers) = &self.answers
            && !self.pending.is_empty()
        {
            files.push(PollFd::new(answers, PollFlags::OUT));
        }
        match rustix::event::poll(&mut files, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ended = !files[0].revents().is_empty();
        drop(files);
        // Only a number that says "look at what was asked".
        let _nothing = rustix::io::read(&self.running.wake, &mut [0u8; 8]);
        Ok(ended)
    }

    fn copy_output(&mut self, ended: bool) {
        let log = &mut self.log;
        drain(&mut self.output, ended, |bytes| {
            log.write(bytes);
            true
        });
    }

    fn listen(&mut self, ended: bool, hear: &mut impl FnMut(&ScriptLine) -> Option<String>) {
        let mut take = |script_line: ScriptLine| {
            if let ScriptLine::Other { word, .. } = &script_line {
                self.log.note(&format!("RQ does not know: {word}"));
            }
            if let Some(answer) = hear(&script_line) {
                self.pending.extend_from_slice(answer.as_bytes());
                self.pending.push(b'\n');
            }
        };
        drain(&mut self.says, ended, |bytes| {
            self.parser.feed(bytes, &mut take);
            // Answers first: see `ANSWERS_BYTES_MAX`.
            ended
        });
        if ended {
            self.parser.finish(take);
        }
    }

    fn answer(&mut self) {
        let Some(answers) = &self.answers else {
            self.pending.clear();
            return;
        };
        while !self.pending.is_empty() {
            match rustix::io::write(answers, &self.pending) {
                Ok(written) => {
                    self.pending.drain(..written);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // It does not read any more; that is its own affair.
                Err(_) => {
                    self.answers = None;
                    self.pending.clear();
                    return;
                }
            }
        }
    }
}

/// Reads what is in a pipe now, as long as `take` wants more; closes it at its
/// end. After the script's end nothing comes that would be worth waiting for.
fn drain(pipe: &mut Option<OwnedFd>, ended: bool, mut take: impl FnMut(&[u8]) -> bool) {
    let mut chunk = [0u8; CHUNK];
    let mut left = if ended { LAST_BYTES_MAX } else { CHUNK };
    while let Some(fd) = pipe
        && left > 0
    {
        match rustix::io::read(fd.as_fd(), &mut chunk) {
            Ok(0) => *pipe = None,
            Ok(read) => {
                left = left.saturating_sub(read);
                if !take(&chunk[..read]) {
                    return;
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return,
            Err(_) => *pipe = None,
        }
    }
}

/// `stdio.log`: what scripts write, up to a limit for each run.
struct Log {
    file: File,
    left: u64,
    cut: bool,
}

impl Log {
    fn open(path: &Path, bytes_max: u64) -> io::Result<Self> {
        // Not through a link the script of an earlier run made.
        let mut options = OpenOptions::new();
        std::os::unix::fs::OpenOptionsExt::custom_flags(
            &mut options,
            OFlags::NOFOLLOW.bits().cast_signed(),
        );
        let file = options.append(true).create(true).open(path)?;
        Ok(Self {
            file,
            left: bytes_max,
            cut: false,
        })
    }

    fn begin(&mut self, pid: u32, script: &Path) {
        let time = chrono::Local::now().format("%Y-%m-%d %H:%M:%S %z");
        let line = format!("\n{pid} - {time} - RQ START - {}\n", script.display());
        self.put(line.as_bytes());
    }

    /// A line of RQ's own, if there is room.
    fn note(&mut self, text: &str) {
        self.write(format!("{text}\n").as_bytes());
    }

    fn write(&mut self, bytes: &[u8]) {
        let room = usize::try_from(self.left).unwrap_or(usize::MAX);
        let kept = &bytes[..bytes.len().min(room)];
        self.left -= kept.len() as u64;
        self.put(kept);
        if kept.len() < bytes.len() && !self.cut {
            self.cut = true;
            self.put(b"\nRQ CUT - more than this is not kept of one run\n");
        }
    }

    /// A full disk costs the log, not the run.
    fn put(&mut self, bytes: &[u8]) {
        if let Err(error) = self.file.write_all(bytes)
            && !self.cut
        {
            self.cut = true;
            self.left = 0;
            tracing::warn!(%error, "output of a script is lost");
        }
    }
}
