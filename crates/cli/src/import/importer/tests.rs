use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::*;
use crate::progress::Of;

/// A server that keeps the keys of all messages in one list and refuses a key that is there.
#[derive(Default)]
struct Fake {
    stored: Vec<String>,
    tokens: BTreeSet<String>,
    posts: usize,
    /// The reply to the post of this number has this status, code and end of the connection.
    odd: Option<(usize, u16, &'static str)>,
}

struct Reply {
    status: u16,
    body: Value,
    last: bool,
}

impl Fake {
    fn reply(&mut self, request: &str, line: &[u8]) -> Reply {
        let problem = |status, code: &str| Reply {
            status,
            body: serde_json::json!({"code": code, "detail": code}),
            last: status != 404,
        };
        if request.starts_with("GET") {
            let token = request
                .split(' ')
                .nth(1)
                .and_then(|path| path.rsplit('/').next());
            return match token.is_some_and(|token| self.tokens.contains(token)) {
                true => Reply {
                    status: 200,
                    body: serde_json::json!({"id": 1}),
                    last: false,
                },
                false => problem(404, CommandError::NotFound.code()),
            };
        }
        self.posts += 1;
        let odd = self.odd.filter(|(number, ..)| *number == self.posts);
        if let Some((_, status @ 400.., code)) = odd {
            return problem(status, code);
        }
        let end = line.iter().position(|&byte| byte == b'\n').unwrap();
        let requested: Value = serde_json::from_slice(&line[..end]).unwrap();
        let texts = |list: &str, of: &dyn Fn(&Value) -> Value| -> Vec<String> {
            let all = requested[list].as_array().unwrap().iter();
            all.map(|one| of(one).as_str().unwrap().to_owned())
                .collect()
        };
        let tokens = texts("tokens", &|one| one[1].clone());
        let keys = texts("messages", &|one| one["key"].clone());
        if tokens.iter().any(|token| self.tokens.contains(token))
            || keys.iter().any(|key| self.stored.contains(key))
        {
            return problem(409, CommandError::Duplicate(MessageId(0)).code());
        }
        let first = self.stored.len() + 1;
        let ids: Vec<usize> = (first..first + keys.len()).collect();
        self.tokens.extend(tokens);
        self.stored.extend(keys);
        Reply {
            status: 201,
            body: serde_json::json!({ "ids": ids }),
            last: odd.is_some(),
        }
    }
}

/// Serves one connection to its end.
fn serve(stream: UnixStream, fake: &Mutex<Fake>) -> std::io::Result<()> {
    // A client that waits for a reply too many fails instead of hanging.
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut from = BufReader::new(stream);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let begin = head.len();
            if from.read_line(&mut head)? == 0 {
                return Ok(());
            }
            match head[begin..].trim_end().split_once(": ") {
                Some(("Content-Length", value)) => length = value.parse().unwrap(),
                None if head[begin..].trim_end().is_empty() => break,
                _ => {}
            }
        }
        let mut body = vec![0; length];
        from.read_exact(&mut body)?;
        let reply = fake
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .reply(&head, &body);
        let text = reply.body.to_string();
        let end = if reply.last {
            "Connection: close\r\n"
        } else {
            ""
        };
        let head = format!(
            "HTTP/1.1 {} -\r\nContent-Length: {}\r\n{end}\r\n",
            reply.status,
            text.len()
        );
        from.get_mut().write_all((head + &text).as_bytes())?;
        if reply.last {
            // Requests behind this one are not executed.
            from.get_ref().shutdown(Shutdown::Write)?;
            from.read_to_end(&mut Vec::new())?;
            return Ok(());
        }
    }
}

/// Messages with their numbers as keys.
struct Numbers {
    next: usize,
    end: usize,
    /// Messages take turns between so many queues.
    queues: usize,
    /// Their bodies, if they come in pieces.
    large: u64,
}

impl Source for Numbers {
    fn next(&mut self) -> Result<Option<Entry>> {
        let number = self.next;
        if number == self.end {
            return Ok(None);
        }
        self.next += 1;
        let head = Head {
            queue: format!("q{}", number % self.queues),
            key: Some(quintet_control::Text(number.to_string().into_bytes())),
            bytes: self.large,
            ..Head::default()
        };
        let body = (self.large == 0).then(Vec::new);
        Ok(Some(Entry { head, body }))
    }

    fn pieces(&mut self, into: &mut dyn Write) -> Result<()> {
        Ok(std::io::copy(&mut std::io::repeat(b'x').take(self.large), into).map(drop)?)
    }

    fn place(&self) -> String {
        format!("message {}", self.next)
    }

    fn position(&self) -> u64 {
        self.next as u64
    }
}

/// Imports from `source` into `fake`.
fn import(fake: Fake, mut source: Numbers, window: usize) -> (Result<()>, Count, Fake) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let fake = Arc::new(Mutex::new(fake));
    let served = Arc::clone(&fake);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // The client may leave at any time.
            stream.and_then(|stream| serve(stream, &served)).ok();
        }
    });
    let at = Where {
        data: None,
        only_sockets: false,
        verbose: false,
        socket: Some(socket),
        server: None,
        ca: None,
        cert: None,
        key: None,
        user: None,
        token_file: None,
    };
    let mut importer = Importer {
        at: &at,
        client: Api::connect(&at).unwrap(),
        into: None,
        again: false,
        searching: true,
        window,
        reported: 0,
        gathered: Group::default(),
        sent: VecDeque::new(),
        sent_bytes: 0,
        count: Count::default(),
        progress: Progress::new("importing", Of::Bytes(None), true),
        position: 0,
    };
    let done = importer.all(&mut source);
    let count = importer.count;
    let mut fake = fake.lock().unwrap_or_else(PoisonError::into_inner);
    (done, count, std::mem::take(&mut *fake))
}

fn numbers(end: usize, queues: usize) -> Numbers {
    Numbers {
        next: 0,
        end,
        queues,
        large: 0,
    }
}

#[test]
fn a_duplicate_in_the_middle_keeps_the_order_of_the_file() {
    let before = || Fake {
        stored: vec!["300".to_owned()],
        ..Fake::default()
    };
    let end = 256 * 44;
    let (done, count, fake) = import(before(), numbers(end, 1), WINDOW);
    done.unwrap();
    assert_eq!((count.stored, count.refused), (end as u64 - 1, 1));
    let expected = (0..end).filter(|&number| number != 300);
    let expected: Vec<String> = expected.map(|number| number.to_string()).collect();
    assert_eq!(fake.stored.len(), end);
    assert!(fake.stored[1..] == expected, "another order");

    // Groups of one message each, to two queues.
    let (done, count, fake) = import(before(), numbers(600, 2), WINDOW);
    done.unwrap();
    assert_eq!((count.stored, count.refused), (599, 1));
    assert!(fake.stored[1..].is_sorted_by_key(|key| key.parse::<usize>().unwrap()));
}

#[test]
fn groups_behind_the_last_reply_of_a_connection_are_unknown() {
    let stops = Fake {
        odd: Some((1, 201, "")),
        ..Fake::default()
    };
    let (done, count, fake) = import(stops, numbers(20, 2), 2);
    let error = format!("{:#}", done.unwrap_err());
    assert!(
        error.starts_with("messages from message 2 on may be stored or not"),
        "{error}"
    );
    assert_eq!((count.stored, fake.stored), (1, vec!["0".to_owned()]));
}

#[test]
fn a_group_whose_outcome_is_unknown_is_not_sent_again() {
    for code in [CommandError::Unknown.code(), "internal", ""] {
        let breaks = |post| Fake {
            odd: Some((post, 500, code)),
            ..Fake::default()
        };
        let (done, count, fake) = import(breaks(2), numbers(256 * 20, 1), WINDOW);
        let error = format!("{:#}", done.unwrap_err());
        assert!(
            error.contains("may be stored or not; repeat the command"),
            "{error}"
        );
        assert_eq!((count.stored, fake.posts), (256, 2), "{code}");

        let mut large = numbers(1, 1);
        large.large = 1 << 20;
        let (done, _, fake) = import(breaks(1), large, WINDOW);
        let error = format!("{:#}", done.unwrap_err());
        assert!(
            error.contains("may be stored or not; repeat the command"),
            "{error}"
        );
        assert_eq!(fake.posts, 1);
    }
    // A server that refuses them together gets them one by one.
    let refuses = Fake {
        odd: Some((2, 507, "full")),
        ..Fake::default()
    };
    let (done, count, _) = import(refuses, numbers(256 * 20, 1), WINDOW);
    done.unwrap();
    assert_eq!(count.stored, 256 * 20);
}
