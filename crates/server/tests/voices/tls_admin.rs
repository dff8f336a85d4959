//! The control channel under TLS: who may come, by a certificate or a login.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use crate::common::{PATIENCE, Server, Start, quintet, text};
use crate::tls::{Authority, replace};

/// Without certificates the control channel is for users who log in, with
/// their rights; it is closed to everybody else, also where nobody is left.
#[test]
fn the_command_line_logs_in_from_elsewhere() {
    let authority = Authority::new();
    let (cert, key) = authority.sign("localhost", 2100);
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, "hush\n").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let files = format!(
        "tls_cert = '{}'\ntls_key = '{}'\n",
        cert.display(),
        key.display()
    );
    let user = format!(
        "[[user]]\nname = 'ann'\nsecret_file = '{}'\n\
         [[grant]]\nuser = 'ann'\nqueues = ['work']\nrights = ['put', 'take']\n",
        secret.display()
    );
    let config_file = folder.path().join("nobody.toml");
    let with_user = format!("{files}{user}");
    let start = Start {
        config: Some(&with_user),
        listen: &["memcache=127.0.0.1:0", "admin=127.0.0.1:0"],
        ..Start::default()
    };
    let server = Server::start_with(&folder.path().join("data"), start);
    let admin = server.address_of("admin").replace("127.0.0.1", "localhost");
    let remote = |words: &[&str], user: Option<&str>, token: Option<&str>| {
        let mut command = quintet(words);
        command.args(["--host", &format!("tls://{admin}")]);
        command.arg("--ca").arg(authority.ca());
        if let Some(user) = user {
            command.args(["--user", user]);
        }
        if let Some(token) = token {
            command.env("QUINTET_TOKEN", token);
        }
        let done = command.output().unwrap();
        (
            done.status.success(),
            text(&done.stdout),
            text(&done.stderr),
        )
    };
    let hush = Some("hush");
    assert!(remote(&["put", "work", "hello"], Some("ann"), hush).0);
    let (done, out, why) = remote(&["take", "work"], Some("ann"), hush);
    assert_eq!((done, out.as_str()), (true, "hello"), "{why}");
    let file = [
        "put",
        "work",
        "by a file",
        "--token-file",
        secret.to_str().unwrap(),
    ];
    assert!(remote(&file, Some("ann"), None).0);
    for (words, user, token, says) in [
        (&["cron"][..], Some("ann"), hush, "not permitted"),
        (
            &["cron", "run", "c"][..],
            Some("ann"),
            hush,
            "not permitted",
        ),
        (
            &["put", "other", "x"][..],
            Some("ann"),
            hush,
            "not permitted",
        ),
        (&["stats"], Some("ann"), hush, "not permitted"),
        (&["drain"], Some("ann"), hush, "not permitted"),
        (&["queues"], None, None, "log in first"),
        (&["put", "work", "x"], None, None, "log in first"),
        (
            &["queues"],
            Some("ann"),
            Some("wrong"),
            "authentication failure",
        ),
        (&["queues"], Some("bob"), hush, "authentication failure"),
        (&["queues"], Some("ann"), None, "QUINTET_TOKEN"),
    ] {
        let (done, out, why) = remote(words, user, token);
        assert!(
            !done && why.contains(says),
            "{words:?} {user:?}: {out}{why}"
        );
    }
    drop(server);
    // Nobody to log in as: not begun with.
    fs::write(&config_file, &files).unwrap();
    let started = quintet(&["serve", "--config"])
        .arg(&config_file)
        .arg("--data")
        .arg(folder.path().join("other"))
        .args(["--listen", "admin=127.0.0.1:0"])
        .output()
        .unwrap();
    let why = text(&started.stderr);
    assert!(
        !started.status.success() && why.contains("[[user]]"),
        "{why}"
    );
}

/// Whoever shows a certificate there commands the server, so a reload that would
/// ask for none is refused as a whole.
#[test]
fn the_control_channel_goes_on_asking_for_certificates_whatever_is_reloaded() {
    let authority = Authority::new();
    let (cert, key) = authority.sign("localhost", 2100);
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let with_user = format!(
        "tls_cert = '{}'\ntls_key = '{}'\n[[user]]\nname = 'ann'\n",
        cert.display(),
        key.display()
    );
    let asks = format!(
        "tls_client_ca = '{}'\n{with_user}",
        authority.ca().display()
    );
    let start = Start {
        config: Some(&asks),
        listen: &["memcache=127.0.0.1:0", "admin=127.0.0.1:0"],
        ..Start::default()
    };
    let server = Server::start_with(&data, start);
    let operator = authority.sign("operator", 2100);
    let admin = server.address_of("admin").replace("127.0.0.1", "localhost");
    let drains = |shown: Option<&(PathBuf, PathBuf)>| {
        let mut command = quintet(&["drain", "--host", &format!("tls://{admin}")]);
        command.arg("--ca").arg(authority.ca());
        if let Some((cert, key)) = shown {
            command.arg("--cert").arg(cert).arg("--key").arg(key);
        }
        command.output().unwrap().status.success()
    };
    assert!(drains(Some(&operator)) && !drains(None));
    replace(&data.with_extension("toml"), &with_user);
    server.signal(rustix::process::Signal::HUP);
    let began = std::time::Instant::now();
    let reloaded = |audit: &str| audit.contains("\"reloaded\"");
    while !reloaded(&fs::read_to_string(data.join("audit.log")).unwrap_or_default()) {
        assert!(began.elapsed() < PATIENCE, "it was not reloaded");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(drains(Some(&operator)) && !drains(None));
}
