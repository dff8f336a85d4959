//! Bars with whiskers, as SVG.

use super::sheet::{Show, Spread};

/// Widths and heights, in pixels.
const NAMES: f64 = 250.0;
const BARS: f64 = 360.0;
const WIDTH: f64 = NAMES + BARS + 110.0;
const ROW: f64 = 22.0;
const HEAD: f64 = 44.0;
const GROUP: f64 = 30.0;

/// A bar: the median, with a line from the least to the most.
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) value: Spread,
    pub(crate) ours: bool,
}

/// Groups of bars to one scale, each below its name.
pub(crate) fn svg(title: &str, unit: &str, show: Show, groups: &[(&str, Vec<Bar>)]) -> String {
    let all = || groups.iter().flat_map(|(_, bars)| bars);
    let height = HEAD + GROUP * groups.len() as f64 + ROW * all().count() as f64 + 8.0;
    let most = all().map(|bar| bar.value.most).fold(0.0, f64::max);
    let scale = if most > 0.0 { BARS / most } else { 0.0 };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    svg += &text(8.0, 24.0, "font-size=\"15\" font-weight=\"bold\"", title);
    svg += &text(WIDTH - 8.0, 24.0, "text-anchor=\"end\" fill=\"#666\"", unit);
    let mut y = HEAD;
    for (name, bars) in groups {
        svg += &text(8.0, y + 16.0, "font-weight=\"bold\"", name);
        y += GROUP;
        for Bar { name, value, ours } in bars {
            let colour = if *ours { "#1f6fb2" } else { "#a9b4be" };
            let middle = y + ROW / 2.0 - 4.0;
            let [median, least, most] = [value.median, value.least, value.most].map(|v| v * scale);
            svg += &text(NAMES - 8.0, middle + 4.0, "text-anchor=\"end\"", name);
            svg += &format!(
                "<rect x=\"{NAMES}\" y=\"{:.1}\" width=\"{median:.1}\" height=\"14\" fill=\"{colour}\"/>\n\
                 <path d=\"M{:.1} {middle:.1}H{:.1}\" stroke=\"#222\"/>\n",
                middle - 7.0,
                NAMES + least,
                NAMES + most
            );
            svg += &text(NAMES + most + 6.0, middle + 4.0, "", &show(value.median));
            y += ROW;
        }
    }
    svg + "</svg>\n"
}

fn text(x: f64, y: f64, style: &str, content: &str) -> String {
    let content = content.replace('&', "&amp;").replace('<', "&lt;");
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{content}</text>\n")
}

#[cfg(test)]
mod tests {
    use super::{Bar, Spread, svg};
    use crate::common::sheet::count;

    #[test]
    fn a_bar_for_each_contender_to_one_scale() {
        let bar = |value| Bar {
            name: "x".to_owned(),
            value: Spread::of([value]),
            ours: false,
        };
        let svg = svg(
            "title",
            "s",
            count,
            &[("a < b & c", vec![bar(500.0), bar(250.0)])],
        );
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        // The longest fills the room, the other is half as long.
        let wide = |px: &str| svg.contains(&format!("width=\"{px}\""));
        assert!(wide("360.0") && wide("180.0"), "{svg}");
        assert!(svg.contains(">a &lt; b &amp; c<"), "{svg}");
    }
}
