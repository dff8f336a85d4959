//! How far an export, an import or a transfer is.

use std::io::{IsTerminal as _, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Exit code of what Ctrl-C stopped.
pub(super) const STOPPED: u8 = 130;

/// Between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Between two looks at the clock, messages.
const LOOK_EVERY: u64 = 256;

/// A bar on a terminal, a line every ten seconds elsewhere, or nothing.
pub(super) struct Progress {
    what: &'static str,
    began: Instant,
    reported: Instant,
    bar: Option<ProgressBar>,
    quiet: bool,
    /// Messages through.
    pub(super) messages: u64,
    bytes: u64,
}

/// The amount of work.
pub(super) enum Of {
    /// So many messages, about.
    Messages(u64),
    /// A file of so many bytes; unknown for a stream.
    Bytes(Option<u64>),
}

impl Progress {
    pub(super) fn new(what: &'static str, of: Of, quiet: bool) -> Self {
        let (total, template) = match of {
            Of::Messages(total) | Of::Bytes(Some(total)) => {
                (Some(total), "{prefix} {bar:24} {percent:>3} % {msg}")
            }
            Of::Bytes(None) => (None, "{prefix} {spinner} {msg}"),
        };
        Self {
            what,
            began: Instant::now(),
            reported: Instant::now(),
            bar: match quiet {
                true => None,
                false => bar(what, total, template),
            },
            quiet,
            messages: 0,
            bytes: 0,
        }
    }

    /// So many more messages with so many bytes of bodies are through;
    /// `position` of the whole.
    pub(super) fn add(&mut self, messages: u64, bytes: u64, position: u64) {
        let before = self.messages / LOOK_EVERY;
        self.messages += messages;
        self.bytes += bytes;
        if self.quiet || self.messages / LOOK_EVERY == before {
            return;
        }
        if let Some(bar) = &self.bar {
            bar.set_position(position);
            bar.set_message(self.text());
        } else if self.reported.elapsed() >= LINE_EVERY {
            self.reported = Instant::now();
            eprintln!("{} {}", self.what, self.text());
        }
    }

    /// Takes the bar away.
    pub(super) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Count, bytes and rate.
    pub(super) fn text(&self) -> String {
        let seconds = self.began.elapsed().as_secs_f64();
        let rate = match seconds > 0.0 {
            true => self.messages as f64 / seconds,
            false => 0.0,
        };
        format!(
            "{}, {} of bodies, {rate:.0} messages/s",
            count_of(self.messages, "message"),
            size(self.bytes)
        )
    }
}

/// So many of something: `1 message`, `2 messages`.
pub(super) fn count_of(number: u64, noun: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{s}")
}

/// Bytes for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..10_240 => format!("{bytes} B"),
        10_240..10_485_760 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

/// A bar, if there is a terminal. Without a total it only moves.
fn bar(what: &'static str, total: Option<u64>, template: &str) -> Option<ProgressBar> {
    stderr().is_terminal().then(|| {
        let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        let style = ProgressStyle::with_template(template);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_prefix(what);
        bar
    })
}

/// Does a transfer, which reports how many bytes of how many are through: a bar on a terminal, which
/// goes with it; elsewhere, if it `says` so, a line every ten seconds.
pub(super) fn transfer<T>(
    what: &'static str,
    says: bool,
    act: impl FnOnce(&mut dyn FnMut(u64, u64)) -> T,
) -> T {
    let template = "{prefix} {bar:24} {bytes} of {total_bytes}, {bytes_per_sec}";
    let bar = bar(what, Some(0), template);
    let mut reported = Instant::now();
    let done = act(&mut |through, of| {
        if let Some(bar) = &bar {
            bar.set_length(of);
            bar.set_position(through);
        } else if says && reported.elapsed() >= LINE_EVERY {
            reported = Instant::now();
            eprintln!("{what} {} of {}", size(through), size(of));
        }
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    done
}
