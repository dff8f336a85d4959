//! The command line from elsewhere, under TLS: who may come, by a certificate or a login.

use crate::common::{Server, Start, quintet, text};
use crate::tls::Authority;

/// Users who log in have their rights; nobody else may do anything.
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
        .listen(&["memcache=0", "http=0"])
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
}

/// An import goes the same way, with a certificate or a login, and with the rights of the user.
#[test]
fn an_import_comes_from_elsewhere_over_the_api() {
    let authority = Authority::new();
    let secret = authority.secret();
    let config = format!(
        "{}[[user]]\nname = 'ann'\nsecret_file = '{}'\n\
         [[grant]]\nuser = 'ann'\nqueues = ['work']\nrights = ['put', 'peek']\n",
        authority.asking(),
        secret.display()
    );
    let server = Start::of(&config).listen(&["memcache=0", "http=0"]).serve();
    let (ann, bob) = (authority.sign("ann", 2100), authority.sign("bob", 2100));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("lines");
    let import = |lines: &[&str], shown| {
        std::fs::write(&file, lines.join("\n")).unwrap();
        let words = ["import", file.to_str().unwrap()];
        let done = authority.remote(&server, &words, shown).output().unwrap();
        (done.status.success(), text(&done.stderr))
    };
    let line = r#"{"queue": "work", "body": "x", "state": "buried", "buries": 3}"#;
    let (done, output) = import(&[line, line], Some(&ann));
    assert!(done && output.starts_with("2 messages stored"), "{output}");
    let (done, output) = import(&[line, line, line], Some(&ann));
    let again = "1 message stored, 2 were stored by an earlier import";
    assert!(done && output.starts_with(again), "{output}");
    let buried = server.run(&["browse", "work", "--state", "buried", "--json"]);
    assert_eq!(text(&buried.stdout).lines().count(), 3, "{buried:?}");

    let folder = r#"{"queue": "work", "body": "x", "attrs": [["dir", "/etc"]]}"#;
    let other = r#"{"queue": "other", "body": "x"}"#;
    for (lines, shown, says) in [
        (&[line, other][..], Some(&ann), "not permitted"),
        (&[folder], Some(&ann), "the server's own"),
        (&[line], Some(&bob), "log in first"),
        (&[line], None, ""),
    ] {
        let (done, output) = import(lines, shown);
        assert!(
            !done && output.to_lowercase().contains(says),
            "{says}: {output}"
        );
    }
}

#[test]
fn the_control_channel_of_earlier_versions_names_what_replaced_it() {
    let folder = tempfile::tempdir().unwrap();
    let start = Start::of("").listen(&["admin=0"]);
    let started = Server::command(&folder.path().join("data"), &start)
        .output()
        .unwrap();
    let why = text(&started.stderr);
    let says = why.contains("listener \"http\" with TLS") && why.contains("https://HOST:PORT");
    assert!(!started.status.success() && says, "{why}");
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap();
    let old = quintet(&["import", file, "--server", "tls://localhost:1"])
        .output()
        .unwrap();
    let why = text(&old.stderr);
    let says = why.contains("listener \"http\" with TLS") && why.contains("https://HOST:PORT");
    assert!(!old.status.success() && says, "{why}");
}
