//! Files out: whole or a range of bytes, in pieces, never whole in memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use hyper::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    HeaderValue, IF_RANGE, RANGE,
};
use hyper::{HeaderMap, StatusCode};

use crate::range::{Part, part};
use crate::reply::{Problem, plain};
use crate::workers;

/// Bytes read of a file at a time.
const PIECE: usize = 64 << 10;

/// Sends the file at `path`; `what` is how RQ names it in a 404. The length is
/// that of the moment: a file that grows is requested again from there on.
pub async fn send(path: &Path, what: &str, headers: &HeaderMap) -> Response {
    match open(path, headers).await {
        Ok(response) => response,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Problem::not_found(what).into_response()
        }
        Err(error) => Problem::internal(format!("cannot read {what}: {error}")).into_response(),
    }
}

async fn open(path: &Path, headers: &HeaderMap) -> io::Result<Response> {
    let name = path.to_owned();
    let opened = workers::run(move || {
        let file = File::open(name)?;
        let about = file.metadata()?;
        Ok::<_, io::Error>((file, about))
    });
    let (file, about) = opened.await??;
    if !about.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let len = about.len();
    // No validator is ever sent, so a condition on one does not hold.
    let range = headers
        .get(RANGE)
        .filter(|_| !headers.contains_key(IF_RANGE));
    let (status, from, to) = match part(range.and_then(|range| range.to_str().ok()), len) {
        Part::Whole => (StatusCode::OK, 0, len),
        Part::Bytes(from, to) => (StatusCode::PARTIAL_CONTENT, from, to),
        Part::None => {
            let mut response = plain(
                StatusCode::RANGE_NOT_SATISFIABLE,
                format!("416 - the file has {len} bytes"),
            );
            set(&mut response, CONTENT_RANGE, &format!("bytes */{len}"));
            return Ok(response);
        }
    };
    let pieces = futures_util::stream::try_unfold((file, from), move |(file, from)| async move {
        let len = usize::try_from(to - from).map_or(PIECE, |left| left.min(PIECE));
        let read = workers::run(move || {
            let mut piece = vec![0; len];
            file.read_exact_at(&mut piece, from)?;
            Ok::<_, io::Error>((piece, (file, from + len as u64)))
        });
        match len {
            0 => Ok(None),
            _ => read.await?.map(Some),
        }
    });
    let mut response = Response::new(Body::from_stream(pieces));
    *response.status_mut() = status;
    set(&mut response, CONTENT_LENGTH, &(to - from).to_string());
    set(&mut response, ACCEPT_RANGES, "bytes");
    set(&mut response, CONTENT_TYPE, content_type(path));
    // What somebody attached must not act as a page of this server.
    set(
        &mut response,
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; sandbox",
    );
    if status == StatusCode::PARTIAL_CONTENT {
        let range = format!("bytes {from}-{}/{len}", to.saturating_sub(1));
        set(&mut response, CONTENT_RANGE, &range);
    }
    Ok(response)
}

fn set(response: &mut Response, name: hyper::header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// Text is shown as text, whatever language it is in; pictures as pictures; the
/// rest is kept.
fn content_type(path: &Path) -> &'static str {
    let name = path
        .extension()
        .and_then(|e| e.to_str())
        .unwrap_or_default();
    match name.to_ascii_lowercase().as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "pdf" => "application/pdf",
        "txt" | "log" | "md" | "csv" | "tsv" | "json" | "xml" | "yml" | "yaml" | "toml"
        | "html" | "htm" | "css" | "js" | "sh" | "rb" | "py" | "pl" | "lua" | "sql" | "conf"
        | "ini" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}
