//! `[[limit]]` where clients come through other nodes: an address is the client's, and what fails
//! at a proxy counts there.

use std::net::Ipv4Addr;
use std::path::Path;

use quintet_tls::rustls::ClientConnection;
use quintet_tls::{ClientFiles, client_config, server_name};
use rustix::process::Signal;

use crate::node::{Cluster, Node};
use crate::servers::until;

const HERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 5);
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 6);

/// An owner and a standby.
fn two(cluster: &Cluster, config: &str) -> (Node, Node) {
    let mut a = cluster.node("a", config);
    a.wait_for("quintet owner");
    let mut b = cluster.node("b", config);
    b.wait_for("quintet standby of a");
    (a, b)
}

#[test]
#[ignore = "needs nats-server"]
fn an_address_is_the_clients_whichever_node_it_comes_to() {
    let cluster = Cluster::start("addresses");
    let config = "[[limit]]\naddress = '127.0.0.0/8'\nconnections_max = 1\n";
    let (a, b) = two(&cluster, config);
    let mut through = b.client_from(HERE);
    through.put("one");
    // The owner sees peer connections of one address: it counts clients by their own.
    let mut other = b.client_from(ELSEWHERE);
    other.put("two");
    for node in [&a, &b] {
        // It says so unasked: what is sent to a closed connection takes the answer away.
        let output = node.client_from(HERE).rest();
        assert!(
            output.starts_with("SERVER_ERROR too many connections from this address"),
            "{output:?}"
        );
    }
    drop(through);
    until("there is room again", || {
        let mut again = a.client_from(HERE);
        again.ask("version\r\nquit\r\n");
        again.rest().starts_with("VERSION").then_some(())
    });
}

#[test]
#[ignore = "needs nats-server"]
fn failed_handshakes_at_a_proxy_count_against_their_address() {
    let cluster = Cluster::start("handshakes");
    let config = "tls = 'self-signed'\n\
                  [[limit]]\naddress = '127.0.0.0/8'\nfailures_per_minute = 2\n";
    let (_a, b) = two(&cluster, config);
    let ca = cluster.dir().join("b/tls-self-signed.crt");
    assert!(shakes(&b, &ca, HERE));
    for _ in 0..2 {
        let mut plain = b.client_from(HERE);
        plain.ask("get q\r\n");
        assert_eq!(plain.rest(), "");
    }
    // It is counted after its connection is closed.
    until("the address is refused", || {
        (!shakes(&b, &ca, HERE)).then_some(())
    });
    assert!(shakes(&b, &ca, ELSEWHERE));
}

#[test]
#[ignore = "needs nats-server"]
fn a_node_that_follows_reads_its_limits_again() {
    let cluster = Cluster::start("limits-again");
    let limits = |failures: u32| {
        format!(
            "tls = 'self-signed'\n\
             [[limit]]\naddress = '127.0.0.0/8'\nfailures_per_minute = {failures}\n"
        )
    };
    let (_a, b) = two(&cluster, &limits(0));
    let ca = cluster.dir().join("b/tls-self-signed.crt");
    let fails = || {
        let mut plain = b.client_from(HERE);
        plain.ask("get q\r\n");
        assert_eq!(plain.rest(), "");
    };
    for _ in 0..9 {
        fails();
    }
    assert!(shakes(&b, &ca, HERE));
    cluster.config("b", &limits(1));
    b.signal(Signal::HUP);
    until("the address is refused", || {
        fails();
        (!shakes(&b, &ca, HERE)).then_some(())
    });
    assert!(shakes(&b, &ca, ELSEWHERE));
}

/// Whether a handshake of a client from there comes to its end.
fn shakes(node: &Node, ca: &Path, from: Ipv4Addr) -> bool {
    let files = ClientFiles {
        ca: Some(ca.to_owned()),
        shown: None,
    };
    let config = client_config(&files).expect("a certificate");
    let name = server_name("127.0.0.1:0").expect("a name");
    let mut tls = ClientConnection::new(config, name).expect("a client");
    let mut stream = node.stream_from(from);
    while tls.is_handshaking() {
        if tls.complete_io(&mut stream).is_err() {
            return false;
        }
    }
    true
}
