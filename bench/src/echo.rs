//! A bare echo server on the server's own runtime: one thread, one poll, and
//! per readiness one read and one write. The limit others are measured
//! against; it does nothing with what it reads, or writes it to a file first.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

/// Bytes read at once, as the server reads.
const READ_BYTES: usize = 64 << 10;
/// Connections that may wait to be accepted, as the server's.
const BACKLOG: i32 = 4096;
const LISTENER: Token = Token(usize::MAX);

/// Bytes of the file that is synced, written from its beginning again when it
/// is full. It is filled with zeros first: a sync of a file that grows takes
/// half as long again, and the server makes its segments ahead too.
const FILE_BYTES: u64 = 64 << 20;

struct Conn {
    stream: TcpStream,
    /// Read and not yet taken by the socket.
    rest: Vec<u8>,
}

/// Requests that were read and wait for a sync, and the clients that are answered after it.
struct Batch {
    file: File,
    at: u64,
    bytes: Vec<u8>,
    requested: Vec<usize>,
}

impl Batch {
    fn new(path: &Path) -> Result<Self> {
        let mut file =
            File::create_new(path).with_context(|| format!("cannot make {}", path.display()))?;
        let zeros = vec![0; 1 << 20];
        for _ in 0..FILE_BYTES / zeros.len() as u64 {
            file.write_all(&zeros)?;
        }
        file.sync_all()?;
        Ok(Self {
            file,
            at: 0,
            bytes: Vec::new(),
            requested: Vec::new(),
        })
    }

    fn sync(&mut self) -> Result<()> {
        if self.at + self.bytes.len() as u64 > FILE_BYTES {
            self.at = 0;
        }
        self.file.write_all_at(&self.bytes, self.at)?;
        self.file.sync_data()?;
        self.at += self.bytes.len() as u64;
        self.bytes.clear();
        Ok(())
    }
}

/// Echoes whatever comes over `listener`, until the process ends. With
/// `synced` nothing is answered before it was written to that new file and
/// synced, by this thread, when nothing more is ready to be read: the limit of
/// a server that keeps what it acknowledges.
///
/// # Errors
/// The poll is broken, or the file.
pub fn serve(listener: std::net::TcpListener, synced: Option<&Path>) -> Result<()> {
    let mut batch = synced.map(Batch::new).transpose()?;
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    let mut listener = TcpListener::from_std(listener);
    let mut poll = Poll::new()?;
    poll.registry()
        .register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(1024);
    // The slots of connections that are over stay empty.
    let mut conns: Vec<Option<Conn>> = Vec::new();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        // With a batch open only what is ready already joins it.
        let open = batch
            .as_ref()
            .is_some_and(|batch| !batch.requested.is_empty());
        if let Err(error) = poll.poll(&mut events, open.then_some(Duration::ZERO))
            && error.kind() != ErrorKind::Interrupted
        {
            return Err(error).context("cannot wait for connections");
        }
        if open
            && events.is_empty()
            && let Some(batch) = &mut batch
        {
            batch.sync()?;
            for slot in batch.requested.drain(..) {
                if let Some(conn) = &mut conns[slot]
                    && conn.send().is_none()
                {
                    conns[slot] = None;
                }
            }
        }
        for event in &events {
            let Token(slot) = event.token();
            if event.token() == LISTENER {
                while let Ok((mut stream, _)) = listener.accept() {
                    let interest = Interest::READABLE | Interest::WRITABLE;
                    let token = Token(conns.len());
                    let registered = poll.registry().register(&mut stream, token, interest);
                    if stream.set_nodelay(true).and(registered).is_ok() {
                        let rest = Vec::new();
                        conns.push(Some(Conn { stream, rest }));
                    }
                }
            } else if let Some(conn) = &mut conns[slot]
                && conn.serve(&mut buffer, slot, batch.as_mut()).is_none()
            {
                conns[slot] = None;
            }
        }
    }
}

impl Conn {
    /// Reads what there is, and answers it or adds it to the batch. `None` when the connection is
    /// over.
    fn serve(
        &mut self,
        buffer: &mut [u8],
        slot: usize,
        mut batch: Option<&mut Batch>,
    ) -> Option<()> {
        loop {
            let waits = |batch: &&mut Batch| batch.requested.contains(&slot);
            if !self.rest.is_empty() && !batch.as_ref().is_some_and(waits) {
                self.send()?;
                if batch.is_none() && !self.rest.is_empty() {
                    return Some(());
                }
            }
            let count = self.read(buffer)?;
            if count == 0 {
                return Some(());
            }
            self.rest.extend_from_slice(&buffer[..count]);
            match &mut batch {
                None => self.send()?,
                Some(batch) => {
                    batch.bytes.extend_from_slice(&buffer[..count]);
                    if batch.requested.last() != Some(&slot) {
                        batch.requested.push(slot);
                    }
                }
            }
            // A read that did not fill the buffer emptied the socket.
            if count < buffer.len() {
                return Some(());
            }
        }
    }

    /// Reads what there is; 0: nothing. `None` when the connection is over.
    fn read(&mut self, buffer: &mut [u8]) -> Option<usize> {
        match self.stream.read(buffer) {
            Ok(0) => None,
            Err(error) if error.kind() == ErrorKind::WouldBlock => Some(0),
            read => read.ok(),
        }
    }

    /// Sends what is to be answered. `None` when the connection is over.
    fn send(&mut self) -> Option<()> {
        while !self.rest.is_empty() {
            match self.stream.write(&self.rest) {
                Ok(count) if count == self.rest.len() => self.rest.clear(),
                Ok(count) => drop(self.rest.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Some(()),
                Err(_) => return None,
            }
        }
        Some(())
    }
}
