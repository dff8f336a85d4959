//! The first line of a peer connection, and its answer. Text, so that it can be read with `nc`.
//!
//! ```text
//! QUINTET-LINK 1 00000000000000c0 splice beanstalk 0 10.0.0.7:51234 -
//! OK
//! ```
//!
//! Words are separated by one space and percent-encoded; a word that is absent is `-`. The fourth
//! word is the purpose: `splice` (a client's bytes follow the answer, both ways), `status` (a line
//! of JSON is the answer), or a word for the node such as `move`, whose answer is a line of text.

use std::net::SocketAddr;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// Bytes of a line at most, its end included. A longer line is no peer connection.
pub const LINE_MAX: usize = 16 << 10;

const MAGIC: &str = "QUINTET-LINK";
const VERSION: &str = "1";
/// Characters that a word cannot carry as they are. `-` alone stands for an absent word.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// Purpose of a peer connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A client's connection.
    Tunnel(Tunnel),
    /// A question that the node itself answers.
    Node(Question),
}

/// A request of another node or of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Its view of itself and the cluster.
    Status,
    /// To do something: a verb and its words.
    Order(Vec<String>),
}

/// A client's connection, as its proxy has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// The listener's protocol, by its name in the configuration.
    pub protocol: String,
    /// Which of the listeners that speak it, in the order of the configuration, from 0.
    pub nth: u16,
    /// Where the client is; a unix socket has no address.
    pub peer: Option<SocketAddr>,
    /// The client's identity by the certificate it has shown at the proxy, as
    /// `quintet_tls::Identity` writes it; empty: none. Believed only over peer connections with
    /// certificates.
    pub principal: String,
}

/// The reply to the first line of a peer connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The client's bytes may come.
    Ok,
    /// Another node owns, at this address, as far as this one knows.
    Owner(u64, String),
    /// Nobody is known to own, or it cannot serve yet; asked again later.
    Nobody,
    /// Never, and why.
    Refused(String),
}

/// Why a line is none of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// It does not begin as one.
    #[error("this is no link")]
    NoPeerConnection,
    /// A later program's.
    #[error("it speaks another version of links")]
    Version,
    /// Another cluster's.
    #[error("it belongs to another cluster")]
    Cluster,
    /// Words are missing, too many, or not what they should be.
    #[error("its words make no sense")]
    Words,
}

fn word(text: &str) -> String {
    match text {
        "" => "-".to_owned(),
        "-" => "%2D".to_owned(),
        text => utf8_percent_encode(text, ENCODED).to_string(),
    }
}

fn unword(word: &str) -> Result<String, Wrong> {
    if word == "-" {
        return Ok(String::new());
    }
    let decoded = percent_decode_str(word).decode_utf8();
    decoded
        .map(|text| text.into_owned())
        .map_err(|_| Wrong::Words)
}

impl Purpose {
    /// The line, with its end. Without `cluster`, for a node's own socket.
    pub fn line(&self, cluster: Option<u64>) -> String {
        let cluster = cluster.map(|id| format!("{id:016x}"));
        let head = format!("{MAGIC} {VERSION} {}", cluster.as_deref().unwrap_or("-"));
        match self {
            Self::Tunnel(tunnel) => {
                let peer = tunnel.peer.map(|peer| peer.to_string()).unwrap_or_default();
                format!(
                    "{head} splice {} {} {} {}\n",
                    word(&tunnel.protocol),
                    tunnel.nth,
                    word(&peer),
                    word(&tunnel.principal)
                )
            }
            Self::Node(Question::Status) => format!("{head} status\n"),
            Self::Node(Question::Order(words)) => {
                let words: Vec<String> = words.iter().map(|text| word(text)).collect();
                format!("{head} {}\n", words.join(" "))
            }
        }
    }

    /// Reads a line without its end; `local`: it came by the node's own socket, where the cluster
    /// need not be named.
    ///
    /// # Errors
    /// The line is none, or of another version or cluster.
    pub fn read(line: &str, cluster: u64, local: bool) -> Result<Self, Wrong> {
        let mut words = line.split(' ');
        if words.next() != Some(MAGIC) {
            return Err(Wrong::NoPeerConnection);
        }
        if words.next() != Some(VERSION) {
            return Err(Wrong::Version);
        }
        match words.next() {
            Some("-") if local => {}
            Some(word) if word.len() == 16 => match u64::from_str_radix(word, 16) {
                Ok(named) if named == cluster => {}
                Ok(_) => return Err(Wrong::Cluster),
                Err(_) => return Err(Wrong::Words),
            },
            _ => return Err(Wrong::Words),
        }
        let words: Vec<&str> = words.collect();
        match words[..] {
            [] => Err(Wrong::Words),
            ["status"] => Ok(Self::Node(Question::Status)),
            ["splice", protocol, nth, peer, principal] => {
                let peer = match unword(peer)? {
                    peer if peer.is_empty() => None,
                    peer => Some(peer.parse().map_err(|_| Wrong::Words)?),
                };
                Ok(Self::Tunnel(Tunnel {
                    protocol: unword(protocol)?,
                    nth: nth.parse().map_err(|_| Wrong::Words)?,
                    peer,
                    principal: unword(principal)?,
                }))
            }
            ["splice" | "status", ..] => Err(Wrong::Words),
            _ => {
                let words: Result<_, _> = words.into_iter().map(unword).collect();
                words.map(|words| Self::Node(Question::Order(words)))
            }
        }
    }
}

impl Answer {
    /// The reply as sent, with its line end.
    pub fn line(&self) -> String {
        match self {
            Self::Ok => "OK\n".to_owned(),
            Self::Owner(epoch, address) => format!("OWNER {epoch} {}\n", word(address)),
            Self::Nobody => "NOBODY\n".to_owned(),
            Self::Refused(why) => format!("REFUSED {}\n", word(why)),
        }
    }

    /// Reads a line without its end; `None`: it is none.
    pub fn read(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["OK"] => Some(Self::Ok),
            ["OWNER", epoch, address] => {
                Some(Self::Owner(epoch.parse().ok()?, unword(address).ok()?))
            }
            ["NOBODY"] => Some(Self::Nobody),
            ["REFUSED", why] => Some(Self::Refused(unword(why).ok()?)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_has_the_documented_form() {
        let ask = Purpose::Tunnel(Tunnel {
            protocol: "beanstalk".to_owned(),
            nth: 0,
            peer: Some("10.0.0.7:51234".parse().expect("an address")),
            principal: String::new(),
        });
        assert_eq!(
            ask.line(Some(0xc0)),
            "QUINTET-LINK 1 00000000000000c0 splice beanstalk 0 10.0.0.7:51234 -\n"
        );
        assert_eq!(
            Purpose::Node(Question::Status).line(Some(1)),
            "QUINTET-LINK 1 0000000000000001 status\n"
        );
    }

    #[test]
    fn lines_of_no_peer_are_refused_by_name() {
        for (line, wrong) in [
            ("GET / HTTP/1.1", Wrong::NoPeerConnection),
            ("", Wrong::NoPeerConnection),
            ("QUINTET-LINK 2 0000000000000001 status", Wrong::Version),
            ("QUINTET-LINK 1 0000000000000002 status", Wrong::Cluster),
            ("QUINTET-LINK 1 1 status", Wrong::Words),
            ("QUINTET-LINK 1 0000000000000001", Wrong::Words),
            ("QUINTET-LINK 1 0000000000000001 status now", Wrong::Words),
            ("QUINTET-LINK 1 0000000000000001 splice a", Wrong::Words),
            (
                "QUINTET-LINK 1 0000000000000001 splice a x - -",
                Wrong::Words,
            ),
            (
                "QUINTET-LINK 1 0000000000000001 splice a 0 b -",
                Wrong::Words,
            ),
            (
                "QUINTET-LINK 1 0000000000000001 splice %ff 0 - -",
                Wrong::Words,
            ),
        ] {
            assert_eq!(Purpose::read(line, 1, false), Err(wrong), "{line}");
        }
        let local = Purpose::Node(Question::Status).line(None);
        assert_eq!(
            Purpose::read(local.trim_end(), 1, true),
            Ok(Purpose::Node(Question::Status))
        );
        assert_eq!(Purpose::read(local.trim_end(), 1, false), Err(Wrong::Words));
    }

    fn texts() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("-".to_owned()),
            Just(String::new()),
            "\\PC{0,20}",
            "[ %\\n-]{0,5}"
        ]
    }

    proptest! {
        #[test]
        fn a_written_line_is_read(
            protocol in texts(), principal in texts(), nth: u16, cluster: u64,
            peer in prop::option::of(any::<SocketAddr>()), epoch: u64, why in texts(),
        ) {
            // A scope is not shown in full by every form of an address.
            let peer = peer.map(|peer| SocketAddr::new(peer.ip(), peer.port()));
            let tunnel = Purpose::Tunnel(Tunnel { protocol: protocol.clone(), nth, peer, principal });
            let order = Purpose::Node(Question::Order(vec!["move".to_owned(), protocol, why.clone()]));
            for ask in [tunnel, Purpose::Node(Question::Status), order] {
                let line = ask.line(Some(cluster));
                prop_assert_eq!(line.matches('\n').count(), 1);
                let text = line.trim_end_matches('\n');
                prop_assert_eq!(Purpose::read(text, cluster, false), Ok(ask.clone()));
                prop_assert_eq!(Purpose::read(text, !cluster, true), Err(Wrong::Cluster));
            }
            for answer in
                [Answer::Ok, Answer::Owner(epoch, why.clone()), Answer::Nobody, Answer::Refused(why)]
            {
                let line = answer.line();
                prop_assert_eq!(Answer::read(line.trim_end_matches('\n')), Some(answer));
            }
        }

        #[test]
        fn any_line_is_read_or_refused(line in "\\PC{0,100}") {
            let _either = Purpose::read(&line, 1, true);
            let _either = Answer::read(&line);
        }
    }
}
