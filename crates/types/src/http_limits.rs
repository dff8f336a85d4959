//! Limits of HTTP, which its listeners keep and whose defaults the configuration shows.

use std::time::Duration;

defaults! {
    /// Limits of one HTTP listener. Each has an answer of its own when it is met.
    #[derive(Clone, Debug)]
    pub const struct HttpLimits {
        /// Bytes of a request's line and headers, 8 KiB at least; 431 beyond.
        pub header_bytes_max: usize = 64 << 10,
        /// Bytes of a form or JSON body; 413 beyond. Attachments are not forms.
        pub form_bytes_max: usize = 1 << 20,
        /// Fields of a form; 413 beyond.
        pub fields_max: usize = 200,
        /// Bytes of one attachment; 413 beyond.
        pub attachment_bytes_max: u64 = 16 << 30,
        /// Connections at once; more wait to be accepted.
        pub connections_max: usize = 2000,
        /// Polls that wait beside `connections_max`, and as many unfinished bodies. Further ones
        /// keep their places, as long as a quarter of all is free.
        pub apart_max: usize = 2000,
        /// Event streams at once, which are not among `connections_max`; 503 beyond.
        pub streams_max: usize = 1000,
        /// Time between two events of a stream.
        pub events_every: Duration = Duration::from_secs(2),
        /// Logins of browsers at once; the oldest ends for one beyond.
        pub sessions_max: usize = 1000,
        /// How long such a login lasts.
        pub session_time: Duration = Duration::from_secs(12 * 3600),
        /// Attachments on their way in at once; more wait for their turn, unread.
        pub uploads_max: usize = 16,
        /// A form has to arrive within this time, and a piece of an attachment; a
        /// piece of a reply has to be taken.
        pub timeout: Duration = Duration::from_secs(30),
        /// Another time in which a piece of a reply has to be taken; `None`: `timeout`.
        pub unread: Option<Duration> = None,
        /// A request's head has to arrive within this time; a connection without
        /// one is closed after it.
        pub idle: Duration = Duration::from_secs(30),
        /// Answers of a search at most, and of a list.
        pub list_max: usize = 10_000,
    }
}
