//! Curves, as SVG.

use std::fmt::Write as _;

use serde::Serialize;

/// Widths and heights of one plot, in pixels.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 44.0;
/// Lines across, without the axis.
const STEPS: u32 = 4;
const COLOURS: [&str; 4] = ["#1f6fb2", "#d1495b", "#3c8d53", "#8a6fb0"];
/// Points of a curve that are drawn at most.
const POINTS_MAX: usize = 400;

/// A curve.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// From left to right.
    pub(crate) points: Vec<(f64, f64)>,
}

/// Curves over one scale that begins at zero.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Plot {
    pub(crate) title: String,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) lines: Vec<Line>,
}

/// The plots below each other.
pub(crate) fn svg(plots: &[Plot]) -> String {
    let height = HEIGHT * plots.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    for (at, plot) in plots.iter().enumerate() {
        draw(&mut svg, plot, HEIGHT * at as f64);
    }
    svg + "</svg>\n"
}

fn draw(svg: &mut String, plot: &Plot, top: f64) {
    let all = || plot.lines.iter().flat_map(|line| &line.points);
    let x_most = round_up(all().map(|point| point.0).fold(0.0, f64::max));
    let y_most = round_up(all().map(|point| point.1).fold(0.0, f64::max));
    let (wide, high) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    let floor = top + TOP + high;
    let x_of = |x: f64| LEFT + x / x_most * wide;
    let y_of = |y: f64| floor - y / y_most * high;
    let bold = "font-size=\"15\" font-weight=\"bold\"";
    text(svg, 8.0, top + 22.0, bold, &plot.title);
    text(svg, 8.0, top + 42.0, "fill=\"#666\"", plot.y);
    let end = "text-anchor=\"end\" fill=\"#666\"";
    text(svg, WIDTH - RIGHT, floor + 36.0, end, plot.x);
    for step in 0..=STEPS {
        let part = f64::from(step) / f64::from(STEPS);
        let (x, y) = (x_most * part, y_most * part);
        element(
            svg,
            format_args!(
                "<path d=\"M{LEFT} {:.1}h{wide}\" stroke=\"#ddd\"/>",
                y_of(y)
            ),
        );
        text(svg, LEFT - 6.0, y_of(y) + 4.0, end, &label(y));
        let middle = "text-anchor=\"middle\" fill=\"#666\"";
        text(svg, x_of(x), floor + 18.0, middle, &label(x));
    }
    let mut right = WIDTH - RIGHT;
    for (line, colour) in plot.lines.iter().zip(COLOURS.iter().cycle()) {
        let step = line.points.len().div_ceil(POINTS_MAX).max(1);
        let mut path = String::new();
        for &(x, y) in line.points.iter().step_by(step) {
            let word = if path.is_empty() { 'M' } else { 'L' };
            // Writing to a string cannot fail.
            write!(path, "{word}{:.1} {:.1}", x_of(x), y_of(y)).ok();
        }
        element(
            svg,
            format_args!(
                "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>"
            ),
        );
        let style = format!("text-anchor=\"end\" fill=\"{colour}\"");
        text(svg, right, top + 42.0, &style, &line.name);
        right -= 16.0 + 7.0 * line.name.chars().count() as f64;
    }
}

/// The next of 1, 2, 4, 5 and 8 times a power of ten: a quarter of it is
/// easily read. 1 for zero.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 4.0, 5.0, 8.0, 10.0];
    // The last is larger than any value's first digits.
    let step = steps.into_iter().find(|step| step * power >= value);
    step.unwrap_or(10.0) * power
}

fn label(value: f64) -> String {
    let shown = |value: f64| {
        let text = format!("{value:.2}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match value {
        v if v >= 1e6 => shown(v / 1e6) + " M",
        v if v >= 1e3 => shown(v / 1e3) + " k",
        v => shown(v),
    }
}

fn element(svg: &mut String, content: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    writeln!(svg, "{content}").ok();
}

fn text(svg: &mut String, x: f64, y: f64, style: &str, content: &str) {
    let content = content.replace('&', "&amp;").replace('<', "&lt;");
    element(
        svg,
        format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{content}</text>"),
    );
}

#[cfg(test)]
mod tests {
    use super::{Line, POINTS_MAX, Plot, label, round_up, svg};

    #[test]
    fn scales_end_above_what_they_show() {
        for (value, end) in [
            (0.0, 1.0),
            (0.3, 0.4),
            (1.0, 1.0),
            (1.1, 2.0),
            (4.1, 5.0),
            (8.1, 10.0),
            (123_456.0, 200_000.0),
        ] {
            assert!((round_up(value) - end).abs() < end * 1e-9, "{value}");
        }
        assert_eq!(
            [0.0, 0.25, 1500.0, 2e6].map(label),
            ["0", "0.25", "1.5 k", "2 M"]
        );
    }

    #[test]
    fn a_curve_fills_its_room_and_has_few_points() {
        let points = |count: u32| (0..=count).map(|at| (f64::from(at), f64::from(at)));
        let plot = |count| Plot {
            title: "a < b".to_owned(),
            x: "s",
            y: "messages",
            lines: vec![Line {
                name: "put".to_owned(),
                points: points(count).collect(),
            }],
        };
        let found = svg(&[plot(10), plot(1)]);
        assert!(found.starts_with("<svg ") && found.ends_with("</svg>\n"));
        assert!(found.contains("height=\"600\"") && found.contains(">a &lt; b<"));
        // From the corner of both axes to the opposite one.
        assert!(found.contains("M84.0 256.0L"), "{found}");
        assert!(found.contains("L704.0 52.0\""), "{found}");
        let found = svg(&[plot(10_000)]);
        assert!(found.matches('L').count() <= POINTS_MAX);
    }
}
