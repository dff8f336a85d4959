//! Talking to a running server over its control channel.

use std::io::{BufRead as _, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, anyhow, bail};
use quintet_config::ADMIN_SOCKET;
use quintet_types::Refusal;
use serde_json::{Value, json};

use super::Where;
use super::remote::{Way, of_server};

/// The server's no.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(super) struct Refused {
    /// `quintet_types::Refusal::code`; empty where there is none.
    pub(super) code: String,
    pub(super) text: String,
}

impl Refused {
    /// True if the error is the server's no, and for this reason.
    pub(super) fn is(error: &anyhow::Error, refusal: Refusal) -> bool {
        let refused = error.downcast_ref::<Refused>();
        refused.is_some_and(|refused| refused.code == refusal.code())
    }
}

/// A connection to the server.
pub(super) struct Client {
    stream: BufReader<Way>,
}

/// The way to the server. That the server closed it is not the broken pipe of
/// a reader of our output, which ends a command quietly.
pub(super) struct ToServer<'a>(pub(super) &'a mut Way);

impl Write for ToServer<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes).map_err(of_server)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush().map_err(of_server)
    }
}

/// The control socket of the server on this machine.
///
/// # Errors
/// Says how to start a server, if none runs there.
#[expect(clippy::wildcard_enum_match_arm, reason = "as the system says it")]
pub(super) fn socket(at: &Where) -> Result<Way> {
    let directories = at.directories();
    let sockets = match &at.socket {
        Some(socket) => vec![socket.clone()],
        None => directories
            .iter()
            .map(|dir| dir.join(ADMIN_SOCKET))
            .collect(),
    };
    let mut odd = None;
    for path in &sockets {
        let error = match UnixStream::connect(path) {
            Ok(stream) => {
                if at.verbose {
                    eprintln!("quintet: the server at {}", path.display());
                }
                return Ok(Way::Socket(stream));
            }
            Err(error) => error,
        };
        let error = match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => continue,
            ErrorKind::PermissionDenied => anyhow!(
                "{} belongs to another user: run this as the user the server runs as",
                path.display()
            ),
            _ => anyhow!("cannot connect to {}: {error}", path.display()),
        };
        // Another of the usual places may have it.
        odd.get_or_insert(error);
    }
    if let Some(error) = odd {
        return Err(error);
    }
    if let Some(socket) = &at.socket {
        bail!("no server listens on {}", socket.display());
    }
    if at.data.is_none() {
        let all: Vec<String> = directories
            .iter()
            .map(|dir| dir.display().to_string())
            .collect();
        bail!(
            "no server runs on {}: start one with `quintet serve`, or name the data directory \
             of the one that runs with --data",
            all.join(", ")
        );
    }
    let data = at.data();
    bail!(
        "no server runs on {}: start one with `quintet serve --data {}`, or name the \
         directory of the one that runs with --data",
        data.display(),
        data.display()
    )
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// Says how to start a server, if none runs there.
    pub(super) fn connect(at: &Where) -> Result<Self> {
        let stream = match &at.server {
            Some(server) => at.remote(server)?,
            None => socket(at)?,
        };
        let stream = BufReader::new(stream);
        let mut client = Self { stream };
        if let Some((name, secret)) = at.login()? {
            let login = json!({ "login": { "name": name, "secret": secret } });
            let done = client.ask(&login, &mut std::io::empty());
            done.context("cannot log in")?;
        }
        Ok(client)
    }

    /// Sends a request, with the body it announces, and reads the reply line.
    ///
    /// # Errors
    /// What the server refused, in its words, or that it is gone.
    pub(super) fn ask(&mut self, request: &Value, body: &mut dyn Read) -> Result<Value> {
        let sent = self.send(&request.to_string(), body);
        // A refusal may come before all was sent.
        let reply = match (self.receive(), sent) {
            (Ok(reply), _) => reply,
            (Err(_), Err(error)) => {
                return Err(error).context("the server closed the connection");
            }
            (Err(error), Ok(())) => return Err(error),
        };
        if let Some(why) = reply.get("error").and_then(Value::as_str) {
            let code = reply.get("code").and_then(Value::as_str);
            return Err(anyhow::Error::new(Refused {
                code: code.unwrap_or_default().to_owned(),
                text: why.to_owned(),
            }));
        }
        Ok(reply)
    }

    /// Sends a request, with the body it announces. Its reply comes in its
    /// turn.
    pub(super) fn send(&mut self, request: &str, body: &mut dyn Read) -> std::io::Result<()> {
        let mut stream = self.writer();
        writeln!(stream, "{request}")?;
        std::io::copy(body, &mut stream).map(|_| ())
    }

    /// Where the rest of a request goes.
    pub(super) fn writer(&mut self) -> ToServer<'_> {
        ToServer(self.stream.get_mut())
    }

    /// Reads the next reply line, which may say `error`.
    ///
    /// # Errors
    /// The server is gone.
    pub(super) fn receive(&mut self) -> Result<Value> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line);
        if line.is_empty() {
            read.context("the server closed the connection")?;
            bail!(
                "the server closed the connection: it is stopping, has too many connections, or \
                 could not get an acknowledgement; what was asked may have been done"
            );
        }
        serde_json::from_str(&line).context("the server is of another version")
    }
}
