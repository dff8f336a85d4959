//! The handshake: what the server asks, and what the client says of itself.

use quintet_types::hex;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::json::{self, Kind, Value};
use crate::workers::Joins;

/// A challenge that the client answers with a proof of the password.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Challenge {
    pub(super) salt: u64,
    pub(super) rounds: u32,
}

impl Challenge {
    /// The salt as it is sent, and hashed.
    fn hex(self) -> String {
        format!("{:016x}", self.salt)
    }

    /// True if somebody who sends this knows the password.
    pub(super) fn is_met(self, password: &str, pwdhash: Option<&str>) -> bool {
        let expected = pwdhash_of(password, &self.hex(), self.rounds);
        let supplied = pwdhash.unwrap_or_default().as_bytes();
        expected.as_bytes().ct_eq(supplied).into()
    }
}

/// The server's first line, without its end.
pub(super) fn greeting(challenge: Option<Challenge>) -> String {
    match challenge {
        None => "+HI {\"v\":2}".to_owned(),
        Some(challenge) => format!(
            "+HI {{\"v\":2,\"i\":{},\"s\":\"{}\"}}",
            challenge.rounds,
            challenge.hex()
        ),
    }
}

/// The proof of a password: lower-case hex.
pub(super) fn pwdhash_of(password: &str, salt: &str, rounds: u32) -> String {
    let first = Sha256::new().chain_update(password).chain_update(salt);
    let mut hash = first.finalize();
    for _ in 1..rounds {
        hash = Sha256::digest(hash);
    }
    hex(&hash)
}

/// Content of a HELLO.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Hello {
    pub(super) pwdhash: Option<String>,
    /// A worker's; its name is empty for a producer.
    pub(super) joins: Joins,
    /// The worker reads in replies to BEAT which of its jobs are cancelled.
    pub(super) cancelled: bool,
}

/// Reads the first line, without its end.
pub(super) fn read(line: &[u8]) -> Option<Hello> {
    let text = json::text_of(line.strip_prefix(b"HELLO ")?);
    let object = json::object(&text)?;
    let mut hello = Hello::default();
    for (name, value) in object.given() {
        match &*name {
            "v" => drop(value.whole_number()?),
            "pwdhash" => hello.pwdhash = Some(value.string()?.into_owned()),
            "wid" => hello.joins.wid = value.string()?.into(),
            "hostname" => hello.joins.host = value.string()?.into(),
            "pid" => hello.joins.pid = value.whole_number()?,
            "labels" if value.kind == Kind::Array => {
                let label = |label: Value<'_>| Some(label.string()?.into());
                hello.joins.labels = value.elements().map(label).collect::<Option<_>>()?;
            }
            "labels" => return None,
            "username" => drop(value.string()?),
            // No client of the reference says it.
            "cancelled" => hello.cancelled = value.is_true(),
            _ => {}
        }
    }
    Some(hello)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_specification() {
        for (rounds, hash) in [
            (
                1,
                "170a6cd6994a98779849f53587e1b92d164ed1da13e59c8acf80ed52cfc75032",
            ),
            (
                2,
                "1c8ecdca40c110cfbed96186437266dab6ab8b10c5214e1347ef41106f793082",
            ),
            (
                5000,
                "597dc94e25110c2cdbe586c09f83d9dccd79adc9790038edb897731c392db576",
            ),
        ] {
            assert_eq!(pwdhash_of("swordfish", "0f1e2d3c4b5a6978", rounds), hash);
            let challenge = Challenge {
                salt: 0x0f1e_2d3c_4b5a_6978,
                rounds,
            };
            assert!(challenge.is_met("swordfish", Some(hash)));
            assert!(!challenge.is_met("swordfish", Some(&hash.to_uppercase())));
            assert!(!challenge.is_met("swordfish", Some(&hash[1..])));
            assert!(!challenge.is_met("swordfisH", Some(hash)));
            assert!(!challenge.is_met("swordfish", None));
        }
    }

    #[test]
    fn a_greeting_has_no_blank_in_its_json() {
        assert_eq!(greeting(None), "+HI {\"v\":2}");
        let challenge = Challenge {
            salt: 0xab,
            rounds: 5000,
        };
        assert_eq!(
            greeting(Some(challenge)),
            "+HI {\"v\":2,\"i\":5000,\"s\":\"00000000000000ab\"}"
        );
    }

    #[test]
    fn fields_of_a_hello_are_read() {
        for line in [
            "PUSH {}",
            "hello {\"v\":2}",
            "HELLO",
            "HELLO {",
            "HELLO null",
            "HELLO []",
            "HELLO {\"v\":\"2\"}",
            "HELLO {\"wid\":5}",
            "HELLO {\"labels\":[1]}",
            "HELLO {\"labels\":{}}",
            "HELLO {\"pid\":\"1\"}",
            "HELLO {} x",
            "HELLO\t{}",
        ] {
            assert_eq!(read(line.as_bytes()), None, "{line}");
        }
        for line in [
            "HELLO {}",
            "HELLO  {\"v\":3} ",
            "HELLO {\"wid\":\"\",\"v\":null}",
        ] {
            assert_eq!(read(line.as_bytes()), Some(Hello::default()), "{line}");
        }
        let all =
            br#"HELLO {"wid":"w1","hostname":"h","pid":7,"labels":["a","b"],"pwdhash":"x","z":[]}"#;
        let hello = read(all).unwrap();
        assert_eq!(hello.pwdhash.as_deref(), Some("x"));
        assert_eq!(
            (&*hello.joins.wid, &*hello.joins.host, hello.joins.pid),
            ("w1", "h", 7)
        );
        assert_eq!(hello.joins.labels, ["a".into(), "b".into()]);
    }
}
