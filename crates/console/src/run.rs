//! Output of a message's script.

use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use axum::response::IntoResponse as _;
use hyper::{HeaderMap, StatusCode};
use quintet_types::{ListState, Message, Name, Verb};

use super::ansi::{self, Run};
use super::{Answer, PageRequest, listing, words};
use quintet_api::{Path as Part, Problem, blocking};
use quintet_http::files;

/// Bytes of a log that a page shows at most: its end.
const SHOWN: u64 = 64 << 10;

/// In which state the message is whose log it is, for who follows it.
const STATE: &str = "quintet-state";

/// A log as a page shows it.
pub(super) struct Log {
    pub(super) runs: Vec<Run>,
    /// Where in the file that begins.
    pub(super) from: u64,
    /// The part before it; empty: nothing.
    pub(super) before: String,
    /// There may come more.
    pub(super) follows: bool,
    /// Its file is there.
    pub(super) there: bool,
}

/// True while the script of a message may write something more.
fn may_run(state: ListState) -> bool {
    matches!(state, ListState::Ready | ListState::Reserved)
}

/// The log of a message, and whether a script takes its queue's messages.
async fn find(
    context: &PageRequest,
    message: &Message,
    queue: &Name,
) -> Result<(Option<PathBuf>, bool), Problem> {
    let (message, shown) = (message.clone(), queue.to_string());
    let found = context.console.ask_rq(move |rq| {
        let scripted = rq.has_script(&shown);
        (rq.log_of(&shown, &message), scripted)
    });
    let (log, scripted) = found.await?;
    let seen = log.filter(|(of, _)| context.requester.may(Verb::Peek, of));
    Ok((seen.map(|(_, path)| path), scripted))
}

/// The log of a message for its page. `None`: no script has to do with it.
///
/// # Errors
/// It cannot be read.
pub(super) async fn log(
    context: &PageRequest,
    message: &Message,
    queue: &Name,
    state: ListState,
) -> Result<Option<Log>, Problem> {
    let (path, scripted) = find(context, message, queue).await?;
    if path.is_none() && !scripted {
        return Ok(None);
    }
    let there = path.is_some();
    let read = blocking(move || path.map(|path| end_of(&path)).transpose()).await?;
    let read = read.map_err(|error| Problem::internal(format!("the log: {error}")))?;
    let (from, bytes) = read.unwrap_or_default();
    Ok(Some(Log {
        runs: ansi::runs(&bytes),
        from,
        before: match from {
            0 => String::new(),
            from => words::bytes(from),
        },
        follows: scripted && may_run(state),
        there,
    }))
}

/// The last [`SHOWN`] bytes of a file, from the beginning of a line on, and where that is.
fn end_of(path: &Path) -> io::Result<(u64, Vec<u8>)> {
    let mut file = std::fs::File::open(path)?;
    let mut from = file.metadata()?.len().saturating_sub(SHOWN);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(SHOWN).read_to_end(&mut bytes)?;
    if from > 0 {
        let line = bytes.iter().position(|byte| *byte == b'\n');
        let cut = line.map_or(0, |at| at + 1);
        bytes.drain(..cut);
        from += cut as u64;
    }
    Ok((from, bytes))
}

/// `/messages/ID/log`: its bytes, whole or from some place on, and the message's state. 204: there
/// is none yet.
pub(super) async fn download(
    context: PageRequest,
    Part(id): Part<String>,
    headers: HeaderMap,
) -> Answer {
    let (message, queue) = context.message(&id).await?;
    let state = ListState::of(&message, context.now());
    let (path, scripted) = find(&context, &message, &queue).await?;
    let response = match path {
        Some(path) => files::send(&path, "Log", &headers).await,
        None if scripted => StatusCode::NO_CONTENT.into_response(),
        None => return Err(Problem::not_found()),
    };
    Ok(([(STATE, listing::word(state))], response).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_long_log_begins_with_a_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("stdio.log");
        let line = b"0123456789\n";
        for lines in [0, 1, 7000, 100_000] {
            let all = line.repeat(lines);
            std::fs::write(&path, &all).expect("written");
            let (from, bytes) = end_of(&path).expect("read");
            assert_eq!(from + bytes.len() as u64, all.len() as u64);
            assert!(bytes.len() as u64 <= SHOWN && from % 11 == 0, "{from}");
            assert!(bytes.len() as u64 + 11 > SHOWN.min(all.len() as u64));
        }
        // One line without an end is cut where it must be.
        std::fs::write(&path, vec![b'x'; 100_000]).expect("written");
        assert_eq!(end_of(&path).expect("read").1.len() as u64, SHOWN);
    }
}
