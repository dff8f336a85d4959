//! Certificates of the nodes, for the links between them.

use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// Files, by the end of the setting that names each.
const FILES: [&str; 3] = ["ca", "cert", "key"];

fn file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("peer-{name}.pem"))
}

/// An authority, and a certificate that it signed for every node.
pub(super) fn write(folder: &Path) -> Result<()> {
    let key = KeyPair::generate()?;
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = authority.self_signed(&key)?;
    let issuer = Issuer::new(authority, key);
    let key = KeyPair::generate()?;
    let node = CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
    let node = node.signed_by(&key, &issuer)?;
    let texts = [root.pem(), node.pem(), key.serialize_pem()];
    for (name, text) in FILES.iter().zip(texts) {
        let path = file(folder, name);
        std::fs::write(&path, text)?;
        // A key that others can read is refused.
        let own = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, own)?;
    }
    Ok(())
}

/// Settings of every node.
pub(super) fn settings(folder: &Path) -> String {
    let lines = FILES.iter();
    let lines = lines.map(|name| format!("peer_tls_{name} = {:?}\n", file(folder, name)));
    lines.collect()
}
