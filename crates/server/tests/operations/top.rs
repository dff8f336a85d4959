//! `quintet top` on a real terminal, which tmux keeps, at several widths.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::{Server, Start, eventually, quintet, text};

const NAME: &str = "europe.invoices.retry.of.customers.12";

/// A terminal of its own.
struct Tmux(String);

impl Tmux {
    fn ask(&self, words: &[&str]) -> String {
        let mut tmux = Command::new("tmux");
        tmux.args(["-L", &self.0, "-f", "/dev/null"]).args(words);
        let output = tmux.env_remove("TMUX").output().unwrap();
        text(&output.stdout)
    }

    /// Starts `top` on a server.
    fn of(server: &Server, columns: u32) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let tmux = Self(format!("quintet-{}-{number}", std::process::id()));
        let binary = quintet(&[]).get_program().to_string_lossy().into_owned();
        let top = format!(
            "'{binary}' top --every 200ms --data '{}'",
            server.data.display()
        );
        let columns = columns.to_string();
        let session = ["new-session", "-d", "-x", &columns, "-y", "24"];
        tmux.ask(
            &[
                &["-u"][..],
                &session,
                &["env", "LC_ALL=C.UTF-8", "sh", "-c", &top],
            ]
            .concat(),
        );
        tmux
    }

    fn keys(&self, keys: &str) {
        self.ask(&["send-keys", keys]);
    }

    /// The screen, when all of these are on it.
    fn shows(&self, parts: &[&str]) -> Vec<String> {
        eventually(&format!("a screen with {parts:?}"), || {
            let screen = self.ask(&["-u", "capture-pane", "-p"]);
            let all = parts.iter().all(|part| screen.contains(part));
            all.then(|| screen.lines().map(str::to_owned).collect())
        })
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.ask(&["kill-server"]);
    }
}

fn is_there() -> bool {
    let mut tmux = Command::new("tmux");
    let version = tmux.arg("-V").stdout(Stdio::null()).status();
    version.is_ok_and(|version| version.success())
}

#[test]
fn top_cuts_no_digit_at_80_120_and_200_columns() {
    if !is_there() {
        eprintln!("left out: there is no tmux");
        return;
    }
    let server = Start::default().sync("never").serve();
    let mut client = server.client();
    for at in 0..12_345 {
        client.put(NAME, at.to_string().as_bytes());
    }
    server.run(&["put", "stra\u{df}e", "x"]);
    server.run(&["pause", "stra\u{df}e"]);
    for (columns, heads, shown) in [
        (80, 9, "europe.invo\u{2026}"),
        (120, 12, "europe.invoices.re\u{2026}"),
        (200, 12, NAME),
    ] {
        let tmux = Tmux::of(&server, columns);
        let lines = tmux.shows(&["12345 ", shown, "stra\u{df}e (paused)", "? help"]);
        let head = lines.iter().find(|line| line.starts_with("name ")).unwrap();
        assert_eq!(head.split_whitespace().count(), heads, "{lines:?}");
        let row = lines.iter().find(|line| line.contains(" 12345 ")).unwrap();
        // Each number ends below its head.
        let end = head.find("ready").unwrap() + "ready".len();
        let cells: Vec<char> = row.chars().collect();
        assert_eq!(
            cells[end - 5..end].iter().collect::<String>(),
            "12345",
            "{lines:?}"
        );

        tmux.keys("Enter");
        tmux.shows(&[NAME, "dropped/s"]);
        tmux.keys("d");
        tmux.shows(&["no buried messages"]);
        tmux.keys("?");
        tmux.shows(&["never cuts numbers"]);
    }
}

#[test]
fn dead_letters_are_shown_with_their_errors() {
    if !is_there() {
        eprintln!("left out: there is no tmux");
        return;
    }
    let server = Start::default().listen(&["beanstalk=0"]).serve();
    let mut client = server.client_of("beanstalk");
    client.ask(b"put 0 0 60 4\r\nb\x1bdy\r\n", b"INSERTED 1\r\n");
    client.ask(b"reserve\r\n", b"RESERVED 1 4\r\nb\x1bdy\r\n");
    client.ask(b"bury 1 0\r\n", b"BURIED\r\n");
    let tmux = Tmux::of(&server, 80);
    tmux.shows(&["1 buried", "default"]);
    tmux.keys("d");
    let lines = tmux.shows(&["attempts", "b\\x1bdy"]);
    assert!(
        lines[0].starts_with("default: buried messages"),
        "{lines:?}"
    );
    tmux.keys("r");
    tmux.shows(&["1 message retried"]);
}

#[test]
fn stats_and_top_show_attention_and_why_messages_wait() {
    let config = "attention_unconsumed = 1\nattention_unconsumed_for = '0s'\n";
    let server = Start::of(config).serve();
    server.run(&["put", "stra\u{df}e", "x"]);
    let finding = "stra\u{df}e has no consumers: 1 ready, the oldest for ";
    let of_server = text(&server.run(&["stats"]).stdout);
    let line = of_server
        .lines()
        .find(|line| line.starts_with("needs_attention "));
    assert!(
        line.is_some_and(|line| line.contains(finding)),
        "{of_server}"
    );
    let of_queue = text(&server.run(&["stats", "stra\u{df}e"]).stdout);
    for part in [
        finding,
        "why_slow  ",
        "  The queue has no consumers.",
        "  stra\u{df}e\n",
    ] {
        assert!(of_queue.contains(part), "{part}: {of_queue}");
    }
    let json = server.run(&["stats", "stra\u{df}e", "--json"]).stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["why_slow"], "The queue has no consumers.");
    assert!(
        json["needs_attention"]
            .as_array()
            .is_some_and(|all| all.len() == 1),
        "{json}"
    );
    let once = text(&server.run(&["top", "--once"]).stdout);
    assert!(once.contains(&format!("\n{finding}")), "{once}");
    if is_there() {
        let tmux = Tmux::of(&server, 80);
        tmux.shows(&[finding]);
        tmux.keys("Enter");
        tmux.shows(&["why slow      The queue has no consumers."]);
        tmux.keys("Escape");
        tmux.shows(&["1 queue,"]);
        tmux.keys("a");
        tmux.shows(&["Needs attention, the worst first", finding]);
        tmux.keys("Escape");
        tmux.shows(&["1 queue,"]);
        tmux.keys("f");
        // It follows from some moment on.
        eventually("a followed put", || {
            server.run(&["put", "stra\u{df}e", "{\"mark\": 1}"]);
            let screen = tmux.ask(&["-u", "capture-pane", "-p"]);
            screen.contains("{\"mark\": 1}").then_some(())
        });
    }
}
