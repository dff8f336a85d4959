//! A client's side: whom it trusts, and what it shows.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;

use crate::files::{certificates, private_key, roots};
use crate::{Error, provider};

/// PEM files that a client of TLS reads when it connects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// Certificates of who signs servers, or a server's own; `None`: whom the system trusts.
    pub ca: Option<PathBuf>,
    /// A certificate to show and its key.
    pub shown: Option<(PathBuf, PathBuf)>,
}

/// Reads the files.
///
/// # Errors
/// A file cannot be read or used, or key and certificate do not fit together.
pub fn client_config(files: &ClientFiles) -> Result<Arc<ClientConfig>, Error> {
    let roots = match &files.ca {
        Some(file) => roots(file)?,
        None => of_system(),
    };
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(Error::together)?
        .with_root_certificates(roots);
    let config = match &files.shown {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => config
            .with_client_auth_cert(certificates(certificate)?, private_key(key)?)
            .map_err(Error::together)?,
    };
    Ok(Arc::new(config))
}

/// Authorities that the system trusts; an unreadable one is skipped.
fn of_system() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// The name in `HOST:PORT` or `[ADDRESS]:PORT`, which the server's certificate must have.
///
/// # Errors
/// It is none.
pub fn server_name(address: &str) -> Result<ServerName<'static>, Error> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = if host.is_empty() { "127.0.0.1" } else { host };
    ServerName::try_from(host.to_owned()).map_err(|_| Error::Name(host.to_owned()))
}
