//! Replies that are streams of server-sent events, and their places.

use axum::body::Body;
use axum::response::Response;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use quintet_client::Share;
use quintet_http::{ConnectionSlot, OpenStream};
use tokio::sync::OwnedSemaphorePermit;

use super::Api;
use super::problem::Problem;

/// Queues of one stream.
pub(super) const QUEUES_MAX: usize = 100;

/// Share of a stream in the memory for connections.
const STREAM_BYTES: u64 = 64 << 10;

/// A reply of server-sent events.
pub(super) fn streamed(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // Its place is given away: nothing comes behind it.
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// A stream's place among the others, and its memory, until it is over.
pub(super) struct StreamPlace {
    _place: OwnedSemaphorePermit,
    _share: Option<Share>,
}

impl StreamPlace {
    /// Streams are counted for themselves: the connection gives its own place away.
    pub(super) fn open(&self, api: &Api, connection_slot: Option<&ConnectionSlot>) -> OpenStream {
        if let Some(connection_slot) = connection_slot {
            connection_slot.gives_place();
        }
        OpenStream::new(&api.app.settings().stream_counts)
    }
}

impl Api {
    /// A place for a stream.
    ///
    /// # Errors
    /// There are too many, or there is no memory; that is counted.
    pub(super) fn stream_place(&self) -> Result<StreamPlace, Problem> {
        let settings = self.app.settings();
        let refused = |problem| {
            settings.stream_counts.refuse();
            problem
        };
        let most = settings.limits.streams_max;
        let place = self.events.place();
        let place = place.ok_or_else(|| refused(Problem::too_many_streams(most)))?;
        let room = self.room(STREAM_BYTES);
        Ok(StreamPlace {
            _place: place,
            _share: room.map_err(refused)?,
        })
    }
}
