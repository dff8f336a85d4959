//! A message's body as a file to be kept, of any length, a piece at a time.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use hyper::header::{
    CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue,
};
use quintet_door::Door;
use quintet_types::MessageId;

/// Bytes read at once.
const PIECE: usize = 64 << 10;

/// The reply that streams it. A browser keeps it and never shows it.
pub fn response(door: Arc<dyn Door>, id: MessageId, body: quintet_types::Body) -> Response {
    let len = body.len();
    let stream = futures_util::stream::unfold(0, move |from: u64| {
        let (door, body) = (Arc::clone(&door), body.clone());
        async move {
            if from >= body.len() {
                return None;
            }
            let read = tokio::task::spawn_blocking(move || {
                let mut piece = vec![0; PIECE];
                let read = door.read(&body, from, &mut piece)?;
                if read == 0 {
                    return Err(std::io::ErrorKind::UnexpectedEof.into());
                }
                piece.truncate(read);
                Ok(piece)
            });
            let piece = read
                .await
                .unwrap_or_else(|error| Err(std::io::Error::other(error)));
            let next = piece
                .as_ref()
                .map_or(u64::MAX, |piece| from + piece.len() as u64);
            Some((piece, next))
        }
    });
    let mut response = Response::new(Body::from_stream(stream));
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    headers.insert(
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; sandbox"),
    );
    headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
    let name = format!("attachment; filename=\"message-{}.bin\"", id.0);
    if let Ok(name) = HeaderValue::from_str(&name) {
        headers.insert(CONTENT_DISPOSITION, name);
    }
    response
}
