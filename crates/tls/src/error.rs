//! Errors of files, and of peers.

use std::path::{Path, PathBuf};

use rustls::PeerIncompatible;

/// An error of certificate or key files, or of rustls with them.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// One cannot be read, or is not what it should be.
    #[error("{}: {why}", file.display())]
    File { file: PathBuf, why: String },
    /// Others may read a private key.
    #[error(
        "{} is a private key that other accounts can read ({mode:04o}): run `chmod go= {}`",
        file.display(),
        file.display()
    )]
    Readable { file: PathBuf, mode: u32 },
    /// They do not go together.
    #[error("the certificate, its key and the authority do not go together: {0}")]
    Together(String),
    /// The name of a server is none that a certificate could have.
    #[error("\"{0}\" is not the name or address of a server")]
    Name(String),
}

impl Error {
    pub(crate) fn file(file: &Path, why: impl std::fmt::Display) -> Self {
        Self::File {
            file: file.to_owned(),
            why: why.to_string(),
        }
    }

    pub(crate) fn together(error: impl std::fmt::Display) -> Self {
        Self::Together(error.to_string())
    }
}

/// Why a connection has come to an end that is not its peer's goodbye. An [`std::io::Error`] of
/// kind `InvalidData` carries it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Failure {
    /// Its first byte is none of TLS.
    #[error("plain text on a port that speaks TLS")]
    Plain,
    /// A handshake of more bytes than one may have.
    #[error("a handshake that is too long")]
    TooLong,
    #[error("{0}")]
    Tls(#[from] rustls::Error),
}

impl From<Failure> for std::io::Error {
    fn from(failure: Failure) -> Self {
        Self::new(std::io::ErrorKind::InvalidData, failure)
    }
}

impl Failure {
    /// The failure that an error carries, if it is one.
    pub fn of(error: &std::io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

/// Failures as they are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The client speaks something else.
    Plain,
    /// It offers no version that is spoken here.
    Version,
    /// It has no suite, group or signature in common.
    Suite,
    /// It shows no certificate, or one that does not count.
    Certificate,
    /// It says that it ends the connection, mostly since it does not trust the server.
    Alert,
    /// Bytes that are not TLS, out of order, or changed on their way.
    Record,
    /// It did not finish its handshake in time.
    Timeout,
    /// It went away in the middle of its handshake.
    Gone,
}

impl Reason {
    /// All there are, in the order of their declaration.
    pub const ALL: [Self; 8] = [
        Self::Plain,
        Self::Version,
        Self::Suite,
        Self::Certificate,
        Self::Alert,
        Self::Record,
        Self::Timeout,
        Self::Gone,
    ];

    /// The value of the label `reason` in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Version => "version",
            Self::Suite => "suite",
            Self::Certificate => "certificate",
            Self::Alert => "alert",
            Self::Record => "record",
            Self::Timeout => "timeout",
            Self::Gone => "gone",
        }
    }

    /// Reason of a handshake's error; an error that no peer has caused is `Gone`.
    pub fn of(error: &std::io::Error) -> Self {
        match Failure::of(error) {
            Some(failure) => failure.reason(),
            // As tokio-rustls has them.
            None => match error.get_ref().and_then(|inner| inner.downcast_ref()) {
                Some(error) => of_tls(error),
                None if error.kind() == std::io::ErrorKind::TimedOut => Self::Timeout,
                None => Self::Gone,
            },
        }
    }
}

impl Failure {
    /// The reason under which the failure is counted.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Plain => Reason::Plain,
            Self::TooLong => Reason::Record,
            Self::Tls(error) => of_tls(error),
        }
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "rustls adds to its errors; any other is about bytes that came"
)]
fn of_tls(error: &rustls::Error) -> Reason {
    use rustls::Error as E;
    match error {
        E::PeerIncompatible(
            PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::SupportedVersionsExtensionRequired
            // Versions before 1.2 do not have it.
            | PeerIncompatible::SignatureAlgorithmsExtensionRequired,
        ) => Reason::Version,
        E::PeerIncompatible(_) | E::NoApplicationProtocol => Reason::Suite,
        E::NoCertificatesPresented | E::InvalidCertificate(_) => Reason::Certificate,
        E::AlertReceived(_) => Reason::Alert,
        _ => Reason::Record,
    }
}
