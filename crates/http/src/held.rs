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
struct Held {
    bytes: Bytes,
    _share: Share,
}

impl hyper::body::Body for Held {
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

/// Counts a reply that is in memory as a whole, if it is long; one that there
/// is no room for becomes an error. What is read from files while it is sent
/// has no size beforehand and passes.
pub async fn count(response: Response, settings: &Settings) -> Response {
    let Some(memory) = &settings.memory else {
        return response;
    };
    let len = response.body().size_hint().exact().unwrap_or(0);
    if len <= FREE_BYTES {
        return response;
    }
    let Some(share) = memory.take(len) else {
        return Problem::NoMemory.into_response();
    };
    let (head, body) = response.into_parts();
    match body.collect().await {
        Ok(body) => {
            let bytes = body.to_bytes();
            let held = Held {
                bytes,
                _share: share,
            };
            Response::from_parts(head, Body::new(held))
        }
        Err(error) => Problem::internal(format!("the reply failed: {error}")).into_response(),
    }
}
