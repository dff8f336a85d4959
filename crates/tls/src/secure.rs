//! State that all listeners under TLS share: how long a handshake may take, and the results of
//! handshakes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls_pki_types::CertificateDer;

use crate::{Acceptor, Identity, Reason};

/// A listener under TLS, for the thread that serves it.
#[derive(Clone, Debug)]
pub struct Secure {
    /// Its certificates and requirements.
    pub acceptor: Arc<Acceptor>,
    pub shared: Arc<Shared>,
}

/// Of all listeners.
#[derive(Debug, Default)]
pub struct Shared {
    handshake_ms: AtomicU64,
    /// Handshakes that came to their end.
    pub handshakes: AtomicU64,
    /// Connections whose handshake is over.
    pub open: AtomicU64,
    /// In the order of [`Reason::ALL`].
    failures: [AtomicU64; Reason::ALL.len()],
}

/// A connection whose handshake is over, counted as open until it is dropped.
#[derive(Debug)]
pub struct Opened(Arc<Shared>);

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.closed();
    }
}

impl Shared {
    /// A handshake takes no longer than this.
    pub fn handshake_time(&self) -> Duration {
        Duration::from_millis(self.handshake_ms.load(Ordering::Relaxed))
    }

    /// Sets the longest duration of a handshake, at least 1 ms.
    pub fn set_handshake_ms(&self, ms: u64) {
        self.handshake_ms.store(ms.max(1), Ordering::Relaxed);
    }

    /// A handshake came to its end.
    pub fn opened(&self) {
        self.handshakes.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// The same, with the other end of it.
    pub fn open_until_dropped(self: &Arc<Self>) -> Opened {
        self.opened();
        Opened(Arc::clone(self))
    }

    /// A connection whose handshake was over is gone.
    pub fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// TLS has ended a connection: counts and logs it.
    pub fn failed(
        &self,
        listener: &str,
        conn: Option<u64>,
        peer: Option<SocketAddr>,
        error: &io::Error,
    ) {
        let reason = Reason::of(error);
        self.count(reason);
        let peer = peer.map(|peer| peer.to_string()).unwrap_or_default();
        tracing::debug!(
            listener,
            conn,
            peer,
            reason = reason.name(),
            "TLS refused: {error}"
        );
    }

    /// Counts a connection that TLS has ended.
    pub fn count(&self, reason: Reason) {
        self.failures[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Connections that TLS has ended, by reason.
    pub fn failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let failures = Reason::ALL.iter().zip(&self.failures);
        failures.map(|(reason, count)| (reason.name(), count.load(Ordering::Relaxed)))
    }
}

/// The identity in these certificates, the first of which is the peer's own.
pub fn identity(shown: Option<&[CertificateDer<'_>]>) -> Option<Arc<Identity>> {
    Identity::of(shown?.first()?).map(Arc::new)
}
