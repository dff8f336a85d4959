//! Reading an object by direct reads, which any replica answers.
//!
//! The library reads by a consumer, which was silent for 18 to 39 s after its leader was killed,
//! and once for longer than a minute: far beyond what the servers need for another leader.

use std::{
    io,
    time::{Duration, Instant},
};

use async_nats::jetstream::{
    object_store::ObjectInfo,
    stream::{
        DirectGetError, DirectGetErrorKind, LastRawMessageError, LastRawMessageErrorKind, Stream,
    },
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE};
use bytes::Bytes;
use futures_util::TryFutureExt as _;
use quintet_log::StorageFile;
use sha2::{Digest as _, Sha256};
use tokio::time::{sleep, timeout};

/// How long one replica is waited for. Another is asked next.
const ANSWER: Duration = Duration::from_secs(2);
/// How long nobody is asked who just could not answer.
const AGAIN: Duration = Duration::from_millis(100);
/// How long nothing may come. Servers that elect a leader take up to ten seconds; reads need none,
/// but a question to a server that just died is lost with it.
const SILENCE: Duration = Duration::from_secs(40);

/// Where an object of a bucket is.
pub(crate) struct Place<'a> {
    pub(crate) stream: &'a Stream,
    /// Of what describes the object.
    pub(crate) subject: &'a str,
    /// Of its pieces, but for their last token.
    pub(crate) pieces: &'a str,
}

/// Writes an object to a file, from its beginning; false: there is none.
///
/// # Errors
/// `InvalidData`: what came is not what was stored, or pieces are missing; asked again it may be,
/// as the object may have gone meanwhile. Others: nobody answered, or the file cannot be written.
/// The file may hold anything.
pub(crate) async fn fetch(place: Place<'_>, to: &dyn StorageFile) -> io::Result<bool> {
    let Some(info) = described(&place).await? else {
        return Ok(false);
    };
    let pieces = format!("{}.{}", place.pieces, info.nuid);
    to.set_len(0)?;
    let (mut at, mut next) = (0, 1);
    let mut digest = Sha256::new();
    for _ in 0..info.chunks {
        let (seq, piece) = piece(place.stream, &pieces, next).await?;
        digest.update(&piece);
        write_all(to, at, &piece)?;
        (at, next) = (at + piece.len() as u64, seq + 1);
    }
    let sum = BASE64_URL_SAFE.encode(digest.finalize());
    let is_whole = info.digest.as_deref() == Some(&format!("SHA-256={sum}"));
    if at == info.size as u64 && is_whole {
        Ok(true)
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}

fn write_all(to: &dyn StorageFile, mut at: u64, mut rest: &[u8]) -> io::Result<()> {
    while !rest.is_empty() {
        let written = to.write_at(at, rest)?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        at += written as u64;
        rest = &rest[written..];
    }
    Ok(())
}

/// Result of one question.
enum FetchResult<T> {
    This(T),
    /// It is not where it was requested: with a replica, that may be behind.
    Nothing,
    /// Nobody could say.
    Failed(io::Error),
}

/// The description of an object, if there is one.
async fn described(place: &Place<'_>) -> io::Result<Option<ObjectInfo>> {
    let began = Instant::now();
    loop {
        let mut reply = last(place).await;
        if let FetchResult::Nothing = reply {
            reply = confirmed(place).await;
        }
        match reply {
            FetchResult::This(info) => {
                let info: ObjectInfo = serde_json::from_slice(&info)?;
                return Ok((!info.deleted).then_some(info));
            }
            FetchResult::Nothing => return Ok(None),
            FetchResult::Failed(error) if began.elapsed() >= SILENCE => return Err(error),
            FetchResult::Failed(_) => sleep(AGAIN).await,
        }
    }
}

/// Waits for the answer to a question.
async fn once<T, E>(
    request: impl Future<Output = Result<T, E>>,
    is_nothing: impl Fn(&E) -> bool,
) -> FetchResult<T>
where
    E: std::error::Error + Send + Sync + 'static,
{
    match timeout(ANSWER, request).await {
        Ok(Ok(found)) => FetchResult::This(found),
        Ok(Err(error)) if is_nothing(&error) => FetchResult::Nothing,
        Ok(Err(error)) => FetchResult::Failed(io::Error::other(error)),
        Err(late) => FetchResult::Failed(late.into()),
    }
}

fn is_not_found(error: &DirectGetError) -> bool {
    error.kind() == DirectGetErrorKind::NotFound
}

/// A replica's last entry.
async fn last(place: &Place<'_>) -> FetchResult<Bytes> {
    let request = place.stream.direct_get_last_for_subject(place.subject);
    let payload = request.map_ok(|message| message.payload);
    once(payload, is_not_found).await
}

/// The last entry of the leader, which is not behind.
async fn confirmed(place: &Place<'_>) -> FetchResult<Bytes> {
    let request = place.stream.get_last_raw_message_by_subject(place.subject);
    let payload = request.map_ok(|message| message.payload);
    let is_nothing =
        |error: &LastRawMessageError| error.kind() == LastRawMessageErrorKind::NoMessageFound;
    once(payload, is_nothing).await
}

/// The next piece from `next` on, and its sequence.
async fn piece(stream: &Stream, subject: &str, next: u64) -> io::Result<(u64, Bytes)> {
    let began = Instant::now();
    loop {
        let request = stream.direct_get_next_for_subject(subject, Some(next));
        let piece = once(request, is_not_found).await;
        let (error, patience) = match piece {
            FetchResult::This(message) => return Ok((message.sequence, message.payload)),
            // Behind, or the object goes: who asks for what describes it will see.
            FetchResult::Nothing => (io::ErrorKind::InvalidData.into(), 2 * ANSWER),
            FetchResult::Failed(error) => (error, SILENCE),
        };
        if began.elapsed() >= patience {
            return Err(error);
        }
        sleep(AGAIN).await;
    }
}
