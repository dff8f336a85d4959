//! Output of a script, with its colours: SGR is understood, every other control is dropped.
//!
//! `console.js` does the same for what comes later; both give the classes of the sheet.

use anstyle_parse::{DefaultCharAccumulator, Params, Parser, Perform};

/// Text of one style.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Run {
    /// Classes of the sheet, with spaces between: `B c1`.
    pub(super) style: String,
    pub(super) text: String,
}

/// The runs of these bytes; what is no UTF-8 is shown as a replacement.
pub(super) fn runs(bytes: &[u8]) -> Vec<Run> {
    let mut parser = Parser::<DefaultCharAccumulator>::new();
    let mut all = Runs::default();
    for byte in String::from_utf8_lossy(bytes).bytes() {
        parser.advance(&mut all, byte);
    }
    all.runs
}

/// Attributes that are on.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Style {
    bold: bool,
    dim: bool,
    italic: bool,
    underlined: bool,
    /// Of eight colours.
    text: Option<u16>,
    ground: Option<u16>,
}

impl Style {
    fn classes(self) -> String {
        let flags = [
            (self.bold, "B"),
            (self.dim, "D"),
            (self.italic, "I"),
            (self.underlined, "U"),
        ];
        let on = flags.into_iter().filter(|(on, _)| *on);
        let mut all: Vec<String> = on.map(|(_, class)| class.to_owned()).collect();
        all.extend(self.text.map(|colour| format!("c{colour}")));
        all.extend(self.ground.map(|colour| format!("k{colour}")));
        all.join(" ")
    }

    fn apply(&mut self, codes: &[u16]) {
        let mut codes = codes.iter().copied();
        while let Some(code) = codes.next() {
            match code {
                0 => *self = Self::default(),
                1 => self.bold = true,
                2 => self.dim = true,
                3 => self.italic = true,
                4 => self.underlined = true,
                22 => (self.bold, self.dim) = (false, false),
                23 => self.italic = false,
                24 => self.underlined = false,
                30..=37 | 90..=97 => self.text = Some(code % 10),
                39 => self.text = None,
                40..=47 | 100..=107 => self.ground = Some(code % 10),
                49 => self.ground = None,
                // Of the others' palettes the first sixteen are these eight; the rest is as
                // by default.
                38 => self.text = palette(&mut codes),
                48 => self.ground = palette(&mut codes),
                _ => {}
            }
        }
    }
}

fn palette(codes: &mut impl Iterator<Item = u16>) -> Option<u16> {
    match codes.next() {
        Some(5) => codes.next().filter(|n| *n < 16).map(|n| n % 8),
        Some(2) => {
            codes.nth(2);
            None
        }
        _ => None,
    }
}

#[derive(Default)]
struct Runs {
    runs: Vec<Run>,
    style: Style,
    /// The style of the last run.
    last: Style,
    /// The last was a carriage return.
    returned: bool,
}

impl Runs {
    fn push(&mut self, c: char) {
        self.returned = false;
        match self.runs.last_mut() {
            Some(run) if self.last == self.style => run.text.push(c),
            _ => {
                self.last = self.style;
                self.runs.push(Run {
                    style: self.style.classes(),
                    text: c.to_string(),
                });
            }
        }
    }
}

impl Perform for Runs {
    fn print(&mut self, c: char) {
        if !c.is_control() {
            self.push(c);
        }
    }

    fn execute(&mut self, byte: u8) {
        match byte {
            b'\t' => self.push('\t'),
            // The end of the line a return has ended.
            b'\n' if self.returned => self.returned = false,
            b'\n' => self.push('\n'),
            // A line that is written again and again, as for progress, is a line each time.
            b'\r' => {
                self.push('\n');
                self.returned = true;
            }
            _ => {}
        }
    }

    fn csi_dispatch(&mut self, params: &Params, between: &[u8], ignored: bool, action: u8) {
        if action == b'm' && between.is_empty() && !ignored {
            // With subparameters it is one of the colours that are as by default.
            let plain = params.iter().filter(|param| param.len() == 1);
            let codes: Vec<u16> = plain.map(|param| param[0]).collect();
            self.style.apply(&codes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a line: `[c1]red[] and not`.
    fn written(bytes: &[u8]) -> String {
        let all = runs(bytes);
        let all = all.iter().map(|run| format!("[{}]{}", run.style, run.text));
        all.collect()
    }

    #[test]
    fn styles_are_classes_and_text_is_text() {
        for (bytes, expected) in [
            (&b"plain"[..], "[]plain"),
            (b"\x1b[31mred\x1b[0m and not", "[c1]red[] and not"),
            (
                b"\x1b[1;91;44mall\x1b[22mless\x1b[39;49m",
                "[B c1 k4]all[c1 k4]less",
            ),
            (b"\x1b[2;3;4ma\x1b[23;24mb\x1b[mc", "[D I U]a[D]b[]c"),
            // Nothing of a palette is taken for a code of its own.
            (b"\x1b[38;5;1ma\x1b[48;5;200mb", "[c1]ab"),
            (b"\x1b[38;2;1;2;3ma\x1b[38;5;10mb\x1b[38:5:1mc", "[]a[c2]bc"),
            // No change, no run of its own.
            (b"a\x1b[0mb", "[]ab"),
            // Titles, links, cursors, bells.
            (
                b"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\x1b[2J\x1b[?25lc\x07\x08",
                "[]abc",
            ),
            (b"1%\r2%\r\nend\r\n", "[]1%\n2%\nend\n"),
            (b"<b>&\xff\xc3\xbc", "[]<b>&\u{fffd}\u{fc}"),
            (b"cut \x1b[3", "[]cut "),
            (b"\x1b[99999999999999999999mx", "[]x"),
        ] {
            assert_eq!(written(bytes), expected, "{}", bytes.escape_ascii());
        }
    }

    proptest::proptest! {
        /// No bytes make a class the sheet does not have, or text with a control.
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            for run in runs(&bytes) {
                for class in run.style.split_whitespace() {
                    let colour = class.len() == 2 && class.starts_with(['c', 'k'])
                        && class.ends_with(|c: char| ('0'..='7').contains(&c));
                    proptest::prop_assert!(colour || ["B", "D", "I", "U"].contains(&class));
                }
                let odd = |c: char| c.is_control() && c != '\n' && c != '\t';
                proptest::prop_assert!(!run.text.contains(odd), "{:?}", run.text);
            }
        }
    }
}
