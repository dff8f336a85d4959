//! Client connections that are handed on to the next process, and a word about them: in messages
//! of a pair of sockets, of which the next process gets one end.
//!
//! Their descriptors need no numbers of their own there, and no script inherits them.

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Resource, getrlimit};

/// Connections that are handed on, at most.
const HANDED_MAX: usize = 32_768;
/// Of the files that a process may open, one in so many may be such a connection: each takes
/// another one on its way to the owner, and other clients come as well.
const SHARE: u64 = 3;
/// Connections in one message: the system takes no more.
const AT_ONCE: usize = 253;
/// Bytes of a message, at most: a listener's name, or the word.
const TEXT_MAX: usize = 4096;
/// How a message with the word begins. No listener has such a name.
const WORD: &str = "word ";

/// Connections, by the name of their listener, and a word for the next process.
#[derive(Default)]
pub(crate) struct Connections {
    by_listener: BTreeMap<String, Vec<OwnedFd>>,
    count: usize,
    pub(crate) word: Option<String>,
}

impl Connections {
    pub(crate) const fn new() -> Self {
        Self {
            by_listener: BTreeMap::new(),
            count: 0,
            word: None,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// False, and closed: there are too many.
    pub(crate) fn add(&mut self, listener: String, socket: OwnedFd) -> bool {
        let fits = self.count < most();
        if fits {
            self.by_listener.entry(listener).or_default().push(socket);
            self.count += 1;
        }
        fits
    }

    /// Those of a listener, which it has no longer.
    pub(crate) fn take(&mut self, listener: &str) -> Vec<OwnedFd> {
        let taken = self.by_listener.remove(listener).unwrap_or_default();
        self.count -= taken.len();
        taken
    }

    /// Closes all that were not taken.
    pub(crate) fn close(&mut self) {
        self.by_listener.clear();
        self.count = 0;
    }

    /// Puts everything into a pair of sockets: the end for the next process. `None`: there is
    /// nothing. Connections for which the system has no room are closed, with a warning.
    ///
    /// # Errors
    /// There is no pair to be had.
    pub(crate) fn send(self) -> Result<Option<UnixDatagram>> {
        if self.count == 0 && self.word.is_none() {
            return Ok(None);
        }
        let (ours, theirs) = UnixDatagram::pair()?;
        ours.set_nonblocking(true)?;
        if let Some(word) = &self.word
            && let Err(error) = ours.send(format!("{WORD}{word}").as_bytes())
        {
            tracing::warn!("cannot tell the next process who owns the queues: {error}");
        }
        let mut left = self.count;
        for (listener, sockets) in &self.by_listener {
            for some in sockets.chunks(AT_ONCE) {
                if let Err(error) = send_some(&ours, listener, some) {
                    tracing::warn!("{left} client connections are closed: {error}");
                    return Ok(Some(theirs));
                }
                left -= some.len();
            }
        }
        Ok(Some(theirs))
    }

    /// Takes everything that an earlier process has put into this.
    pub(crate) fn receive(socket: &UnixDatagram) -> Self {
        let mut all = Self::new();
        loop {
            match receive_some(socket, &mut all) {
                Ok(true) | Err(Errno::INTR) => {}
                Ok(false) | Err(Errno::AGAIN) => return all,
                Err(error) => {
                    tracing::warn!("cannot take client connections over: {error}");
                    return all;
                }
            }
        }
    }
}

/// Connections that are handed on at most, by the limit on open files.
fn most() -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(files / SHARE).map_or(HANDED_MAX, |files| files.min(HANDED_MAX))
}

fn send_some(to: &UnixDatagram, listener: &str, sockets: &[OwnedFd]) -> Result<()> {
    let sockets: Vec<BorrowedFd<'_>> = sockets.iter().map(|socket| socket.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(AT_ONCE))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    // There is room for them: the space is for as many as there can be.
    if !control.push(SendAncillaryMessage::ScmRights(&sockets)) {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    let text = [IoSlice::new(listener.as_bytes())];
    sendmsg(to, &text, &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Takes one message. False: it is the end.
fn receive_some(from: &UnixDatagram, all: &mut Connections) -> rustix::io::Result<bool> {
    let mut bytes = [0; TEXT_MAX];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(AT_ONCE))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut text = [IoSliceMut::new(&mut bytes)];
    let received = recvmsg(from, &mut text, &mut control, flags)?.bytes;
    let text = String::from_utf8_lossy(bytes.get(..received).unwrap_or_default()).into_owned();
    if let Some(word) = text.strip_prefix(WORD) {
        all.word = Some(word.to_owned());
        return Ok(true);
    }
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(sockets) = message {
            for socket in sockets {
                all.add(text.clone(), socket);
            }
        }
    }
    Ok(received > 0)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A client's end, and the server's.
    fn connection() -> (UnixStream, OwnedFd) {
        let (client, server) = UnixStream::pair().expect("a pair");
        (client, server.into())
    }

    #[test]
    fn connections_arrive_by_listener_with_what_their_clients_have_sent() {
        crate::raise_file_limit();
        let mut sent = Connections::new();
        let mut clients = Vec::new();
        // More than one message holds.
        for number in 0..AT_ONCE + 2 {
            let (mut client, server) = connection();
            write!(client, "{number}").expect("room");
            clients.push(client);
            assert!(sent.add("memcache a".to_owned(), server));
        }
        let (mut other, server) = connection();
        assert!(sent.add("beanstalk b".to_owned(), server));
        sent.word = Some("7 b".to_owned());
        assert_eq!(sent.count(), AT_ONCE + 3);

        let socket = sent.send().expect("a pair").expect("there are some");
        let mut received = Connections::receive(&socket);
        assert_eq!(received.word.as_deref(), Some("7 b"));
        assert_eq!(received.count(), AT_ONCE + 3);
        assert!(received.take("memcache").is_empty());
        for (number, server) in received.take("memcache a").into_iter().enumerate() {
            let mut server = UnixStream::from(server);
            drop(clients.remove(0));
            let mut text = String::new();
            server
                .read_to_string(&mut text)
                .expect("its client's bytes");
            assert_eq!(text, number.to_string());
        }
        assert!(clients.is_empty());
        // Nobody else holds one that is not taken: its client finds it closed.
        assert_eq!(received.count(), 1);
        drop(received);
        assert_eq!(other.read(&mut [0]).expect("the end"), 0);
    }

    #[test]
    fn nothing_is_handed_on_where_there_is_nothing() {
        assert!(Connections::new().send().expect("no error").is_none());
    }

    #[test]
    fn a_connection_beyond_the_limit_is_closed() {
        let mut all = Connections::new();
        all.count = most();
        let (mut client, server) = connection();
        assert!(!all.add("memcache a".to_owned(), server));
        assert_eq!(client.read(&mut [0]).expect("the end"), 0);
    }
}
