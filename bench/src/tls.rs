//! The client's side of TLS, and connections that are opened for their handshakes alone.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use quintet_tls::rustls::ClientConfig;
use quintet_tls::rustls::client::Resumption;
use quintet_tls::rustls::pki_types::ServerName;
use quintet_tls::{ClientChannel, ClientFiles, Scratch, client_config, server_name};

use crate::report::{Openings, Recorder};
use crate::target::Target;
use crate::units::nanos;

/// Bytes read at once in a handshake.
const READ_BYTES: usize = 64 << 10;
/// A server answers a handshake in this time.
const PATIENCE: Duration = Duration::from_secs(30);
/// Threads that open connections: each waits for one at a time.
const OPENERS: u32 = 8;

/// Authorities that a load trusts, and the certificate that it shows.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tls({:?})", self.name)
    }
}

impl Tls {
    /// For the server at `host`, `HOST:PORT`. Each handshake is a whole one.
    ///
    /// # Errors
    /// A file or the name cannot be used.
    pub fn new(
        host: &str,
        ca: Option<PathBuf>,
        shown: Option<(PathBuf, PathBuf)>,
    ) -> Result<Self, quintet_tls::Error> {
        let config = client_config(&ClientFiles { ca, shown })?;
        let mut config = Arc::unwrap_or_clone(config);
        config.resumption = Resumption::disabled();
        Ok(Self {
            config: Arc::new(config),
            name: server_name(host)?,
        })
    }

    /// Agrees with the server, over a socket that blocks.
    ///
    /// # Errors
    /// There is no agreement.
    pub(crate) fn handshake(&self, socket: &mut TcpStream) -> io::Result<ClientChannel> {
        socket.set_read_timeout(Some(PATIENCE))?;
        let (config, name) = (Arc::clone(&self.config), self.name.clone());
        let mut channel = ClientChannel::connect(config, name)?;
        let (mut records, mut buffer) = (Scratch::new(READ_BYTES), vec![0; READ_BYTES]);
        loop {
            channel.flush(socket)?;
            if !channel.is_handshaking() {
                socket.set_read_timeout(None)?;
                return Ok(channel);
            }
            let room = READ_BYTES;
            let read = channel.read(socket, &mut buffer, room, &mut records);
            if read?.ended {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// Connections that are opened beside a load, so many a second, and closed when their handshake is
/// over.
pub(crate) struct Openers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<Recorder>>>,
    start: Instant,
}

impl Openers {
    /// Begins; `rate` is theirs together.
    ///
    /// # Errors
    /// The target is no TCP address, or there are no threads.
    pub(crate) fn start(target: &Target, tls: Option<&Tls>, rate: f64) -> Result<Self> {
        let Target::Tcp(address) = *target else {
            bail!("connections are opened over TCP alone");
        };
        let (stop, start) = (Arc::new(AtomicBool::new(false)), Instant::now());
        let gap = Duration::from_secs_f64(f64::from(OPENERS) / rate);
        let mut threads = Vec::new();
        for number in 0..OPENERS {
            let (stop, tls) = (Arc::clone(&stop), tls.cloned());
            let first = start + gap * number / OPENERS;
            let thread = std::thread::Builder::new().name("opener".to_owned());
            let thread = thread.spawn(move || open(address, tls.as_ref(), &stop, first, gap));
            threads.push(thread.context("cannot start a thread")?);
        }
        Ok(Self {
            stop,
            threads,
            start,
        })
    }

    /// Ends; answers how many a second there were, and how long each took.
    ///
    /// # Errors
    /// One could not be opened.
    pub(crate) fn stop(self) -> Result<Openings> {
        self.stop.store(true, Ordering::Relaxed);
        let seconds = self.start.elapsed().as_secs_f64();
        let mut opened = Recorder::default();
        for thread in self.threads {
            let Ok(done) = thread.join() else {
                bail!("a thread that opens connections failed");
            };
            opened.add(&done?);
        }
        Ok(Openings {
            rate: opened.count() as f64 / seconds,
            latency: opened.latency(),
        })
    }
}

/// Opens a connection at this moment, and one more after each `gap`.
fn open(
    address: SocketAddr,
    tls: Option<&Tls>,
    stop: &AtomicBool,
    mut at: Instant,
    gap: Duration,
) -> Result<Recorder> {
    let mut opened = Recorder::default();
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        let from = Instant::now();
        let mut socket = TcpStream::connect(address).context("cannot open a connection")?;
        socket.set_nodelay(true)?;
        if let Some(tls) = tls {
            tls.handshake(&mut socket).context("no handshake")?;
        }
        opened.record(nanos(from.elapsed()));
        // Who is late catches up, but not for ever.
        at = (at + gap).max(from);
    }
    Ok(opened)
}
