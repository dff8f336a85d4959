//! The live line on a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::report::Live;

/// A line that shows a load under way; nothing if standard error is no
/// terminal.
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

    /// Takes the line away.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// `1234567.8` as `1,234,568`.
pub(crate) fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Microseconds with the unit that suits them.
pub(crate) fn micros(value: f64) -> String {
    match value {
        v if v < 1e3 => format!("{v:.0} us"),
        v if v < 1e6 => format!("{:.2} ms", v / 1e3),
        v => format!("{:.2} s", v / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::{micros, thousands};

    #[test]
    fn numbers_for_people() {
        for (value, text) in [
            (0.0, "0"),
            (999.4, "999"),
            (1000.0, "1,000"),
            (1234567.8, "1,234,568"),
        ] {
            assert_eq!(thousands(value), text);
        }
        for (value, text) in [(12.3, "12 us"), (1234.0, "1.23 ms"), (2.5e6, "2.50 s")] {
            assert_eq!(micros(value), text);
        }
    }
}
