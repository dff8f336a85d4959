//! A question to the servers.

use std::time::{Duration, Instant};

use async_nats::{HeaderMap, Request};
use bytes::Bytes;

use crate::{api, line::Line};

/// The reply to a question, which has this header. `None`: there was none in time, or nobody to
/// give it.
pub(crate) async fn ask(
    line: &Line,
    subject: String,
    payload: Bytes,
    header: Option<(&'static str, u64)>,
    within: Duration,
) -> Option<Bytes> {
    if !line.is_connected() {
        return None;
    }
    let mut request = Request::new().payload(payload).timeout(Some(within));
    if let Some((name, value)) = header {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.to_string().as_str());
        request = request.headers(headers);
    }
    line.silence().note_request(Instant::now());
    // Others are also answered by a leader that its peers cannot reach.
    let tells = subject == line.question;
    let reply = line.client.send_request(subject, request).await.ok()?;
    if tells && api::is_led(&reply.payload) {
        line.silence().answered();
    }
    Some(reply.payload)
}
