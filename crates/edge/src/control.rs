//! `/api/v1` on the control socket: who speaks HTTP there is handed on by the I/O threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mio::Registry;
use quintet_config::{RESERVE, control};
use quintet_http::{AuthenticatedClient, ForwardedConnection, Forwarding, Web};
use quintet_types::{CommandError, LargeBody, Principal};
use quintet_wire::{
    ClientRequest, Env, HookReply, Listener, Next, Output, Protocol, ServerResponse, Session, Step,
};

use crate::auth::{HttpGate, Security};
use crate::io::Stream;

/// Connections at most: 32 more than the listener has places. It keeps 16 of them for requests
/// about its health; for the next ones silent connections make way, so commands are served.
const OPEN_MAX: u64 = RESERVE + 32;

const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\n\
    Content-Length: 49\r\nRetry-After: 1\r\nConnection: close\r\n\r\n\
    503 - too many connections on the control socket\n";

/// The protocol of the control socket for clients that do not speak HTTP: an error, and the end.
pub const CONTROL: Protocol = Protocol {
    name: control::NAME,
    port: 0,
    about: "",
    options: &[],
    tally_names: &[],
    listener: |_| Ok(Box::new(NotHttp)),
};

const NOT_HTTP: &[u8] =
    b"{\"error\": \"this socket speaks HTTP: use the command line of the server's version\"}\n";

struct NotHttp;

impl Listener for NotHttp {
    fn open(&self) -> Box<dyn Session> {
        Box::new(Self)
    }
}

impl Session for NotHttp {
    fn decode(&mut self, input: &[u8], _: &Env<'_>) -> Step {
        match input.len() {
            0 => Step::More,
            used => Step::ClientRequest {
                used,
                ask: ClientRequest::Close,
            },
        }
    }

    fn encode(&mut self, _: &ServerResponse, _: &Env<'_>, output: &mut Output) -> Next {
        output.put(NOT_HTTP);
        Next::Close
    }

    fn say(&mut self, _: HookReply<'_>, _: &mut Output) -> Next {
        Next::Close
    }

    fn says_no(&self, _: &[u8]) -> bool {
        true
    }

    fn is_as_opened(&self) -> bool {
        false
    }

    fn streamed(&mut self, _: Result<LargeBody, CommandError>) {}
}

/// The way in for connections of the control socket.
pub struct Control {
    forwarding: Forwarding,
    open: Arc<AtomicU64>,
}

/// A connection, until it ends.
struct Open(Arc<AtomicU64>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Control {
    /// Hands connections on to the first site of `web`.
    pub fn new(web: &Web) -> Self {
        Self {
            forwarding: web.forwarding(),
            open: Arc::default(),
        }
    }

    /// Hands on a connection whose client speaks HTTP; it is closed if there are too many.
    pub fn hand_on(
        &self,
        security: &Arc<Security>,
        stream: &mut Stream,
        principal: Principal,
        registry: &Registry,
    ) {
        let open = Open(Arc::clone(&self.open));
        if open.0.fetch_add(1, Ordering::Relaxed) >= OPEN_MAX {
            stream.last_word(FULL);
            return;
        }
        let known = (principal != Principal::ANONYMOUS).then(|| AuthenticatedClient {
            principal,
            gate: HttpGate::of_account(security, stream.account()),
        });
        match stream.hand_on(registry) {
            Ok(stream) => self.forwarding.take(
                0,
                ForwardedConnection {
                    stream,
                    peer: None,
                    identity: None,
                    known,
                    counted: Some(Box::new(open)),
                },
            ),
            Err(error) => tracing::warn!("cannot pass on a connection: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_has_its_announced_length() {
        let text = FULL.split(|&byte| byte == b'\n').rev().nth(1);
        assert_eq!(text.map(|text| text.len() + 1), Some(49));
    }
}
