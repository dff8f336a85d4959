//! Clients that come through other nodes of a cluster, as this one's listeners serve them.

use std::sync::Arc;

use quintet_edge::{Edge, LinksByProtocol};
use quintet_http::{Connected, Linked, Links};
use quintet_proxy::line::Tunnel;
use quintet_proxy::{Client, Intake, Stream};
use quintet_tls::Identity;

/// Hands links' clients to the I/O threads and to HTTP.
pub(crate) struct Linking {
    edge: Arc<Edge>,
    /// Links show certificates, or never leave this machine.
    certified: bool,
    /// Those of protocols over HTTP.
    http: LinksByProtocol,
}

impl Linking {
    /// `certified`: links show certificates, or never leave this machine.
    pub(crate) fn new(edge: Arc<Edge>, certified: bool, http: LinksByProtocol) -> Self {
        Self {
            edge,
            certified,
            http,
        }
    }

    /// The way in, if it is a protocol over HTTP.
    fn links(&self, tunnel: &Tunnel) -> Option<&Links> {
        let mut protocols = self.http.iter();
        let (_, links) = protocols.find(|(protocol, _)| *protocol == tunnel.protocol)?;
        Some(links)
    }

    /// The listener's number, if it is an I/O thread's: of those that speak this, the nth.
    fn listener(&self, tunnel: &Tunnel) -> Option<usize> {
        let listeners = self.edge.listeners.iter().enumerate();
        let mut speak = listeners.filter(|(_, listener)| listener.protocol == tunnel.protocol);
        speak.nth(usize::from(tunnel.nth)).map(|(number, _)| number)
    }
}

impl Intake for Linking {
    fn admits(&self, tunnel: &Tunnel) -> Result<bool, String> {
        let serves = match self.links(tunnel) {
            Some(links) => links.serves(usize::from(tunnel.nth)),
            None => self.listener(tunnel).map(|_| true),
        };
        serves.ok_or_else(|| {
            format!(
                "the node that owns the queues has no listener {} for {}: all nodes of a cluster \
                 need the same listeners, in the same order",
                tunnel.nth + 1,
                tunnel.protocol
            )
        })
    }

    fn take(&self, client: Client) {
        let Client { stream, tunnel } = client;
        if let Some(links) = self.links(&tunnel) {
            let stream = match stream {
                Stream::Tcp(stream) => Connected::Tcp(stream),
                Stream::Unix(stream) => Connected::Unix(stream),
            };
            let identity = identity(&tunnel).filter(|_| self.certified);
            let peer = tunnel.peer;
            let linked = Linked {
                stream,
                peer,
                identity,
                known: None,
                counted: None,
            };
            links.take(usize::from(tunnel.nth), linked);
            return;
        }
        let Some(listener) = self.listener(&tunnel) else {
            return;
        };
        // Over a link that nobody certifies, anybody could say so.
        let identity = identity(&tunnel).filter(|_| self.certified);
        let stream = match stream {
            Stream::Tcp(stream) => stream.into(),
            Stream::Unix(stream) => stream.into(),
        };
        self.edge.bring(stream, tunnel.peer, listener, identity);
    }
}

/// The client's identity by the certificate it has shown to the node it came through.
fn identity(tunnel: &Tunnel) -> Option<Arc<Identity>> {
    Identity::from_text(&tunnel.principal).map(Arc::new)
}
