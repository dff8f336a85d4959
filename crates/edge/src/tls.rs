//! TLS of this server's listeners: what they accept by, and the reading of files that changed.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use quintet_config::{Config, Listen};
use quintet_host::locked;
use quintet_tls::{Acceptor, Secure, Shared, Source};

/// So often it is looked whether files have changed.
const LOOK: Duration = Duration::from_secs(2);

/// TLS of all listeners.
#[derive(Default)]
pub struct Tls {
    /// By the place of their listeners in the configuration; `None`: plain.
    acceptors: Mutex<Vec<Option<Arc<Acceptor>>>>,
    pub shared: Arc<Shared>,
}

impl Tls {
    /// Reads the files of all listeners.
    ///
    /// # Errors
    /// Names the listener and what is wrong.
    pub fn load(config: &Config) -> Result<Arc<Self>> {
        let tls = Self::default();
        tls.shared.set_handshake_ms(config.tls_handshake_ms);
        let mut acceptors = Vec::new();
        for listen in &config.listen {
            acceptors.push(acceptor(config, listen)?.map(Arc::new));
        }
        *locked(&tls.acceptors) = acceptors;
        Ok(Arc::new(tls))
    }

    /// The errors with which [`Tls::load`] would end, one for each cause. Reads the files and makes
    /// none.
    pub fn faults(config: &Config) -> Vec<anyhow::Error> {
        let mut faults: Vec<anyhow::Error> = Vec::new();
        for listen in &config.listen {
            let (name, address) = (listen.served.name(), &listen.address);
            let checked = match config.tls_of(listen) {
                Ok(None) => continue,
                Ok(Some(settings)) => settings.check().with_context(|| tls_of(name, address)),
                Err(why) => Err(anyhow!(why)),
            };
            let Err(error) = checked else { continue };
            let cause = error.root_cause().to_string();
            // Listeners without files of their own have the same ones.
            if !faults
                .iter()
                .any(|known| known.root_cause().to_string() == cause)
            {
                faults.push(error);
            }
        }
        faults
    }

    /// TLS of a listener.
    pub fn of(&self, number: usize) -> Option<Secure> {
        Some(Secure {
            acceptor: locked(&self.acceptors).get(number)?.clone()?,
            shared: Arc::clone(&self.shared),
        })
    }

    /// When the first of the certificates ends, seconds since 1970.
    pub fn ends(&self) -> Option<u64> {
        let acceptors = locked(&self.acceptors);
        let ends = acceptors.iter().flatten().filter_map(|one| one.ends());
        ends.min().map(|at| u64::try_from(at).unwrap_or(0))
    }

    /// Reads the files that a newer configuration, of the same listeners, names; nothing changes.
    ///
    /// # Errors
    /// Names the listener and what is wrong.
    pub fn check(&self, config: &Config) -> Result<()> {
        for (acceptor, listen) in locked(&self.acceptors).iter().zip(&config.listen) {
            let (name, address) = (listen.served.name(), &listen.address);
            let of = || tls_of(name, address);
            let settings = config.tls_of(listen).map_err(|why| anyhow!(why));
            if let (Some(_), Some(settings)) = (acceptor, settings.with_context(of)?) {
                Acceptor::load(settings).with_context(of)?;
            }
        }
        Ok(())
    }

    /// Goes by a newer configuration, of the same listeners, and reads all files again; what is
    /// wrong is logged and leaves a listener as it was.
    pub fn reload(&self, config: &Config) {
        self.shared.set_handshake_ms(config.tls_handshake_ms);
        for (acceptor, listen) in locked(&self.acceptors).iter().zip(&config.listen) {
            let (name, address) = (listen.served.name(), &listen.address);
            let settings = config.tls_of(listen);
            match (acceptor, settings) {
                (None, Ok(None)) => {}
                (Some(acceptor), Ok(settings @ Some(_))) => {
                    log_reload(name, acceptor, acceptor.reload(settings));
                }
                (Some(_), Ok(None)) | (None, Ok(Some(_))) => tracing::warn!(
                    "TLS of {name} at {address} was turned on or off: restart the server to apply \
                     this"
                ),
                (_, Err(why)) => {
                    tracing::error!("TLS of {name} at {address} does not change: {why}")
                }
            }
        }
    }

    /// Reads again what has changed.
    fn check_files(&self) {
        for acceptor in locked(&self.acceptors).iter().flatten() {
            if acceptor.has_changed() {
                log_reload("a listener", acceptor, acceptor.reload(None));
            }
        }
    }
}

/// A listener, and the settings that name its files.
fn tls_of(name: &str, address: &impl std::fmt::Display) -> String {
    format!("TLS of {name} at {address} (tls_cert, tls_key, tls_client_ca)")
}

fn acceptor(config: &Config, listen: &Listen) -> Result<Option<Acceptor>> {
    let (name, address) = (listen.served.name(), &listen.address);
    let Some(settings) = config.tls_of(listen).map_err(|why| anyhow!(why))? else {
        return Ok(None);
    };
    let made = matches!(settings.source, Source::SelfSigned { .. });
    let acceptor = Acceptor::load(settings).with_context(|| tls_of(name, address))?;
    if made {
        tracing::info!(
            "{name} at {address}: self-signed certificate {}, SHA-256 {}",
            config.data.join(quintet_tls::CERTIFICATE).display(),
            acceptor.fingerprint()
        );
    }
    Ok(Some(acceptor))
}

fn log_reload(name: &str, acceptor: &Acceptor, reloaded: Result<(), quintet_tls::Error>) {
    match reloaded {
        Ok(()) => {
            let fingerprint = acceptor.fingerprint();
            tracing::info!("TLS of {name}: certificate read again, SHA-256 {fingerprint}");
        }
        Err(error) => {
            tracing::error!("TLS of {name} keeps its present certificate: {error}");
        }
    }
}

/// Looks after files that change, in a thread of its own, until it is dropped.
#[derive(Default)]
pub struct Watch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts, if a listener has a certificate.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn start(tls: &Arc<Tls>) -> Result<Self> {
        if locked(&tls.acceptors).iter().all(Option::is_none) {
            return Ok(Self::default());
        }
        let (stop, stopped) = channel();
        let tls = Arc::clone(tls);
        let thread = std::thread::Builder::new().name("certificates".to_owned());
        let thread = thread.spawn(move || {
            while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                tls.check_files();
            }
        });
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread.context("cannot start a thread")?),
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that renews certificates has ended too early");
        }
    }
}
