//! Runs a command, shows what it prints as it comes, and keeps the lines that say why it failed.
//! Parts that run beside each other have a thread each, whose name stands before each line.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _, pipe};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// Lines kept from the end, and of those that report a failure before it; choices.
const LAST: usize = 30;
const TELLING: usize = 40;
/// The longest line that is repeated.
const LINE_CHARS: usize = 1_000;
/// A process that the command left behind may hold its output open: it is not waited for.
const LEFT_BEHIND: Duration = Duration::from_secs(2);

/// The lines of an output that a summary repeats when it reports a failure.
#[derive(Default)]
struct Kept {
    telling: Vec<String>,
    last: VecDeque<String>,
}

impl Kept {
    fn line(&mut self, line: &str) {
        self.last.push_back(line.chars().take(LINE_CHARS).collect());
        if self.last.len() <= LAST {
            return;
        }
        let line = self.last.pop_front().unwrap_or_default();
        if self.telling.len() < TELLING && tells(&line) {
            self.telling.push(line);
        }
    }

    fn text(self) -> String {
        let mut lines = self.telling;
        if !lines.is_empty() {
            lines.push("...".to_owned());
        }
        lines.extend(self.last);
        lines.join("\n")
    }
}

/// Whether a line of a test runner, compiler or campaign says what went wrong.
fn tells(line: &str) -> bool {
    let line = line.trim_start();
    // A campaign's progress is no failure; how it ended begins with its seed.
    let starts = [
        "error",
        "not ok ",
        "FAILED",
        "FAIL:",
        "ERROR:",
        "stress: seed ",
    ];
    starts.iter().any(|start| line.starts_with(start))
        || line.ends_with("... FAILED")
        || line.contains("panicked at")
        || line.contains("Error: ")
}

/// Prints a line, with the name of the part whose thread this is.
pub(crate) fn say(line: &str) {
    let line = labelled(line);
    if cfg!(test) {
        // The test runner keeps it.
        print!("{line}");
        return;
    }
    // Nobody may read what is shown any more.
    std::io::stdout().write_all(line.as_bytes()).ok();
}

/// A command as somebody would type it, without its environment.
pub(crate) fn line_of(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

fn labelled(line: &str) -> String {
    match std::thread::current().name() {
        Some("main") | None => format!("{line}\n"),
        Some(part) => format!("{part:7} | {line}\n"),
    }
}

/// Calls `work` in a thread of this name, which stands before the lines that it prints.
pub(crate) fn in_thread<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> T {
    in_threads(name, [work]).remove(0)
}

/// Calls all of these beside each other, as [`in_thread`] does.
pub(crate) fn in_threads<T: Send>(
    name: &str,
    works: impl IntoIterator<Item = impl FnOnce() -> T + Send>,
) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads = works.into_iter().map(|work| {
            let thread = std::thread::Builder::new().name(name.to_owned());
            thread.spawn_scoped(scope, work).expect("a thread starts")
        });
        let threads: Vec<_> = threads.collect();
        let ends = threads.into_iter().map(|thread| {
            let end = thread.join();
            end.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        ends.collect()
    })
}

/// How it ended, and what it said if it did not end well. Each line goes to `wanted`, which tells
/// whether it is shown.
///
/// # Errors
/// It cannot be started.
pub(crate) fn shown(
    command: &mut Command,
    wanted: &mut dyn FnMut(&str) -> bool,
) -> Result<(ExitStatus, String)> {
    let (output, end) = pipe()?;
    command.stdout(end.try_clone()?).stderr(end);
    let mut child = command.spawn()?;
    // The command's own ends: the output ends with the last process that has one.
    command.stdout(Stdio::null());
    command.stderr(Stdio::null());
    let (sender, kept) = channel();
    std::thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output
            .read_until(b'\n', &mut line)
            .is_ok_and(|read| read > 0)
        {
            let text = String::from_utf8_lossy(&line);
            if sender.send(text.trim_end().to_owned()).is_err() {
                return;
            }
            line.clear();
        }
    });
    let mut printed = Kept::default();
    let mut checked = Instant::now();
    let mut ended = None;
    loop {
        match kept.recv_timeout(LEFT_BEHIND) {
            Ok(line) => {
                if wanted(&line) {
                    say(&line);
                }
                printed.line(&line);
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if checked.elapsed() < LEFT_BEHIND {
            continue;
        }
        // It had ended at the look before: what comes is of others.
        if ended.is_some() {
            break;
        }
        ended = child.try_wait()?;
        checked = Instant::now();
    }
    let status = child.wait().context("it cannot be waited for")?;
    let printed = match status.success() {
        true => String::new(),
        false => printed.text(),
    };
    Ok((status, printed))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{Kept, LAST, shown};

    fn sh(script: &str) -> (bool, String) {
        let (status, printed) =
            shown(Command::new("sh").args(["-c", script]), &mut |_| true).expect("sh");
        (status.success(), printed)
    }

    #[test]
    fn only_the_output_of_failures_is_printed() {
        assert_eq!(sh("echo well"), (true, String::new()));
        let (ended_well, printed) = sh("echo out; echo err >&2; exit 3");
        assert!(!ended_well);
        assert_eq!(printed, "out\nerr");
    }

    #[test]
    fn a_process_left_behind_delays_no_other() {
        let (ended_well, printed) = sh("echo first; sleep 60 & exit 1");
        assert!(!ended_well);
        assert_eq!(printed, "first");
    }

    #[test]
    fn important_lines_are_kept_from_long_before_the_end() {
        let mut kept = Kept::default();
        kept.line("test one ... ok");
        kept.line("stress:    18 s  round    6: 7340 acknowledged, lost 0, twice 0");
        kept.line("test two ... FAILED");
        kept.line("thread 'two' panicked at src/two.rs:3:5:");
        (0..LAST).for_each(|at| kept.line(&at.to_string()));
        let text = kept.text();
        assert!(text.starts_with(
            "test two ... FAILED\nthread 'two' panicked at src/two.rs:3:5:\n...\n0\n1\n"
        ));
        assert!(text.ends_with(&(LAST - 1).to_string()));
    }
}
