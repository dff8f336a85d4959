//! TLS of peer connections: both sides show a certificate that the cluster's authority signed.

use std::path::PathBuf;
use std::sync::Arc;

use quintet_tls::{Error, certificates, private_key, roots};
use rustls_pki_types::ServerName;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, ClientConfig, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// PEM files that both ends of a peer connection use.
#[derive(Clone, Debug)]
pub struct Files {
    /// Certificates of the authority that signs nodes.
    pub ca: PathBuf,
    /// This node's certificate, and those between it and the authority. Its names are those that
    /// other nodes reach this one by.
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// Both ends of a node's peer connections.
#[derive(Clone)]
pub struct PeerTls {
    pub(crate) accept: TlsAcceptor,
    pub(crate) connect: TlsConnector,
}

impl PeerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read or used, or key and certificate do not fit together.
    pub fn load(files: &Files) -> Result<Self, Error> {
        let roots = Arc::new(roots(&files.ca)?);
        let chain = certificates(&files.cert)?;
        let key = private_key(&files.key)?;
        let together = |error: &dyn std::fmt::Display| Error::Together(error.to_string());
        // Named, as another crate of the program may bring another one.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .build()
                .map_err(|error| together(&error))?;
        let accept = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| together(&error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(|error| together(&error))?;
        let connect = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| together(&error))?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(|error| together(&error))?;
        Ok(Self {
            accept: TlsAcceptor::from(Arc::new(accept)),
            connect: TlsConnector::from(Arc::new(connect)),
        })
    }
}

impl std::fmt::Debug for PeerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerTls").finish_non_exhaustive()
    }
}

/// The name in `HOST:PORT`, which the certificate there must have.
pub(crate) fn name_of(address: &str) -> Option<ServerName<'static>> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(host.to_owned()).ok()
}
