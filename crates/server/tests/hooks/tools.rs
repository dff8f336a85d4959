//! `quintet hooks`.

use crate::common::{quintet, text};

fn run(args: &[&str]) -> (bool, String, String) {
    let out = quintet(args).output().unwrap();
    (out.status.success(), text(&out.stdout), text(&out.stderr))
}

#[test]
fn a_file_is_checked_run_and_tested() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("up.lua");
    std::fs::write(
        &file,
        "function before_put(msg)\n  msg.body = msg.body:upper()\nend\n",
    )
    .unwrap();
    let path = file.to_str().unwrap();
    let (ok, out, _) = run(&["hooks", "check", path]);
    assert!(ok && out == "loaded; events: before_put\n", "{out}");
    let (ok, out, _) = run(&[
        "hooks",
        "run",
        path,
        "--event",
        "before_put",
        "--message",
        "hi",
    ]);
    assert!(
        ok && out == "stored as 1\nqueue default: ready, priority 1024: HI\n",
        "{out}"
    );
    let tests = dir.path().join("tests");
    std::fs::create_dir(&tests).unwrap();
    std::fs::write(
        tests.join("up.lua"),
        "test('up', function(server)\n  server.put{queue='q', body='x'}\n  expect(server.take('q').body, 'X')\nend)
         test('wrong', function(server) expect(1, 2) end)",
    )
    .unwrap();
    let (ok, out, _) = run(&["hooks", "test", dir.path().to_str().unwrap()]);
    assert!(!ok, "{out}");
    assert!(
        out.contains(
            "up.lua: wrong: FAILED\n  tests/up.lua:5: expected 2, got 1\n1 passed, 1 failed"
        ),
        "{out}"
    );
}

#[test]
fn errors_say_where() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bad.lua");
    std::fs::write(&file, "local x = 1\nfunction before_put(\n").unwrap();
    let (ok, _, error) = run(&["hooks", "check", file.to_str().unwrap()]);
    assert!(!ok && error.starts_with("quintet: bad.lua:3: "), "{error}");
    let (ok, _, error) = run(&["hooks", "check", "/nonexistent/x.lua"]);
    assert!(!ok && error.contains("cannot be read"), "{error}");
    let (ok, _, error) = run(&["hooks", "run", file.to_str().unwrap(), "--event", "x"]);
    assert!(!ok && error.contains("events are start stop"), "{error}");
}

/// Every event can be tried.
#[test]
fn every_event_runs() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("all.lua");
    let mut source = String::from(
        "quintet.every(100, function() quintet.log.info('timer ran') end)
         quintet.command('added', function() quintet.log.info('added_command ran') end)\n",
    );
    let events = [
        "start",
        "stop",
        "connect",
        "disconnect",
        "command",
        "before_put",
        "after_put",
        "before_take",
        "after_take",
        "settle",
        "empty",
        "expire",
        "lease_end",
        "dead_letter",
        "full",
        "auth",
        "on_error",
    ];
    for event in events {
        source.push_str(&format!(
            "function {event}() quintet.log.info('{event} ran') end\n"
        ));
    }
    std::fs::write(&file, source).unwrap();
    for event in events.into_iter().chain(["timer", "added_command"]) {
        let args = [
            "hooks",
            "run",
            file.to_str().unwrap(),
            "--event",
            event,
            "--message",
            "added",
        ];
        let (ok, out, error) = run(&args);
        assert!(
            ok && out.contains(&format!("info: {event} ran\n")),
            "{event}: {out}{error}"
        );
    }
}
