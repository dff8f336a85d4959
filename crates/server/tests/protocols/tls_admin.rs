//! The control channel under TLS: who may come, by a certificate or a login.

use crate::common::{Server, Start, eventually, text};
use crate::tls::Authority;

/// Without certificates the control channel is for users who log in, with
/// their rights; it is closed to everybody else, also where nobody is left.
#[test]
fn the_command_line_logs_in_from_elsewhere() {
    let authority = Authority::new();
    let (files, secret) = (authority.settings(), authority.secret());
    let user = format!(
        "[[user]]\nname = 'ann'\nsecret_file = '{}'\n\
         [[grant]]\nuser = 'ann'\nqueues = ['work']\nrights = ['put', 'take']\n",
        secret.display()
    );
    let with_user = format!("{files}{user}");
    let server = Start::of(&with_user)
        .listen(&["memcache=0", "admin=0", "http=0"])
        .serve();
    let remote = |words: &[&str], user: Option<&str>, token: Option<&str>| {
        let mut command = authority.remote(&server, words, None);
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
    // Nobody to log in as: not begun with.
    let nobody = Start::of(&files).listen(&["admin=0"]);
    let folder = tempfile::tempdir().unwrap();
    let started = Server::command(&folder.path().join("data"), &nobody)
        .output()
        .unwrap();
    let why = text(&started.stderr);
    assert!(
        !started.status.success() && why.contains("[[user]]"),
        "{why}"
    );
}

/// Clients with a certificate command the server there, so a reload that would ask for none is
/// refused as a whole.
#[test]
fn the_control_channel_goes_on_asking_for_certificates_whatever_is_reloaded() {
    let authority = Authority::new();
    let with_user = format!("{}[[user]]\nname = 'ann'\n", authority.settings());
    let asks = format!(
        "tls_client_ca = '{}'\n{with_user}",
        authority.ca().display()
    );
    let server = Start::of(&asks).listen(&["memcache=0", "admin=0"]).serve();
    let operator = authority.sign("operator", 2100);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("lines");
    std::fs::write(&file, "{\"queue\": \"work\", \"body\": \"x\"}\n").unwrap();
    let words = ["import", file.to_str().unwrap(), "--again"];
    let imports = |shown| {
        let import = authority.remote(&server, &words, shown).output().unwrap();
        assert!(import.status.success() || shown.is_none(), "{import:?}");
        import.status.success()
    };
    assert!(imports(Some(&operator)) && !imports(None));
    server.configure(&with_user);
    server.signal(rustix::process::Signal::HUP);
    let audit = server.data.join("audit.log");
    eventually("a reload", || {
        let audit = std::fs::read_to_string(&audit).unwrap_or_default();
        audit.contains("\"reloaded\"").then_some(())
    });
    assert!(imports(Some(&operator)) && !imports(None));
}
