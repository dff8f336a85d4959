//! Clients that come through other nodes of a cluster, as this one's listeners serve them.

use std::sync::Arc;

use quintet_edge::{Edge, ForwardingByProtocol};
use quintet_http::{Connected, ForwardedConnection, Forwarding};
use quintet_proxy::line::Tunnel;
use quintet_proxy::{Client, Intake, Stream};
use quintet_tls::Identity;

/// Hands the clients of peer connections to the I/O threads and to HTTP.
pub(crate) struct PeerIntake {
    edge: Arc<Edge>,
    /// Peer connections show certificates, or never leave this machine.
    certified: bool,
    /// Those of protocols over HTTP.
    http: ForwardingByProtocol,
}

impl PeerIntake {
    /// `certified`: peer connections show certificates, or never leave this machine.
    pub(crate) fn new(edge: Arc<Edge>, certified: bool, http: ForwardingByProtocol) -> Self {
        Self {
            edge,
            certified,
            http,
        }
    }

    /// The way in, if it is a protocol over HTTP.
    fn forwarding(&self, tunnel: &Tunnel) -> Option<&Forwarding> {
        let mut protocols = self.http.iter();
        let (_, forwarding) = protocols.find(|(protocol, _)| *protocol == tunnel.protocol)?;
        Some(forwarding)
    }

    /// The listener's number, if it is an I/O thread's: of those that speak this, the nth.
    fn listener(&self, tunnel: &Tunnel) -> Option<usize> {
        let listeners = self.edge.listeners.iter().enumerate();
        let mut speak = listeners.filter(|(_, listener)| listener.protocol == tunnel.protocol);
        speak.nth(usize::from(tunnel.nth)).map(|(number, _)| number)
    }
}

impl Intake for PeerIntake {
    fn admits(&self, tunnel: &Tunnel) -> Result<bool, String> {
        let serves = match self.forwarding(tunnel) {
            Some(forwarding) => forwarding.serves(usize::from(tunnel.nth)),
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
        if let Some(forwarding) = self.forwarding(&tunnel) {
            let stream = match stream {
                Stream::Tcp(stream) => Connected::Tcp(stream),
                Stream::Unix(stream) => Connected::Unix(stream),
            };
            let identity = identity(&tunnel).filter(|_| self.certified);
            let peer = tunnel.peer;
            let forwarded = ForwardedConnection {
                stream,
                peer,
                identity,
                known: None,
                counted: None,
            };
            forwarding.take(usize::from(tunnel.nth), forwarded);
            return;
        }
        let Some(listener) = self.listener(&tunnel) else {
            return;
        };
        // Over a peer connection without certificates, anybody could say so.
        let identity = identity(&tunnel).filter(|_| self.certified);
        self.edge
            .bring(socket(stream), tunnel.peer, listener, identity);
    }

    fn adopt(&self, client: Client) {
        match self.listener(&client.tunnel) {
            Some(listener) => self.edge.adopt(socket(client.stream), listener),
            None => self.take(client),
        }
    }
}

/// A client's socket, as I/O threads have it.
fn socket(stream: Stream) -> quintet_edge::Stream {
    match stream {
        Stream::Tcp(stream) => stream.into(),
        Stream::Unix(stream) => stream.into(),
    }
}

/// The client's identity by the certificate it has shown to the node it came through.
fn identity(tunnel: &Tunnel) -> Option<Arc<Identity>> {
    Identity::from_text(&tunnel.principal).map(Arc::new)
}
