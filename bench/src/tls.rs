//! The client's side of TLS, and connections that are opened for their handshakes alone.

use std::io;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use quintet_tls::rustls::ClientConfig;
use quintet_tls::rustls::client::Resumption;
use quintet_tls::rustls::pki_types::ServerName;
use quintet_tls::{ClientChannel, ClientFiles, Scratch, client_config, server_name};

use crate::report::{Latency, Recorder};
use crate::target::Target;

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
    threads: Vec<JoinHandle<Result<()>>>,
    opened: Arc<Mutex<Recorder>>,
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
        let opened = Arc::new(Mutex::new(Recorder::default()));
        let mut threads = Vec::new();
        for number in 0..OPENERS {
            let (stop, opened) = (Arc::clone(&stop), Arc::clone(&opened));
            let tls = tls.cloned();
            let gap = Duration::from_secs_f64(f64::from(OPENERS) / rate);
            let first = gap * number / OPENERS;
            let thread = std::thread::Builder::new().name("opener".to_owned());
            threads.push(
                thread
                    .spawn(move || {
                        let mut at = start + first;
                        while !stop.load(Ordering::Relaxed) {
                            std::thread::sleep(at.saturating_duration_since(Instant::now()));
                            let from = Instant::now();
                            let mut socket =
                                TcpStream::connect(address).context("cannot open a connection")?;
                            socket.set_nodelay(true)?;
                            if let Some(tls) = &tls {
                                tls.handshake(&mut socket).context("no handshake")?;
                            }
                            let took = u64::try_from(from.elapsed().as_nanos()).unwrap_or(u64::MAX);
                            let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
                            opened.record(took);
                            // Who is late catches up, but not for ever.
                            at = (at + gap).max(from);
                        }
                        Ok(())
                    })
                    .context("cannot start a thread")?,
            );
        }
        Ok(Self {
            stop,
            threads,
            opened,
            start,
        })
    }

    /// Ends; answers how many a second there were, and how long each took.
    ///
    /// # Errors
    /// One could not be opened.
    pub(crate) fn stop(self) -> Result<(f64, Latency)> {
        self.stop.store(true, Ordering::Relaxed);
        let seconds = self.start.elapsed().as_secs_f64();
        for thread in self.threads {
            match thread.join() {
                Ok(done) => done?,
                Err(_) => bail!("a thread that opens connections failed"),
            }
        }
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((opened.count() as f64 / seconds, opened.latency()))
    }
}
