//! The test kit under the name that all test programs of the server use.

#![allow(unused_imports, reason = "each test program uses its part")]

pub(crate) use quintet_testkit::http::Reply;
pub(crate) use quintet_testkit::*;

/// The status and body of a page of the server's http listener.
#[allow(dead_code, reason = "each test program uses its part")]
pub(crate) fn page(server: &Server, path: &str) -> (u16, String) {
    let reply = server.ask(&format!("GET {path}"), "", "");
    (reply.status, reply.body)
}

/// A reply with its head; `headers` end in CRLF each.
#[allow(dead_code, reason = "each test program uses its part")]
pub(crate) fn whole_page(server: &Server, path: &str, headers: &str) -> String {
    let reply = server.ask(&format!("GET {path}"), headers, "");
    format!("{}\r\n\r\n{}", reply.head, reply.body)
}
