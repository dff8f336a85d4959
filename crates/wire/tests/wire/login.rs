//! How the protocols that can let a client log in do.

use quintet_types::{CommandError, MessageId, Ms, Name, Outcome};
use quintet_wire::{
    ClientRequest, Env, LoginRefused, Logins, Options, Output, PROTOCOLS, ServerResponse, Session,
    Step, Tally,
};

fn refused() -> ServerResponse {
    ServerResponse::Engine(
        Outcome::Refused(CommandError::NotPermitted),
        Name::default(),
    )
}

struct Client {
    session: Box<dyn Session>,
    tally: Tally,
    logins: Logins,
    input: Vec<u8>,
}

impl Client {
    fn of(protocol: &str, logins: Logins) -> Self {
        let protocol = quintet_wire::protocol(protocol).expect("a protocol");
        let listener = (protocol.listener)(&Options::new(protocol.options)).expect("a listener");
        Self {
            session: listener.open(),
            tally: Tally::new(),
            logins,
            input: Vec::new(),
        }
    }

    /// Sends bytes and returns the session's next request.
    fn asks(&mut self, bytes: &[u8]) -> Option<ClientRequest> {
        self.input.extend_from_slice(bytes);
        loop {
            let env = Env {
                now: Ms(1),
                tally: &self.tally,
                logins: self.logins,
            };
            match self.session.decode(&self.input, &env) {
                Step::More => return None,
                Step::Skip { used } => drop(self.input.drain(..used)),
                Step::ClientRequest { used, ask } => {
                    self.input.drain(..used);
                    return Some(ask);
                }
                Step::Stream { .. } => panic!("a large body"),
            }
        }
    }

    fn reply_to(&mut self, response: ServerResponse) -> String {
        if let ServerResponse::Login(Ok(())) = response {
            self.logins = Logins::Open;
        }
        let env = Env {
            now: Ms(1),
            tally: &self.tally,
            logins: self.logins,
        };
        let mut output = Output::new();
        self.session.encode(&response, &env, &mut output);
        String::from_utf8_lossy(output.bytes()).into_owned()
    }

    /// Logs in and gets this reply.
    fn logs_in(&mut self, bytes: &[u8], response: ServerResponse) -> String {
        let request = self.asks(bytes);
        let Some(ClientRequest::Login(login)) = request else {
            panic!("no login: {request:?}");
        };
        assert_eq!((&*login.name, &*login.secret), (&b"ann"[..], &b"hush"[..]));
        self.reply_to(response)
    }
}

#[test]
fn memcache_needs_a_set_to_log_in() {
    let mut client = Client::of("memcache", Logins::Needed);
    for line in [
        "get work\r\n",
        "stats\r\n",
        "nonsense\r\n",
        "\r\n",
        "version\r\n",
    ] {
        assert!(
            matches!(client.asks(line.as_bytes()), Some(ClientRequest::Own)),
            "{line}"
        );
        assert_eq!(
            client.reply_to(ServerResponse::Own),
            "CLIENT_ERROR unauthenticated\r\n"
        );
    }
    let wrong = ServerResponse::Login(Err(LoginRefused::Wrong));
    let login = b"set any 0 0 8\r\nann hush\r\n";
    assert_eq!(
        client.logs_in(login, wrong),
        "CLIENT_ERROR authentication failure\r\n"
    );
    for byte in &login[..login.len() - 1] {
        assert!(client.asks(&[*byte]).is_none());
    }
    assert_eq!(
        client.logs_in(&login[login.len() - 1..], ServerResponse::Login(Ok(()))),
        "STORED\r\n"
    );
    // From here a set is a set.
    assert!(matches!(
        client.asks(b"set work 0 0 2\r\nhi\r\n"),
        Some(ClientRequest::Engine(_))
    ));
    assert_eq!(client.reply_to(refused()), "CLIENT_ERROR not permitted\r\n");
}

/// The meta command for it is the same.
#[test]
fn memcache_lets_in_by_a_meta_set() {
    let mut client = Client::of("memcache", Logins::Needed);
    assert!(matches!(
        client.asks(b"mg work v\r\n"),
        Some(ClientRequest::Own)
    ));
    assert_eq!(
        client.reply_to(ServerResponse::Own),
        "CLIENT_ERROR unauthenticated\r\n"
    );
    let login = b"ms any 8 O7 T0\r\nann hush\r\n";
    let busy = ServerResponse::Login(Err(LoginRefused::Busy));
    assert_eq!(
        client.logs_in(login, busy),
        "CLIENT_ERROR too many logins at once, try again later\r\n"
    );
    assert_eq!(
        client.logs_in(login, ServerResponse::Login(Ok(()))),
        "HD O7\r\n"
    );
    assert!(matches!(
        client.asks(b"ms work 2\r\nhi\r\n"),
        Some(ClientRequest::Engine(_))
    ));
    assert_eq!(client.reply_to(refused()), "CLIENT_ERROR not permitted\r\n");
}

/// A request of memcached's binary protocol.
fn binary(opcode: u8, key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 24];
    bytes[..2].copy_from_slice(&[0x80, opcode]);
    bytes[3] = key.len() as u8;
    bytes[8..12].copy_from_slice(&((key.len() + value.len()) as u32).to_be_bytes());
    [&bytes, key, value].concat()
}

/// The status and the text of a reply of that protocol.
fn status_and_text(reply: &str) -> (u8, &str) {
    // Its first byte is no text.
    let reply = reply.strip_prefix('\u{fffd}').expect("a reply");
    (reply.as_bytes()[6], &reply[23..])
}

#[test]
fn memcache_lets_in_by_sasl() {
    let mut client = Client::of("memcache", Logins::Needed);
    for (opcode, key) in [(0x00, &b"q"[..]), (0x0b, b""), (0x10, b""), (0x7f, b"")] {
        let request = client.asks(&binary(opcode, key, b""));
        assert!(matches!(request, Some(ClientRequest::Own)), "{opcode}");
        assert_eq!(
            status_and_text(&client.reply_to(ServerResponse::Own)),
            (0x20, "unauthenticated")
        );
    }
    assert!(matches!(
        client.asks(&binary(0x20, b"", b"")),
        Some(ClientRequest::Own)
    ));
    let list = client.reply_to(ServerResponse::Own);
    // With a blank behind it, as some clients read beyond the reply's end.
    assert_eq!(status_and_text(&list), (0, "PLAIN "));
    for (mechanism, value) in [
        (&b"CRAM-MD5"[..], &b"\0ann\0hush"[..]),
        (b"PLAIN", b"ann hush"),
        (b"PLAIN", b"bob\0ann\0hush"),
    ] {
        let request = client.asks(&binary(0x21, mechanism, value));
        assert!(matches!(request, Some(ClientRequest::Own)), "{request:?}");
        let refused = client.reply_to(ServerResponse::Own);
        assert_eq!(status_and_text(&refused).0, 0x20);
    }
    let login = binary(0x21, b"PLAIN", b"\0ann\0hush");
    let wrong = client.logs_in(&login, ServerResponse::Login(Err(LoginRefused::Wrong)));
    assert_eq!(status_and_text(&wrong), (0x20, "authentication failure"));
    let right = client.logs_in(&login, ServerResponse::Login(Ok(())));
    assert_eq!(status_and_text(&right), (0, "Authenticated"));
    assert!(matches!(
        client.asks(&binary(0x00, b"q", b"")),
        Some(ClientRequest::Engine(_))
    ));
    let no = client.reply_to(refused());
    assert_eq!(status_and_text(&no), (0x20, "not permitted"));
}

/// A connection that has not logged in has little read of it.
#[test]
fn memcache_reads_little_before_a_login() {
    for opcode in [0x01, 0x21, 0x7f] {
        let mut head = binary(opcode, b"", b"");
        head[8..12].copy_from_slice(&4097u32.to_be_bytes());
        let mut client = Client::of("memcache", Logins::Needed);
        let request = client.asks(&head);
        assert!(
            matches!(request, Some(ClientRequest::Close)),
            "{opcode}: {request:?}"
        );
    }
}

#[test]
fn memcache_knows_where_the_block_ends_or_closes() {
    for bytes in [
        &b"set any 0 0 2049\r\n"[..],
        b"set any 0 0 x\r\n",
        b"set any 0 0\r\n",
        b"set\r\n",
        b"ms any 2049\r\n",
        b"ms any\r\n",
        b"ms any 8 O7 O7\r\nann hush\r\n",
        b"set any 0 0 8\r\nann hushXX",
    ] {
        let mut client = Client::of("memcache", Logins::Needed);
        let request = client.asks(bytes);
        assert!(matches!(request, Some(ClientRequest::Close)), "{request:?}");
        assert_eq!(
            client.reply_to(ServerResponse::Own),
            "CLIENT_ERROR bad data chunk\r\n"
        );
    }
    // A name alone, and bytes that are no text, are only wrong.
    for block in [&b"ann"[..], b"", b"\xff\xfe \xfd", &[b' '; 2048]] {
        let mut client = Client::of("memcache", Logins::Needed);
        let head = format!("set any 0 0 {}\r\n", block.len());
        let request = client.asks(&[head.as_bytes(), block, b"\r\n"].concat());
        assert!(
            matches!(request, Some(ClientRequest::Login(_))),
            "{request:?}"
        );
    }
}

#[test]
fn beanstalk_has_a_line_for_it() {
    let mut client = Client::of("beanstalk", Logins::Needed);
    for (refused, line) in [
        (LoginRefused::Wrong, "NOT_PERMITTED\r\n"),
        (LoginRefused::Throttled, "TOO_MANY_FAILURES\r\n"),
        (LoginRefused::Busy, "TOO_MANY_LOGINS\r\n"),
        (LoginRefused::TooMany, "TOO_MANY_CONNECTIONS\r\n"),
    ] {
        let received = client.logs_in(b"auth ann hush\r\n", ServerResponse::Login(Err(refused)));
        assert_eq!(received, line);
    }
    assert!(matches!(
        client.asks(b"put 0 0 60 2\r\nhi\r\n"),
        Some(ClientRequest::Engine(_))
    ));
    assert_eq!(client.reply_to(refused()), "NOT_PERMITTED\r\n");
    let received = client.logs_in(b"auth ann hush\r\n", ServerResponse::Login(Ok(())));
    assert_eq!(received, "OK\r\n");
    // Now it refers to its tubes, and then asks.
    assert!(matches!(
        client.asks(b"reserve\r\n"),
        Some(ClientRequest::Engine(_))
    ));
    assert_eq!(
        client.reply_to(ServerResponse::Engine(Outcome::Done, Name::default())),
        ""
    );
    assert!(matches!(client.asks(b""), Some(ClientRequest::Engine(_))));
}

#[test]
fn lineup_has_a_line_for_it() {
    let mut client = Client::of("lineup", Logins::Needed);
    let wrong = ServerResponse::Login(Err(LoginRefused::Wrong));
    assert_eq!(
        client.logs_in(b"AUTH ann hush\n", wrong),
        "-NOT_PERMITTED\r\n"
    );
    assert!(matches!(
        client.asks(b"POP\r\n"),
        Some(ClientRequest::Engine(_))
    ));
    assert_eq!(client.reply_to(refused()), "-NOT_PERMITTED\r\n");
    let received = client.logs_in(b"auth ann hush\r\n", ServerResponse::Login(Ok(())));
    assert_eq!(received, "+OK\r\n");
}

/// Where there is nobody to be, the word is as unknown as it ever was.
#[test]
fn without_users_no_protocol_knows_the_word() {
    for protocol in PROTOCOLS {
        let mut client = Client::of(protocol.name, Logins::Off);
        for _ in 0..3 {
            let request = client.asks(b"auth ann hush\r\n");
            assert!(
                !matches!(request, Some(ClientRequest::Login(_))),
                "{}",
                protocol.name
            );
            if let Some(ClientRequest::Engine(_)) = request {
                client.reply_to(ServerResponse::Engine(
                    Outcome::Put {
                        id: MessageId(1),
                        fresh: true,
                    },
                    Name::default(),
                ));
            }
        }
    }
}
