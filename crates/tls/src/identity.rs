//! A client's identity, by the certificate it has shown and proved to have the key of.

use std::net::IpAddr;

use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// The owner that a certificate names. Its authority has been checked before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The subject as text, such as `CN=worker-7, O=Example`.
    pub subject: String,
    /// The subject's common name; empty: it has none, or one that is no text.
    pub common_name: String,
    /// Alternative names of the subject: hosts, addresses of mail, URIs, IP addresses.
    pub names: Vec<String>,
}

/// Bytes of a subject, and of all names, that are kept.
const KEPT: usize = 2 << 10;

/// Between the parts of an identity as one text; no part has one.
const SEPARATOR: char = '\n';

impl Identity {
    /// Reads a certificate; `None`: it makes no sense.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        let subject = parsed.subject();
        let common_name = subject.iter_common_name().find_map(|cn| cn.as_str().ok());
        let alternatives = parsed.subject_alternative_name().ok().flatten();
        let alternatives = alternatives.map(|extension| &extension.value.general_names);
        let names = alternatives.into_iter().flatten().filter_map(name);
        let mut left = KEPT;
        let names = names.map(|name| plain(&name)).take_while(|name| {
            let fits = name.len() <= left;
            left = left.saturating_sub(name.len());
            fits
        });
        Some(Self {
            subject: plain(&subject.to_string()),
            common_name: plain(common_name.unwrap_or_default()),
            names: names.collect(),
        })
    }

    /// As one text, which [`Identity::from_text`] reads.
    pub fn to_text(&self) -> String {
        let mut text = format!("{}{SEPARATOR}{}", self.subject, self.common_name);
        for name in &self.names {
            text.push(SEPARATOR);
            text += name;
        }
        text
    }

    /// Reads what [`Identity::to_text`] has written; `None`: the text is empty.
    pub fn from_text(text: &str) -> Option<Self> {
        let mut parts = text.split(SEPARATOR).map(str::to_owned);
        let subject = parts.next().filter(|_| !text.is_empty())?;
        Some(Self {
            subject,
            common_name: parts.next().unwrap_or_default(),
            names: parts.collect(),
        })
    }
}

/// When a certificate ends, seconds since 1970; `None`: it makes no sense.
pub(crate) fn end_of(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    Some(parsed.validity().not_after.timestamp())
}

/// Control characters would make two lines of one in a log; a text of any length would make a
/// connection as large as its client likes.
fn plain(text: &str) -> String {
    let text = text.replace(char::is_control, " ");
    let fits = |at: &usize| text.is_char_boundary(*at);
    let end = (0..=KEPT.min(text.len())).rev().find(fits);
    text[..end.unwrap_or(0)].to_owned()
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "other kinds of names are for other uses"
)]
fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(text) | GeneralName::RFC822Name(text) | GeneralName::URI(text) => {
            Some((*text).to_owned())
        }
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(IpAddr::from),
            _ => <[u8; 16]>::try_from(*bytes).ok().map(IpAddr::from),
        }
        .map(|address| address.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subject_and_names_are_read_and_travel_as_text() {
        let names = vec!["worker-7.example".to_owned(), "10.0.0.7".to_owned()];
        let mut params = rcgen::CertificateParams::new(names.clone()).expect("names");
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "worker\n7");
        let key = rcgen::KeyPair::generate().expect("a key");
        let made = params.self_signed(&key).expect("signed");
        let identity = Identity::of(made.der()).expect("read");
        assert_eq!(identity.common_name, "worker 7");
        assert!(identity.subject.contains("CN=worker 7"), "{identity:?}");
        assert_eq!(identity.names, names);
        let again = Identity::from_text(&identity.to_text());
        assert_eq!(again, Some(identity));
        assert_eq!(Identity::from_text(""), None);
        assert_eq!(Identity::of(&CertificateDer::from(vec![1, 2, 3])), None);
    }
}
