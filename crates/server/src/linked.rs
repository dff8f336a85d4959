//! Clients that come through other nodes of a cluster, as this one's listeners serve them.

use std::sync::Arc;

use quintet_edge::{Edge, LinksByProtocol};
use quintet_front::line::Splice;
use quintet_front::{Client, Intake, Stream};
use quintet_http::{Connected, Linked, Links};
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
    fn links(&self, splice: &Splice) -> Option<&Links> {
        let mut protocols = self.http.iter();
        let (_, links) = protocols.find(|(protocol, _)| *protocol == splice.protocol)?;
        Some(links)
    }

    /// The listener's number, if it is an I/O thread's: of those that speak this, the nth.
    fn listener(&self, splice: &Splice) -> Option<usize> {
        let listeners = self.edge.listeners.iter().enumerate();
        let mut speak = listeners.filter(|(_, listener)| listener.protocol == splice.protocol);
        speak.nth(usize::from(splice.nth)).map(|(number, _)| number)
    }
}

impl Intake for Linking {
    fn admits(&self, splice: &Splice) -> Result<bool, String> {
        let serves = match self.links(splice) {
            Some(links) => links.serves(usize::from(splice.nth)),
            None => self.listener(splice).map(|_| true),
        };
        serves.ok_or_else(|| {
            format!(
                "the node that owns the queues has no listener {} for {}: all nodes of a cluster \
                 need the same listeners, in the same order",
                splice.nth + 1,
                splice.protocol
            )
        })
    }

    fn take(&self, client: Client) {
        let Client { stream, splice } = client;
        if let Some(links) = self.links(&splice) {
            let stream = match stream {
                Stream::Tcp(stream) => Connected::Tcp(stream),
                Stream::Unix(stream) => Connected::Unix(stream),
            };
            let identity = identity(&splice).filter(|_| self.certified);
            let peer = splice.peer;
            let linked = Linked {
                stream,
                peer,
                identity,
                known: None,
                counted: None,
            };
            links.take(usize::from(splice.nth), linked);
            return;
        }
        let Some(listener) = self.listener(&splice) else {
            return;
        };
        // Over a link that nobody certifies, anybody could say so.
        let identity = identity(&splice).filter(|_| self.certified);
        let stream = match stream {
            Stream::Tcp(stream) => stream.into(),
            Stream::Unix(stream) => stream.into(),
        };
        self.edge.bring(stream, splice.peer, listener, identity);
    }
}

/// The client's identity by the certificate it has shown to the node it came through.
fn identity(splice: &Splice) -> Option<Arc<Identity>> {
    Identity::from_text(&splice.principal).map(Arc::new)
}
