//! Faktory's handshake with a password, as far as no transcript can tell it: what
//! is asked is new for each connection.

use crate::common;

use common::Host;
use quintet_sim::transcript::{Link, Setup};
use sha2::{Digest as _, Sha256};

/// The challenge of a connection: number of rounds, and the salt.
fn challenge(host: &mut Host, connection: u8) -> (u32, String) {
    let mut hi = Vec::new();
    host.receive(connection, &mut hi);
    let hi = String::from_utf8(hi).expect("text");
    let rest = hi.strip_prefix("+HI {\"v\":2,\"i\":").expect("a greeting");
    let (rounds, rest) = rest.split_once(",\"s\":\"").expect("a salt");
    let salt = rest.strip_suffix("\"}\r\n").expect("its end");
    assert!(salt.len() == 16 && salt.bytes().all(|byte| byte.is_ascii_hexdigit()));
    (rounds.parse().expect("a number"), salt.to_owned())
}

fn login_reply(host: &mut Host, connection: u8, pwdhash: &str) -> String {
    let hello = format!("HELLO {{\"v\":2,\"pwdhash\":\"{pwdhash}\"}}\r\n");
    host.send(connection, hello.as_bytes());
    let mut received = Vec::new();
    host.receive(connection, &mut received);
    String::from_utf8(received).expect("text")
}

fn hash(salt: &str, rounds: u32) -> String {
    let mut hash = Sha256::digest(format!("swordfish{salt}"));
    for _ in 1..rounds {
        hash = Sha256::digest(hash);
    }
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_client_with_the_password_is_let_in() {
    let protocol = quintet_wire::protocol("faktory").expect("a protocol");
    let option = |name: &str, value: &str| Setup::Option {
        name: name.to_owned(),
        value: value.to_owned(),
    };
    for (supplied, least, most) in [("1", 1, 1), ("5000", 5000, 5000), ("0", 4096, 8191)] {
        let setup = [
            option("password", "swordfish"),
            option("hash_rounds", supplied),
        ];
        let mut host = Host::new(protocol, &setup, 0).expect("a server");
        let (rounds, salt) = challenge(&mut host, 1);
        assert!((least..=most).contains(&rounds), "{rounds}");
        let (other_rounds, other_salt) = challenge(&mut host, 2);
        assert_ne!(salt, other_salt);
        assert_eq!(login_reply(&mut host, 1, &hash(&salt, rounds)), "+OK\r\n");
        // What let one in lets nobody else in.
        let refused = "-ERR Invalid password\r\n";
        assert_eq!(login_reply(&mut host, 2, &hash(&salt, rounds)), refused);
        let (rounds, salt) = challenge(&mut host, 3);
        assert_eq!(
            login_reply(&mut host, 3, &hash(&salt, rounds).to_uppercase()),
            refused
        );
        let (rounds, salt) = challenge(&mut host, 4);
        assert_eq!(login_reply(&mut host, 4, &hash(&salt, rounds + 1)), refused);
        assert!((least..=most).contains(&other_rounds));
    }
}
