//! Replies that count as memory until they have left.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame, SizeHint};
use quintet_client::Share;

use crate::payer::FREE_BYTES;
use crate::reply::Problem;
use crate::settings::Settings;

/// So much is handed over at a time, bytes: what is on its way to the socket
/// is no longer counted.
const PIECE: usize = 32 << 10;

/// A reply in memory, sent in pieces.
struct MemoryBody {
    bytes: Bytes,
    _share: Option<Share>,
}

impl hyper::body::Body for MemoryBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.bytes.is_empty() {
            return Poll::Ready(None);
        }
        let len = self.bytes.len().min(PIECE);
        Poll::Ready(Some(Ok(Frame::data(self.bytes.split_to(len)))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}

/// Takes memory for so many bytes of a reply, of the memory that all connections share. `None`: the
/// reply is too short to count, or nothing bounds the memory.
///
/// # Errors
/// There is no room.
pub fn room(settings: &Settings, bytes: u64) -> Result<Option<Share>, Problem> {
    let memory = settings.memory.as_ref().filter(|_| bytes > FREE_BYTES);
    let share = memory.map(|memory| memory.take(bytes).ok_or(Problem::NoMemory));
    share.transpose()
}

/// The body of a reply that holds its share of the memory until it has left.
pub fn body(bytes: Bytes, share: Option<Share>) -> Body {
    Body::new(MemoryBody {
        bytes,
        _share: share,
    })
}

/// Counts a reply that is in memory as a whole, if it is long; one that there
/// is no room for becomes an error. What is read from files while it is sent
/// has no size beforehand and passes.
pub async fn count(response: Response, settings: &Settings) -> Response {
    let len = response.body().size_hint().exact().unwrap_or(0);
    let share = match room(settings, len) {
        Ok(None) => return response,
        Ok(share) => share,
        Err(problem) => return problem.into_response(),
    };
    let (head, whole) = response.into_parts();
    match whole.collect().await {
        Ok(collected) => Response::from_parts(head, body(collected.to_bytes(), share)),
        Err(error) => Problem::internal(format!("the reply failed: {error}")).into_response(),
    }
}
