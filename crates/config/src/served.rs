//! Service of a listener: a protocol, HTTP or SQS.

use quintet_wire::{OptionSpec, Options, PROTOCOLS, Protocol};

use super::{http, sqs};

/// Service of a listener.
#[derive(Clone, Copy)]
pub enum Served {
    /// A protocol of `quintet-wire`, on the I/O threads.
    Protocol(&'static Protocol),
    /// HTTP, in a thread of its own.
    Http,
    /// SQS over HTTP, in a thread of its own.
    Sqs,
}

impl Served {
    /// All default listeners, in the order in which they are shown.
    pub fn all() -> impl Iterator<Item = Served> {
        let protocols = PROTOCOLS.iter().map(Served::Protocol);
        protocols.chain([Served::Http, Served::Sqs])
    }

    /// By its name in the configuration.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        Self::all().find(|served| served.name() == name)
    }

    /// Its name in the configuration and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Served::Protocol(protocol) => protocol.name,
            Served::Http => http::NAME,
            Served::Sqs => sqs::NAME,
        }
    }

    /// The port without an `address` in `[[listen]]`.
    pub fn port(self) -> u16 {
        match self {
            Served::Protocol(protocol) => protocol.port,
            Served::Http => http::PORT,
            Served::Sqs => sqs::PORT,
        }
    }

    /// One line about it.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Served::Protocol(protocol) => protocol.about,
            Served::Http => http::ABOUT,
            Served::Sqs => sqs::ABOUT,
        }
    }

    /// Options of its listeners.
    pub(crate) fn options(self) -> &'static [OptionSpec] {
        match self {
            Served::Protocol(protocol) => protocol.options,
            Served::Http => http::OPTIONS,
            Served::Sqs => sqs::OPTIONS,
        }
    }

    /// Says whether a listener can have these options.
    ///
    /// # Errors
    /// A sentence that names the option and what it takes.
    pub(crate) fn check(self, options: &Options) -> Result<(), String> {
        match self {
            Served::Protocol(protocol) => (protocol.listener)(options).map(drop),
            Served::Http => http::Http::of(options).map(drop),
            Served::Sqs => sqs::Sqs::of(options).map(drop),
        }
    }
}
