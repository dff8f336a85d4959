//! A hook's replies to a request, in each protocol's own form.

use quintet_types::{CommandError, Ms, Name, Outcome};
use quintet_wire::{
    ClientRequest, Env, HookReply, Logins, Next, Options, Output, PROTOCOLS, ServerResponse,
    Session, Step, Tally,
};

fn session(protocol: &str) -> Box<dyn Session> {
    let protocol = PROTOCOLS.iter().find(|known| known.name == protocol);
    let protocol = protocol.expect("a protocol");
    (protocol.listener)(&Options::new(protocol.options))
        .expect("a listener")
        .open()
}

/// Decodes the whole input; the last request's ask.
fn decode(session: &mut dyn Session, mut input: &[u8], tally: &Tally) -> Option<ClientRequest> {
    let env = Env {
        now: Ms(1),
        tally,
        logins: Logins::Off,
    };
    let mut last = None;
    loop {
        match session.decode(input, &env) {
            Step::More | Step::Stream { .. } => return last,
            Step::Skip { used } => input = &input[used..],
            Step::ClientRequest { used, ask } => {
                // Those before it are answered.
                if last.is_some() {
                    session.encode(&ServerResponse::Own, &env, &mut Output::default());
                }
                last = Some(ask);
                input = &input[used..];
            }
        }
    }
}

fn reply_to_hook(
    protocol: &str,
    request: &[u8],
    hook_reply: HookReply<'_>,
) -> (Option<ClientRequest>, Vec<u8>) {
    let tally = Tally::new();
    let mut session = session(protocol);
    let ask = decode(&mut *session, request, &tally);
    let mut output = Output::default();
    assert!(matches!(session.say(hook_reply, &mut output), Next::Done));
    (ask, output.bytes().to_vec())
}

/// A quiet set of `a` in memcached's binary protocol, and what says no to it.
const BINARY_SETQ: &[u8] =
    b"\x80\x11\0\x01\x08\0\0\0\0\0\0\x0a\0\0\0\x07\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0qa";
const BINARY_NO: &[u8] = b"\x81\x11\0\0\0\0\0\x86\0\0\0\x09\0\0\0\x07\0\0\0\0\0\0\0\0no, sorry";

/// Replies that say no are distinguished from others, which misses are.
#[test]
fn a_binary_reply_has_a_status() {
    let tally = Tally::new();
    let mut session = session("memcache");
    decode(&mut *session, BINARY_SETQ, &tally);
    assert!(session.says_no(BINARY_NO));
    for (status, no) in [(0, false), (1, false), (3, true), (0x81, true)] {
        let mut reply = BINARY_NO.to_vec();
        reply[7] = status;
        assert_eq!(session.says_no(&reply), no, "{status}");
    }
}

/// A hook's message in place of one that a binary get takes: with a key.
#[test]
fn a_binary_get_gets_a_message_in_its_own_form() {
    let getk = b"\x80\x0c\0\x01\0\0\0\0\0\0\0\x01\0\0\0\x07\0\0\0\0\0\0\0\0q";
    let (_, bytes) = reply_to_hook("memcache", getk, HookReply::Message(b"abc"));
    assert_eq!(
        bytes,
        b"\x81\x0c\0\x01\x04\0\0\0\0\0\0\x08\0\0\0\x07\0\0\0\0\0\0\0\0\0\0\0\0qabc"
    );
}

#[test]
fn a_command_error_has_each_protocols_own_form() {
    let job = b"ADD\0mails\0\x01\0\0\0\0\0\0\0\x01\0\0\0x";
    for (protocol, request, expected) in [
        ("lineup", &b"PUSH 1 1\r\na\r\n"[..], &b"-no, sorry\r\n"[..]),
        ("lineup", b"POP\r\n", b"-no, sorry\r\n"),
        (
            "memcache",
            b"set q 0 0 1\r\na\r\n",
            b"SERVER_ERROR no, sorry\r\n",
        ),
        ("memcache", b"set q 0 0 1 noreply\r\na\r\n", b""),
        ("memcache", b"get q\r\n", b"SERVER_ERROR no, sorry\r\n"),
        (
            "memcache",
            b"ms q 1 q\r\na\r\n",
            b"SERVER_ERROR no, sorry\r\n",
        ),
        ("beanstalk", b"put 1 0 1 1\r\na\r\n", b"INTERNAL_ERROR\r\n"),
        ("jobqueue", job, b"ERROR\0no, sorry\0"),
        ("memcache", BINARY_SETQ, BINARY_NO),
        // A connection that is refused.
        ("lineup", b"", b"-no, sorry\r\n"),
        ("memcache", b"", b"SERVER_ERROR no, sorry\r\n"),
        ("beanstalk", b"", b"INTERNAL_ERROR\r\n"),
        ("jobqueue", b"", b"ERROR\0no, sorry\0"),
        ("pinpriq", b"", b""),
    ] {
        let (_, bytes) = reply_to_hook(protocol, request, HookReply::Refused("no, sorry"));
        assert_eq!(bytes, expected, "{protocol} {}", request.escape_ascii());
    }
}

/// A put and a take while what they do could not be kept by enough machines.
#[test]
fn no_quorum_has_each_protocols_own_form() {
    let tally = Tally::new();
    let env = Env {
        now: Ms(1),
        tally: &tally,
        logins: Logins::Off,
    };
    let job = b"ADD\0mails\0\x01\0\0\0\0\0\0\0\x01\0\0\0x";
    for (protocol, request, expected, closes) in [
        ("lineup", &b"PUSH 1 1\r\na\r\n"[..], "-no quorum\r\n", false),
        ("lineup", b"POP\r\n", "-no quorum\r\n", false),
        (
            "memcache",
            b"set q 0 0 1\r\na\r\n",
            "SERVER_ERROR no quorum\r\n",
            true,
        ),
        ("memcache", b"get q\r\n", "SERVER_ERROR no quorum\r\n", true),
        (
            "beanstalk",
            b"put 1 0 1 1\r\na\r\n",
            "INTERNAL_ERROR\r\n",
            false,
        ),
        ("beanstalk", b"reserve\r\n", "INTERNAL_ERROR\r\n", false),
        (
            "beanstalk",
            b"stats-tube default\r\n",
            "INTERNAL_ERROR\r\n",
            false,
        ),
        ("jobqueue", job, "ERROR\0no quorum\0", false),
        ("pinpriq", b"\x50\0\x01q", "", true),
    ] {
        let mut session = session(protocol);
        let ask = decode(&mut *session, request, &tally);
        let Some(ClientRequest::Engine(_) | ClientRequest::EngineOrClose(_)) = ask else {
            panic!("{protocol}: {ask:?}");
        };
        let mut output = Output::default();
        let refused = Outcome::Refused(CommandError::Unavailable);
        let response = ServerResponse::Engine(refused, Name::default());
        let next = session.encode(&response, &env, &mut output);
        let bytes = String::from_utf8_lossy(output.bytes());
        assert_eq!(bytes, expected, "{protocol} {}", request.escape_ascii());
        assert_eq!(matches!(next, Next::Close), closes, "{protocol}");
    }
}

#[test]
fn a_command_no_protocol_knows_is_offered_and_answered() {
    for (protocol, line, body) in [
        ("lineup", "+pong pong\r\n", "$3\r\nabc\r\n"),
        (
            "memcache",
            "pong pong\r\n",
            "VALUE hook 0 3\r\nabc\r\nEND\r\n",
        ),
        ("beanstalk", "pong pong\r\n", "OK 3\r\nabc\r\n"),
    ] {
        let (ask, bytes) = reply_to_hook(
            protocol,
            b"PONG twice  over\r\n",
            HookReply::Line("pong pong"),
        );
        let Some(ClientRequest::Unknown(offered)) = ask else {
            panic!("{protocol}: {ask:?}");
        };
        assert_eq!(&*offered, b"PONG twice  over", "{protocol}");
        assert_eq!(String::from_utf8_lossy(&bytes), line, "{protocol}");
        let (_, bytes) = reply_to_hook(protocol, b"PONG\r\n", HookReply::Message(b"abc"));
        assert_eq!(String::from_utf8_lossy(&bytes), body, "{protocol}");
    }
}

/// The data of a set that no queue does is not taken for commands: nothing is
/// said before it has come.
#[test]
fn unwanted_data_is_read_before_the_error() {
    let tally = Tally::new();
    for (head, data) in [
        (&b"ms q 4 MA\r\n"[..], &b"mn\r\n\r\n"[..]),
        (b"add q 0 0 4\r\n", b"mn\r\n\r\n"),
        // A binary add.
        (
            b"\x80\x02\0\0\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\0\0\0\0\0",
            b"\x80\x0a\0\0",
        ),
    ] {
        let mut session = session("memcache");
        assert!(decode(&mut *session, head, &tally).is_none());
        let requested = decode(&mut *session, data, &tally);
        assert!(
            matches!(requested, Some(ClientRequest::Own | ClientRequest::Close)),
            "{requested:?}"
        );
    }
}

/// Why the host dropped a long body is reported: a full queue is no item too large.
#[test]
fn a_long_binary_set_gets_the_reason_of_its_error() {
    let tally = Tally::new();
    let env = Env {
        now: Ms(1),
        tally: &tally,
        logins: Logins::Off,
    };
    for (command_error, status) in [
        (CommandError::QueueFull, 5),
        (CommandError::MessageTooLarge, 3),
        (CommandError::NoSpace, 0x82),
        (CommandError::Draining, 0x86),
    ] {
        let mut session = session("memcache");
        let mut head = BINARY_SETQ[..33].to_vec();
        head[8..12].copy_from_slice(&70_009u32.to_be_bytes());
        let step = session.decode(&head, &env);
        assert!(
            matches!(
                step,
                Step::Stream {
                    used: 33,
                    len: 70_000,
                    ..
                }
            ),
            "{step:?}"
        );
        session.streamed(Err(command_error));
        let step = session.decode(b"", &env);
        assert!(
            matches!(
                step,
                Step::ClientRequest {
                    used: 0,
                    ask: ClientRequest::Own
                }
            ),
            "{step:?}"
        );
        let mut output = Output::default();
        let next = session.encode(&ServerResponse::Own, &env, &mut output);
        assert!(matches!(next, Next::Done));
        assert_eq!(output.bytes()[6..8], [0, status], "{command_error:?}");
    }
}

/// A hook's message in place of one that a meta get takes.
#[test]
fn a_meta_get_gets_a_message_in_its_own_form() {
    let (_, bytes) = reply_to_hook("memcache", b"mg q v O7 f\r\n", HookReply::Message(b"abc"));
    assert_eq!(String::from_utf8_lossy(&bytes), "VA 3 O7 f0\r\nabc\r\n");
}

#[test]
fn an_unknown_line_gets_the_protocols_own_error() {
    let tally = Tally::new();
    let env = Env {
        now: Ms(1),
        tally: &tally,
        logins: Logins::Off,
    };
    for (protocol, expected, closes) in [
        ("lineup", "-INVALID_COMMAND\r\n", false),
        ("memcache", "ERROR\r\n", true),
        ("beanstalk", "UNKNOWN_COMMAND\r\n", false),
    ] {
        let mut session = session(protocol);
        decode(&mut *session, b"PONG\r\n", &tally);
        let mut output = Output::default();
        let next = session.encode(&ServerResponse::Own, &env, &mut output);
        assert_eq!(matches!(next, Next::Close), closes, "{protocol}");
        assert_eq!(String::from_utf8_lossy(output.bytes()), expected);
    }
}
