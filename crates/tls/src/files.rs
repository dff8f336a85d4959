//! Files with certificates and keys, PEM.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustls::RootCertStore;
use rustls_pki_types::pem::{self, PemObject as _};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::Error;

/// Permissions that nobody but the owner of a key has any use for.
const OTHERS: u32 = 0o077;
/// Where systemd puts what is for a service alone; its modes say nothing, as access is by list.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// The certificates in a file, one at least, in its order.
///
/// # Errors
/// The file cannot be read, or holds none.
pub fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let wrong = |error: pem::Error| Error::file(file, reason("certificates", &error));
    let all = CertificateDer::pem_file_iter(file).map_err(wrong)?;
    let all: Result<Vec<_>, _> = all.collect();
    let all = all.map_err(wrong)?;
    match all.is_empty() {
        true => Err(Error::file(
            file,
            "there is no certificate in it: it has to be a PEM file",
        )),
        false => Ok(all),
    }
}

/// The first private key in a file that only its owner can read.
///
/// # Errors
/// Others can read it too, it cannot be read, or holds no key.
pub fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    let about = fs::metadata(file)
        .map_err(|error| Error::file(file, format!("cannot read the private key: {error}")))?;
    let mode = about.permissions().mode() & 0o7777;
    let entrusted = std::env::var_os(CREDENTIALS).is_some_and(|dir| file.starts_with(dir));
    if mode & OTHERS != 0 && !entrusted {
        return Err(Error::Readable {
            file: file.to_owned(),
            mode,
        });
    }
    let wrong = |error: pem::Error| Error::file(file, reason("the private key", &error));
    PrivateKeyDer::from_pem_file(file).map_err(wrong)
}

/// The reason why a file is no use, without the words of the library.
fn reason(wanted: &str, error: &pem::Error) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("I/O error: ").unwrap_or(&text);
    match text {
        "no items found" => format!("cannot find {wanted} in it: it has to be a PEM file"),
        text => format!("cannot read {wanted}: {text}"),
    }
}

/// The authorities whose certificates are in a file.
///
/// # Errors
/// As [`certificates`], or one is no authority's.
pub fn roots(file: &Path) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for root in certificates(file)? {
        roots.add(root).map_err(|error| Error::file(file, error))?;
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_others_can_read_is_refused_with_the_line_to_type() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("key.pem");
        let key = rcgen::KeyPair::generate().expect("a key");
        fs::write(&file, key.serialize_pem()).expect("written");
        for (mode, refused) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true)] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("set");
            match private_key(&file) {
                Ok(_) => assert!(!refused, "{mode:o}"),
                Err(error) => {
                    let line = format!("chmod go= {}", file.display());
                    assert!(refused && error.to_string().contains(&line), "{error}");
                }
            }
        }
    }
}
