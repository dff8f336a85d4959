//! Lua's string patterns with a bounded number of steps.
//!
//! Lua's own matcher runs outside the instruction count and takes exponential
//! time on some inputs. This one is the same algorithm (Lua 5.4 reference
//! manual, section 6.4.1) and answers the same, but charges its steps to the
//! caller's budget.

/// Captures of one pattern at most.
const CAPTURES_MAX: usize = 32;
/// Nested calls of the matcher at most; Lua's own limit.
const DEPTH_MAX: u32 = 200;
const ESCAPE: u8 = b'%';

/// Why a match was given up.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Failed {
    /// The pattern is not one; the text is Lua's.
    #[error("{0}")]
    Malformed(&'static str),
    /// `%1` and the like name a capture that there is not.
    #[error("invalid capture index %{0}")]
    BadCapture(usize),
    /// `%` of a replacement is followed by neither a digit nor `%`.
    #[error("invalid use of '%' in replacement string")]
    BadReplacement,
    /// The steps are used up.
    #[error("pattern matching used up its budget")]
    Spent,
}

type Result<T> = std::result::Result<T, Failed>;

/// Content of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Capture {
    /// A piece of the subject: from, to.
    Piece(usize, usize),
    /// A position, counted from 1.
    Position(usize),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Len {
    Open,
    Position,
    Closed(usize),
}

/// One subject and one pattern.
pub(crate) struct Matcher<'a> {
    src: &'a [u8],
    pat: &'a [u8],
    captures: [(usize, Len); CAPTURES_MAX],
    level: usize,
    depth: u32,
    /// Steps that are left; what was used is the caller's to subtract.
    pub(crate) steps: u64,
}

impl<'a> Matcher<'a> {
    /// `pat` without its leading `^`.
    pub(crate) fn new(src: &'a [u8], pat: &'a [u8], steps: u64) -> Self {
        Self {
            src,
            pat,
            captures: [(0, Len::Open); CAPTURES_MAX],
            level: 0,
            depth: 0,
            steps,
        }
    }

    /// Matches the whole pattern at `at`; answers where the match ends.
    pub(crate) fn at(&mut self, at: usize) -> Result<Option<usize>> {
        self.level = 0;
        self.depth = 0;
        self.run(at, 0)
    }

    /// How many captures the last match has; one that has none counts as the
    /// whole match.
    pub(crate) fn count(&self) -> usize {
        self.level
    }

    /// Capture `index` (from 0) of the match from `start` to `end`.
    pub(crate) fn capture(&self, index: usize, start: usize, end: usize) -> Result<Capture> {
        if index >= self.level {
            return if index == 0 {
                Ok(Capture::Piece(start, end))
            } else {
                Err(Failed::BadCapture(index + 1))
            };
        }
        let (from, len) = self.captures[index];
        match len {
            Len::Open => Err(Failed::Malformed("unfinished capture")),
            Len::Position => Ok(Capture::Position(from + 1)),
            Len::Closed(len) => Ok(Capture::Piece(from, from + len)),
        }
    }

    fn step(&mut self) -> Result<()> {
        self.steps = self.steps.checked_sub(1).ok_or(Failed::Spent)?;
        Ok(())
    }

    fn run(&mut self, at: usize, pat: usize) -> Result<Option<usize>> {
        if self.depth == DEPTH_MAX {
            return Err(Failed::Malformed("pattern too complex"));
        }
        self.depth += 1;
        let found = self.run_flat(at, pat);
        self.depth -= 1;
        found
    }

    /// One call of the matcher: goes on in a loop where the rest of the
    /// pattern needs no way back.
    fn run_flat(&mut self, mut s: usize, mut p: usize) -> Result<Option<usize>> {
        loop {
            self.step()?;
            let Some(&first) = self.pat.get(p) else {
                return Ok(Some(s));
            };
            match first {
                b'(' => {
                    return if self.pat.get(p + 1) == Some(&b')') {
                        self.open(s, p + 2, Len::Position)
                    } else {
                        self.open(s, p + 1, Len::Open)
                    };
                }
                b')' => return self.close(s, p + 1),
                b'$' if p + 1 == self.pat.len() => {
                    return Ok((s == self.src.len()).then_some(s));
                }
                ESCAPE => match self.pat.get(p + 1) {
                    Some(b'b') => match self.balanced(s, p + 2)? {
                        Some(next) => {
                            s = next;
                            p += 4;
                            continue;
                        }
                        None => return Ok(None),
                    },
                    Some(b'f') => {
                        p += 2;
                        if self.pat.get(p) != Some(&b'[') {
                            return Err(Failed::Malformed("missing '[' after '%f' in pattern"));
                        }
                        let end = self.class_end(p)?;
                        let before = if s == 0 { 0 } else { self.src[s - 1] };
                        let here = self.src.get(s).copied().unwrap_or(0);
                        if !self.in_set(before, p, end - 1) && self.in_set(here, p, end - 1) {
                            p = end;
                            continue;
                        }
                        return Ok(None);
                    }
                    Some(digit @ b'0'..=b'9') => match self.back_reference(s, *digit)? {
                        Some(next) => {
                            s = next;
                            p += 2;
                            continue;
                        }
                        None => return Ok(None),
                    },
                    _ => {}
                },
                _ => {}
            }
            let end = self.class_end(p)?;
            let suffix = self.pat.get(end).copied();
            if !self.single(s, p, end) {
                if !matches!(suffix, Some(b'*' | b'?' | b'-')) {
                    return Ok(None);
                }
                p = end + 1;
                continue;
            }
            match suffix {
                Some(b'+') => return self.longest(s + 1, p, end),
                Some(b'*') => return self.longest(s, p, end),
                Some(b'-') => return self.shortest(s, p, end),
                Some(b'?') => {
                    if let Some(found) = self.run(s + 1, end + 1)? {
                        return Ok(Some(found));
                    }
                    p = end + 1;
                }
                _ => {
                    s += 1;
                    p = end;
                }
            }
        }
    }

    fn longest(&mut self, s: usize, p: usize, end: usize) -> Result<Option<usize>> {
        let mut count = 0;
        while self.single(s + count, p, end) {
            self.step()?;
            count += 1;
        }
        loop {
            if let Some(found) = self.run(s + count, end + 1)? {
                return Ok(Some(found));
            }
            if count == 0 {
                return Ok(None);
            }
            count -= 1;
        }
    }

    fn shortest(&mut self, mut s: usize, p: usize, end: usize) -> Result<Option<usize>> {
        loop {
            if let Some(found) = self.run(s, end + 1)? {
                return Ok(Some(found));
            }
            if !self.single(s, p, end) {
                return Ok(None);
            }
            s += 1;
        }
    }

    fn open(&mut self, s: usize, p: usize, len: Len) -> Result<Option<usize>> {
        if self.level >= CAPTURES_MAX {
            return Err(Failed::Malformed("too many captures"));
        }
        self.captures[self.level] = (s, len);
        self.level += 1;
        let found = self.run(s, p)?;
        if found.is_none() {
            self.level -= 1;
        }
        Ok(found)
    }

    fn close(&mut self, s: usize, p: usize) -> Result<Option<usize>> {
        let open = (0..self.level)
            .rev()
            .find(|&index| self.captures[index].1 == Len::Open)
            .ok_or(Failed::Malformed("invalid pattern capture"))?;
        self.captures[open].1 = Len::Closed(s - self.captures[open].0);
        let found = self.run(s, p)?;
        if found.is_none() {
            self.captures[open].1 = Len::Open;
        }
        Ok(found)
    }

    fn balanced(&mut self, s: usize, p: usize) -> Result<Option<usize>> {
        let (Some(&open), Some(&close)) = (self.pat.get(p), self.pat.get(p + 1)) else {
            return Err(Failed::Malformed(
                "malformed pattern (missing arguments to '%b')",
            ));
        };
        if self.src.get(s) != Some(&open) {
            return Ok(None);
        }
        let mut nested = 1;
        for at in s + 1..self.src.len() {
            self.step()?;
            let byte = self.src[at];
            if byte == close {
                nested -= 1;
                if nested == 0 {
                    return Ok(Some(at + 1));
                }
            } else if byte == open {
                nested += 1;
            }
        }
        Ok(None)
    }

    fn back_reference(&mut self, s: usize, digit: u8) -> Result<Option<usize>> {
        let number = usize::from(digit - b'0');
        let index = number.wrapping_sub(1);
        let (from, len) = match self.captures[..self.level].get(index) {
            Some(&(from, Len::Closed(len))) => (from, len),
            // What Lua does with a position is to compare no bytes.
            Some(&(from, Len::Position)) => (from, usize::MAX),
            _ => return Err(Failed::BadCapture(number)),
        };
        if self.src.len() - s < len {
            return Ok(None);
        }
        self.steps = self.steps.checked_sub(len as u64).ok_or(Failed::Spent)?;
        let same = self.src[from..from + len] == self.src[s..s + len];
        Ok(same.then_some(s + len))
    }

    /// Where the single-character class at `p` ends.
    fn class_end(&self, p: usize) -> Result<usize> {
        let mut p = p;
        let first = self.pat[p];
        p += 1;
        match first {
            ESCAPE => {
                if p >= self.pat.len() {
                    return Err(Failed::Malformed("malformed pattern (ends with '%')"));
                }
                Ok(p + 1)
            }
            b'[' => {
                if self.pat.get(p) == Some(&b'^') {
                    p += 1;
                }
                // The first one belongs to the set even if it is `]`.
                loop {
                    let Some(&byte) = self.pat.get(p) else {
                        return Err(Failed::Malformed("malformed pattern (missing ']')"));
                    };
                    p += 1;
                    if byte == ESCAPE {
                        p += 1;
                    }
                    if self.pat.get(p) == Some(&b']') {
                        return Ok(p + 1);
                    }
                }
            }
            _ => Ok(p),
        }
    }

    fn single(&self, s: usize, p: usize, end: usize) -> bool {
        let Some(&byte) = self.src.get(s) else {
            return false;
        };
        match self.pat[p] {
            b'.' => true,
            ESCAPE => class(byte, self.pat[p + 1]),
            b'[' => self.in_set(byte, p, end - 1),
            plain => plain == byte,
        }
    }

    /// `from` is the set's `[`, `to` its `]`.
    fn in_set(&self, byte: u8, from: usize, to: usize) -> bool {
        let mut p = from + 1;
        let mut wanted = true;
        if self.pat[p] == b'^' {
            wanted = false;
            p += 1;
        }
        while p < to {
            if self.pat[p] == ESCAPE {
                p += 1;
                if class(byte, self.pat[p]) {
                    return wanted;
                }
                p += 1;
            } else if self.pat[p + 1] == b'-' && p + 2 < to {
                if (self.pat[p]..=self.pat[p + 2]).contains(&byte) {
                    return wanted;
                }
                p += 3;
            } else {
                if self.pat[p] == byte {
                    return wanted;
                }
                p += 1;
            }
        }
        !wanted
    }
}

fn class(byte: u8, class: u8) -> bool {
    let is = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'g' => byte.is_ascii_graphic(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        _ => return class == byte,
    };
    is != class.is_ascii_uppercase()
}
