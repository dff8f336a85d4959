//! Listening sockets.

use std::fs;
use std::io::{self, ErrorKind};
use std::net;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net as unix;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use quintet_config::Address;
use rustix::net::sockopt;

use crate::again::{self, Handed};
use crate::modes;

/// Connections that may wait to be accepted; the system may allow fewer. The
/// standard library's 128 overflow when a thousand clients come at once, and
/// each that is turned away tries again only after a second.
const BACKLOG: i32 = 4096;

/// Kernel buffer for a client on this machine, each way; the kernel takes twice as much for its own
/// bookkeeping. Without a bound it grows to megabytes, which bring a client that is nanoseconds
/// away nothing, and which the kernel then carries over in one go, for up to 8 ms on end
/// (`netdev_budget_usecs`), on the processor that an I/O thread needs.
const NEAR_SEND_BYTES: usize = 128 << 10;
const NEAR_RECEIVE_BYTES: usize = 256 << 10;

/// Opens a listener's socket.
///
/// # Errors
/// The address is in use or not ours; says what to do.
pub fn bind(protocol: &str, address: &Address) -> anyhow::Result<Bound> {
    Bound::open(address).with_context(|| match address {
        Address::Tcp(at) if at.port() != 0 => format!(
            "cannot listen on {address} for {protocol}: choose another port where this listener \
             is named (--listen, --port or [[listen]])"
        ),
        Address::Tcp(_) | Address::Unix(_) => format!("cannot listen on {address} for {protocol}"),
    })
}

/// From now on only the server's own user may use this socket.
///
/// # Errors
/// The file is gone, or not ours.
pub fn restrict(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
}

/// An open listener.
pub struct Bound {
    socket: Socket,
    /// Where it really listens (a port of 0 was replaced).
    pub address: Address,
    /// A socket file to remove in the end.
    file: Option<PathBuf>,
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Bound {
    /// Opens a listener.
    ///
    /// # Errors
    /// The address is in use or not ours; the text says which.
    pub fn open(address: &Address) -> io::Result<Self> {
        let handed = again::handed(&address.to_string());
        match address {
            Address::Tcp(at) => {
                let listener = match handed {
                    Some(Handed::Tcp(listener)) => listener,
                    _ => net::TcpListener::bind(at)?,
                };
                rustix::net::listen(&listener, BACKLOG)?;
                listener.set_nonblocking(true)?;
                let address = Address::Tcp(listener.local_addr()?);
                let socket = Socket::Tcp(TcpListener::from_std(listener));
                Ok(Self {
                    socket,
                    address,
                    file: None,
                })
            }
            Address::Unix(path) => {
                let (listener, kept) = match handed {
                    Some(Handed::Unix(listener, kept)) => (listener, kept),
                    _ => {
                        remove_stale(path)?;
                        (unix::UnixListener::bind(path)?, false)
                    }
                };
                if !kept {
                    // Who may connect is the operator's to say, by the umask.
                    let mode = 0o777 & !modes::initial_umask();
                    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
                }
                listener.set_nonblocking(true)?;
                let socket = Socket::Unix(UnixListener::from_std(listener));
                Ok(Self {
                    socket,
                    address: address.clone(),
                    file: (!kept).then(|| path.clone()),
                })
            }
        }
    }

    /// The listening socket, for a thread that serves it elsewhere.
    ///
    /// # Errors
    /// The system has no file to give.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        match &self.socket {
            Socket::Tcp(listener) => listener.as_fd().try_clone_to_owned(),
            Socket::Unix(listener) => listener.as_fd().try_clone_to_owned(),
        }
    }

    /// Has a poll report connections that come.
    ///
    /// # Errors
    /// It cannot be polled.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match &mut self.socket {
            Socket::Tcp(listener) => registry.register(listener, token, Interest::READABLE),
            Socket::Unix(listener) => registry.register(listener, token, Interest::READABLE),
        }
    }

    /// The next connection, ready to be served.
    ///
    /// # Errors
    /// There is none, or the system has no file or memory for it.
    pub fn accept<S>(&self) -> io::Result<S>
    where
        S: From<TcpStream> + From<UnixStream>,
    {
        match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                // A reply is one write: waiting for more would only delay it.
                stream.set_nodelay(true)?;
                if peer.ip().to_canonical().is_loopback() {
                    sockopt::set_socket_send_buffer_size(&stream, NEAR_SEND_BYTES)?;
                    sockopt::set_socket_recv_buffer_size(&stream, NEAR_RECEIVE_BYTES)?;
                }
                Ok(stream.into())
            }
            Socket::Unix(listener) => Ok(listener.accept()?.0.into()),
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // Somebody may have put something else there.
        if let Some(path) = &self.file
            && !again::hands_on()
            && is_socket(path)
            && let Err(error) = fs::remove_file(path)
        {
            tracing::debug!("cannot remove {}: {error}", path.display());
        }
    }
}

fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_socket())
}

/// Removes the socket file of a server that is gone; nothing else.
fn remove_stale(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok() && !is_socket(path) {
        return Err(io::Error::new(
            ErrorKind::AlreadyExists,
            "a file that is not a socket is there",
        ));
    }
    match unix::UnixStream::connect(path) {
        Ok(_) => Err(io::Error::new(
            ErrorKind::AddrInUse,
            "another process listens there",
        )),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        // Not there, or not ours: binding says what is wrong.
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_a_taken_port_recommends_no_option_that_listen_excludes() {
        let others = net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let taken = Address::Tcp(others.local_addr().expect("its port"));
        let Err(error) = bind("beanstalk", &taken) else {
            panic!("it is taken")
        };
        let message = format!("{error:#}");
        let begins = format!("cannot listen on {taken} for beanstalk: choose another port");
        assert!(message.starts_with(&begins), "{message}");
        assert!(!message.contains("--port beanstalk="), "{message}");
    }
}
