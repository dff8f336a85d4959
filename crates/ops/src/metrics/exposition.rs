//! How numbers are written for those who scrape them: Prometheus' text format 0.0.4 and
//! OpenMetrics 1.0, which differ in how counters are announced and in how the text ends.

use std::borrow::Cow;
use std::fmt::Write as _;

use quintet_client::Exposition;
use quintet_host::Distribution;

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
            Kind::Histogram => "histogram",
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

    /// Counters of a family's histogram, `per_base` of which are one unit of the output.
    pub(super) fn spread(
        &mut self,
        family: Family,
        labels: &str,
        spread: &Distribution,
        per_base: f64,
    ) {
        let name = family.name;
        let comma = if labels.is_empty() { "" } else { "," };
        for (end, below) in spread.cumulative() {
            let end = whole(end) / per_base;
            self.line(format_args!(
                "quintet_{name}_bucket{{{labels}{comma}le=\"{end}\"}} {below}"
            ));
        }
        let count = spread.count();
        self.line(format_args!(
            "quintet_{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}"
        ));
        let braced = match labels.is_empty() {
            true => String::new(),
            false => format!("{{{labels}}}"),
        };
        let sum = whole(spread.sum()) / per_base;
        self.line(format_args!("quintet_{name}_sum{braced} {sum}"));
        self.line(format_args!("quintet_{name}_count{braced} {count}"));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        writeln!(self.text, "{line}").ok();
    }

    pub(super) fn end(mut self) -> String {
        if self.exposition == Exposition::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

/// A number as both formats have it.
#[expect(clippy::cast_precision_loss, reason = "Prometheus' numbers are floats")]
pub(super) fn whole(number: u64) -> f64 {
    number as f64
}

/// Labels with their values, as they stand between braces.
pub(super) fn labels<'a>(pairs: impl Iterator<Item = (&'static str, &'a str)>) -> String {
    let mut text = String::new();
    let mut add = |label: &str, value: &str| {
        let comma = if text.is_empty() { "" } else { "," };
        write!(text, "{comma}{label}=\"{}\"", quoted(value)).ok();
    };
    for (label, value) in pairs {
        add(label, value);
        // Its old name, for one release.
        if label == "protocol" {
            add("voice", value);
        }
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
    use quintet_host::Histogram;

    use super::*;

    const PUTS: Family = Family {
        name: "puts_total",
        help: "Messages put.",
        kind: Kind::Counter,
    };

    #[test]
    fn a_renamed_label_has_both_names() {
        let both = labels([("protocol", "sqs"), ("what", "x")].into_iter());
        assert_eq!(both, "protocol=\"sqs\",voice=\"sqs\",what=\"x\"");
    }

    #[test]
    fn a_histogram_counts_up() {
        let family = Family {
            name: "reply_seconds",
            help: "Times.",
            kind: Kind::Histogram,
        };
        let histogram = Histogram::new(&[50, 2_500_000]);
        for micros in [20, 50, 51, 3_000_000] {
            histogram.add(micros, 1);
        }
        let written = |labels: &str| {
            let mut text = Text::new(Exposition::Prometheus, &[]);
            assert!(text.begin(family));
            text.spread(family, labels, &histogram.read(), 1e6);
            text.end()
        };
        let head = "# HELP quintet_reply_seconds Times.\n# TYPE quintet_reply_seconds histogram\n";
        assert_eq!(
            written("protocol=\"x\""),
            format!(
                "{head}quintet_reply_seconds_bucket{{protocol=\"x\",le=\"0.00005\"}} 2\n\
                 quintet_reply_seconds_bucket{{protocol=\"x\",le=\"2.5\"}} 3\n\
                 quintet_reply_seconds_bucket{{protocol=\"x\",le=\"+Inf\"}} 4\n\
                 quintet_reply_seconds_sum{{protocol=\"x\"}} 3.000121\n\
                 quintet_reply_seconds_count{{protocol=\"x\"}} 4\n"
            )
        );
        assert!(written("").ends_with(
            "_bucket{le=\"+Inf\"} 4\nquintet_reply_seconds_sum 3.000121\n\
             quintet_reply_seconds_count 4\n"
        ));
    }

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
