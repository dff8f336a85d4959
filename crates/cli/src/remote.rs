//! The way to a server over the network: TCP under TLS, with certificates on both sides. To a
//! server on this machine also without TLS.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use quintet_tls::rustls::{ClientConnection, StreamOwned};
use quintet_tls::{ClientFiles, client_config, server_name};

use super::Where;

/// A server answers a handshake in this time.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// A connection of the command line. That the server closed it is not the broken pipe of a reader of
/// our output, which ends a command quietly.
pub(super) struct Way {
    stream: Box<dyn Stream>,
    /// It is TCP without TLS, to a server on this machine.
    pub(super) is_plain: bool,
}

trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

impl Way {
    pub(super) fn new(stream: impl Read + Write + 'static, is_plain: bool) -> Self {
        let stream = Box::new(stream);
        Self { stream, is_plain }
    }
}

/// An error of the connection, as what it is.
fn of_server(error: std::io::Error) -> std::io::Error {
    match error.kind() == ErrorKind::BrokenPipe {
        true => ErrorKind::ConnectionAborted.into(),
        false => error,
    }
}

impl Read for Way {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.stream.read(into).map_err(of_server)
    }
}

impl Write for Way {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.stream.write(bytes).map_err(of_server)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stream.flush().map_err(of_server)
    }
}

/// The default address of the listener "http".
pub(super) fn default_http() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, quintet_config::http::PORT).into()
}

/// The address of `--server http://IP:PORT`, if the IP is of this machine.
pub(super) fn plain_address(server: &str) -> Option<SocketAddr> {
    let address = server.strip_prefix("http://")?.trim_end_matches('/');
    let address: Option<SocketAddr> = address.parse().ok();
    address.filter(|address| address.ip().is_loopback())
}

/// Connects to a server on this machine without TLS.
///
/// # Errors
/// Nothing listens there.
pub(super) fn plain(address: SocketAddr) -> Result<TcpStream> {
    let connected = TcpStream::connect(address);
    let stream = connected.with_context(|| format!("cannot connect to {address}"))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Where the secret of `--user` is, unless `--token-file` names a file.
const TOKEN: &str = "QUINTET_TOKEN";

impl Where {
    /// The name and the secret of `--user`, if there is one.
    ///
    /// # Errors
    /// Nobody says with what, or it cannot be read.
    pub(super) fn login(&self) -> Result<Option<(&str, String)>> {
        let Some(name) = &self.user else {
            return Ok(None);
        };
        let secret = match &self.token_file {
            Some(path) if path.as_os_str() == "-" => std::io::read_to_string(std::io::stdin())?,
            Some(path) => std::fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?,
            None => std::env::var(TOKEN)
                .ok()
                .with_context(|| format!("--user {name} needs {TOKEN} or --token-file"))?,
        };
        let secret = secret.trim_end_matches(['\r', '\n']);
        Ok(Some((name, secret.to_owned())))
    }

    /// Connects to a server elsewhere, at HOST:PORT.
    ///
    /// # Errors
    /// Says what is missing, or why there is no connection.
    pub(super) fn remote(&self, address: &str) -> Result<Way> {
        let shown = match (&self.cert, &self.key) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some((cert.clone(), key.clone())),
            (Some(_), None) | (None, Some(_)) => {
                bail!("--cert and --key go together: give both, or none")
            }
        };
        let ca = self.ca.clone();
        let config = client_config(&ClientFiles { ca, shown })?;
        let connected = TcpStream::connect(address);
        let socket = connected.with_context(|| format!("cannot connect to {address}"))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(HANDSHAKE))?;
        let connection = ClientConnection::new(config, server_name(address)?)?;
        let mut stream = StreamOwned::new(connection, socket);
        while stream.conn.is_handshaking() {
            let done = stream.conn.complete_io(&mut stream.sock);
            done.with_context(|| {
                format!(
                    "the TLS handshake with {address} failed: has its listener TLS, and does --ca \
                     fit?"
                )
            })?;
        }
        stream.sock.set_read_timeout(None)?;
        Ok(Way::new(stream, false))
    }
}
