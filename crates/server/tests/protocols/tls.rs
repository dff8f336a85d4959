//! Every protocol under TLS, its certificates, and what goes wrong with them.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quintet_tls::rustls::version::{TLS12, TLS13};
use quintet_tls::rustls::{ClientConfig, ConnectionTrafficSecrets, SupportedProtocolVersion};
use quintet_tls::{certificates, private_key, roots};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

use crate::common::{Client, Server, Start, eventually, noise, quintet, text, tls};

/// An authority, and what it signs.
pub(crate) struct Authority {
    dir: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "ca");
        let key = KeyPair::generate().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        fs::write(dir.path().join("ca.crt"), pem).unwrap();
        let issuer = Issuer::new(params, key);
        Self { dir, issuer }
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.crt")
    }

    /// Writes a certificate and its key; answers their paths. `end`: the year
    /// it ends.
    pub(crate) fn sign(&self, name: &str, end: i32) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_after = date_time_ymd(end, 1, 1);
        let key = KeyPair::generate().unwrap();
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        let file = |end: &str| self.dir.path().join(format!("{name}.{end}"));
        replace(&file("crt"), &signed.pem());
        replace(&file("key"), &key.serialize_pem());
        fs::set_permissions(file("key"), fs::Permissions::from_mode(0o600)).unwrap();
        (file("crt"), file("key"))
    }

    /// Settings of a server that shows a certificate of the name `localhost`.
    pub(crate) fn settings(&self) -> String {
        let (cert, key) = self.sign("localhost", 2100);
        format!(
            "tls_cert = '{}'\ntls_key = '{}'\n",
            cert.display(),
            key.display()
        )
    }

    /// The same of one to which clients have to show theirs.
    pub(crate) fn asking(&self) -> String {
        format!(
            "tls_client_ca = '{}'\n{}",
            self.ca().display(),
            self.settings()
        )
    }

    /// A file with the password `hush`.
    pub(crate) fn secret(&self) -> PathBuf {
        let secret = self.dir.path().join("secret");
        replace(&secret, "hush\n");
        secret
    }

    /// A command for a server elsewhere, with this certificate shown to it.
    pub(crate) fn remote(
        &self,
        server: &Server,
        words: &[&str],
        shown: Option<&(PathBuf, PathBuf)>,
    ) -> Command {
        let at = server.address_of("http").replace("127.0.0.1", "localhost");
        let mut command = quintet(words);
        // Two names of one option.
        let option = ["--host", "--server"][usize::from(shown.is_some())];
        command.args([option, &format!("https://{at}"), "--ca"]);
        command.arg(self.ca());
        if let Some((cert, key)) = shown {
            command.arg("--cert").arg(cert).arg("--key").arg(key);
        }
        command
    }
}

/// Another file in its place, as tools that renew certificates do.
pub(crate) fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(new, file).unwrap();
}

/// A client that trusts `ca`, and shows this.
fn config(
    ca: &Path,
    versions: &[&'static SupportedProtocolVersion],
    shown: Option<&(PathBuf, PathBuf)>,
) -> ClientConfig {
    let provider = Arc::new(quintet_tls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots(ca).unwrap());
    match shown {
        None => config.with_no_client_auth(),
        Some((cert, key)) => {
            let (chain, key) = (certificates(cert).unwrap(), private_key(key).unwrap());
            config.with_client_auth_cert(chain, key).unwrap()
        }
    }
}

const BOTH: &[&SupportedProtocolVersion] = &[&TLS12, &TLS13];
/// Every protocol with a listener, HTTP last.
pub(crate) const ALL: [&str; 6] = [
    "memcache",
    "lineup",
    "jobqueue",
    "pinpriq",
    "beanstalk",
    "http",
];
pub(crate) const LISTEN: [&str; 6] = [
    "memcache=0",
    "lineup=0",
    "jobqueue=0",
    "pinpriq=0",
    "beanstalk=0",
    "http=0",
];

/// A server all of whose listeners have made their own certificate.
struct SelfSigned {
    server: Server,
}

impl SelfSigned {
    fn start(more: &str) -> Self {
        let config = format!("tls = 'self-signed'\nlog_level = 'debug'\n{more}");
        let server = Start::of(&config).listen(&LISTEN).serve_logged();
        Self { server }
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.server.data.join(quintet_tls::CERTIFICATE)
    }

    fn client(&self, protocol: &str) -> Client {
        let config = config(&self.ca(), BOTH, None);
        Client::tls(self.server.address_of(protocol), Arc::new(config))
    }

    fn await_failures(&self, reason: &str, wanted: u64) {
        let name = format!("tls_failures_{reason}");
        self.server.await_number(&name, |count| count == wanted);
    }

    /// Log lines about clients that were refused.
    fn logged(&self) -> String {
        let log = self.server.stderr_text();
        let lines = log.lines().filter(|line| line.contains("TLS refused"));
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// TLS says the end of a client's side in a record of its own, which a wait must not leave unread.
#[test]
fn waits_under_tls_end_with_their_clients() {
    let listen = ["memcache=0", "beanstalk=0", "faktory=0", "http=0"];
    let start = Start::of("tls = 'self-signed'\n").listen(&listen);
    let own = SelfSigned {
        server: start.serve_logged(),
    };
    let mut client = own.client("beanstalk");
    client.send(b"watch q\r\nreserve\r\nwatch more\r\n");
    own.server.await_number("waiters", |waiters| waiters > 0);
    client.half_close();
    let replies = text(&client.exact(usize::MAX));
    assert!(replies.contains("TIMED_OUT\r\n"), "{replies}");
    // A job is nobody's whose client has gone.
    let mut client = own.client("faktory");
    client.send(b"HELLO {\"v\":2}\r\nFETCH f\r\n");
    own.server.await_number("waiters", |waiters| waiters > 0);
    client.half_close();
    let replies = text(&client.exact(usize::MAX));
    assert!(replies.ends_with("$-1\r\n"), "{replies}");
    // A poll and another behind it, which is in memory while the first waits.
    let body = "{\"wait_ms\":60000}";
    let poll = format!(
        "POST /api/v1/queues/q/reserve HTTP/1.1\r\nhost: localhost\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut client = own.client("http");
    client.send(poll.repeat(2).as_bytes());
    own.server.await_number("waiters", |waiters| waiters > 0);
    let began = Instant::now();
    drop(client);
    own.server.await_number("waiters", |waiters| waiters == 0);
    assert!(began.elapsed() < Duration::from_secs(50));
}

#[test]
fn every_protocol_is_spoken_under_both_versions() {
    let own = SelfSigned::start("");
    let key = own.server.data.join(quintet_tls::KEY);
    let mode = fs::metadata(key).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for version in [&TLS12, &TLS13] {
        let config = Arc::new(config(&own.ca(), &[version], None));
        let of = |protocol: &str| Client::tls(own.server.address_of(protocol), Arc::clone(&config));
        let mut client = of("memcache");
        client.put("q", b"hello");
        client.take("q", b"hello");
        for len in [16_384, 100_000, 3 << 20] {
            let body = noise(len);
            client.put("big", &body);
            client.take("big", &body);
        }
        // Many requests in a record, their replies in few.
        client.ask(
            &b"set q 0 0 2\r\nhi\r\n".repeat(2000),
            &b"STORED\r\n".repeat(2000),
        );
        client.ask(
            &b"get q\r\n".repeat(2000),
            &b"VALUE q 0 2\r\nhi\r\nEND\r\n".repeat(2000),
        );
        let mut client = of("beanstalk");
        client.send(b"put 1 0 60 2\r\nhi\r\nreserve\r\n");
        client.until(b"hi\r\n");
        let mut client = of("lineup");
        client.send(b"PUSH 1 hello\r\n");
        client.until(b"\n");
        let mut client = of("jobqueue");
        client.ask(b"CONNECT\0", b"OK\0");
        let mut client = of("http");
        client.send(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n");
        client.until(b"HTTP/1.1 200 OK\r\n");
    }
    assert!(own.server.number("tls_handshakes") >= 10);
    own.server.await_number("tls_connections", |open| open == 0);
    assert!(own.server.stop().success());
}

/// A take that waits is answered, a client that has closed its side gets what
/// it is owed, and says goodbye.
#[test]
fn waits_and_halves_are_as_in_the_clear() {
    let own = SelfSigned::start("");
    let mut waits = own.client("memcache");
    waits.send(b"get later/t=60000\r\n");
    let mut puts = own.client("memcache");
    puts.put("later", b"now");
    waits.expect_value("later", b"now");
    let mut half = own.client("memcache");
    half.send(b"set q 0 0 2\r\nhi\r\nget q\r\n");
    half.half_close();
    half.expect(b"STORED\r\n");
    half.expect_value("q", b"hi");
    half.expect_end();
}

#[test]
fn a_hello_a_byte_at_a_time_and_bytes_a_record_each_are_understood() {
    let own = SelfSigned::start("");
    let config = Arc::new(config(&own.ca(), BOTH, None));
    let mut tls = tls(own.server.address(), config);
    let mut hello = Vec::new();
    tls.conn.write_tls(&mut hello).unwrap();
    for byte in hello {
        tls.sock.write_all(&[byte]).unwrap();
    }
    for byte in b"set q 0 0 2\r\nhi\r\n" {
        tls.write_all(&[*byte]).unwrap();
        tls.flush().unwrap();
    }
    let mut reply = [0; 8];
    tls.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"STORED\r\n");
}

#[test]
fn plain_text_is_answered_in_the_protocol_s_own_words_and_counted() {
    let own = SelfSigned::start("");
    let mut beside = own.client("memcache");
    for (protocol, printed) in [
        ("memcache", "SERVER_ERROR this port speaks TLS\r\n"),
        ("lineup", "-this port speaks TLS\r\n"),
        ("jobqueue", "this port speaks TLS\0"),
        // Its errors have no text.
        ("beanstalk", "INTERNAL_ERROR\r\n"),
        // Not before a request is known.
        ("pinpriq", ""),
    ] {
        let mut client = own.server.client_of(protocol);
        client.send(b"stats and more\r\n");
        if protocol == "jobqueue" {
            client.until(printed.as_bytes());
        } else {
            client.expect(printed.as_bytes());
        }
        client.expect_end();
        let mut page = own.server.client_of(protocol);
        page.send(b"GET / HTTP/1.1\r\n\r\n");
        page.until(b"HTTP/1.0 400 Bad Request\r\n");
    }
    let mut client = own.server.client_of("http");
    client.send(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n");
    client.until(b"HTTP/1.1 400 Bad Request\r\n");
    client.until(b"this port speaks TLS");
    drop(client);
    own.server
        .await_number("tls_failures_plain", |count| count == 11);
    let logged = own.logged();
    for protocol in ALL {
        let listener = format!("listener=\"{protocol}\"");
        let mut about = logged.lines().filter(|line| line.contains(&listener));
        let says = about.any(|line| line.contains(" peer=\"127.0.0.1:"));
        assert!(says, "{protocol}: {logged}");
    }
    beside.put("q", b"unharmed");
}

/// The hello of a client that knows no newer version than 1.1, with or without an extension of 1.2.
fn old_hello(extended: bool) -> Vec<u8> {
    let mut hello = vec![3, 2];
    hello.extend([7; 32]);
    // No session, two suites, no compression.
    hello.extend([0, 0, 4, 0xc0, 0x13, 0, 0x2f, 1, 0]);
    if extended {
        // Signatures: ECDSA over P-256.
        hello.extend([0, 8, 0, 13, 0, 4, 0, 2, 4, 3]);
    }
    let len = u8::try_from(hello.len()).unwrap();
    let mut record = vec![0x16, 3, 1, 0, len + 4, 1, 0, 0, len];
    record.extend(hello);
    record
}

#[test]
fn old_versions_are_refused_by_name() {
    let own = SelfSigned::start("");
    // A fatal alert: handshake failure, protocol version.
    for (extended, code) in [(false, 40), (true, 70)] {
        let mut client = own.server.client();
        client.send(&old_hello(extended));
        let alert = client.exact(7);
        let fatal = (0x15, &[0, 2, 2, code][..]);
        assert_eq!((alert[0], &alert[3..]), fatal, "{alert:?}");
        client.expect_end();
    }
    own.await_failures("version", 2);
}

#[test]
fn broken_records_end_their_connection_alone() {
    let own = SelfSigned::start("");
    let mut beside = own.client("memcache");
    beside.put("q", b"1");
    // In the handshake, and behind it.
    let mut client = own.server.client();
    client.send(b"\x16\x03\x01\x00\x05nonse");
    while !client.some().is_empty() {}
    let config = Arc::new(config(&own.ca(), BOTH, None));
    let mut tls = tls(own.server.address(), config);
    tls.write_all(b"set q 0 0 1\r\n2\r\n").unwrap();
    let mut reply = [0; 8];
    tls.read_exact(&mut reply).unwrap();
    tls.sock.write_all(b"\x17\x03\x03\x00\x20").unwrap();
    tls.sock.write_all(&[9; 32]).unwrap();
    let error = tls.read(&mut reply).unwrap_err().to_string();
    assert!(error.contains("BadRecordMac"), "{error}");
    own.server
        .await_number("tls_failures_record", |count| count == 2);
    beside.take("q", b"1");
    beside.take("q", b"2");
}

/// One record of TLS 1.2 with a handshake's message, sealed as the `seq`th.
fn sealed(secrets: &ConnectionTrafficSecrets, seq: u64, message: &[u8]) -> Vec<u8> {
    let ConnectionTrafficSecrets::Aes256Gcm { key, iv } = secrets else {
        panic!("another suite");
    };
    let mut nonce: [u8; 12] = iv.as_ref().try_into().unwrap();
    for (at, byte) in nonce[4..].iter_mut().zip(seq.to_be_bytes()) {
        *at ^= byte;
    }
    let len = u16::try_from(message.len()).unwrap().to_be_bytes();
    let about = [&seq.to_be_bytes()[..], &[0x16, 3, 3], &len].concat();
    let algorithm = &ring::aead::AES_256_GCM;
    let key = ring::aead::UnboundKey::new(algorithm, key.as_ref()).unwrap();
    let mut text = message.to_vec();
    ring::aead::LessSafeKey::new(key)
        .seal_in_place_append_tag(
            ring::aead::Nonce::assume_unique_for_key(nonce),
            ring::aead::Aad::from(about),
            &mut text,
        )
        .unwrap();
    let len = u16::try_from(text.len() + 8).unwrap().to_be_bytes();
    [&[0x16, 3, 3], &len[..], &nonce[4..], &text].concat()
}

#[test]
fn renegotiation_is_refused() {
    let own = SelfSigned::start("");
    let mut config = config(&own.ca(), &[&TLS12], None);
    config.enable_secret_extraction = true;
    let mut tls = tls(own.server.address(), Arc::new(config));
    while tls.conn.is_handshaking() || tls.conn.wants_write() {
        tls.conn.complete_io(&mut tls.sock).unwrap();
    }
    let (seq, secrets) = tls.conn.dangerous_extract_secrets().unwrap().tx;
    // The message of the record above, which 1.2 understands.
    let mut hello = old_hello(false)[5..].to_vec();
    hello[5] = 3;
    let mut socket = tls.sock;
    for again in 0..3 {
        let record = sealed(&secrets, seq + again, &hello);
        if socket.write_all(&record).is_err() {
            break;
        }
    }
    // A warning, an alert, and the end.
    socket.read_to_end(&mut Vec::new()).ok();
    own.server
        .await_number("tls_failures_record", |count| count == 1);
    assert!(own.logged().contains("Renegotiation"), "{}", own.logged());
    own.client("memcache").put("q", b"unharmed");
}

#[test]
fn an_unfinished_handshake_is_closed_and_harms_no_other_client() {
    let own = SelfSigned::start("tls_handshake_time = '4s'\n");
    let mut beside = own.client("memcache");
    beside.put("q", b"1");
    let hello = old_hello(false);
    let half = &hello[..20];
    let open = |at: usize| {
        let mut client = own.server.client();
        if at.is_multiple_of(2) {
            client.send(half);
        }
        client
    };
    let mut silent: Vec<Client> = (0..300).map(open).collect();
    beside.take("q", b"1");
    beside.put("q", b"2");
    for client in &mut silent {
        while !client.some().is_empty() {}
    }
    own.await_failures("timeout", 300);
    beside.take("q", b"2");
    own.server.await_number("connections", |count| count == 1);
}

/// Clients with certificates: each that does not count is refused by name,
/// and one that does is served.
#[test]
fn a_client_s_certificate_has_to_count() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = Start::of(&authority.asking())
        .listen(&["memcache=0", "http=0"])
        .serve();
    let good = authority.sign("worker-7", 2100);
    let ended = authority.sign("worker-6", 2020);
    let foreign = other.sign("worker-5", 2100);
    for version in [&TLS12, &TLS13] {
        let of = |shown| config(&authority.ca(), &[version], shown);
        for refused in [None, Some(&ended), Some(&foreign)] {
            for protocol in ["memcache", "http"] {
                let mut tls = tls(server.address_of(protocol), Arc::new(of(refused)));
                let sent = tls.write_all(b"version\r\n");
                // An alert, or a reset where it crossed the request.
                let result = sent.and_then(|()| tls.read(&mut [0; 64]));
                assert!(result.is_err(), "{protocol}: {result:?}");
            }
        }
        let mut client = Client::tls(server.address(), Arc::new(of(Some(&good))));
        client.put("q", b"hello");
        client.take("q", b"hello");
    }
    server.await_number("tls_failures_certificate", |count| count == 12);

    // The command line, from elsewhere.
    let remote = |words: &[&str], shown| authority.remote(&server, words, shown).output().unwrap();
    let put = remote(&["put", "far", "hello"], Some(&good));
    assert!(put.status.success(), "{put:?}");
    let taken = remote(&["take", "far"], Some(&good));
    assert_eq!(text(&taken.stdout), "hello", "{taken:?}");
    assert!(!remote(&["stats"], None).status.success());
    assert!(!remote(&["stats"], Some(&ended)).status.success());
    let target = server.address().replace("127.0.0.1", "tls://localhost");
    let bench = quintet(&["bench", "--count", "200", "--connections", "3"])
        .args(["--openings", "20", "--target", &target, "--ca"])
        .arg(authority.ca())
        .arg("--cert")
        .arg(&good.0)
        .arg("--key")
        .arg(&good.1)
        .output()
        .unwrap();
    assert!(bench.status.success(), "{bench:?}");
    assert!(text(&bench.stdout).contains("under TLS"), "{bench:?}");
}

/// Over HTTP as over the protocols: the common name is the user, a login says
/// more, and a name that nobody has says nothing.
#[test]
fn a_certificate_s_name_is_the_user_on_every_protocol() {
    let authority = Authority::new();
    let config_text = format!(
        "{}[[user]]\nname = 'worker-7'\n[[user]]\nname = 'bob'\nsecret_file = '{}'\n\
         [[grant]]\nuser = 'worker-7'\nqueues = ['work']\nrights = ['put', 'take', 'peek']\n\
         [[grant]]\nuser = 'bob'\nqueues = ['*']\nrights = ['peek', 'server']\n",
        authority.asking(),
        authority.secret().display()
    );
    let server = Start::of(&config_text)
        .listen(&["memcache=0", "http=0"])
        .serve();
    let worker = authority.sign("worker-7", 2100);
    let stranger = authority.sign("worker-8", 2100);
    let of = |shown: &(PathBuf, PathBuf)| Arc::new(config(&authority.ca(), BOTH, Some(shown)));
    let status = |shown: &(PathBuf, PathBuf), path: &str, headers: &str| {
        let client = Client::tls(server.address_of("http"), of(shown));
        client.page(&format!("GET {path}"), headers).status
    };
    let mut memcache = Client::tls(server.address(), of(&worker));
    memcache.put("work", b"hi");
    memcache.take("work", b"hi");
    assert_eq!(status(&worker, "/q/work.txt", ""), 200);
    assert_eq!(status(&worker, "/q/other.txt", ""), 403);
    assert_eq!(status(&worker, "/metrics", ""), 403);
    // Bob, by basic authentication.
    let login = "authorization: Basic Ym9iOmh1c2g=\r\n";
    assert_eq!(status(&worker, "/metrics", login), 200);
    let wrong = "authorization: Basic Ym9iOndyb25n\r\n";
    assert_eq!(status(&worker, "/q/work.txt", wrong), 401);
    assert_eq!(status(&stranger, "/q/work.txt", ""), 401);
    let mut memcache = Client::tls(server.address(), of(&stranger));
    memcache.ask(b"get work\r\n", b"CLIENT_ERROR unauthenticated\r\n");
}

/// Bytes of the certificate that a new client is shown.
fn shown(server: &Server, ca: &Path) -> Vec<u8> {
    let mut tls = tls(server.address(), Arc::new(config(ca, BOTH, None)));
    while tls.conn.is_handshaking() {
        tls.conn.complete_io(&mut tls.sock).unwrap();
    }
    tls.conn.peer_certificates().unwrap()[0].to_vec()
}

#[test]
fn new_files_count_by_themselves_and_by_sighup_and_connections_stay() {
    let authority = Authority::new();
    let settings = authority.settings();
    let server = Start::of(&settings).serve_logged();
    let cert = authority.dir.path().join("localhost.crt");
    let mut stays = Client::tls(
        server.address(),
        Arc::new(config(&authority.ca(), BOTH, None)),
    );
    stays.put("q", b"1");
    let await_shown = |right: &dyn Fn(&[u8]) -> bool| {
        let seen = || shown(&server, &authority.ca());
        eventually("another certificate", || right(&seen()).then_some(()));
    };
    let der = |file: &Path| certificates(file).unwrap()[0].to_vec();
    let first = der(&cert);
    assert_eq!(shown(&server, &authority.ca()), first);
    // By itself.
    authority.sign("localhost", 2101);
    let second = der(&cert);
    await_shown(&|seen| seen == second);
    // Nonsense is said and does not count.
    replace(&cert, "nonsense");
    let goes_on = "keeps its present certificate";
    eventually(goes_on, || {
        server.stderr_text().contains(goes_on).then_some(())
    });
    // Neither do other settings that come with it.
    server.configure(&format!("{}log_level = 'debug'\n", settings));
    let (_, why, code) = server.outputs(&["reload"]);
    assert_eq!(code, 1, "{why}");
    let named = cert.display().to_string();
    assert!(
        why.contains("not reloaded") && why.contains(&named),
        "{why}"
    );
    assert!(
        !server
            .printed(&["settings"])
            .contains("log_level = \"debug\"")
    );
    assert_eq!(shown(&server, &authority.ca()), second);
    // Other files, by name.
    authority.sign("localhost.localdomain", 2100);
    let elsewhere = authority.dir.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    authority.sign("localhost", 2102);
    for end in ["crt", "key"] {
        let from = authority.dir.path().join(format!("localhost.{end}"));
        fs::rename(from, elsewhere.join(format!("moved.{end}"))).unwrap();
    }
    let moved = elsewhere.join("moved.crt");
    let third = der(&moved);
    let text = format!(
        "tls_cert = '{}'\ntls_key = '{}'\n",
        moved.display(),
        moved.with_extension("key").display()
    );
    server.configure(&text);
    server.signal(rustix::process::Signal::HUP);
    await_shown(&|seen| seen == third);
    stays.take("q", b"1");
}

#[test]
fn a_key_that_others_can_read_starts_nothing() {
    let authority = Authority::new();
    let (cert, key) = authority.sign("localhost", 2100);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let listen = format!(
        "memcache=127.0.0.1:0,tls_cert={},tls_key={}",
        cert.display(),
        key.display()
    );
    let output = quintet(&["serve", "--listen", &listen, "--data"])
        .arg(folder.path().join("data"))
        .output()
        .unwrap();
    assert!(!output.status.success());
    let printed = text(&output.stderr);
    assert!(
        printed.contains(&format!("chmod go= {}", key.display())),
        "{printed}"
    );
}

/// The example of `serve --help` with TLS and logins, as it stands there, but on this machine.
#[test]
fn the_example_of_the_help_is_a_server_with_login_and_tls() {
    let help = quintet(&["serve", "--help"]).output().unwrap();
    let help = text(&help.stdout);
    let example = help.lines().find(|line| line.contains("tls=self-signed"));
    let listen = example.expect("an example").split_whitespace().last();
    let listen = listen.unwrap().replace("0.0.0.0:22133", "127.0.0.1:0");
    assert!(listen.contains("127.0.0.1:0"), "{listen}");
    let grant = help.split_once("  [[grant]]").expect("a grant").1;
    let grant = grant.split_once("\n\n").expect("its end").0;

    let mut passwd = quintet(&["passwd", "ann"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = passwd.stdin.take().unwrap();
    stdin.write_all(b"hush\n").unwrap();
    drop(stdin);
    let user = text(&passwd.wait_with_output().unwrap().stdout);
    let server = Start::of(&format!("{user}[[grant]]{grant}\n"))
        .listen(&[&listen])
        .serve();
    let ca = server.data.join(quintet_tls::CERTIFICATE);
    let client = || {
        let config = config(&ca, BOTH, None);
        Client::tls(server.address_of("memcache"), Arc::new(config))
    };
    let mut nobody = client();
    nobody.ask(b"set q 0 0 2\r\nhi\r\n", b"CLIENT_ERROR");
    let mut ann = client();
    ann.ask(b"set x 0 0 8\r\nann hush\r\n", b"STORED\r\n");
    ann.put("q", b"hi");
    ann.take("q", b"hi");
    server.stop();
}
