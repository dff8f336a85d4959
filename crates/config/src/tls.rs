//! Which listeners speak TLS, and with what.

use std::path::PathBuf;

use quintet_tls::{Settings, Source};

use super::schema::takes;
use super::{Address, Config, Listen, Served};

quintet_types::named! {
    /// Whether TLS is spoken.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub enum TlsMode, name {
        /// Where a certificate is set, or as what stands above says.
        #[default]
        Auto = "auto",
        Off = "off",
        /// With the certificate that is set.
        On = "on",
        /// With one the server makes itself.
        SelfSigned = "self-signed",
    }
}

/// TLS of one `[[listen]]` table.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ListenTls {
    pub mode: TlsMode,
    /// Empty: as the server's.
    pub cert: String,
    pub key: String,
    pub client_ca: String,
}

impl TlsMode {
    /// Reads a value of the file; `true` and `false` say "on" and "off".
    ///
    /// # Errors
    /// Another value; the text names the values that it takes.
    pub(crate) fn read(value: &toml::Value) -> Result<Self, String> {
        let word = match value.as_bool() {
            Some(true) => "on",
            Some(false) => "off",
            None => value.as_str().unwrap_or_default(),
        };
        let found = Self::ALL.into_iter().find(|mode| mode.name() == word);
        found.ok_or_else(|| takes("\"auto\", \"off\", \"on\" or \"self-signed\"", value))
    }
}

impl Config {
    /// How a listener speaks TLS; `None`: it does not.
    ///
    /// # Errors
    /// A file is missing, or settings exclude each other.
    pub fn tls_of(&self, listen: &Listen) -> Result<Option<Settings>, String> {
        let own = &listen.tls;
        let stated = own.mode != TlsMode::Auto || !own.cert.is_empty() || !own.client_ca.is_empty();
        if matches!(listen.address, Address::Unix(_)) {
            return match stated && own.mode != TlsMode::Off {
                true => Err("tls is for TCP: a unix socket is on this machine".to_owned()),
                false => Ok(None),
            };
        }
        let mode = match (own.mode, own.cert.is_empty()) {
            (TlsMode::Auto, false) => TlsMode::On,
            (TlsMode::Auto, true) => self.tls,
            (mode, _) => mode,
        };
        let (cert, key) = match own.cert.is_empty() && own.key.is_empty() {
            true => (&self.tls_cert, &self.tls_key),
            false => (&own.cert, &own.key),
        };
        if cert.is_empty() != key.is_empty() {
            return Err("tls_cert and tls_key go together: set both".to_owned());
        }
        let source = match mode {
            TlsMode::Off => None,
            TlsMode::Auto if cert.is_empty() => None,
            TlsMode::On if cert.is_empty() => {
                return Err(
                    "tls needs tls_cert and tls_key, or tls = \"self-signed\" for a first try"
                        .to_owned(),
                );
            }
            TlsMode::Auto | TlsMode::On => Some(Source::Files {
                certificate: PathBuf::from(cert),
                key: PathBuf::from(key),
            }),
            TlsMode::SelfSigned => Some(Source::SelfSigned {
                dir: self.data.clone(),
                names: names(),
            }),
        };
        if source.is_none() && !own.client_ca.is_empty() {
            return Err("tls_client_ca asks for tls_cert and tls_key".to_owned());
        }
        let client_ca = match own.client_ca.as_str() {
            "" => &self.tls_client_ca,
            own => own,
        };
        Ok(source.map(|source| Settings {
            source,
            client_ca: (!client_ca.is_empty()).then(|| PathBuf::from(client_ca)),
            protocols: match listen.served {
                Served::Http | Served::Sqs => vec![b"http/1.1".to_vec()],
                Served::Protocol(_) => Vec::new(),
            },
        }))
    }
}

/// Names of this machine.
fn names() -> Vec<String> {
    let uname = rustix::system::uname();
    let name = uname.nodename().to_string_lossy().into_owned();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let mut names = vec!["localhost".to_owned()];
    if !name.is_empty() && name != "localhost" && name.chars().all(plain) {
        names.push(name);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::super::load::from_text;
    use super::*;

    /// How the first listener speaks TLS, in a word.
    fn word(text: &str) -> String {
        let config = from_text(text).expect("read");
        match config.tls_of(&config.listen[0]) {
            Ok(None) => "plain".to_owned(),
            Ok(Some(settings)) => {
                let ca = settings.client_ca.map_or(String::new(), |ca| {
                    format!(" asks {}", ca.to_string_lossy())
                });
                match settings.source {
                    Source::Files { certificate, .. } => format!("{}{ca}", certificate.display()),
                    Source::SelfSigned { .. } => format!("self{ca}"),
                }
            }
            Err(why) => why,
        }
    }

    #[test]
    fn a_listener_goes_by_its_own_words_and_else_by_the_server_s() {
        let tcp = "[[listen]]\nprotocol='memcache'\naddress=1\n";
        let unix = "[[listen]]\nprotocol='memcache'\naddress='unix:/x'\n";
        let files = "tls_cert='c'\ntls_key='k'\n";
        let own = "tls_cert='o'\ntls_key='k'\n";
        for (text, is) in [
            (tcp.to_owned(), "plain"),
            (format!("{files}{tcp}"), "c"),
            (format!("{files}{unix}"), "plain"),
            (format!("{files}{tcp}tls=false"), "plain"),
            (format!("{files}tls='off'\n{tcp}"), "plain"),
            (format!("{files}tls='off'\n{tcp}tls=true"), "c"),
            (format!("{files}{tcp}{own}"), "o"),
            (format!("{tcp}{own}"), "o"),
            (format!("{tcp}{own}tls='off'"), "plain"),
            (format!("{files}{tcp}tls='self-signed'"), "self"),
            (format!("tls='self-signed'\n{tcp}"), "self"),
            (format!("tls='self-signed'\n{tcp}{own}"), "o"),
            (format!("{files}tls_client_ca='a'\n{tcp}"), "c asks a"),
            (
                format!("{files}tls_client_ca='a'\n{tcp}tls_client_ca='b'"),
                "c asks b",
            ),
        ] {
            assert_eq!(word(&text), is, "{text}");
        }
        for (text, says) in [
            (format!("{tcp}tls=true"), "self-signed"),
            (format!("{tcp}tls_cert='c'"), "go together"),
            (format!("tls_key='c'\n{tcp}"), "go together"),
            (format!("{tcp}tls_client_ca='c'"), "tls_client_ca"),
            (format!("{unix}tls=true"), "unix"),
        ] {
            assert!(word(&text).contains(says), "{text}: {}", word(&text));
        }
    }
}
