//! `/api/v1` on the control socket: who speaks HTTP there is handed on by the I/O threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result};
use mio::Registry;
use quintet_config::RESERVE;
use quintet_http::{Known, Limits, Linked, Links, Serve, Settings, Socket, Web};
use quintet_types::Principal;
use quintet_web::Site;

use crate::desk::ServerDoor;
use crate::io::Stream;
use crate::server::Server;
use crate::trust::HttpGate;

/// The name of its thread.
const NAME: &str = "api";

/// Event streams at once.
const STREAMS_MAX: usize = 16;

const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\n\
    Content-Length: 49\r\nRetry-After: 1\r\nConnection: close\r\n\r\n\
    503 - too many connections on the control socket\n";

/// The way in for connections of the control socket.
pub(crate) struct Control {
    links: Links,
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
    /// Serves the connections of a server from now on.
    ///
    /// # Errors
    /// The system has no thread or file to give.
    pub(crate) fn start(server: &Arc<Server>) -> Result<Web> {
        let at = server.listeners.iter().find(|listener| listener.api);
        let settings = Settings {
            gate: Some(HttpGate::of_account(server, None)),
            memory: Some(Arc::clone(&server.connection_memory)),
            stream_counts: Arc::clone(&server.http.streams),
            clients: Arc::clone(&server.http.clients),
            address: at.map(|at| at.address.as_str()).unwrap_or_default().into(),
            limits: Limits {
                connections_max: usize::try_from(RESERVE).unwrap_or(usize::MAX),
                apart_max: 0,
                streams_max: STREAMS_MAX,
                ..Limits::default()
            },
            ..Settings::default()
        };
        let door = Arc::new(ServerDoor(Arc::clone(server)));
        let site: Arc<dyn Serve> = Site::of_api(settings, door);
        let web = Web::start(NAME, 1, vec![(Socket::Elsewhere, site)]);
        let web = web.context("cannot serve the API on the control socket")?;
        let control = Self {
            links: web.links(),
            open: Arc::default(),
        };
        // Nobody else sets it.
        let _first = server.control.set(control);
        Ok(web)
    }
}

impl Server {
    /// Hands on a connection whose client speaks HTTP; it is closed if there are too many.
    pub(crate) fn hand_to_api(
        self: &Arc<Self>,
        stream: &mut Stream,
        principal: Principal,
        registry: &Registry,
    ) {
        let Some(control) = self.control.get() else {
            return;
        };
        let open = Open(Arc::clone(&control.open));
        if open.0.fetch_add(1, Ordering::Relaxed) >= RESERVE {
            stream.last_word(FULL);
            return;
        }
        let known = (principal != Principal::ANONYMOUS).then(|| Known {
            principal,
            gate: HttpGate::of_account(self, stream.account()),
        });
        match stream.hand_on(registry) {
            Ok(stream) => control.links.take(
                0,
                Linked {
                    stream,
                    peer: None,
                    identity: None,
                    known,
                    counted: Some(Box::new(open)),
                },
            ),
            Err(error) => tracing::warn!("cannot hand on a connection: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_as_long_as_it_says() {
        let text = FULL.split(|&byte| byte == b'\n').rev().nth(1);
        assert_eq!(text.map(|text| text.len() + 1), Some(49));
    }
}
