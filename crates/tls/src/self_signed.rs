//! A key and a certificate for a first try, made once and kept.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rcgen::{CertificateParams, DnType, KeyPair, SanType};

use crate::Error;

/// The certificate's file name: what clients are given as their authority.
pub const CERTIFICATE: &str = "tls-self-signed.crt";
/// The file name of its private key, mode 0600.
pub const KEY: &str = "tls-self-signed.key";

/// Makes both in `dir`, for the machine's names, unless they are there.
pub(crate) fn ensure(dir: &Path, names: &[String]) -> Result<(), Error> {
    // The certificate is written last, so with it there is the key.
    let (certificate, key) = (dir.join(CERTIFICATE), dir.join(KEY));
    if certificate.exists() {
        return Ok(());
    }
    let made = make(names).map_err(|error| Error::file(&certificate, error))?;
    write(&key, &made.1).map_err(|error| Error::file(&key, error))?;
    write(&certificate, &made.0).map_err(|error| Error::file(&certificate, error))
}

fn make(names: &[String]) -> Result<(String, String), rcgen::Error> {
    let mut params = CertificateParams::new(names.to_vec())?;
    params
        .distinguished_name
        .push(DnType::CommonName, "Quintet, self-signed");
    let local = [[127, 0, 0, 1].into(), IpAddr::from(1u128.to_be_bytes())];
    let local = local.map(SanType::IpAddress);
    params.subject_alt_names.extend(local);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// Whole or not at all, and for nobody else.
fn write(file: &Path, text: &str) -> io::Result<()> {
    let new = file.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut options = OpenOptions::new();
    let mut out = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    out.write_all(text.as_bytes())?;
    out.sync_all()?;
    fs::rename(&new, file)?;
    // So that there is no certificate whose key a power cut took.
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty());
    fs::File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
}
