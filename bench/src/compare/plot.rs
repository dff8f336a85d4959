//! Bars with whiskers, as SVG.

use std::fmt::Write as _;

use super::results::{Metric, Spread, Table};

/// Widths and heights, in pixels.
const NAMES: f64 = 250.0;
const BARS: f64 = 360.0;
const VALUES: f64 = 110.0;
const ROW: f64 = 22.0;
const HEAD: f64 = 44.0;
const GROUP: f64 = 30.0;

/// A group of bars for each table, a bar for each contender: the median, with
/// a line from the least to the most.
pub(crate) fn bars(title: &str, metric: Metric, tables: &[Table]) -> String {
    let rows: usize = tables.iter().map(|table| table.contenders.len()).sum();
    let height = HEAD + GROUP * tables.len() as f64 + ROW * rows as f64 + 8.0;
    let width = NAMES + BARS + VALUES;
    let spread = |samples: &Vec<_>| Spread::of(samples.iter().map(|sample| metric.of(sample)));
    let all = tables.iter().flat_map(|table| &table.samples);
    let most = all.map(|samples| spread(samples).most).fold(0.0, f64::max);
    let scale = if most > 0.0 { BARS / most } else { 0.0 };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    let mut y = 24.0;
    text(
        &mut svg,
        8.0,
        y,
        "font-size=\"15\" font-weight=\"bold\"",
        title,
    );
    text(
        &mut svg,
        width - 8.0,
        y,
        "text-anchor=\"end\" fill=\"#666\"",
        metric.title(),
    );
    y = HEAD;
    for table in tables {
        text(
            &mut svg,
            8.0,
            y + 16.0,
            "font-weight=\"bold\"",
            &table.scenario.name,
        );
        y += GROUP;
        for (contender, samples) in table.contenders.iter().zip(&table.samples) {
            let Spread {
                median,
                least,
                most,
            } = spread(samples);
            let ours = contender.kind.is_quintet();
            let colour = if ours { "#1f6fb2" } else { "#a9b4be" };
            let middle = y + ROW / 2.0 - 4.0;
            text(
                &mut svg,
                NAMES - 8.0,
                middle + 4.0,
                "text-anchor=\"end\"",
                &contender.name(),
            );
            line(
                &mut svg,
                format_args!(
                    "<rect x=\"{NAMES}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\" \
                     fill=\"{colour}\"/>",
                    middle - 7.0,
                    median * scale
                ),
            );
            line(
                &mut svg,
                format_args!(
                    "<path d=\"M{:.1} {middle:.1}H{:.1}\" stroke=\"#222\"/>",
                    NAMES + least * scale,
                    NAMES + most * scale
                ),
            );
            let right = NAMES + most * scale + 6.0;
            text(&mut svg, right, middle + 4.0, "", &metric.show(median));
            y += ROW;
        }
    }
    svg + "</svg>\n"
}

fn line(svg: &mut String, content: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    writeln!(svg, "{content}").ok();
}

fn text(svg: &mut String, x: f64, y: f64, style: &str, content: &str) {
    let content = content.replace('&', "&amp;").replace('<', "&lt;");
    line(
        svg,
        format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{content}</text>"),
    );
}

#[cfg(test)]
mod tests {
    use super::bars;
    use crate::compare::driver::{Contender, Sample, Scenario};
    use crate::compare::peers::Kind;
    use crate::compare::results::{Metric, Table};

    #[test]
    fn a_bar_for_each_contender_to_one_scale() {
        let sample = |rate| Sample {
            rate,
            p50_us: 1.0,
            p99_us: 1.0,
            p999_us: 1.0,
            max_us: 1.0,
            cpu_us: 1.0,
            resident: 1,
            background_rate: 0.0,
        };
        let name = "a < b & c".to_owned();
        let (connections, depth, size, rate) = (1, 1, 1, None);
        let table = Table {
            scenario: Scenario {
                name,
                connections,
                depth,
                size,
                mix: quintet_bench::Mix::BOTH,
                rate,
            },
            contenders: [Kind::Echo, Kind::Memcached].map(Contender::of).into(),
            samples: vec![vec![sample(500.0)], vec![sample(250.0)]],
        };
        let svg = bars("title", Metric::Rate, &[table]);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        // The longest fills the room, the other is half as long.
        assert!(
            svg.contains("width=\"360.0\"") && svg.contains("width=\"180.0\""),
            "{svg}"
        );
        assert!(svg.contains(">a &lt; b &amp; c<"), "{svg}");
    }
}
