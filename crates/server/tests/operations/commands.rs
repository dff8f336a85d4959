//! The commands that people type.

use std::io::Write as _;
use std::process::Stdio;

use crate::common::{Data, Server, Start, noise, quintet, text};

#[test]
fn wait_ends_when_the_server_responds_or_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let wait = |time: &str| {
        let mut wait = quintet(&["wait", "--for", time, "--data"]);
        wait.arg(&data).stderr(Stdio::piped());
        wait
    };
    let vain = wait("2s").output().unwrap();
    assert_eq!(vain.status.code(), Some(1));
    let why = text(&vain.stderr);
    assert!(why.contains("no server runs on"), "{why}");

    let waits = wait("5m").spawn().unwrap();
    let server = Server::start(&data);
    let waited = waits.wait_with_output().unwrap();
    assert!(waited.status.success(), "{}", text(&waited.stderr));

    // It accepts, and answers nobody.
    server.signal(rustix::process::Signal::STOP);
    let vain = wait("300ms").output().unwrap();
    server.signal(rustix::process::Signal::CONT);
    assert_eq!(vain.status.code(), Some(1));
    let why = text(&vain.stderr);
    assert!(why.contains("does not respond"), "{why}");
}

#[test]
fn a_command_finds_the_server_and_says_which_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("quintet");
    let server = Server::start(&data);
    let stats = |runtime: &std::path::Path| {
        let mut stats = quintet(&["stats", "--verbose"]);
        let elsewhere = stats.current_dir(dir.path()).env_remove("QUINTET_DATA");
        elsewhere.env("XDG_RUNTIME_DIR", runtime).output().unwrap()
    };
    let found = stats(dir.path());
    assert!(found.status.success(), "{}", text(&found.stderr));
    let stderr = text(&found.stderr);
    assert!(
        stderr.contains(&format!("{}/quintet.sock", data.display())),
        "{stderr}"
    );
    // A socket that nobody listens on is passed over, and so is a file.
    let nearer = dir.path().join("data");
    std::fs::create_dir(&nearer).unwrap();
    drop(std::os::unix::net::UnixListener::bind(nearer.join("quintet.sock")).unwrap());
    assert!(stats(dir.path()).status.success());
    std::fs::remove_dir_all(&nearer).unwrap();
    std::fs::write(&nearer, "").unwrap();
    assert!(stats(dir.path()).status.success());
    server.kill();
}

#[test]
fn the_example_of_drain_ends() {
    let server = Server::fresh();
    let help = text(&quintet(&["drain", "--help"]).output().unwrap().stdout);
    let is_example = |line: &&str| line.starts_with("  quintet drain && until ");
    let example = help.lines().find(is_example).expect(&help);
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_quintet"));
    let path = std::env::var("PATH").unwrap();
    let done = std::process::Command::new("timeout")
        .args(["60", "sh", "-c", example])
        .env(
            "PATH",
            format!("{}:{path}", binary.parent().unwrap().display()),
        )
        .env("QUINTET_DATA", &server.data)
        .output()
        .unwrap();
    assert!(done.status.success(), "{example}: {}", text(&done.stderr));
}

#[test]
fn completions_end_quietly_on_a_closed_pipe() {
    let mut completions = quintet(&["completions", "bash"]);
    let pipes = completions.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().unwrap();
    // They are longer than a pipe holds.
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    let says = text(&ended.stderr);
    assert!(ended.status.success() && says.is_empty(), "{says}");
}

#[test]
fn put_peek_take() {
    let server = Server::fresh();
    let put = server.run(&["put", "work", "hello"]);
    assert_eq!(text(&put.stdout), "1\n", "{}", text(&put.stderr));
    assert_eq!(text(&server.run(&["peek", "work"]).stdout), "hello");
    let json = text(&server.run(&["peek", "--id", "1", "--json"]).stdout);
    assert!(
        json.contains("\"body\":\"hello\"") && json.contains("\"queue\":\"work\""),
        "{json}"
    );
    assert_eq!(text(&server.run(&["take", "work"]).stdout), "hello");
    let empty = server.run(&["take", "work"]);
    assert_eq!((empty.status.code(), empty.stdout.len()), (Some(4), 0));
    assert_eq!(text(&empty.stderr), "");
    server.run(&["pause", "work"]);
    let none = server.run(&["take", "work", "nobody"]);
    assert_eq!((none.status.code(), none.stdout.len()), (Some(4), 0));
    let says = "quintet: work is paused\nquintet: there is no queue nobody\n";
    assert_eq!(text(&none.stderr), says);
    assert_eq!(server.run(&["peek", "--id", "1"]).status.code(), Some(4));
}

#[test]
fn standard_input_and_files_of_any_bytes_and_size() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"));
    for len in [0, 10, 100_000, 2_000_000] {
        let body = noise(len);
        let mut put = quintet(&["put", "bin", "--data"])
            .arg(&server.data)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        put.stdin.take().unwrap().write_all(&body).unwrap();
        assert!(put.wait().unwrap().success());
        let file = dir.path().join("file");
        std::fs::write(&file, &body).unwrap();
        assert!(
            server
                .run(&["put", "bin", "--file", file.to_str().unwrap()])
                .status
                .success()
        );
        for _ in 0..2 {
            let taken = server.run(&["take", "bin"]).stdout;
            assert!(taken == body, "{len}");
        }
    }
}

#[test]
fn delays_priorities_and_counts() {
    let server = Server::fresh();
    server.run(&["put", "work", "later", "--delay", "1h"]);
    server.run(&["put", "work", "plain"]);
    server.run(&["put", "work", "urgent", "--priority", "0"]);
    assert_eq!(
        text(&server.run(&["peek", "work", "--state", "delayed"]).stdout),
        "later"
    );
    assert_eq!(
        text(&server.run(&["take", "work", "--count", "9"]).stdout),
        "urgent\nplain\n"
    );
    let queues = text(&server.run(&["queues"]).stdout);
    let row = |nth| queues.lines().nth(nth).unwrap().split_whitespace();
    let printed: Vec<(&str, &str)> = row(0).zip(row(1)).collect();
    for column in [("name", "work"), ("ready", "0"), ("delayed", "1")] {
        assert!(printed.contains(&column), "{column:?} is not in {queues}");
    }
    let stats = text(&server.run(&["stats", "work", "--json"]).stdout);
    assert!(
        stats.contains("\"total_puts\":3") && stats.contains("\"delayed\":1"),
        "{stats}"
    );
    assert!(text(&server.run(&["stats"]).stdout).contains("connections_total"));
    let locks = text(&server.run(&["stats", "--locks"]).stdout);
    assert!(locks.starts_with("holder  "), "{locks}");
}

#[test]
fn queues_are_listed_by_a_pattern_a_column_and_whether_they_are_paused() {
    let server = Server::fresh();
    for queue in ["mail.a", "mail.b", "mail.b", "other", "other", "other"] {
        server.printed(&["put", queue, "x"]);
    }
    server.printed(&["pause", "mail.a"]);
    server.printed(&["pause", "other"]);
    let lists: [(&[&str], &[&str]); 5] = [
        (&[], &["mail.a", "mail.b", "other"]),
        (&["--sort", "ready"], &["other", "mail.b", "mail.a"]),
        (&["--sort", "ready", "mail*"], &["mail.b", "mail.a"]),
        (&["--paused"], &["mail.a", "other"]),
        (&["--paused", "mail*"], &["mail.a"]),
    ];
    for (options, wanted) in lists {
        let printed = server.printed(&[&["queues"][..], options].concat());
        let rows = printed.lines().skip(1);
        let names: Vec<&str> = rows.filter_map(|row| row.split(' ').next()).collect();
        assert_eq!(names, wanted, "{options:?}");
    }
}

#[test]
fn metrics_have_all_numbers_of_stats_each_with_help_and_type_once() {
    let server = Server::fresh();
    server.run(&["put", "work", "one"]);
    let stats = text(&server.run(&["stats", "--json"]).stdout);
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    let metrics = text(&server.run(&["metrics"]).stdout);
    let (mut names, mut samples) = (std::collections::BTreeSet::new(), 0);
    let mut histograms = 0;
    let mut lines = metrics.lines();
    while let Some(line) = lines.next() {
        let Some(rest) = line.strip_prefix("# HELP ") else {
            // The number of one of the labels' values, or the only one.
            let (name, number) = line.rsplit_once(' ').unwrap();
            let name = name.split('{').next().unwrap();
            let (_, family, kind) = *names.last().expect("a family begins with its help");
            number.parse::<f64>().unwrap();
            if kind == "histogram" {
                let of = ["bucket", "sum", "count"].map(|of| format!("{family}_{of}"));
                assert!(of.iter().any(|of| of == name), "{line}");
                histograms += u32::from(name == of[2]);
            } else {
                assert_eq!(family, name, "{line}");
                // Old names, beside the new ones.
                let old = [
                    "quintet_voice_counts_total",
                    "quintet_refusals_total",
                    "quintet_limit_refusals_total",
                    "quintet_cluster_spliced_connections",
                ];
                let old = old.contains(&name);
                samples += u32::from(!old && !name.starts_with("quintet_shard_lock_"));
            }
            continue;
        };
        let (name, help) = rest.split_once(' ').unwrap();
        assert!(!help.is_empty() && name.starts_with("quintet_"), "{line}");
        let printed = lines.next().and_then(|line| line.strip_prefix("# TYPE "));
        let (typed, kind) = printed.and_then(|printed| printed.split_once(' ')).unwrap();
        assert_eq!(typed, name);
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
        assert!(["counter", "gauge", "histogram"].contains(&kind), "{name}");
        assert!(names.insert((names.len(), name, kind)));
    }
    let different: std::collections::BTreeSet<&str> =
        names.iter().map(|(_, name, _)| *name).collect();
    assert!(histograms >= 2, "{histograms}");
    for (old, new) in [
        ("voice_counts_total", "protocol_counts_total"),
        ("refusals_total", "errors_total"),
        ("limit_refusals_total", "limit_errors_total"),
        (
            "cluster_spliced_connections",
            "cluster_tunneled_connections",
        ),
        ("messages_held_back", "messages_not_selectable"),
        ("lookers", "waiting_peeks"),
        ("looks_total", "peeks_total"),
    ] {
        for name in [old, new].map(|name| format!("quintet_{name}")) {
            assert!(different.contains(name.as_str()), "{name}");
        }
    }
    assert_eq!(different.len(), names.len());
    assert!(
        metrics.contains("\nquintet_messages_put_total 1\n"),
        "{metrics}"
    );
    // But what is no number, and holders of locks, which may have come in between.
    let stats = stats.as_object().unwrap();
    let spread = |name: &str| name.contains("_p50") || name.contains("_p99");
    let numbers = stats.iter();
    let numbers = numbers.filter(|(name, value)| value.is_number() && !spread(name));
    let numbers = numbers.filter(|(name, _)| !name.starts_with("lock_"));
    assert_eq!(samples as usize, numbers.count());
}

#[test]
fn a_take_waits_for_a_put() {
    let server = Server::fresh();
    let take = quintet(&["take", "work", "--wait", "1h", "--data"])
        .arg(&server.data)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut client = server.client();
    client.await_stat("queue_work_waiters", |n| n != 0);
    client.put("work", b"came");
    assert_eq!(text(&take.wait_with_output().unwrap().stdout), "came");
}

#[test]
fn errors_say_what_to_do() {
    let data = Data::fresh();
    let data = data.to_str().unwrap();
    for args in [
        &["put", "w", "x"][..],
        &["take", "w"],
        &["stats"],
        &["metrics"],
        &["queues"],
    ] {
        let output = quintet(args).args(["--data", data]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(
            text(&output.stderr).contains("quintet serve --data"),
            "{}",
            text(&output.stderr)
        );
    }
    for args in [&["check"][..], &["repair"], &["backup", "x"]] {
        let output = quintet(args).args(["--data", data]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(
            text(&output.stderr).contains("--data"),
            "{}",
            text(&output.stderr)
        );
    }
    assert!(!std::path::Path::new(data).exists(), "nothing was made");
}

#[test]
fn a_backup_of_a_running_server_opens() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"));
    let mut client = server.client();
    let large = noise(400_000);
    client.put("w", b"one");
    client.put("w", &large);
    let copy = dir.path().join("copy");
    let backup = server.run(&["backup", copy.to_str().unwrap(), "--json"]);
    assert!(backup.status.success(), "{}", text(&backup.stderr));
    client.take("w", b"one");
    let again = server.run(&["backup", copy.to_str().unwrap()]);
    assert!(
        text(&again.stderr).contains("not empty"),
        "{}",
        text(&again.stderr)
    );

    let check = quintet(&["check", "--json", "--data"])
        .arg(&copy)
        .output()
        .unwrap();
    assert!(check.status.success(), "{}", text(&check.stdout));
    assert!(
        text(&check.stdout).contains("\"damaged\":[]"),
        "{}",
        text(&check.stdout)
    );
    let restored = Server::start(&copy);
    let mut client = restored.client();
    client.take("w", b"one");
    client.take("w", &large);
}

#[test]
fn old_names_are_errors_that_name_the_new_ones() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("quintet.toml");
    let check = |content: &str| {
        std::fs::write(&file, content).unwrap();
        let mut check = quintet(&["check", "--config"]);
        let output = check.arg(&file).output().unwrap();
        (
            output.status.code(),
            text(&output.stdout) + &text(&output.stderr),
        )
    };
    let (code, says) = check("[[listen]]\nvoice = 'http'\n[[listen]]\nvoice = 'sqs'\n");
    assert_eq!(code, Some(1));
    for line in [
        ":2: voice is called protocol now",
        ":4: voice is called protocol now",
    ] {
        assert!(says.contains(line), "{says}");
    }
    let (code, says) = check("[[listen]]\nprotocol = 'http'\n");
    assert_eq!(code, Some(0), "{says}");
    let (code, says) = check("[[listen]]\nprotocol = 'htp'\n");
    assert!(code == Some(1) && says.contains("did you mean"), "{says}");
    let (code, says) = check("tls_cert = '/nowhere/a'\ntls_key = '/nowhere/b'\n");
    assert!(code == Some(1) && says.contains("/nowhere/a"), "{says}");
    let collector = "otlp_endpoint = 'http://127.0.0.1:4318'\notlp_ca = '/nowhere/ca.pem'\n";
    let (code, says) = check(collector);
    let why = "otlp_ca /nowhere/ca.pem";
    assert!(code == Some(1) && says.contains(why), "{says}");
    let grant = "[[grant]]\nuser = 'bob'\nqueues = ['*']\nrights = ['put']\n";
    let (code, says) = check(grant);
    assert!(code == Some(1) && says.contains("not \"bob\""), "{says}");
    let (code, says) = check("[defaults]\ndefault_rank = 7\n");
    let why = ":2: default_rank is called default_priority now";
    assert!(code == Some(1) && says.contains(why), "{says}");
    let (code, says) = check("[cluster]\nbeat = '1s'\nlink_insecure = true\n");
    assert_eq!(code, Some(1));
    for why in [
        ":2: beat is called heartbeat now",
        ":3: link_insecure is called peer_insecure now",
    ] {
        assert!(says.contains(why), "{says}");
    }
    // An old name hides no other error.
    let (code, says) =
        check("[[listen]]\nvoice = 'http'\n[defaults]\ndefault_rank = 1\nin_flight_max = 'ten'\n");
    assert_eq!(code, Some(1));
    for why in [
        ":2: voice is called protocol now",
        ":4: default_rank is called default_priority now",
        "line 5: in [defaults]: in_flight_max takes",
    ] {
        assert!(says.contains(why), "{says}");
    }
    let (code, says) = check(
        "[[listen]]\nprotocol = 'http'\n[[queue]]\nname = 'w'\nscript = 'builtin:webhook'\n\
         tags = { voice = 'alto' }\nenv_vars = { rank = '7' }\n",
    );
    assert_eq!(code, Some(0), "{says}");
    for (words, old, new) in [
        (&["bench", "--voice", "http"][..], "voice", "protocol"),
        (&["put", "q", "text", "--rank", "1"], "rank", "priority"),
        (&["edit", "1", "--rank", "1"], "rank", "priority"),
    ] {
        let says = text(&quintet(words).output().unwrap().stderr);
        let why = format!("--{old} is called --{new} now");
        assert!(says.contains(&why), "{says}");
    }
}

#[test]
fn a_backup_of_a_clusters_node_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (data, copy) = (dir.path().join("data"), dir.path().join("copy"));
    std::fs::create_dir_all(data.join("mirror-1")).unwrap();
    let mut backup = quintet(&["backup", "--data"]);
    let output = backup.arg(&data).arg(&copy).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("node of a cluster") && stderr.contains("quintet export"),
        "{stderr}"
    );
    assert!(!copy.exists(), "nothing was made");
}

#[test]
fn completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let output = quintet(&["completions", shell]).output().unwrap();
        assert!(output.status.success() && text(&output.stdout).contains("quintet"));
    }
}

#[test]
fn messages_move_to_another_queue() {
    let server = Start::of("shards = 2\n").serve();
    let stderr = |args: &[&str]| {
        let done = server.run(args);
        (text(&done.stdout), text(&done.stderr))
    };
    let queued = |queue: &str, state: &str| {
        let stats: serde_json::Value =
            serde_json::from_str(&stderr(&["stats", queue, "--json"]).0).unwrap();
        stats[state].as_u64().unwrap()
    };
    // With two shards one of these is elsewhere.
    let others = ["a", "b", "c", "d"];
    let mut client = server.client();
    for n in 0..1_203 {
        client.put("work", format!("{n}").as_bytes());
    }
    assert_eq!(
        stderr(&["move", "work", "a", "--dry-run"]).0,
        "1203 messages would be moved\n"
    );
    let mut left = 1_203;
    for to in others {
        assert_eq!(
            stderr(&["move", "work", to, "--max", "1"]).0,
            "1 message moved\n"
        );
        left -= 1;
        assert_eq!((queued("work", "ready"), queued(to, "ready")), (left, 1));
    }
    // All that is left, in the order it was in.
    assert_eq!(
        stderr(&["move", "work", "rest", "--json"]).0,
        "{\"dry_run\":false,\"messages\":1199,\"stopped\":false}\n"
    );
    assert_eq!(stderr(&["take", "rest"]).0, "4");
    // One by its id, and what cannot be.
    let id = stderr(&["put", "work", "x", "--delay", "1h"]).0;
    assert_eq!(
        stderr(&["move", "--id", id.trim(), "b"]).0,
        "1 message moved\n"
    );
    assert_eq!(queued("b", "ready"), 2);
    assert_eq!(
        stderr(&["move", "work", "work"]).1,
        "quintet: a queue's messages cannot move to the same queue: name another target\n"
    );
    assert!(
        stderr(&["move", "--id", "99999999", "b"])
            .1
            .contains("not found")
    );
    assert!(stderr(&["move", "work"]).1.contains("name two queues"));
}

#[test]
fn a_command_for_one_message_by_its_id_takes_no_filter() {
    let server = Server::fresh();
    let filters = [
        ["--contains", "x"],
        ["--with-key", "x"],
        ["--name", "x"],
        ["--attr", "a=x"],
        ["--batch", "b-0000000000000001"],
        ["--older", "1h"],
        ["--max", "1"],
        ["--state", "buried"],
    ];
    for verb in ["cancel", "kick", "retry", "redrive", "move"] {
        let filters = filters.iter();
        // All states are one to retry.
        for filter in filters.filter(|[name, _]| (verb, *name) != ("retry", "--state")) {
            let mut args = vec![verb, "--id", "1", filter[0], filter[1]];
            // A target queue.
            args.extend((verb == "move").then_some("to"));
            let printed = server.outputs(&args);
            assert_eq!(printed.2, 2, "{verb}: {printed:?}");
            let why = printed.1;
            let names = why.contains("cannot be used with") && why.contains(filter[0]);
            assert!(names, "{verb}: {why}");
        }
    }
}
