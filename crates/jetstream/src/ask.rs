//! A question to the servers.

use std::time::Duration;

use async_nats::{Client, Request, connection::State};
use bytes::Bytes;

/// How long an answer is waited for. Who asks asks again.
pub(crate) const ANSWER: Duration = Duration::from_secs(1);
/// The reply to a question. `None`: there was none in time, or nobody to give it.
pub(crate) async fn ask(
    client: &Client,
    subject: String,
    payload: Bytes,
    within: Duration,
) -> Option<Bytes> {
    if client.connection_state() != State::Connected {
        return None;
    }
    let request = Request::new().payload(payload).timeout(Some(within));
    let reply = client.send_request(subject, request).await.ok()?;
    Some(reply.payload)
}
