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

/// A field of the protocol, or the constant of HTTP or SQS.
macro_rules! of_kind {
    ($served:expr, $field:ident, $constant:ident) => {
        match $served {
            Served::Protocol(protocol) => protocol.$field,
            Served::Http => http::$constant,
            Served::Sqs => sqs::$constant,
        }
    };
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
        of_kind!(self, name, NAME)
    }

    /// The port without an `address` in `[[listen]]`.
    pub fn port(self) -> u16 {
        of_kind!(self, port, PORT)
    }

    /// One line about it.
    pub(crate) fn about(self) -> &'static str {
        of_kind!(self, about, ABOUT)
    }

    /// Options of its listeners.
    pub(crate) fn options(self) -> &'static [OptionSpec] {
        of_kind!(self, options, OPTIONS)
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
