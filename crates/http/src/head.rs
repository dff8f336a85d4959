//! The head of a request as a whole.

use hyper::body::Incoming;
use hyper::header::HOST;
use hyper::{Request, StatusCode, Version};

use crate::reply::Problem;

/// Bytes beyond the longest head that are read to see that it is longer.
pub(crate) const HEAD_SLACK: usize = 8 << 10;

/// The error in a head as a whole.
pub(crate) fn wrong_head(request: &Request<Incoming>, max: usize) -> Option<Problem> {
    let headers = request.headers();
    if headers.get_all(HOST).iter().nth(1).is_some() {
        return Some(Problem::bad("a request has one Host line"));
    }
    if request.version() == Version::HTTP_11 && !headers.contains_key(HOST) {
        return Some(Problem::bad("a request of HTTP/1.1 has a Host line"));
    }
    let uri = request.uri();
    let target = uri
        .path_and_query()
        .map_or(0, |target| target.as_str().len());
    let before = uri.authority().zip(uri.scheme_str());
    let before = before.map_or(0, |(host, scheme)| host.as_str().len() + scheme.len() + 3);
    let line = request.method().as_str().len() + before + target + "  HTTP/1.1\r\n".len();
    let fields = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 4);
    let bytes = line + fields.sum::<usize>() + 2;
    (bytes > max).then(|| {
        let text = format!("the head of a request has at most {max} bytes (max_header)");
        Problem::with_text(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, text)
    })
}
