//! One side of a connection, without its socket: its owner lets bytes through.
//!
//! Between two calls a connection holds only incomplete records: the beginning of one that
//! came, and records that the socket did not take. Everything else is in a [`Scratch`], one for
//! each thread. Plain text is handed on as it is decrypted, so none is left behind here.

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
    WriteTraffic,
};
use rustls::{ClientConfig, CommonState, ServerConfig};
use rustls_pki_types::ServerName;

use crate::HANDSHAKE;
use crate::error::Failure;
use crate::identity::Identity;
use crate::pending::Pending;

/// Plain text of one record at most, bytes (RFC 8446, section 5.1).
const RECORD: usize = 16 << 10;
/// Records that are made before any is written.
const RECORDS: usize = 4;
/// Largest overhead of a record beyond its plain text, bytes, with a key's update in front.
const OVERHEAD: usize = 512;

/// Room for what one call works on; empty by default, for none.
#[derive(Debug, Default)]
pub struct Scratch {
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    ends: Vec<(usize, usize)>,
}

impl Scratch {
    /// For calls of [`Channel::read`] with buffers of `bytes` at most, more than two records.
    pub fn new(bytes: usize) -> Self {
        assert!(bytes >= 3 * RECORD, "a record is decrypted whole");
        Self {
            incoming: vec![0; bytes],
            outgoing: vec![0; RECORDS * (RECORD + OVERHEAD)],
            ends: Vec::with_capacity(RECORDS),
        }
    }
}

/// Result of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Read {
    /// Plain text, bytes; 0 of what is TLS's own, or not whole.
    pub bytes: usize,
    /// The socket has no more until an event says so.
    pub drained: bool,
    /// The peer has closed its side.
    pub ended: bool,
}

/// One side of a connection, and how it is driven: `C` is rustls's server or client.
pub struct Channel<C> {
    conn: C,
    /// Bytes that came and are not whole.
    rest: Vec<u8>,
    pending: Pending,
    /// No byte has come yet.
    is_new: bool,
    /// The peer has said that it sends no more.
    ended: bool,
    /// The input was no TLS, or broken: nothing more is read, and only pending output is sent.
    failed: bool,
}

/// A side of rustls's.
pub trait Side {
    /// The part that both sides have.
    type Data;

    /// Processes what came.
    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data>;

    /// State of the connection.
    fn state(&self) -> &CommonState;

    /// The peer speaks first.
    const HEARS_FIRST: bool;
}

macro_rules! side {
    ($side:ident, $data:ty, $first:literal) => {
        impl Side for $side {
            type Data = $data;

            fn process<'c, 'i>(
                &'c mut self,
                incoming: &'i mut [u8],
            ) -> UnbufferedStatus<'c, 'i, Self::Data> {
                self.process_tls_records(incoming)
            }

            fn state(&self) -> &CommonState {
                self
            }

            const HEARS_FIRST: bool = $first;
        }
    };
}

side!(UnbufferedServerConnection, ServerConnectionData, true);
side!(UnbufferedClientConnection, ClientConnectionData, false);

impl Channel<UnbufferedServerConnection> {
    /// A server's side; the client speaks first.
    pub fn accept(config: Arc<ServerConfig>) -> Self {
        let conn = UnbufferedServerConnection::new(config);
        Self::new(conn.expect("no size of fragments is set that could be wrong"))
    }
}

impl Channel<UnbufferedClientConnection> {
    /// A client's side; what it says first is [pending](Channel::is_pending).
    ///
    /// # Errors
    /// The configuration and the name do not go together.
    pub fn connect(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Self, Failure> {
        let mut channel = Self::new(UnbufferedClientConnection::new(config, name)?);
        channel.open(&mut [], &mut [])?;
        Ok(channel)
    }
}

impl<C: Side> Channel<C> {
    fn new(conn: C) -> Self {
        Self {
            conn,
            rest: Vec::new(),
            pending: Pending::default(),
            is_new: C::HEARS_FIRST,
            ended: false,
            failed: false,
        }
    }

    /// The handshake is not over.
    pub fn is_handshaking(&self) -> bool {
        self.conn.state().is_handshaking()
    }

    /// Something waits for the socket to take it.
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The peer, if it has shown a certificate.
    pub fn identity(&self) -> Option<Identity> {
        Identity::of(self.conn.state().peer_certificates()?.first()?)
    }

    /// Version and suite, once they are agreed on.
    pub fn agreed(&self) -> Option<(rustls::ProtocolVersion, rustls::CipherSuite)> {
        let state = self.conn.state();
        let suite = state.negotiated_cipher_suite()?.suite();
        Some((state.protocol_version()?, suite))
    }

    /// Bytes of memory it takes beyond what any connection does.
    pub fn footprint(&self) -> usize {
        self.rest.capacity() + self.pending.footprint()
    }

    /// Takes the input that was not understood; for a client that speaks no TLS.
    pub fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.rest)
    }

    /// Reads once, `room` bytes at most or what a record needs, and decrypts what is whole into
    /// `plain`, which is as long as the scratch was made for. What is to be said to the peer is
    /// pending afterwards, also after a failure.
    ///
    /// # Errors
    /// The socket's, and [`Failure`]s.
    pub fn read(
        &mut self,
        socket: &mut impl io::Read,
        plain: &mut [u8],
        room: usize,
        scratch: &mut Scratch,
    ) -> io::Result<Read> {
        let incoming = &mut scratch.incoming[..];
        let have = self.rest.len();
        let limit = room.min(incoming.len().min(plain.len()).saturating_sub(have));
        if limit == 0 || self.failed {
            self.failed = true;
            return Err(Failure::TooLong.into());
        }
        let count = socket.read(&mut incoming[have..have + limit])?;
        let mut read = Read {
            bytes: 0,
            drained: count < limit,
            ended: count == 0,
        };
        if count == 0 {
            return Ok(read);
        }
        incoming[..have].copy_from_slice(&self.rest);
        let incoming = &mut incoming[..have + count];
        if std::mem::take(&mut self.is_new) && incoming[0] != HANDSHAKE {
            self.rest = incoming.to_vec();
            self.failed = true;
            return Err(Failure::Plain.into());
        }
        match self.open(incoming, plain) {
            Ok((bytes, used)) => {
                self.keep(&incoming[used..]);
                read.bytes = bytes;
                read.ended = self.ended;
                Ok(read)
            }
            Err(failure) => {
                self.rest = Vec::new();
                self.failed = true;
                self.encode_alert();
                Err(failure.into())
            }
        }
    }

    /// Encrypts and writes as much as the socket takes. Answers how much of `plain` has left in
    /// whole records. What did not leave is to be offered again, with more behind it if there is.
    ///
    /// # Errors
    /// `WouldBlock`: nothing left; others: the connection is broken.
    pub fn write(
        &mut self,
        socket: &mut impl Write,
        plain: &[u8],
        scratch: &mut Scratch,
    ) -> io::Result<usize> {
        let mut left = self.pending.push(socket)?;
        assert!(left <= plain.len(), "what did not leave is offered again");
        while self.pending.is_empty() && left < plain.len() {
            let Some((len, taken)) = self.encrypt(&plain[left..], scratch)? else {
                if self.pending.is_empty() {
                    // The handshake is not over.
                    break;
                }
                self.pending.push(socket)?;
                continue;
            };
            let sent = write_once(socket, &scratch.outgoing[..len])?;
            left += match sent == len {
                true => taken,
                false => self
                    .pending
                    .keep(&scratch.outgoing[..len], sent, &scratch.ends),
            };
        }
        match left == 0 && !plain.is_empty() {
            true => Err(ErrorKind::WouldBlock.into()),
            false => Ok(left),
        }
    }

    /// Writes what is pending, as much as the socket takes, while nothing that [`Channel::write`]
    /// was offered is.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn flush(&mut self, socket: &mut impl Write) -> io::Result<()> {
        let left = self.pending.push(socket)?;
        assert_eq!(left, 0, "what did not leave is offered again");
        Ok(())
    }

    /// Says goodbye, if nothing is pending and the socket takes it.
    ///
    /// # Errors
    /// The socket's.
    pub fn close(&mut self, socket: &mut impl Write, scratch: &mut Scratch) -> io::Result<()> {
        // Processing would go on where it failed, behind bytes that are gone.
        if self.failed {
            return Ok(());
        }
        let mut encoded = 0;
        if let ConnectionState::WriteTraffic(mut traffic) = self
            .conn
            .process(&mut self.rest)
            .state
            .map_err(Failure::from)?
        {
            let room = &mut scratch.outgoing;
            encoded = traffic.queue_close_notify(room).unwrap_or_default();
        }
        if self.pending.is_empty() {
            write_once(socket, &scratch.outgoing[..encoded])?;
        }
        Ok(())
    }

    /// Processes what came. Answers the bytes of plain text, and those that are done with.
    fn open(&mut self, incoming: &mut [u8], plain: &mut [u8]) -> Result<(usize, usize), Failure> {
        let (mut bytes, mut used) = (0, 0);
        loop {
            let UnbufferedStatus { mut discard, state } = self.conn.process(&mut incoming[used..]);
            let waits = match state? {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        let text = record.payload;
                        plain[bytes..bytes + text.len()].copy_from_slice(text);
                        bytes += text.len();
                    }
                    false
                }
                ConnectionState::EncodeTlsData(mut data) => {
                    encode(&mut self.pending, |room| data.encode(room));
                    false
                }
                // It is pending.
                ConnectionState::TransmitTlsData(data) => {
                    data.done();
                    false
                }
                ConnectionState::PeerClosed => {
                    self.ended = true;
                    false
                }
                ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) => true,
                ConnectionState::Closed => {
                    self.ended = true;
                    true
                }
                // Early data is not accepted, and nothing else is known.
                ConnectionState::ReadEarlyData(_) | _ => {
                    return Err(rustls::Error::General("an unknown state".to_owned()).into());
                }
            };
            used += discard;
            if waits {
                // Behind a goodbye nothing counts.
                let used = if self.ended { incoming.len() } else { used };
                return Ok((bytes, used));
            }
        }
    }

    /// Makes records of what is next. Answers their bytes in the scratch, and how much of `plain`
    /// is in them. `None`: something of TLS's own is first, and pending, or the handshake is not
    /// over.
    fn encrypt(
        &mut self,
        plain: &[u8],
        scratch: &mut Scratch,
    ) -> Result<Option<(usize, usize)>, Failure> {
        if self.failed {
            return Ok(None);
        }
        loop {
            // What is not whole is shown again: part of it may be known already.
            match self.conn.process(&mut self.rest).state? {
                ConnectionState::WriteTraffic(mut traffic) if self.pending.is_empty() => {
                    return seal(&mut traffic, plain, scratch).map(Some);
                }
                ConnectionState::EncodeTlsData(mut data) => {
                    encode(&mut self.pending, |room| data.encode(room));
                }
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::PeerClosed => self.ended = true,
                ConnectionState::ReadTraffic(_)
                | ConnectionState::Closed
                | ConnectionState::ReadEarlyData(_)
                | ConnectionState::BlockedHandshake
                | ConnectionState::WriteTraffic(_)
                | _ => return Ok(None),
            }
        }
    }

    /// Makes the alert about a failure pending.
    fn encode_alert(&mut self) {
        // Without it processing would go on where it failed.
        while self.conn.state().wants_write() {
            let Ok(ConnectionState::EncodeTlsData(mut data)) = self.conn.process(&mut []).state
            else {
                return;
            };
            encode(&mut self.pending, |room| data.encode(room));
        }
    }

    /// Keeps what is not whole.
    fn keep(&mut self, rest: &[u8]) {
        self.rest.clear();
        self.rest.extend_from_slice(rest);
        if rest.is_empty() {
            // A connection that rests owns no buffer.
            self.rest = Vec::new();
        }
    }
}

/// Encrypts as many records as there is room for.
fn seal<D>(
    traffic: &mut WriteTraffic<'_, D>,
    plain: &[u8],
    scratch: &mut Scratch,
) -> Result<(usize, usize), Failure> {
    let (mut len, mut taken) = (0, 0);
    scratch.ends.clear();
    for piece in plain.chunks(RECORD).take(RECORDS) {
        let made = traffic.encrypt(piece, &mut scratch.outgoing[len..]);
        len += made.map_err(|error| match error {
            EncryptError::EncryptExhausted => rustls::Error::EncryptError,
            EncryptError::InsufficientSize(InsufficientSizeError { required_size }) => {
                unreachable!("a record of {required_size} bytes is longer than one can be")
            }
        })?;
        taken += piece.len();
        scratch.ends.push((len, piece.len()));
    }
    Ok((len, taken))
}

/// Puts something of TLS's own behind what is pending.
fn encode(pending: &mut Pending, mut to: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>) {
    if let Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) = to(&mut [])
    {
        let made = to(pending.room(required_size));
        assert_eq!(made.ok(), Some(required_size), "it named its size");
    }
}

/// Writes once; 0: the socket takes nothing now.
fn write_once(socket: &mut impl Write, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match socket.write(bytes) {
            Ok(0) if !bytes.is_empty() => return Err(ErrorKind::WriteZero.into()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            wrote => return wrote,
        }
    }
}
