//! The listeners of a server, opened.

use anyhow::{Context as _, Result, anyhow};
use quintet_config::{Address, Config, Places, Served};
use quintet_edge::{Listening, Tls};
use quintet_process::{Bound, again, bind, restrict};
use quintet_tls::Secure;
use quintet_wire::{Options, PROTOCOLS, Protocol};

use crate::cluster::{self, ProxyListener};
use crate::running::Open;
use crate::{http, sqs};

/// The open listeners.
#[derive(Default)]
pub(crate) struct Opened {
    /// For the I/O threads.
    pub(crate) bound: Vec<Bound>,
    pub(crate) listening: Vec<Listening>,
    /// For HTTP's own thread.
    pub(crate) http: Vec<Open>,
    pub(crate) sqs: Vec<(Open, quintet_sqs::Options)>,
    /// All but the control socket, as configured.
    pub(crate) addresses: Vec<(&'static str, Address)>,
    /// In a cluster, all of them once more.
    pub(crate) proxy_listeners: Vec<ProxyListener>,
}

/// Opens all listeners.
///
/// # Errors
/// One cannot be opened: says which, and why.
pub(crate) fn open_listeners(config: &Config, places: Places, tls: &Tls) -> Result<Opened> {
    let is_on = config.cluster.is_on();
    let mut opened = Opened::default();
    for (number, listen) in config.listen.iter().enumerate() {
        let (address, secure) = (&listen.address, tls.of(number));
        let name = listen.served.name();
        let protocol = match listen.served {
            Served::Protocol(protocol) => protocol,
            Served::Http => {
                let open = http::open(listen, &places, secure.clone())?;
                opened.keep(is_on, name, address, &open.bound, secure)?;
                opened.addresses.push((name, open.bound.address.clone()));
                opened.http.push(open);
                continue;
            }
            Served::Sqs => {
                let (open, options) = sqs::open(listen, &places, secure.clone())?;
                opened.keep(is_on, name, address, &open.bound, secure)?;
                opened.addresses.push((name, open.bound.address.clone()));
                opened.sqs.push((open, options));
                continue;
            }
        };
        let listening = listening(protocol, &listen.options)?;
        let bound = bind(name, address)?;
        opened.keep(is_on, name, address, &bound, secure.clone())?;
        opened.addresses.push((name, bound.address.clone()));
        opened.listening.push(Listening {
            idle_ms: listen.idle_ms,
            user: listen.user.clone(),
            address: bound.address.to_string(),
            tls: secure,
            ..listening
        });
        opened.bound.push(bound);
    }
    if let Some(path) = config.admin_path() {
        let protocol = &quintet_edge::CONTROL;
        let listening = listening(protocol, &Options::new(protocol.options))?;
        let address = Address::Unix(path.clone());
        let bound = bind(protocol.name, &address)
            .context("admin_socket can name another path, or be \"none\"")?;
        opened.keep(is_on, protocol.name, &address, &bound, None)?;
        opened.bound.push(bound);
        restrict(&path).with_context(|| format!("cannot protect {}", path.display()))?;
        opened.listening.push(Listening {
            operator: true,
            api: true,
            address: path.display().to_string(),
            ..listening
        });
    }
    Ok(opened)
}

/// A listener of this protocol for everybody.
fn listening(protocol: &Protocol, options: &Options) -> Result<Listening> {
    let known = PROTOCOLS
        .iter()
        .position(|known| known.name == protocol.name);
    Ok(Listening {
        opener: (protocol.listener)(options).map_err(|why| anyhow!(why))?,
        // The control socket has counters of its own.
        tally: known.unwrap_or(PROTOCOLS.len()),
        protocol: protocol.name,
        idle_ms: 0,
        operator: false,
        api: false,
        user: String::new(),
        address: String::new(),
        tls: None,
        foreign_reported: Default::default(),
    })
}

impl Opened {
    /// While a node does not own, clients that come to its sockets are brought to
    /// the one that does; and when it is deposed, the process after it gets them.
    /// `is_on`: this is a node.
    fn keep(
        &mut self,
        is_on: bool,
        protocol: &str,
        address: &Address,
        bound: &Bound,
        tls: Option<Secure>,
    ) -> Result<()> {
        if is_on {
            again::keep(address.to_string(), bound.duplicate()?);
            let same = self
                .proxy_listeners
                .iter()
                .filter(|proxy_listener| proxy_listener.protocol == protocol);
            self.proxy_listeners.push(ProxyListener {
                protocol: protocol.to_owned(),
                nth: u16::try_from(same.count()).unwrap_or(u16::MAX),
                socket: cluster::socket(bound)?,
                tls,
                earlier: cluster::earlier(protocol, bound),
            });
        }
        Ok(())
    }
}
