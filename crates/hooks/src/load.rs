//! Reading a hook file, or a directory of them.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use quintet_types::{Caller, Command, Ms, Name, Outcome};

use crate::error::HookError;
use crate::host::{Host, Level};
use crate::program::{Program, Source};
use crate::shared::Shared;
use crate::state::HookState;
use quintet_policy::Events;
use quintet_policy::Limits;

/// Bytes of one file at most.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Files of a directory at most.
const FILES_MAX: usize = 256;

impl Program {
    /// Reads a file, or the `*.lua` of a directory in the order of their
    /// names, and runs them once on trial. Nothing else is touched, so a
    /// program in use goes on if this fails. `shared` outlives reloads.
    ///
    /// # Errors
    /// A file cannot be read, is not Lua, or fails when it is loaded.
    pub fn load(path: &Path, limits: &Limits, shared: Arc<Shared>) -> Result<Arc<Self>, HookError> {
        let sources = read(path)?;
        Self::from_sources(sources, limits, shared)
    }

    /// A program of one file that is in memory, under this name.
    ///
    /// # Errors
    /// As [`Program::load`].
    pub fn from_text(
        name: &str,
        text: &str,
        limits: &Limits,
        shared: Arc<Shared>,
    ) -> Result<Arc<Self>, HookError> {
        let source = Source {
            name: name.to_owned(),
            text: text.as_bytes().to_vec(),
        };
        Self::from_sources(vec![source], limits, shared)
    }

    fn from_sources(
        sources: Vec<Source>,
        limits: &Limits,
        shared: Arc<Shared>,
    ) -> Result<Arc<Self>, HookError> {
        let mut program = Self {
            names: sources.iter().map(|source| source.name.clone()).collect(),
            sources,
            limits: *limits,
            shared,
            events: Events::default(),
        };
        let trial = Arc::new(program);
        let events = HookState::new(Arc::clone(&trial), Box::new(Nobody))?.events();
        // The trial state is gone, and so is every other handle.
        program = Arc::into_inner(trial)
            .ok_or_else(|| HookError::of_file("", "the trial state was kept"))?;
        program.events = events;
        Ok(Arc::new(program))
    }
}

fn read(path: &Path) -> Result<Vec<Source>, HookError> {
    let shown = path.display().to_string();
    let unreadable =
        |error: std::io::Error| HookError::of_file(&shown, format!("cannot be read: {error}"));
    let mut paths = Vec::new();
    if std::fs::metadata(path).map_err(unreadable)?.is_dir() {
        for entry in std::fs::read_dir(path).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            if path.extension().is_some_and(|extension| extension == "lua") && path.is_file() {
                paths.push(path);
            }
        }
        paths.sort();
        if paths.len() > FILES_MAX {
            return Err(HookError::of_file(
                &shown,
                format!("more than {FILES_MAX} files"),
            ));
        }
    } else {
        paths.push(path.to_owned());
    }
    let mut sources = Vec::new();
    for path in paths {
        let name = path.file_name().map_or_else(
            || path.display().to_string(),
            |name| name.to_string_lossy().into_owned(),
        );
        let failed = |text: String| HookError::of_file(&name, text);
        let len = std::fs::metadata(&path)
            .map_err(|error| failed(format!("cannot be read: {error}")))?
            .len();
        if len > FILE_BYTES_MAX {
            return Err(failed(format!("longer than {FILE_BYTES_MAX} bytes")));
        }
        let text =
            std::fs::read(&path).map_err(|error| failed(format!("cannot be read: {error}")))?;
        let text = without_preamble(text);
        sources.push(Source { name, text });
    }
    Ok(sources)
}

/// A file as Lua's own loader reads it: without a byte order mark, and with a first line that
/// begins with `#` empty, so that numbers of lines stay.
pub fn without_preamble(mut text: Vec<u8>) -> Vec<u8> {
    if text.starts_with(b"\xef\xbb\xbf") {
        text.drain(..3);
    }
    if text.starts_with(b"#") {
        let end = text.iter().position(|&byte| byte == b'\n');
        text.drain(..end.unwrap_or(text.len()));
    }
    text
}

/// Nobody can be asked while a file is loaded. The time is what it will be when the file is loaded
/// for good.
struct Nobody;

impl Host for Nobody {
    fn now(&self) -> Ms {
        self.wall()
    }

    fn wall(&self) -> Ms {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let ms = since.map_or(0, |since| since.as_millis());
        Ms(u64::try_from(ms).unwrap_or(u64::MAX))
    }

    fn ask(&mut self, _caller: Caller, _command: Command) -> (Option<Outcome>, Name) {
        (Some(Outcome::Empty), Name::default())
    }

    fn log(&mut self, _level: Level, _text: &str) {}
}
