//! Asking `/api/v1`: on the control socket, or over HTTPS with `--server https://HOST:PORT`.

use std::io::{Read as _, Write as _};

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::Where;
use super::client::{Client, Refused};
use super::remote::of_server;

/// Bytes of a reply that are read.
const REPLY_MAX: u64 = 64 << 20;

const PART: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// A part of an address.
pub(super) fn part(text: &str) -> String {
    utf8_percent_encode(text, PART).to_string()
}

impl Where {
    /// Sends a request of the API and reads its reply; null: it has no body. `path` begins behind
    /// `/api/v1`.
    ///
    /// # Errors
    /// The server's no, as [`Refused`], or there is no server.
    pub(super) fn api(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let (mut stream, host) = match &self.server {
            None => (Client::socket(self)?, "localhost"),
            Some(server) => {
                let host = server.strip_prefix("https://").with_context(|| {
                    format!(
                        "--server {server}: this command speaks HTTP, so write \
                         https://HOST:PORT of a listener \"http\" with TLS"
                    )
                })?;
                let host = host.trim_end_matches('/');
                (self.remote(&format!("tls://{host}"))?, host)
            }
        };
        let body = body.map(Value::to_string).unwrap_or_default();
        // The server closes behind its reply.
        let mut request = format!("{method} /api/v1{path} HTTP/1.0\r\nHost: {host}\r\n");
        if let Some(login) = self.login()? {
            let text = |name: &str| login["login"][name].as_str().unwrap_or_default();
            let shown = BASE64_STANDARD.encode(format!("{}:{}", text("name"), text("secret")));
            request.push_str(&format!("Authorization: Basic {shown}\r\n"));
        }
        if !body.is_empty() {
            request.push_str("Content-Type: application/json\r\n");
        }
        let request = format!("{request}Content-Length: {}\r\n\r\n{body}", body.len());
        let sent = stream.write_all(request.as_bytes()).map_err(of_server);
        let mut reply = Vec::new();
        // A refusal may come before all was sent.
        let read = stream.take(REPLY_MAX).read_to_end(&mut reply);
        if reply.is_empty() {
            sent.and(read.map(drop))
                .context("the server closed the connection")?;
            bail!("the server closed the connection: it is stopping, or has too many");
        }
        let (status, body) = parsed(&reply).context("the server is of another version")?;
        let told = serde_json::from_slice(body).unwrap_or(Value::Null);
        if status < 400 {
            return Ok(told);
        }
        let text = |name: &str| told[name].as_str().map(str::to_owned);
        let whole = || String::from_utf8_lossy(body).trim().to_owned();
        Err(anyhow::Error::new(Refused {
            code: text("code").unwrap_or_default(),
            text: text("detail").unwrap_or_else(whole),
        }))
    }
}

/// The status and the body of a whole reply.
fn parsed(reply: &[u8]) -> Option<(u16, &[u8])> {
    let end = reply.windows(4).position(|four| four == b"\r\n\r\n")?;
    let (head, body) = (std::str::from_utf8(&reply[..end]).ok()?, &reply[end + 4..]);
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let mut headers = lines.filter_map(|line| line.split_once(':'));
    let length = headers.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|(_, length)| length.trim().parse().ok());
    (length.is_none_or(|length: usize| length == body.len())).then_some((status, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_read_whole_or_not_at_all() {
        let reply = b"HTTP/1.0 409 Conflict\r\nContent-Length: 2\r\na: b\r\n\r\n{}";
        assert_eq!(parsed(reply), Some((409, &b"{}"[..])));
        assert_eq!(parsed(&reply[..reply.len() - 1]), None);
        assert_eq!(parsed(b"HTTP/1.0 204 None\r\n\r\n"), Some((204, &b""[..])));
        assert_eq!(parsed(b"{\"error\": \"bad request\"}\n"), None);
        assert_eq!(part("a b/ü?\""), "a%20b%2F%C3%BC%3F%22");
    }
}
