//! Requests of random pieces: each has an answer or an end, never a 500, and
//! the next one is served.

use crate::common;

use std::io::{Read as _, Write as _};

use common::World;

/// Pieces that requests are made of.
const PIECES: &[&[u8]] = &[
    b"GET ",
    b"POST ",
    b"/q/test/new_message",
    b"/q/test/20091109.0558.57.780.1/attach/new",
    b"/search?name=test&query[a]=",
    b"//q//test.txt",
    b" HTTP/1.1\r\n",
    b" HTTP/1.0\r\n",
    b"host: localhost\r\n",
    b"content-length: 10\r\n",
    b"content-length: 99999999999999999999\r\n",
    b"transfer-encoding: chunked\r\n",
    b"content-type: multipart/form-data; boundary=b\r\n",
    b"content-type: application/json\r\n",
    b"range: bytes=-\r\n",
    b"authorization: Basic ????\r\n",
    b"\r\n",
    b"\r\n\r\n",
    b"--b\r\nContent-Disposition: form-data; name=\"filedata\"; filename=\"a\"\r\n\r\n",
    b"--b--\r\n",
    b"mesg={\"param1\":\"x\"}",
    b"mesg[param1]=%ff&mesg[][]=1",
    b"{\"due\":1e400}",
    b"5\r\nhello\r\n0\r\n\r\n",
    b"\xff\x00\x80",
];

#[test]
fn requests_of_random_pieces() {
    let world = World::new();
    world.paused_queue("test");
    let mut dice = 42u64;
    let mut roll = |sides: usize| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (dice >> 33) as usize % sides
    };
    for _ in 0..400 {
        let mut request = Vec::new();
        for _ in 0..1 + roll(12) {
            request.extend_from_slice(PIECES[roll(PIECES.len())]);
        }
        let mut stream = world.connect();
        // It may have had enough before the end.
        let _cut = stream.write_all(&request);
        let _cut = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _reset = stream.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer);
        let request = String::from_utf8_lossy(&request);
        assert!(!text.starts_with("HTTP/1.1 5"), "{request}\n=> {text}");
    }
    assert_eq!(world.get("/healthz").text(), "ok");
    assert!(world.get("/q/test.txt").text().starts_with("status: PAUSE"));
}
