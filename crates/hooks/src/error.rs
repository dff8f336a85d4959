//! An error in a hook, and its place.

use std::fmt;

/// An error of a hook file: at its load, or of one call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HookError {
    /// Name of the file; empty if none is to blame.
    pub file: String,
    /// Line, from 1; 0 if unknown.
    pub line: u32,
    /// Description of the error. One line.
    pub text: String,
}

impl HookError {
    /// An error of a file as a whole.
    pub fn of_file(file: &str, text: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line: 0,
            text: text.into(),
        }
    }

    /// Takes Lua's error apart. `files` are the names of the hook files.
    pub fn from_lua(error: &mlua::Error, files: &[String]) -> Self {
        let mut trace = String::new();
        let mut cause = error;
        #[expect(clippy::wildcard_enum_match_arm, reason = "all others have a text")]
        let text = loop {
            cause = match cause {
                mlua::Error::CallbackError {
                    traceback,
                    cause: inner,
                } => {
                    if trace.is_empty() {
                        trace.clone_from(traceback);
                    }
                    inner
                }
                mlua::Error::WithContext { cause: inner, .. } => inner,
                mlua::Error::RuntimeError(text)
                | mlua::Error::SyntaxError { message: text, .. } => break text.clone(),
                mlua::Error::MemoryError(_) => break "out of memory".to_owned(),
                other => break expected(&other.to_string()),
            };
        };
        let (text, stack) = text.split_once("\nstack traceback:").unwrap_or((&text, ""));
        let place = place(text, files)
            .map(|(file, line, rest)| (file, line, text[rest..].trim_start().to_owned()))
            .or_else(|| {
                let (file, line, _) = place(stack, files).or_else(|| place(&trace, files))?;
                Some((file, line, text.to_owned()))
            });
        let (file, line, text) = place.unwrap_or_else(|| (String::new(), 0, text.to_owned()));
        let first = text.lines().next().unwrap_or_default().to_owned();
        Self {
            file,
            line,
            text: first,
        }
    }
}

impl From<mlua::Error> for HookError {
    /// Of no file: an error outside the functions of hooks.
    fn from(error: mlua::Error) -> Self {
        Self::from_lua(&error, &[])
    }
}

/// The text of a wrong argument, as the other errors of hooks have it.
fn expected(text: &str) -> String {
    let converted = text.split_once("error converting Lua ");
    let read = converted.and_then(|(before, rest)| Some((before, rest.split_once(" to ")?)));
    match read {
        Some((before, (got, wanted))) => format!("{before}{wanted} expected, got {got}"),
        None => text.to_owned(),
    }
}

/// The first `FILE:LINE:` of a hook file: file, line, and where it ends.
fn place(text: &str, files: &[String]) -> Option<(String, u32, usize)> {
    let mut best: Option<(usize, String, u32, usize)> = None;
    for file in files {
        let needle = format!("{file}:");
        for (at, _) in text.match_indices(&needle) {
            let rest = &text[at + needle.len()..];
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let Ok(line) = rest[..digits].parse() else {
                continue;
            };
            if best.as_ref().is_none_or(|best| at < best.0) {
                let end = at + needle.len() + digits;
                let colon = usize::from(text[end..].starts_with(':'));
                best = Some((at, file.clone(), line, end + colon));
            }
            break;
        }
    }
    best.map(|(_, file, line, end)| (file, line, end))
}

impl fmt::Display for HookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            write!(f, "{}:", self.file)?;
            if self.line > 0 {
                write!(f, "{}:", self.line)?;
            }
            f.write_str(" ")?;
        }
        f.write_str(&self.text)
    }
}

impl std::error::Error for HookError {}
