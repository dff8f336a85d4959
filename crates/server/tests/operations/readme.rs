//! The README's sessions, pasted into a shell from top to bottom as they are
//! printed.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::common::PATIENCE;

/// Prompt before a command in a session.
const PROMPT: &str = "$ ";

/// Prompt before a further line of the same command, without the space where nothing follows.
const GOES_ON: &str = ">";

/// The port of HTTP, beside those of the protocols.
const HTTP: u16 = 3333;

/// The port of SQS.
const SQS: u16 = 9324;

/// The port of the tutorial's form.
const FORM: u16 = 8000;

/// A command of a session and what is printed for it.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    command: String,
    prints: Vec<String>,
}

/// Mark above a session that cannot be run here, with the reason; the house rules
/// (`cargo xtask tidy`) know it too.
const NOT_RUN: &str = "<!-- not run: ";

/// All sessions of a page, in order, but for those that say that they are not run.
fn sessions(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let parts: Vec<&str> = page.split("```").collect();
    // Every second part stands between two fences.
    for (above, block) in parts.iter().step_by(2).zip(parts.iter().skip(1).step_by(2)) {
        let mut lines = block.lines().skip(1).peekable();
        if !lines.peek().is_some_and(|line| line.starts_with(PROMPT)) {
            continue;
        }
        let stated = above.trim_end().lines().next_back().unwrap_or_default();
        if stated.starts_with(NOT_RUN) {
            continue;
        }
        for line in lines {
            if let Some(command) = line.strip_prefix(PROMPT) {
                steps.push(Step {
                    command: command.to_owned(),
                    prints: Vec::new(),
                });
                continue;
            }
            let step = steps.last_mut().expect("a session begins with a command");
            match line.strip_prefix(GOES_ON) {
                Some(more) if step.prints.is_empty() => {
                    let more = more.strip_prefix(' ').unwrap_or(more);
                    step.command = format!("{}\n{more}", step.command);
                }
                _ => step.prints.push(line.to_owned()),
            }
        }
    }
    steps
}

/// A short id of a message made over RQ's protocols, as it is found in `text`:
/// day, hour and minute, second, millisecond, number.
fn short_id(text: &str) -> Option<&str> {
    let shape = [8, 4, 2, 3];
    text.split(|c: char| !c.is_ascii_digit() && c != '.')
        .find(|word| {
            let parts: Vec<&str> = word.split('.').collect();
            let lens = parts.iter().map(|part| part.len());
            parts.len() == 5 && lens.take(4).eq(shape) && !parts[4].is_empty()
        })
}

/// The text without what differs each time: the time in a message's id. Its
/// number stays.
fn without_times(text: &str) -> String {
    match short_id(text) {
        Some(id) => {
            let number = id.rsplit('.').next().unwrap_or_default();
            text.replace(id, &format!("TIME.{number}"))
        }
        None => text.to_owned(),
    }
}

/// A bash that is given one command after the other.
struct Shell {
    child: Child,
    stated: Receiver<String>,
    /// Printed after each command; nothing else prints it.
    mark: String,
}

impl Shell {
    fn start(folder: &Path) -> Self {
        let mut child = Command::new("bash")
            .args(["--noprofile", "--norc"])
            .current_dir(folder)
            .env_remove("NOTIFY_SOCKET")
            .env_remove("QUINTET_DATA")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("bash");
        let output = child.stdout.take().expect("its output");
        let (sender, stated) = channel();
        // Ends with the shell and what it started.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut shell = Self {
            child,
            stated,
            mark: format!("-- {} --", std::process::id()),
        };
        assert_eq!(shell.paste("exec 2>&1"), [""; 0]);
        shell
    }

    /// Does a command as one who types it, and answers what was printed.
    fn paste(&mut self, command: &str) -> Vec<String> {
        // A reader's machine has nothing else to do and starts a server at once.
        let patient = match command.strip_prefix("quintet wait") {
            Some(more) if !more.contains("--for") => format!("quintet wait --for 100s{more}"),
            _ => command.to_owned(),
        };
        let stdin = self.child.stdin.as_mut().expect("it is open");
        // The mark begins a line, also behind one that was not ended.
        writeln!(stdin, "{patient}\nprintf '\\n%s\\n' '{}'", self.mark).expect("it reads");
        let until = Instant::now() + PATIENCE;
        let mut lines = Vec::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.stated.recv_timeout(left) {
                Ok(line) if line == self.mark => break,
                Ok(line) => lines.push(line.trim_end_matches('\r').to_owned()),
                Err(error) => panic!("{command}: {error} behind {lines:#?}"),
            }
        }
        // The line end in front of the mark.
        if lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Also when an assertion failed: servers and workers that it started.
        let stdin = self.child.stdin.take();
        if let Some(mut stdin) = stdin {
            let _gone = writeln!(stdin, "kill $(jobs -p) 2>/dev/null; wait; exit");
        }
        let _gone = self.child.wait();
    }
}

/// Lock: its holder may use the ports that are the defaults.
pub(super) fn default_ports() -> File {
    let path = std::env::temp_dir().join("quintet-default-ports.lock");
    // Another user's can only be read, which is enough to lock it.
    let file = File::create_new(&path)
        .or_else(|_| File::open(&path))
        .expect("a lock");
    file.lock().expect("locked");
    let until = Instant::now() + PATIENCE;
    let protocols = quintet_wire::PROTOCOLS.iter().map(|protocol| protocol.port);
    for port in protocols.chain([HTTP, SQS, FORM]) {
        while let Err(error) = TcpListener::bind(("127.0.0.1", port)) {
            assert!(
                Instant::now() < until,
                "the sessions of the pages need port {port}: {error}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    file
}

#[test]
fn the_readmes_sessions_work_from_top_to_bottom() {
    work_from_top_to_bottom(include_str!("../../../../README.md"));
}

#[test]
fn the_api_pages_session_works() {
    work_from_top_to_bottom(include_str!("../../../../docs/api.md"));
}

#[test]
fn the_first_pages_session_works() {
    work_from_top_to_bottom(include_str!("../../../../docs/index.md"));
}

#[test]
fn the_protocols_pages_session_works() {
    work_from_top_to_bottom(include_str!("../../../../docs/protocols.md"));
}

#[test]
fn the_tls_pages_session_works() {
    work_from_top_to_bottom(include_str!("../../../../docs/tls.md"));
}

#[test]
fn the_tutorial_works_and_prints_its_files() {
    let page = include_str!("../../../../docs/tutorial.md");
    let files = repository().join("examples/tutorial");
    let mut printed = Vec::new();
    for block in page.split("```").skip(1).step_by(2) {
        let (_, text) = block.split_once('\n').expect("a fence's line ends");
        let Some((name, text)) = text
            .strip_prefix("# ")
            .and_then(|text| text.split_once('\n'))
        else {
            continue;
        };
        let file = std::fs::read_to_string(files.join(name)).expect("a file");
        assert_eq!(text, file, "{name}");
        printed.push(name);
    }
    assert_eq!(printed, ["quintet.toml", "jobs.py", "worker.py"]);
    work_from_top_to_bottom(page);
}

#[test]
fn the_outbox_pages_session_works() {
    work_from_top_to_bottom(include_str!("../../../../docs/outbox.md"));
}

#[test]
fn the_faktory_tutorials_session_works() {
    work_from_top_to_bottom(include_str!("../../../../docs/faktory-tutorial.md"));
}

#[test]
fn the_batches_pages_session_works() {
    work_from_top_to_bottom(include_str!("../../../../docs/batches.md"));
}

#[test]
fn the_events_pages_session_works() {
    work_from_top_to_bottom(include_str!("../../../../docs/events.md"));
}

#[test]
fn the_schedules_pages_session_works() {
    work_from_top_to_bottom(include_str!("../../../../docs/schedules.md"));
}

#[test]
fn the_hooks_pages_session_works() {
    let page = include_str!("../../../../docs/hooks.md");
    let (_, from) = page.split_once("```lua\n").expect("it begins with a hook");
    let (hooks, _) = from.split_once("```").expect("that ends");
    work_in(page, |folder| {
        std::fs::write(folder.join("hooks.lua"), hooks).expect("written");
    });
}

/// nc as the pages of protocols use it: what it reads is sent, and what comes until
/// the server hangs up is printed. Systems have several programs of this name,
/// or none; `-q 1` would be a second of time.
const NC: &str = r#"#!/usr/bin/env python3
import shutil, socket, sys
with socket.create_connection(sys.argv[-2:], timeout=60) as connection:
    connection.sendall(sys.stdin.buffer.read())
    connection.shutdown(socket.SHUT_WR)
    with connection.makefile("rb") as answer:
        shutil.copyfileobj(answer, sys.stdout.buffer)
"#;

/// The server in front of the sessions of a protocol's page, which is new.
const SERVER: &str = r#"
```
$ PATH="$PWD/target/release:$PATH"
$ quintet serve &>quintet.log &
$ quintet wait
```
"#;

#[test]
fn the_sessions_of_the_pages_of_protocols_work() {
    for page in [
        include_str!("../../../../docs/protocols/beanstalk.md"),
        include_str!("../../../../docs/protocols/jobqueue.md"),
        include_str!("../../../../docs/protocols/lineup.md"),
        include_str!("../../../../docs/protocols/pinpriq.md"),
    ] {
        work_in(&format!("{SERVER}{page}"), with_nc);
    }
    // Their pages start the server.
    let (path, _) = SERVER.split_once("$ quintet").expect("a server");
    for page in [
        include_str!("../../../../docs/protocols/memcache.md"),
        include_str!("../../../../docs/protocols/sqs.md"),
    ] {
        work_in(&format!("{path}```\n{page}"), with_nc);
    }
}

#[test]
fn a_command_finds_the_default_port_of_http_last_of_all() {
    let (path, _) = SERVER.split_once("$ quintet").expect("a server");
    let session = "\
$ quintet serve --data elsewhere &>quintet.log &
$ quintet wait --data elsewhere
$ quintet put work hello --verbose
quintet: the server at http://127.0.0.1:3333
1
$ quintet wait --for 100ms 2>errors || echo it waits for a socket
it waits for a socket
$ QUINTET_TOKEN=x quintet take work --user ann |& grep -o 'on this machine with .*'
on this machine with --server http://127.0.0.1:3333
$ quintet take work --server http://127.0.0.1:3333
hello
```
";
    work_in(&format!("{path}{session}"), |_| {});
}

fn with_nc(folder: &Path) {
    let nc = folder.join("target/release/nc");
    std::fs::write(&nc, NC).expect("written");
    let runs = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&nc, runs).expect("it may be run");
}

/// The repository's root.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Copies the files that git has of a folder of the repository, or would have.
fn copied(folder: &str, to: &Path) {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .arg(folder)
        .current_dir(repository())
        .output()
        .expect("git");
    assert!(listed.status.success(), "{listed:?}");
    for file in String::from_utf8_lossy(&listed.stdout).lines() {
        let to = to.join(file);
        std::fs::create_dir_all(to.parent().expect("a folder")).expect("made");
        std::fs::copy(repository().join(file), to).expect("copied");
    }
}

fn work_from_top_to_bottom(page: &str) {
    work_in(page, |_| {});
}

/// Pastes the sessions of a page, in a folder like the repository's after a
/// build, which `prepare` may change.
fn work_in(page: &str, prepare: impl FnOnce(&Path)) {
    let _ports = default_ports();
    let sessions = sessions(page);
    assert!(sessions.len() >= 2, "{sessions:#?}");
    let folder = tempfile::tempdir().expect("a folder");
    copied("examples", folder.path());
    // As after a build, in a clean folder.
    let release = folder.path().join("target/release");
    std::fs::create_dir_all(&release).expect("made");
    let binary = release.join("quintet");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_quintet"), binary).expect("linked");
    prepare(folder.path());
    let mut shell = Shell::start(folder.path());
    for Step { command, prints } in sessions {
        let plain = |lines: &[String]| -> Vec<String> {
            lines.iter().map(|line| without_times(line)).collect()
        };
        assert_eq!(plain(&shell.paste(&command)), plain(&prints), "$ {command}");
    }
}

#[test]
fn sessions_are_found_in_a_page() {
    let page = "```\ncargo x\n```\n\n```\n$ one\na\nb\n$ two\n```\ntext\n```\n$ three\nc\n```\n\
                <!-- not run: no time -->\n\n```\n$ never\n```\n\
                <!-- not run: x -->\nbut this\n```\n$ four {\n>   five\n>\n> }\n> \n6\n> 7\n```\n";
    let steps: Vec<(String, Vec<String>)> = sessions(page)
        .into_iter()
        .map(|step| (step.command, step.prints))
        .collect();
    let step = |command: &str, prints: &[&str]| {
        let prints = prints.iter().map(|&line| line.to_owned()).collect();
        (command.to_owned(), prints)
    };
    assert_eq!(
        steps,
        [
            step("one", &["a", "b"]),
            step("two", &[]),
            step("three", &["c"]),
            step("four {\n  five\n\n}\n", &["6", "> 7"])
        ]
    );
}

#[test]
fn times_in_ids_do_not_count() {
    let text = "[\"20261121.1630.00.123.4\"]";
    assert_eq!(short_id(text), Some("20261121.1630.00.123.4"));
    assert_eq!(without_times(text), "[\"TIME.4\"]");
    for none in ["3", "1.2.3.4.5", "20261121.1630.00.123."] {
        assert_eq!(without_times(none), none);
    }
}

#[test]
fn the_readme_names_the_compiler_that_is_needed() {
    let needed = env!("CARGO_PKG_RUST_VERSION");
    let named = format!("takes Rust {needed} or newer");
    assert!(
        include_str!("../../../../README.md").contains(&named),
        "{named}"
    );
}

#[test]
fn the_pages_have_one_unit_for_systemd_which_is_the_packages() {
    let page = include_str!("../../../../docs/operations.md");
    let unit = include_str!("../../../../packaging/quintet.service");
    assert!(page.contains(&format!("```ini\n{unit}```\n")));
    assert_eq!(page.matches("\n[Service]\n").count(), 1);
}

#[test]
fn the_container_exposes_and_publishes_the_ports_that_listen_in_it() {
    let start = include_str!("../../../../packaging/docker/quintet-start");
    let addresses = start
        .lines()
        .filter_map(|line| line.strip_prefix("address = \"0.0.0.0:"));
    let ports: Vec<&str> = addresses.map(|port| port.trim_end_matches('"')).collect();
    assert!(ports.contains(&"3333"), "{ports:?}");
    let image = include_str!("../../../../packaging/docker/Dockerfile");
    let exposed = format!("\nEXPOSE {}\n", ports.join(" "));
    assert!(image.contains(&exposed), "{exposed}");
    let compose = include_str!("../../../../packaging/docker/compose.yaml");
    for port in &ports {
        let published = format!("\"127.0.0.1:{port}:{port}\"");
        assert!(compose.contains(&published), "{published}");
    }
    assert_eq!(compose.matches("127.0.0.1:").count(), ports.len());
}
