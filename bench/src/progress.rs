//! The live line on a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::report::Live;
use crate::units::{micros, thousands};

/// A line that shows a load under way until it is dropped; nothing if standard
/// error is no terminal.
pub struct Bar {
    bar: ProgressBar,
    total: Duration,
}

impl Bar {
    /// For a load of this length.
    pub fn new(what: &str, total: Duration) -> Self {
        let length = u64::try_from(total.as_millis()).unwrap_or(u64::MAX);
        let bar = ProgressBar::new(length);
        let style = ProgressStyle::with_template("{prefix} {bar:24} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_prefix(what.to_owned());
        Self { bar, total }
    }

    /// Shows how it goes.
    pub fn show(&self, live: Live) {
        let done = (live.seconds * 1e3) as u64;
        self.bar.set_position(done);
        self.bar.set_message(format!(
            "{:.0} of {:.0} s  {} requests/s  p99 {}",
            live.seconds,
            self.total.as_secs_f64(),
            thousands(live.rate),
            micros(live.p99_us)
        ));
    }
}
