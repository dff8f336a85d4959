//! HTTP, one request to a connection.

use std::io;

use serde_json::Value;

use crate::connection::{Connection, wrong};
use crate::text;

/// The header of a JSON document.
pub const JSON: &str = "content-type: application/json\r\n";
/// The header of a form as a browser sends it.
pub const FORM: &str = "content-type: application/x-www-form-urlencoded\r\n";

/// A whole reply.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    /// With its first line.
    pub head: String,
    pub body: String,
}

impl Reply {
    /// The value of a header, by its name in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = lines.find(|(known, _)| known.eq_ignore_ascii_case(name))?;
        Some(value.trim())
    }

    /// The document; null if the body is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

/// A request like `GET /path`; `headers` end in CR LF each. The server closes behind the reply.
///
/// # Errors
/// No reply, or half a one.
pub fn ask(
    mut connection: Connection,
    what: &str,
    headers: &str,
    body: &[u8],
) -> io::Result<Reply> {
    let (head, len) = (
        "HTTP/1.1\r\nhost: localhost\r\nconnection: close",
        body.len(),
    );
    let request = format!("{what} {head}\r\ncontent-length: {len}\r\n{headers}\r\n");
    connection.send(&[request.as_bytes(), body].concat())?;
    let mut reply = read(&mut connection)?;
    while connection.more()? > 0 {}
    let rest = connection.rest();
    match reply.header("content-length") {
        Some(_) if rest.is_empty() => Ok(reply),
        Some(_) => Err(wrong(&text(&rest))),
        None => {
            reply.body = text(&rest);
            Ok(reply)
        }
    }
}

/// Reads a reply of as many bytes as it says.
///
/// # Errors
/// No reply, or half a one.
pub fn read(connection: &mut Connection) -> io::Result<Reply> {
    let head = text(&connection.before(b"\r\n\r\n")?);
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    let mut reply = Reply {
        status: status.ok_or_else(|| wrong(&head))?,
        head,
        body: String::new(),
    };
    if let Some(len) = reply.header("content-length") {
        reply.body = text(&connection.body(len, b"")?);
    }
    Ok(reply)
}
