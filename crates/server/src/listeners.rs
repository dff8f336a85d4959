//! The listeners of a server, opened.

use anyhow::{Context as _, Result, anyhow};
use quintet_config::{Address, Config, Places, Served};
use quintet_edge::{Listening, Tls};
use quintet_process::{Bound, again, bind, restrict};
use quintet_tls::Secure;
use quintet_wire::VOICES;

use crate::cluster::{self, Door};
use crate::{http, sqs};

/// What is listened on.
pub(crate) struct Opened {
    /// For the I/O threads.
    pub(crate) bound: Vec<Bound>,
    pub(crate) listening: Vec<Listening>,
    /// For HTTP's own thread.
    pub(crate) http: Vec<http::Open>,
    /// For that of SQS.
    pub(crate) sqs: Vec<sqs::Open>,
    /// All but the control socket, as configured.
    pub(crate) addresses: Vec<(&'static str, Address)>,
    /// In a cluster, all of them once more.
    pub(crate) doors: Vec<Door>,
}

/// Opens all listeners.
///
/// # Errors
/// One cannot be opened: says which, and why.
pub(crate) fn open_listeners(config: &Config, places: Places, tls: &Tls) -> Result<Opened> {
    let mut bound = Vec::new();
    let mut listening = Vec::new();
    let mut http = Vec::new();
    let mut sqs_open = Vec::new();
    let mut addresses = Vec::new();
    let mut doors = Vec::new();
    for (number, listen) in config.listen.iter().enumerate() {
        let voice = match listen.served {
            Served::Voice(voice) => voice,
            Served::Control => &quintet_control::VOICE,
            Served::Http => {
                let open = http::Open::new(listen, &places, tls.of(number))?;
                keep(
                    config,
                    &mut doors,
                    Served::Http.name(),
                    &listen.address,
                    open.bound(),
                    tls.of(number),
                )?;
                addresses.push((Served::Http.name(), open.address().clone()));
                http.push(open);
                continue;
            }
            Served::Sqs => {
                let open = sqs::Open::new(listen, &places, tls.of(number))?;
                let (address, secure) = (&listen.address, tls.of(number));
                keep(
                    config,
                    &mut doors,
                    Served::Sqs.name(),
                    address,
                    open.bound(),
                    secure,
                )?;
                addresses.push((Served::Sqs.name(), open.address().clone()));
                sqs_open.push(open);
                continue;
            }
        };
        let opener = (voice.listener)(&listen.options).map_err(|why| anyhow!(why))?;
        let open = bind(voice.name, &listen.address)?;
        let address = open.address.to_string();
        addresses.push((voice.name, open.address.clone()));
        let secure = tls.of(number);
        keep(
            config,
            &mut doors,
            voice.name,
            &listen.address,
            &open,
            secure.clone(),
        )?;
        bound.push(open);
        let tally = VOICES
            .iter()
            .position(|known| known.name == voice.name)
            // The control channel has counters of its own.
            .unwrap_or(VOICES.len());
        listening.push(Listening {
            opener,
            tally,
            voice: voice.name,
            idle_ms: listen.idle_ms,
            operator: listen.served.is_control() && config.is_guarded(listen),
            api: false,
            user: listen.user.clone(),
            address,
            tls: secure,
            foreign_told: Default::default(),
        });
    }
    if let Some(path) = config.admin_path() {
        let voice = &quintet_control::VOICE;
        let opener = (voice.listener)(&quintet_wire::Options::new(voice.options))
            .map_err(|why| anyhow!(why))?;
        let address = Address::Unix(path.clone());
        let socket = bind(voice.name, &address)
            .context("admin_socket can name another path, or be \"none\"")?;
        keep(config, &mut doors, voice.name, &address, &socket, None)?;
        bound.push(socket);
        restrict(&path).with_context(|| format!("cannot protect {}", path.display()))?;
        listening.push(Listening {
            opener,
            tally: VOICES.len(),
            voice: voice.name,
            idle_ms: 0,
            operator: true,
            api: true,
            user: String::new(),
            address: path.display().to_string(),
            tls: None,
            foreign_told: Default::default(),
        });
    }
    Ok(Opened {
        bound,
        listening,
        http,
        sqs: sqs_open,
        addresses,
        doors,
    })
}

/// While a node does not own, clients that come to its sockets are brought to
/// the one that does; and when it is deposed, the process after it gets them.
fn keep(
    config: &Config,
    doors: &mut Vec<Door>,
    voice: &str,
    address: &Address,
    bound: &Bound,
    tls: Option<Secure>,
) -> Result<()> {
    if config.cluster.is_on() {
        again::keep(address.to_string(), bound.duplicate()?);
        let same = doors.iter().filter(|door| door.voice == voice);
        doors.push(Door {
            voice: voice.to_owned(),
            nth: u16::try_from(same.count()).unwrap_or(u16::MAX),
            socket: cluster::socket(bound)?,
            tls,
        });
    }
    Ok(())
}
