//! Certificates and requirements of a listener, and how it learns of new files.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::ServerConfig;
use rustls::crypto::ring::Ticketer;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls_pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};

use crate::files::{certificates, private_key, roots};
use crate::identity::end_of;
use crate::{Error, ServerChannel, provider, self_signed};

/// Where a listener's certificate and key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In files, PEM; the certificate's may hold those between it and its authority.
    Files { certificate: PathBuf, key: PathBuf },
    /// In this directory, made there if they are not, for these names of the machine beside
    /// loopback's addresses.
    SelfSigned { dir: PathBuf, names: Vec<String> },
}

/// Certificate, client authorities and protocols of a listener with TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub source: Source,
    /// Clients show a certificate of one of these authorities; `None`: none is requested.
    pub client_ca: Option<PathBuf>,
    /// Protocols above TLS that a client may choose from (ALPN); empty: it is not asked.
    pub protocols: Vec<Vec<u8>>,
}

/// A listener's certificate, key and authorities, as they were read last. Connections keep what
/// they began with.
#[derive(Debug)]
pub struct Acceptor(Mutex<Current>);

#[derive(Debug)]
struct Current {
    settings: Settings,
    loaded: Loaded,
    /// Of the files, when they were read last, well or not.
    seen: Vec<Option<Stamp>>,
}

/// Stamp that tells a file from an earlier version of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    file: u64,
    bytes: u64,
    changed: (i64, i64),
}

#[derive(Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    fingerprint: String,
    ends: Option<i64>,
}

impl Acceptor {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read or used, or key and certificate do not fit together.
    pub fn load(settings: Settings) -> Result<Self, Error> {
        let (loaded, seen) = (settings.load()?, settings.stamps());
        Ok(Self(Mutex::new(Current {
            settings,
            loaded,
            seen,
        })))
    }

    /// Reads the files again, or those of other settings.
    ///
    /// # Errors
    /// As of [`Self::load`]; the earlier configuration stays in use.
    pub fn reload(&self, settings: Option<Settings>) -> Result<(), Error> {
        let mut current = self.current();
        let settings = settings.unwrap_or_else(|| current.settings.clone());
        // Before they are read: what changes meanwhile is seen at the next look.
        current.seen = settings.stamps();
        let loaded = settings.load();
        current.settings = settings;
        current.loaded = loaded?;
        Ok(())
    }

    /// The files are others than those that were read last, well or not.
    pub fn has_changed(&self) -> bool {
        let current = self.current();
        current.seen != current.settings.stamps()
    }

    /// Configuration of a new connection.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current().loaded.config)
    }

    /// The server's side of a new connection.
    pub fn accept(&self) -> ServerChannel {
        ServerChannel::accept(self.config())
    }

    /// SHA-256 of the certificate, as `openssl x509 -fingerprint -sha256` shows it.
    pub fn fingerprint(&self) -> String {
        self.current().loaded.fingerprint.clone()
    }

    /// When the certificate ends, seconds since 1970.
    pub fn ends(&self) -> Option<i64> {
        self.current().loaded.ends
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        // What is replaced in it is replaced whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Settings {
    fn files(&self) -> (PathBuf, PathBuf) {
        match &self.source {
            Source::Files { certificate, key } => (certificate.clone(), key.clone()),
            Source::SelfSigned { dir, .. } => (
                dir.join(self_signed::CERTIFICATE),
                dir.join(self_signed::KEY),
            ),
        }
    }

    fn stamps(&self) -> Vec<Option<Stamp>> {
        let (certificate, key) = self.files();
        let files = [Some(&certificate), Some(&key), self.client_ca.as_ref()];
        files
            .into_iter()
            .flatten()
            .map(|file| stamp(file))
            .collect()
    }

    /// Reads the files as [`Acceptor::load`] does, and makes none.
    ///
    /// # Errors
    /// The files are missing, unreadable or do not fit each other. A self-signed certificate need not be there yet.
    pub fn check(&self) -> Result<(), Error> {
        let is_made = matches!(self.source, Source::SelfSigned { .. });
        if is_made && !self.files().0.exists() {
            return match &self.client_ca {
                None => Ok(()),
                Some(file) => roots(file).map(drop),
            };
        }
        self.read().map(drop)
    }

    fn load(&self) -> Result<Loaded, Error> {
        if let Source::SelfSigned { dir, names } = &self.source {
            self_signed::ensure(dir, names)?;
        }
        self.read()
    }

    fn read(&self) -> Result<Loaded, Error> {
        let (certificate, key_file) = self.files();
        let (chain, key) = (certificates(&certificate)?, private_key(&key_file)?);
        let (fingerprint, ends) = (fingerprint(&chain[0]), end_of(&chain[0]));
        let provider = provider();
        // Both versions, and suites with forward secrecy and authenticated encryption alone: rustls
        // knows no others.
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(Error::together)?;
        let config = match &self.client_ca {
            None => config.with_no_client_auth(),
            Some(file) => {
                let roots = Arc::new(roots(file)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                config.with_client_cert_verifier(verifier.build().map_err(Error::together)?)
            }
        };
        let mut config = config.with_single_cert(chain, key).map_err(|error| {
            let (of, key) = (certificate.display(), key_file.display());
            let why = format!("the key in {key} does not fit the certificate in {of} ({error})");
            Error::together(why)
        })?;
        config.alpn_protocols.clone_from(&self.protocols);
        // Resumption is by tickets alone, which cost no memory here and end with these files.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        if self.client_ca.is_none() {
            // A ticket would let somebody in whose certificate has ended meanwhile.
            config.ticketer = Ticketer::new().map_err(Error::together)?;
            config.send_tls13_tickets = 1;
        }
        Ok(Loaded {
            config: Arc::new(config),
            fingerprint,
            ends,
        })
    }
}

fn stamp(file: &Path) -> Option<Stamp> {
    let about = fs::metadata(file).ok()?;
    Some(Stamp {
        file: about.ino(),
        bytes: about.len(),
        // Of the modes as well: a key that was too open may be read after `chmod`.
        changed: (about.ctime(), about.ctime_nsec()),
    })
}

fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    let digest = Sha256::digest(certificate);
    let bytes: Vec<String> = digest.iter().map(|byte| format!("{byte:02X}")).collect();
    bytes.join(":")
}
