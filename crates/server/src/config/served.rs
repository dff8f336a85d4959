//! What a listener serves: a voice, or HTTP.

use quintet_wire::{OptionSpec, Options, VOICES, Voice};

use crate::{admin, http, sqs};

/// What a listener serves.
#[derive(Clone, Copy)]
pub(crate) enum Served {
    /// A voice of `quintet-wire`, on the I/O threads.
    Voice(&'static Voice),
    /// HTTP, in a thread of its own.
    Http,
    /// SQS over HTTP, in a thread of its own.
    Sqs,
}

impl Served {
    /// Everything that listens when nothing is said, in the order it is shown.
    pub(crate) fn all() -> impl Iterator<Item = Served> {
        let voices = VOICES.iter().map(Served::Voice);
        voices.chain([Served::Http, Served::Sqs])
    }

    /// By its name in the configuration.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        let mut all = Self::all().chain([Served::Voice(&admin::VOICE)]);
        all.find(|served| served.name() == name)
    }

    /// Its name in the configuration and on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Served::Voice(voice) => voice.name,
            Served::Http => http::NAME,
            Served::Sqs => sqs::NAME,
        }
    }

    /// It is the control channel: whoever reaches it commands the server.
    pub(crate) fn is_control(self) -> bool {
        self.name() == admin::VOICE.name
    }

    /// Its default port.
    pub(crate) fn port(self) -> u16 {
        match self {
            Served::Voice(voice) => voice.port,
            Served::Http => http::PORT,
            Served::Sqs => sqs::PORT,
        }
    }

    /// One line about it.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Served::Voice(voice) => voice.about,
            Served::Http => http::ABOUT,
            Served::Sqs => sqs::ABOUT,
        }
    }

    /// Options of its listeners.
    pub(crate) fn options(self) -> &'static [OptionSpec] {
        match self {
            Served::Voice(voice) => voice.options,
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
            Served::Voice(voice) => (voice.listener)(options).map(drop),
            Served::Http => http::settings(options, 0).map(drop),
            Served::Sqs => sqs::settings(options, 0).map(drop),
        }
    }
}
