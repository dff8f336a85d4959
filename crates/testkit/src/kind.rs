//! The protocols, and what is taken with them.

/// Ways to put and take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    Memcache,
    Lineup,
    Jobqueue,
    Pinpriq,
    Beanstalk,
    /// `quintet put` and `quintet take`.
    CommandLine,
    Http,
    Sqs,
    Faktory,
    /// `/api/v1` on the listener of HTTP.
    Api,
}

impl Protocol {
    /// Each of them, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::Memcache,
        Self::Lineup,
        Self::Jobqueue,
        Self::Pinpriq,
        Self::Beanstalk,
        Self::CommandLine,
        Self::Http,
        Self::Sqs,
        Self::Faktory,
        Self::Api,
    ];

    /// As `--listen` takes it; the command line and the API have no listener of their own.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memcache => "memcache",
            Self::Lineup => "lineup",
            Self::Jobqueue => "jobqueue",
            Self::Pinpriq => "pinpriq",
            Self::Beanstalk => "beanstalk",
            Self::CommandLine => "control",
            Self::Http => "http",
            Self::Sqs => "sqs",
            Self::Faktory => "faktory",
            Self::Api => "api",
        }
    }
}

/// A message that was taken.
pub struct TakenMessage {
    pub body: Vec<u8>,
    /// The id by which jobqueue and beanstalk finish it.
    pub lease: u64,
    /// Time to process of jobqueue, seconds.
    pub ttp: u32,
}
