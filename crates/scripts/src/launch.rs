//! The launcher: a small program between the server and a script.
//!
//! A large server is slow to fork, and what has to be done between fork and
//! exec is no place for much code; so the server starts this (its own binary,
//! with a hidden subcommand), which sets limits and files and becomes the
//! script.
//!
//! It gets three files: standard input is what the script reads as fd 4,
//! standard output what it writes as fd 3, standard error its log. It waits
//! for one byte on the first, so that the server can write down its process
//! group before the script does anything; if the server dies first, so does
//! it.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use command_fds::{CommandFdExt, FdMapping};
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, setpriority_process, setrlimit};
use rustix::stdio;

/// Niceness of scripts (RQ's).
const NICE: i32 = 19;

/// The status a shell gives for a program it cannot start.
const CANNOT_START: u8 = 127;

/// A script that is open for writing is tried for so long: its writer, or a process that the writer
/// forked meanwhile, closes it soon.
const BUSY: Duration = Duration::from_secs(10);

/// Time between two of these tries.
const AGAIN: Duration = Duration::from_millis(10);

/// Becomes the script. `args` are what the service hands to
/// [`crate::Options::launcher`]: bytes of address space (0: no limit), the
/// umask in octal, the program, its arguments.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    match become_script(args) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(never)) => match never {},
        Err(error) => {
            // The script's log.
            eprintln!("cannot start the script: {error}");
            ExitCode::from(CANNOT_START)
        }
    }
}

fn become_script(args: impl IntoIterator<Item = OsString>) -> io::Result<Option<Infallible>> {
    let mut args = args.into_iter();
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let mut number = |radix| {
        let text = args.next()?;
        u64::from_str_radix(text.to_str()?, radix).ok()
    };
    let space = number(10).ok_or_else(invalid)?;
    let umask = number(8).and_then(|umask| u32::try_from(umask).ok());
    let umask = umask.ok_or_else(invalid)?;
    let program = args.next().ok_or_else(invalid)?;
    if rustix::io::read(stdio::stdin(), &mut [0u8; 1])? == 0 {
        return Ok(None);
    }
    // Whatever an ancestor left open is not for scripts.
    close_fds::set_fds_cloexec(3, &[]);
    let answers = rustix::io::fcntl_dupfd_cloexec(stdio::stdin(), 10)?;
    let says = rustix::io::fcntl_dupfd_cloexec(stdio::stdout(), 10)?;
    let nothing = std::fs::File::open("/dev/null")?;
    stdio::dup2_stdin(&nothing)?;
    stdio::dup2_stdout(stdio::stderr())?;
    rustix::process::umask(Mode::from_bits_truncate(umask));
    setpriority_process(None, NICE)?;
    if space > 0 {
        let limit = Rlimit {
            current: Some(space),
            maximum: Some(space),
        };
        setrlimit(Resource::As, limit)?;
    }
    let mut script = Command::new(program);
    script.args(args);
    let mappings = [(says, 3), (answers, 4)].map(|(parent_fd, child_fd)| FdMapping {
        parent_fd,
        child_fd,
    });
    script.fd_mappings(mappings.into()).map_err(|_| invalid())?;
    let until = Instant::now() + BUSY;
    loop {
        let error = script.exec();
        if error.kind() != io::ErrorKind::ExecutableFileBusy || Instant::now() > until {
            return Err(error);
        }
        std::thread::sleep(AGAIN);
    }
}
