//! Asking `/api/v1`: on the control socket, over HTTPS with `--server https://HOST:PORT`, or over
//! HTTP on this machine.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use quintet_types::CommandError;
use serde_json::Value;

use super::Where;
use super::client::{Refused, socket};
use super::nearest::{COMPARED, hint};
use super::remote::{Way, default_http, plain, plain_address};

/// Bytes of a reply that are read.
const REPLY_MAX: u64 = 64 << 20;
/// Bytes of a line before the body.
const LINE_MAX: u64 = 16 << 10;

const CLOSED: &str = "the server closed the connection";
const UNKNOWN: &str = "the server closed the connection: it is stopping, has too many \
    connections, or could not get an acknowledgement; the request may have been executed";

const AUTHORIZATION: &str = "Authorization";

const PART: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// A part of an address.
pub(super) fn part(text: &str) -> String {
    utf8_percent_encode(text, PART).to_string()
}

/// A connection that rested for so long is not used again.
const RESTS: Duration = Duration::from_secs(if cfg!(test) { 3_600 } else { 1 });

/// A connection to the API, which is kept from one request to the next.
pub(super) struct Api {
    at: Where,
    stream: Option<BufReader<Way>>,
    /// When the last reply began.
    used: Instant,
    /// Bytes of the last reply that were not read.
    left: u64,
    /// The last reply is a page of a list, and others follow.
    more: bool,
    /// The lines that each request has.
    head: String,
    /// Posts whose replies were not read ([`Api::begin`]).
    waiting: usize,
}

/// A reply before its body.
struct Reply {
    status: u16,
    /// The connection ends behind it.
    last: bool,
    /// Bytes of its body.
    length: u64,
    /// It links to the next page of a list.
    more: bool,
}

impl Where {
    /// Sends a request of the API and reads its reply, as [`Api::ask`].
    ///
    /// # Errors
    /// As of [`Api::ask`].
    pub(super) fn api(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        Api::connect(self)?.ask(method, path, body)
    }
}

impl Api {
    /// Connects.
    ///
    /// # Errors
    /// There is no server, or no way to it.
    pub(super) fn connect(at: &Where) -> Result<Self> {
        let host = match &at.server {
            Some(server) if plain_address(server).is_none() => host_of(server)?,
            Some(_) | None => "localhost",
        };
        let mut head = format!("Host: {host}\r\n");
        if let Some((name, secret)) = at.login()? {
            let shown = BASE64_STANDARD.encode(format!("{name}:{secret}"));
            head.push_str(&format!("{AUTHORIZATION}: Basic {shown}\r\n"));
        }
        let mut api = Self {
            at: at.clone(),
            stream: None,
            used: Instant::now(),
            left: 0,
            more: false,
            head,
            waiting: 0,
        };
        let way = api.open_way()?;
        // The next connection is to the same server.
        api.at.only_sockets = true;
        if way.get_ref().is_plain && at.server.is_none() {
            api.at.server = Some(format!("http://{}", default_http()));
        }
        api.stream = Some(way);
        // It was said once.
        api.at.verbose = false;
        Ok(api)
    }

    fn open_way(&self) -> Result<BufReader<Way>> {
        let way = match &self.at.server {
            None => socket(&self.at, is_server)?,
            Some(server) => match plain_address(server) {
                Some(address) => Way::new(plain(address)?, true),
                None => self.at.remote(host_of(server)?)?,
            },
        };
        Ok(BufReader::new(way))
    }

    /// Sends a request and reads its reply; null: it has no body. `path` begins behind `/api/v1`.
    ///
    /// # Errors
    /// The server's no, as [`Refused`], or there is no server.
    pub(super) fn ask(&mut self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let response = self.bytes(method, path, body.as_bytes())?;
        Ok(serde_json::from_slice(&response).unwrap_or(Value::Null))
    }

    /// The JSON that this path has.
    ///
    /// # Errors
    /// As of [`Api::ask`].
    pub(super) fn get(&mut self, path: &str) -> Result<Value> {
        self.ask("GET", path, None)
    }

    /// The text that this path has.
    ///
    /// # Errors
    /// As of [`Api::ask`].
    pub(super) fn text(&mut self, path: &str) -> Result<String> {
        let text = self.bytes("GET", path, b"")?;
        String::from_utf8(text).context("the server is of another version")
    }

    /// All rows of a list that comes in pages. A page that others follow has the header `Link`; the
    /// next one is asked with the `key` of the last row, as `after`.
    ///
    /// # Errors
    /// As of [`Api::ask`].
    pub(super) fn list(&mut self, path: &str, key: &str) -> Result<Vec<Value>> {
        let mut all: Vec<Value> = Vec::new();
        loop {
            let after = all.last().map_or_else(String::new, |last| {
                let last = &last[key];
                let text = last
                    .as_str()
                    .map_or_else(|| last.to_string(), str::to_owned);
                format!("?after={}", part(&text))
            });
            let page: Vec<Value> = serde_json::from_value(self.get(&format!("{path}{after}"))?)
                .context("the server is of another version")?;
            let ends = page.is_empty() || !self.more;
            all.extend(page);
            if ends {
                return Ok(all);
            }
        }
    }

    /// All of the lists called `name` that the pages from this path on have. What a page has as
    /// `next` the next one is asked with, as `after`.
    ///
    /// # Errors
    /// As of [`Api::ask`].
    pub(super) fn pages(
        &mut self,
        path: &str,
        name: &str,
        next: &str,
        after: &str,
    ) -> Result<Vec<Value>> {
        let mut all = Vec::new();
        self.each_page(("GET", path), (next, after), |mut page| {
            let Value::Array(list) = page[name].take() else {
                bail!("the server is of another version");
            };
            all.extend(list);
            Ok(true)
        })?;
        Ok(all)
    }

    /// Gives the pages from this path on to `each`, until it says that it has enough.
    ///
    /// # Errors
    /// As of [`Api::ask`], or `each` has one.
    pub(super) fn each_page(
        &mut self,
        (method, path): (&str, &str),
        (next, after): (&str, &str),
        mut each: impl FnMut(Value) -> Result<bool>,
    ) -> Result<()> {
        let sign = if path.contains('?') { '&' } else { '?' };
        let mut from = path.to_owned();
        loop {
            let page = self.ask(method, &from, None)?;
            let next = page[next].as_str().map(part);
            match (each(page)?, next) {
                (true, Some(next)) => from = format!("{path}{sign}{after}={next}"),
                _ => return Ok(()),
            }
        }
    }

    /// All queues with their numbers, by name.
    ///
    /// # Errors
    /// As of [`Api::ask`].
    pub(super) fn queues(&mut self) -> Result<Vec<Value>> {
        let mut all = self.pages("/queues", "queues", "cursor", "cursor")?;
        // Of one that was made anew while the pages came the first is shown.
        all.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
        all.dedup_by(|a, b| a["name"] == b["name"]);
        Ok(all)
    }

    /// Sends a request whose reply is a line of JSON and bodies behind it, and reads the line.
    ///
    /// # Errors
    /// As of [`Api::ask`].
    pub(super) fn open(&mut self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let body = body.map(Value::to_string).unwrap_or_default();
        self.reply(method, path, body.as_bytes())?;
        let mut line = String::new();
        BufReader::with_capacity(1, &mut *self).read_line(&mut line)?;
        serde_json::from_str(&line).context("the server is of another version")
    }

    /// Reads so many bytes of the bodies.
    ///
    /// # Errors
    /// The server is gone, or `into` takes no more.
    pub(super) fn body(&mut self, bytes: u64, into: &mut dyn Write) -> Result<()> {
        let copied = std::io::copy(&mut self.take(bytes), into)?;
        if copied < bytes {
            bail!("the server closed the connection inside a message");
        }
        Ok(())
    }

    /// Posts a line of JSON and behind it so many bytes of `more`.
    ///
    /// # Errors
    /// As of [`Api::ask`]; or `more` cannot be read.
    pub(super) fn post_with(
        &mut self,
        path: &str,
        line: &Value,
        (bytes, more): (u64, &mut dyn Read),
    ) -> Result<Value> {
        let line = format!("{line}\n");
        let status = self.round("POST", path, line.as_bytes(), Some((bytes, more)))?;
        self.judge(status)?;
        Ok(serde_json::from_slice(&self.rest()?).unwrap_or(Value::Null))
    }

    /// Begins a post: a line, and behind it so many bytes, which go to [`Api::writer`]. It does not
    /// wait for the replies to those before; [`Api::receive`] reads them in their order.
    ///
    /// # Errors
    /// The server is gone, or has refused one of those before; it opens no other connection while
    /// one of them has no reply.
    pub(super) fn begin(&mut self, path: &str, line: &str, bytes: u64) -> Result<()> {
        // The server may have closed a connection that rested.
        if self.waiting == 0 && (self.stream.is_none() || self.used.elapsed() >= RESTS) {
            self.stream = Some(self.open_way()?);
        }
        self.waiting += 1;
        let length = line.len() as u64 + 1 + bytes;
        let head = &self.head;
        let request = format!(
            "POST /api/v1{path} HTTP/1.1\r\n{head}Content-Type: application/octet-stream\r\n\
             Content-Length: {length}\r\n\r\n{line}\n"
        );
        self.writer()?.write_all(request.as_bytes())?;
        Ok(())
    }

    /// Takes the bytes of a post that was begun.
    ///
    /// # Errors
    /// The server has closed the connection.
    pub(super) fn writer(&mut self) -> Result<&mut Way> {
        Ok(self.stream.as_mut().context(CLOSED)?.get_mut())
    }

    /// The reply to the oldest post that has none.
    ///
    /// # Errors
    /// As of [`Api::ask`]. No later post is done, or that is not known.
    pub(super) fn receive(&mut self) -> Result<Value> {
        self.waiting = self.waiting.saturating_sub(1);
        let mut stream = self.stream.take().context(CLOSED)?;
        if stream.fill_buf().context(CLOSED)?.is_empty() {
            bail!(UNKNOWN);
        }
        let reply = read(&mut stream).context("the server is of another version")?;
        (self.used, self.left) = (Instant::now(), reply.length);
        self.stream = Some(stream);
        let response = match self.judge(reply.status) {
            Ok(()) => self.rest().map(|body| serde_json::from_slice(&body)),
            Err(error) => Err(error),
        };
        if response.is_err() {
            self.forget();
        } else if reply.last {
            // The later posts keep their turn: none of them has a reply, and it is not known
            // whether the server executed them.
            (self.stream, self.left) = (None, 0);
        }
        response?.context("the server is of another version")
    }

    /// Leaves the posts that have no reply.
    fn forget(&mut self) {
        (self.stream, self.left, self.waiting) = (None, 0, 0);
    }

    fn bytes(&mut self, method: &str, path: &str, body: &[u8]) -> Result<Vec<u8>> {
        self.reply(method, path, body)?;
        self.rest()
    }

    /// The rest of a reply.
    fn rest(&mut self) -> Result<Vec<u8>> {
        let (mut body, left) = (Vec::new(), self.left);
        if left > REPLY_MAX {
            bail!("a reply of {left} bytes is too long");
        }
        self.read_to_end(&mut body)?;
        match body.len() as u64 == left {
            true => Ok(body),
            false => bail!("the server closed the connection inside a reply"),
        }
    }

    /// Sends a request; the body of its reply is to be read.
    fn reply(&mut self, method: &str, path: &str, body: &[u8]) -> Result<()> {
        let kept = self.stream.is_some();
        let status = match self.round(method, path, body, None) {
            // The server may have closed a connection on which nothing was asked for a while.
            Err(_) if kept && method == "GET" => self.round(method, path, body, None)?,
            status => status?,
        };
        self.judge(status)
            .map_err(|error| self.with_nearest(path, error))
    }

    /// The same error. If the queue of the address does not exist, the error also names queues that
    /// may have been meant.
    fn with_nearest(&mut self, path: &str, error: anyhow::Error) -> anyhow::Error {
        let queue = match path.strip_prefix("/queues/") {
            Some(path) if Refused::is(&error, CommandError::QueueNotFound) => {
                let queue = path.split(['/', '?']).next().unwrap_or_default();
                percent_decode_str(queue).decode_utf8_lossy().into_owned()
            }
            Some(_) | None => return error,
        };
        let hint = self.nearest(&queue);
        match error.downcast::<Refused>() {
            Ok(refused) => {
                let text = format!("{}{hint}", refused.text);
                anyhow::Error::new(Refused { text, ..refused })
            }
            Err(error) => error,
        }
    }

    /// The end of an error about a queue that does not exist: names that are like it, if the client
    /// may list any.
    pub(super) fn nearest(&mut self, queue: &str) -> String {
        let mut names: Vec<String> = Vec::new();
        let listed = self.each_page(("GET", "/queues"), ("cursor", "cursor"), |page| {
            let queues = page["queues"].as_array().into_iter().flatten();
            names.extend(queues.filter_map(|queue| queue["name"].as_str().map(str::to_owned)));
            Ok(names.len() < COMPARED)
        });
        // Of a list that breaks off the names so far will do.
        drop(listed);
        hint(queue, names.iter().map(String::as_str))
    }

    /// An error, if the status of a reply says that it is one.
    fn judge(&mut self, status: u16) -> Result<()> {
        if status < 400 {
            return Ok(());
        }
        let body = self.rest()?;
        let response: Value = serde_json::from_slice(&body).unwrap_or_default();
        let text = |name: &str| response[name].as_str().map(str::to_owned);
        let whole = || untold(status, &body);
        let code = text("code").unwrap_or_default();
        let text = match code.as_str() {
            "login_needed" if !self.head.contains(AUTHORIZATION) => {
                "log in first: --user NAME, with the token or password in QUINTET_TOKEN or \
                 --token-file"
                    .to_owned()
            }
            "login_needed" => {
                "authentication failure: check --user and its token or password".to_owned()
            }
            _ => {
                let detail = text("detail").unwrap_or_else(whole);
                match text("field") {
                    Some(field) => about(&field, detail),
                    None => detail,
                }
            }
        };
        Err(anyhow::Error::new(Refused { code, status, text }))
    }

    /// One request, and the status of its reply. A connection that failed, or whose last reply was
    /// not read to its end, is not used again.
    fn round(
        &mut self,
        method: &str,
        path: &str,
        body: &[u8],
        more: Option<(u64, &mut dyn Read)>,
    ) -> Result<u16> {
        if path.contains("//") || path.ends_with('/') {
            bail!("an argument is empty that has to be a name");
        }
        let left = std::mem::take(&mut self.left);
        // The server may have closed a connection that rested.
        let is_fit = left == 0 && self.used.elapsed() < RESTS;
        let mut stream = match self.stream.take().filter(|_| is_fit) {
            Some(stream) => stream,
            None => self.open_way()?,
        };
        let mut request = format!("{method} /api/v1{path} HTTP/1.1\r\n{}", self.head);
        if !body.is_empty() {
            request.push_str("Content-Type: application/json\r\n");
        }
        let length = body.len() as u64 + more.as_ref().map_or(0, |(bytes, _)| *bytes);
        request.push_str(&format!("Content-Length: {length}\r\n\r\n"));
        let mut request = request.into_bytes();
        request.extend(body);
        let way = stream.get_mut();
        let sent = way.write_all(&request).and_then(|()| match more {
            Some((_, more)) => std::io::copy(more, way).map(drop),
            None => Ok(()),
        });
        // An error may come before all was sent.
        let reply = match (stream.fill_buf(), sent) {
            (Ok([]) | Err(_), Err(error)) => {
                return Err(error).context(CLOSED);
            }
            (Ok([]), Ok(())) => bail!(UNKNOWN),
            (Err(error), Ok(())) => return Err(error).context(CLOSED),
            (Ok(_), _) => read(&mut stream).context("the server is of another version")?,
        };
        self.used = Instant::now();
        (self.left, self.more) = (reply.length, reply.more);
        // One that the server closes fails at the next request.
        if !reply.last || reply.length > 0 {
            self.stream = Some(stream);
        }
        Ok(reply.status)
    }
}

impl Read for Api {
    /// Reads from the body of the last reply.
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let Some(stream) = &mut self.stream else {
            return Ok(0);
        };
        let read = stream.take(self.left).read(into)?;
        self.left -= read as u64;
        Ok(read)
    }
}

/// An error that is no document of the API.
fn untold(status: u16, body: &[u8]) -> String {
    match String::from_utf8_lossy(body).trim() {
        "" if status == 414 => "an argument is too long for an address".to_owned(),
        "" => format!("the server answered with HTTP {status} and did not say why"),
        text => text.to_owned(),
    }
}

/// A sentence about a field of a request, with the name of the field.
fn about(field: &str, detail: String) -> String {
    // The message that the command puts is the only one.
    let field = field.strip_prefix("messages[0].").unwrap_or(field);
    match detail.starts_with("takes ") || detail.starts_with("needs ") {
        true => format!("{field} {detail}"),
        false if field == "." || detail.contains(field) => detail,
        false => format!("{field}: {detail}"),
    }
}

/// HOST:PORT of `--server https://HOST:PORT`.
fn host_of(server: &str) -> Result<&str> {
    let host = server.strip_prefix("https://").with_context(|| {
        format!(
            "--server {server} is not an HTTPS address: write https://HOST:PORT of a listener \
             \"http\" with TLS, or on this machine http://127.0.0.1:PORT"
        )
    })?;
    Ok(host.trim_end_matches('/'))
}

/// A program that is no server may not respond; ms.
const PROBE_MS: u64 = 2_000;

/// True if the API responds on this connection. The request has no login.
fn is_server(stream: TcpStream) -> bool {
    let code = || -> Result<Value> {
        stream.set_read_timeout(Some(Duration::from_millis(PROBE_MS)))?;
        (&stream).write_all(b"GET /api/v1/none HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut stream = BufReader::new(&stream);
        let reply = read(&mut stream)?;
        let body = stream.take(reply.length.min(LINE_MAX));
        let response: Value = serde_json::from_reader(body)?;
        Ok(response["code"].clone())
    };
    let known = ["no_such_address", "login_needed", "not_permitted"];
    code().is_ok_and(|code| known.iter().any(|known| code == *known))
}

/// Reads a reply up to its body.
fn read(stream: &mut impl BufRead) -> Result<Reply> {
    let mut line = || -> Result<String> {
        let mut line = String::new();
        stream.take(LINE_MAX).read_line(&mut line)?;
        let line = line.strip_suffix("\r\n");
        Ok(line.context("a line of the reply has no end")?.to_owned())
    };
    let first = line()?;
    let status = first
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.split(' ').nth(1));
    let status: u16 = status.context("no HTTP")?.parse()?;
    let (mut length, mut last, mut more) = (None, first.starts_with("HTTP/1.0"), false);
    loop {
        let header = line()?.to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        let (name, value) = header
            .split_once(':')
            .context("a line of the reply is not a header")?;
        match name {
            "content-length" => length = Some(value.trim().parse::<u64>()?),
            "connection" => last = value.trim() == "close",
            "link" => more = true,
            _ => {}
        }
    }
    let length = match status {
        204 => 0,
        _ => length.context("the reply has no length")?,
    };
    Ok(Reply {
        status,
        last,
        length,
        more,
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_reply_has_a_status_and_a_length() {
        let response = |text: &[u8]| {
            let reply = read(&mut &*text)?;
            anyhow::Ok((reply.status, reply.last, reply.length))
        };
        let reply = b"HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\na: b\r\n\r\n{}";
        assert_eq!(response(reply).unwrap(), (409, false, 2));
        assert!(response(&reply[..40]).is_err());
        let none = b"HTTP/1.1 204 None\r\nConnection: close\r\n\r\n";
        assert_eq!(response(none).unwrap(), (204, true, 0));
        assert!(response(b"{\"error\": \"bad request\"}\n").is_err());
        assert_eq!(part("a b/ü?\""), "a%20b%2F%C3%BC%3F%22");
    }

    /// Clients that connect meanwhile would be a new page each time.
    #[test]
    fn a_list_ends_with_the_page_that_links_to_no_other() {
        let page = |link: &str, id: u64| {
            let body = format!("[{{\"id\":{id}}}]");
            let length = body.len();
            format!("HTTP/1.1 200 OK\r\n{link}Content-Length: {length}\r\n\r\n{body}")
        };
        let next = "Link: <?after=1>; rel=\"next\"\r\n";
        let pages = [page(next, 1), page("", 2), page("", 3)].concat();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = plain(listener.local_addr().unwrap()).unwrap();
        // The replies come first: no thread has to be in time.
        let (mut other, _) = listener.accept().unwrap();
        other.write_all(pages.as_bytes()).unwrap();
        // One request too many fails, where it would wait for ever.
        other.shutdown(std::net::Shutdown::Write).unwrap();
        let mut api = Api {
            at: Where {
                data: None,
                only_sockets: true,
                verbose: false,
                socket: None,
                server: None,
                ca: None,
                cert: None,
                key: None,
                user: None,
                token_file: None,
            },
            stream: Some(BufReader::new(Way::new(stream, true))),
            used: Instant::now(),
            left: 0,
            more: false,
            head: String::new(),
            waiting: 0,
        };
        let rows = api.list("/connections", "id").unwrap();
        assert_eq!(rows, [json!({"id": 1}), json!({"id": 2})]);
        let mut asked = [0; 512];
        let read = other.read(&mut asked).unwrap();
        let asked = String::from_utf8_lossy(&asked[..read]).into_owned();
        assert!(asked.contains("/connections?after=1 "), "{asked}");
    }

    #[test]
    fn only_a_server_of_the_api_responds_as_one() {
        let reply = |status: &str, body: &str| {
            let length = body.len();
            format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}")
        };
        for (reply, is_one) in [
            (
                reply("404 Not Found", r#"{"code":"no_such_address"}"#),
                true,
            ),
            (
                reply("401 Unauthorized", r#"{"code":"login_needed"}"#),
                true,
            ),
            (reply("404 Not Found", r#"{"code":"not_found"}"#), false),
            (reply("200 OK", "<html></html>"), false),
            ("-ERR unknown command\r\n".to_owned(), false),
            (String::new(), false),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let asks = plain(address).unwrap();
            // The reply comes first: no thread has to be in time.
            let (mut other, _) = listener.accept().unwrap();
            other.write_all(reply.as_bytes()).unwrap();
            other.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(is_server(asks), is_one, "{address}");
        }
    }

    #[test]
    fn only_addresses_of_this_machine_need_no_tls() {
        for (server, is_here) in [
            ("http://127.0.0.1:3333", true),
            ("http://[::1]:1/", true),
            ("http://192.0.2.1:3333", false),
            ("http://localhost.example:3333", false),
            ("https://127.0.0.1:3333", false),
        ] {
            assert_eq!(plain_address(server).is_some(), is_here, "{server}");
        }
        assert_eq!(default_http().to_string(), "127.0.0.1:3333");
    }

    #[test]
    fn an_error_has_a_text_also_if_the_server_sends_none() {
        assert_eq!(untold(502, b" bad gateway\n"), "bad gateway");
        assert_eq!(untold(414, b""), "an argument is too long for an address");
        assert!(untold(502, b"\n").contains("HTTP 502"));
    }

    #[test]
    fn an_error_about_a_field_names_it() {
        for (field, detail, response) in [
            (
                "messages[0].delay_ms",
                "takes a whole number from 0 on; not -1",
                "delay_ms takes a whole number from 0 on; not -1",
            ),
            ("max", "between them", "max: between them"),
            ("to", "a move needs to", "a move needs to"),
            (".", "the body takes an object", "the body takes an object"),
        ] {
            assert_eq!(about(field, detail.to_owned()), response);
        }
    }
}
