//! Finding the end of a command line, for protocols that have them.

use memchr::memchr;

/// Remembers how much of an unfinished line was looked at, so that a line that
/// comes byte by byte is not searched again from its start.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    scanned: usize,
}

/// The front of the input as a line.
pub(crate) enum Line<'a> {
    /// A line with its end.
    Whole(&'a [u8]),
    /// The beginning of one.
    Part,
    /// As many bytes as a line may have, and no end.
    TooLong,
}

impl Lines {
    /// Looks for a line of at most `max` bytes, its end included.
    pub(crate) fn first<'a>(&mut self, input: &'a [u8], max: usize) -> Line<'a> {
        let window = &input[..input.len().min(max)];
        let from = self.scanned.min(window.len());
        match memchr(b'\n', &window[from..]) {
            Some(at) => {
                self.scanned = 0;
                Line::Whole(&input[..=from + at])
            }
            None if window.len() == max => {
                self.scanned = 0;
                Line::TooLong
            }
            None => {
                self.scanned = window.len();
                Line::Part
            }
        }
    }
}
