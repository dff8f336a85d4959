//! Connections without state, which outlive an ownership: a node that hands over keeps them, and
//! brings them to the new owner.

use std::os::fd::OwnedFd;

use mio::Registry;
use quintet_http::Connected;
use quintet_process::again;

use super::conn::{Conn, Secrecy};
use super::mail::Way;
use super::thread::IoThread;
use crate::edge::Listening;

impl IoThread {
    /// Whether the next owner could go on with this connection as if it had just been accepted.
    /// Nothing more is decided for it from here on.
    pub(super) fn may_go_on_elsewhere(&mut self, slot: u32) -> bool {
        let edge = &self.shared.edge;
        let conn = self.conns.get_mut(slot);
        let fresh = conn.filter(|conn| conn.is_as_accepted() && !edge.is_operator(conn.listener));
        let Some(client_id) = fresh.map(|conn| conn.caller.client_id) else {
            return false;
        };
        !self.with_access(|access| access.holds_leases(client_id))
    }
}

impl Conn {
    /// True if it has no state but replies that are still to leave.
    fn is_as_accepted(&self) -> bool {
        let Self {
            number: _,
            stream: _,
            way,
            secrecy,
            identity,
            origin: _,
            session,
            caller: _,
            user,
            proof,
            listener: _,
            inbox,
            out: _,
            phase,
            standing,
            who,
            half_close,
            unfinished,
            pause: _,
            meter: _,
            charged: _,
            blocked: _,
            goes_on: _,
            listed: _,
            active: _,
        } = self;
        let anonymous = identity.is_none() && user.is_none() && *proof == 0;
        // No hook has been shown it.
        let unseen = who.is_none() && unfinished.is_none();
        let rests = phase.is_open() && standing.is_none() && half_close.is_none();
        *way == Way::Direct
            && *secrecy == Secrecy::Plain
            && anonymous
            && unseen
            && rests
            && inbox.is_empty()
            && session.is_as_opened()
    }

    /// Hands its socket on to the next owner. False: it cannot, and the connection closes.
    pub(super) fn hand_on(&mut self, listening: &Listening, registry: &Registry) -> bool {
        let socket: OwnedFd = match self.stream.hand_on(registry) {
            Ok(Connected::Tcp(stream)) => stream.into(),
            Ok(Connected::Unix(stream)) => stream.into(),
            Err(error) => {
                tracing::debug!(conn = self.number, "cannot hand on a connection: {error}");
                return false;
            }
        };
        again::keep_connection(listening.protocol, &listening.address, socket)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _};

    use mio::net::UnixStream;
    use mio::{Poll, Token};
    use quintet_types::Caller;
    use quintet_wire::{HalfClose, Options};

    use super::*;
    use crate::io::conn::{Phase, Standing, Wait};
    use crate::io::inbox::Feed;
    use crate::io::mail::Arrival;
    use crate::io::{Family, Origin};
    use crate::quotas::Meter;

    fn listening() -> Listening {
        let protocol = quintet_wire::protocol("memcache").expect("a protocol");
        let opener = (protocol.listener)(&Options::new(protocol.options));
        Listening {
            opener: opener.expect("a listener"),
            tally: 0,
            protocol: protocol.name,
            idle_ms: 0,
            operator: false,
            api: false,
            user: String::new(),
            address: "unix:/m".to_owned(),
            tls: None,
            foreign_reported: Default::default(),
        }
    }

    /// A client's end, and the server's.
    fn connection(listening: &Listening) -> (UnixStream, Conn) {
        let (client, server) = UnixStream::pair().expect("a pair");
        let arrival = Arrival {
            number: 1,
            stream: server.into(),
            origin: Origin::Listener(0),
            listener: 0,
            way: Way::Direct,
            user: None,
            identity: None,
            meter: Meter::default(),
        };
        let session = listening.opener.open();
        (client, Conn::new(arrival, session, Caller::default()))
    }

    #[test]
    fn a_connection_with_state_does_not_go_on() {
        type Change = fn(&mut Conn);
        let changes: [(&str, Change); 9] = [
            ("a tunnel", |conn| conn.way = Way::Forwarded(None)),
            ("TLS", |conn| conn.secrecy = Secrecy::Secret),
            ("a user", |conn| conn.user = Some("ann".into())),
            ("a proof", |conn| conn.proof = 1),
            ("a byte", |conn| conn.inbox.bytes.push(b'g')),
            ("an end", |conn| conn.inbox.feed = Feed::Ended),
            ("a take", |conn| {
                conn.phase = Phase::Waits(Wait {
                    undone: false,
                    family: Family::Other,
                    in_line: true,
                    bytes: 0,
                });
            }),
            ("a subscription", |conn| {
                conn.standing = Some(Standing {
                    leased: true,
                    bytes: 0,
                });
            }),
            ("half an end", |conn| {
                conn.half_close = Some(HalfClose::Close)
            }),
        ];
        let listening = listening();
        for (what, change) in changes {
            let (_client, mut conn) = connection(&listening);
            assert!(conn.is_as_accepted());
            change(&mut conn);
            assert!(!conn.is_as_accepted(), "{what}");
        }
    }

    #[test]
    fn a_connection_that_is_handed_on_outlives_its_thread() {
        let (poll, listening) = (Poll::new().expect("a poll"), listening());
        let (mut client, mut conn) = connection(&listening);
        let registered = conn.stream.register(poll.registry(), Token(0));
        registered.expect("registered");
        let before = again::kept_connections();
        assert!(conn.hand_on(&listening, poll.registry()));
        assert_eq!(again::kept_connections(), before + 1);
        drop((conn, poll));
        let read = client.read(&mut [0]).expect_err("it is open");
        assert_eq!(read.kind(), ErrorKind::WouldBlock);
    }
}
