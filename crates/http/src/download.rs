//! Bodies of messages as they are, of any length, a piece at a time.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use hyper::header::{
    CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue,
};
use quintet_client::{ClientApi, Share};
use quintet_types::MessageId;

use crate::workers;

/// Bytes read at once.
const PIECE: usize = 64 << 10;

/// The reply that streams bodies one behind the other; it holds `share`, the memory of those that
/// are in memory, until it has left.
pub fn joined(
    client_api: Arc<dyn ClientApi>,
    bodies: Vec<quintet_types::Body>,
    share: Option<Share>,
) -> Response {
    let len: u64 = bodies.iter().map(quintet_types::Body::len).sum();
    let bodies = VecDeque::from(bodies);
    let stream =
        futures_util::stream::unfold((bodies, 0, share), move |(mut bodies, from, share)| {
            let client_api = Arc::clone(&client_api);
            async move {
                let body = bodies.front()?.clone();
                if let quintet_types::Body::Small(bytes) = &body {
                    let start = usize::try_from(from).unwrap_or(usize::MAX);
                    let rest = bytes.get(start..).unwrap_or_default();
                    let piece = rest[..rest.len().min(PIECE)].to_vec();
                    let next = match piece.len() == rest.len() {
                        true => {
                            bodies.pop_front();
                            0
                        }
                        false => from + piece.len() as u64,
                    };
                    return Some((Ok(piece), (bodies, next, share)));
                }
                let len = body.len();
                let read = workers::run(move || {
                    let mut piece = vec![0; PIECE];
                    let read = client_api.read(&body, from, &mut piece)?;
                    if read == 0 {
                        return Err(std::io::ErrorKind::UnexpectedEof.into());
                    }
                    piece.truncate(read);
                    Ok(piece)
                });
                let piece = read.await.unwrap_or_else(Err);
                let mut next = from;
                match &piece {
                    Ok(piece) => next += piece.len() as u64,
                    Err(_) => bodies.clear(),
                }
                if next >= len {
                    bodies.pop_front();
                    next = 0;
                }
                Some((piece, (bodies, next, share)))
            }
        });
    let headers = [
        (CONTENT_TYPE, "application/octet-stream"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox"),
    ];
    let mut response = (headers, Body::from_stream(stream)).into_response();
    (response.headers_mut()).insert(CONTENT_LENGTH, HeaderValue::from(len));
    response
}

/// The reply that streams a message's body. A browser keeps it and never shows it.
pub fn response(
    client_api: Arc<dyn ClientApi>,
    id: MessageId,
    body: quintet_types::Body,
) -> Response {
    let name = format!("attachment; filename=\"message-{}.bin\"", id.0);
    let response = joined(client_api, vec![body], None);
    ([(CONTENT_DISPOSITION, name)], response).into_response()
}
