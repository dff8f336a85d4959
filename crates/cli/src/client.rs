//! The way to a running server on this machine.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use anyhow::{Result, anyhow, bail};
use quintet_config::ADMIN_SOCKET;
use quintet_types::CommandError;

use super::Where;
use super::remote::{Way, default_http, plain};

/// The server's no.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(super) struct Refused {
    /// `quintet_types::CommandError::code`; empty where there is none.
    pub(super) code: String,
    /// Of HTTP.
    pub(super) status: u16,
    pub(super) text: String,
}

impl Refused {
    /// True if the error is the server's no, and for this reason.
    pub(super) fn is(error: &anyhow::Error, command_error: CommandError) -> bool {
        let refused = error.downcast_ref::<Refused>();
        refused.is_some_and(|refused| refused.code == command_error.code())
    }

    /// True if the error is the server's no, and the server has not executed the request. 500, and
    /// a 5xx of something between here and the server, leave that open.
    pub(super) fn is_certain(error: &anyhow::Error) -> bool {
        let refused = error.downcast_ref::<Refused>();
        refused.is_some_and(|refused| match refused.status {
            ..500 => true,
            503 | 507 => !refused.code.is_empty(),
            _ => false,
        })
    }
}

/// The server at the default address of HTTP on this machine, if no address is given and one
/// responds there.
fn at_default_http(at: &Where, is_server: fn(TcpStream) -> bool) -> Option<Way> {
    // Any program of this machine may listen there: only a server that is named gets a secret.
    let is_named = at.data.is_some() || at.socket.is_some();
    if is_named || at.only_sockets || at.user.is_some() {
        return None;
    }
    let address = default_http();
    if !is_server(plain(address).ok()?) {
        return None;
    }
    let way = plain(address).ok()?;
    if at.verbose {
        eprintln!("quintet: the server at http://{address}");
    }
    Some(Way::new(way, true))
}

/// The control socket of the server on this machine; last of all the default address of HTTP,
/// where `is_server` says that one responds.
///
/// # Errors
/// Says how to start a server, if none runs there.
#[expect(clippy::wildcard_enum_match_arm, reason = "as the system says it")]
pub(super) fn socket(at: &Where, is_server: fn(TcpStream) -> bool) -> Result<Way> {
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
                return Ok(Way::new(stream, false));
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
        return at_default_http(at, is_server).ok_or(error);
    }
    if let Some(socket) = &at.socket {
        bail!("no server listens on {}", socket.display());
    }
    #[cfg(feature = "cluster")]
    super::node::name_owner(&directories)?;
    if at.data.is_none() {
        if let Some(way) = at_default_http(at, is_server) {
            return Ok(way);
        }
        let all = directories.iter().map(|dir| dir.display().to_string());
        let http = format!("http://{}", default_http());
        let hint = match &at.user {
            Some(_) => format!(", or a listener on this machine with --server {http}"),
            None => String::new(),
        };
        let tried = at.user.is_none() && !at.only_sockets;
        bail!(
            "no server runs on {}: start one with `quintet serve`, or name the data directory of \
             the running one with --data{hint}",
            all.chain(tried.then_some(http))
                .collect::<Vec<_>>()
                .join(", ")
        );
    }
    let data = at.data();
    bail!(
        "no server runs on {}: start one with `quintet serve --data {}`, or name the directory of \
         the running one with --data",
        data.display(),
        data.display()
    )
}
