//! How numbers are written for those who scrape them: Prometheus' text format 0.0.4 and
//! OpenMetrics 1.0, which differ in how counters are announced and in how the text ends.

use std::borrow::Cow;
use std::fmt::Write as _;

use quintet_door::Exposition;

use super::Kind;

/// A text that grows by families of numbers.
pub(super) struct Text {
    text: String,
    exposition: Exposition,
    /// Families whose whole name, `quintet_` included, is one of these, or begins with one that
    /// ends with `*`. Empty: all.
    wanted: Vec<String>,
}

/// The name of a family without `quintet_`, and what it is.
#[derive(Clone, Copy)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: Kind,
}

impl Text {
    pub(super) fn new(exposition: Exposition, wanted: &[String]) -> Self {
        Self {
            text: String::new(),
            exposition,
            wanted: wanted.to_vec(),
        }
    }

    /// Begins a family; false: nobody wants it.
    pub(super) fn begin(&mut self, family: Family) -> bool {
        let Family { name, help, kind } = family;
        let whole = format!("quintet_{name}");
        let wants = |wanted: &String| match wanted.strip_suffix('*') {
            Some(start) => whole.starts_with(start),
            None => *wanted == whole,
        };
        if !self.wanted.is_empty() && !self.wanted.iter().any(wants) {
            return false;
        }
        let announced = match self.exposition {
            Exposition::Prometheus => &whole,
            Exposition::OpenMetrics => whole.trim_end_matches("_total"),
        };
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        self.line(format_args!("# HELP {announced} {help}"));
        self.line(format_args!("# TYPE {announced} {kind}"));
        true
    }

    /// A number of the family; `labels` are as [`labels`] makes them.
    pub(super) fn number(&mut self, family: Family, labels: &str, number: f64) {
        let name = family.name;
        match labels.is_empty() {
            true => self.line(format_args!("quintet_{name} {number}")),
            false => self.line(format_args!("quintet_{name}{{{labels}}} {number}")),
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        writeln!(self.text, "{line}").ok();
    }

    /// All of it.
    pub(super) fn end(mut self) -> String {
        if self.exposition == Exposition::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

/// Labels with their values, as they stand between braces.
pub(super) fn labels<'a>(pairs: impl Iterator<Item = (&'static str, &'a str)>) -> String {
    let mut text = String::new();
    for (label, value) in pairs {
        if !text.is_empty() {
            text.push(',');
        }
        write!(text, "{label}=\"{}\"", quoted(value)).ok();
    }
    text
}

/// A value as both formats quote it.
fn quoted(value: &str) -> Cow<'_, str> {
    if !value.contains(['\\', '"', '\n']) {
        return value.into();
    }
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    value.replace('\n', "\\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUTS: Family = Family {
        name: "puts_total",
        help: "Messages put.",
        kind: Kind::Counter,
    };

    #[test]
    fn a_counter_in_both_formats() {
        let written = |exposition, wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(|&name| name.to_owned()).collect();
            let mut text = Text::new(exposition, &wanted);
            if text.begin(PUTS) {
                let queue = labels([("queue", "a\"b\\c\nd")].into_iter());
                text.number(PUTS, &queue, 2.0);
            }
            text.end()
        };
        let line = "quintet_puts_total{queue=\"a\\\"b\\\\c\\nd\"} 2\n";
        let prometheus = format!(
            "# HELP quintet_puts_total Messages put.\n# TYPE quintet_puts_total counter\n{line}"
        );
        for wanted in [&[][..], &["x", "quintet_puts_total"], &["quintet_pu*"]] {
            assert_eq!(written(Exposition::Prometheus, wanted), prometheus);
        }
        assert_eq!(
            written(Exposition::OpenMetrics, &[]),
            format!(
                "# HELP quintet_puts Messages put.\n# TYPE quintet_puts counter\n{line}# EOF\n"
            )
        );
        assert_eq!(
            written(Exposition::OpenMetrics, &["quintet_put"]),
            "# EOF\n"
        );
    }
}
