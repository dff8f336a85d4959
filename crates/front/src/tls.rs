//! What protects links: both sides show a certificate that the cluster's authority signed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Files, PEM.
#[derive(Clone, Debug)]
pub struct Files {
    /// Certificates of the authority that signs nodes.
    pub ca: PathBuf,
    /// This node's certificate, and those between it and the authority. Its names are those that
    /// other nodes reach this one by.
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// Both ends of a node's links.
#[derive(Clone)]
pub struct LinkTls {
    pub(crate) accept: TlsAcceptor,
    pub(crate) connect: TlsConnector,
}

/// What is wrong with the files.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// One cannot be read, or is not what it should be.
    #[error("{}: {why}", file.display())]
    File { file: PathBuf, why: String },
    /// They do not go together.
    #[error("the certificate, its key and the authority do not go together: {0}")]
    Together(String),
}

impl LinkTls {
    /// Reads the files.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn load(files: &Files) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        for root in certificates(&files.ca)? {
            roots.add(root).map_err(|error| bad(&files.ca, &error))?;
        }
        let roots = Arc::new(roots);
        let chain = certificates(&files.cert)?;
        let key =
            PrivateKeyDer::from_pem_file(&files.key).map_err(|error| bad(&files.key, &error))?;
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

impl std::fmt::Debug for LinkTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkTls").finish_non_exhaustive()
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let all = CertificateDer::pem_file_iter(file).map_err(|error| bad(file, &error))?;
    let all: Result<Vec<_>, _> = all.collect();
    let all = all.map_err(|error| bad(file, &error))?;
    match all.is_empty() {
        true => Err(bad(file, &"there is no certificate in it")),
        false => Ok(all),
    }
}

fn bad(file: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::File {
        file: file.to_owned(),
        why: why.to_string(),
    }
}

/// The name in `HOST:PORT`, which the certificate there must have.
pub(crate) fn name_of(address: &str) -> Option<ServerName<'static>> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(host.to_owned()).ok()
}
