//! A question to the servers.

use std::time::Duration;

use async_nats::{Client, HeaderMap, Request, connection::State};
use bytes::Bytes;

/// How long an answer is waited for. Who asks asks again.
pub(crate) const ANSWER: Duration = Duration::from_secs(1);

/// The reply to a question, which has this header. `None`: there was none in time, or nobody to give it.
pub(crate) async fn ask(
    client: &Client,
    subject: String,
    payload: Bytes,
    header: Option<(&'static str, u64)>,
    within: Duration,
) -> Option<Bytes> {
    if client.connection_state() != State::Connected {
        return None;
    }
    let mut request = Request::new().payload(payload).timeout(Some(within));
    if let Some((name, value)) = header {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.to_string().as_str());
        request = request.headers(headers);
    }
    let reply = client.send_request(subject, request).await.ok()?;
    Some(reply.payload)
}
