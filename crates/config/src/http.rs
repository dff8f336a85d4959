//! The options of `http` listeners.

use std::time::Duration;

use quintet_types::HttpLimits;
use quintet_wire::{OptionSpec, Options, Value};

use super::parse_duration_ms;
use super::reach::{Reach, pairs, time};

/// The value of `protocol` in `[[listen]]`.
pub const NAME: &str = "http";
/// RQ's port.
pub const PORT: u16 = 3333;
/// The line that `--print-config` and `quintet settings` show for a listener.
pub const ABOUT: &str = "RQ's HTTP API and plain pages.";

const LIMITS: HttpLimits = HttpLimits::DEFAULT;

/// Keys that a `[[listen]]` table of this protocol takes beside the common ones.
pub const OPTIONS: &[OptionSpec] = quintet_wire::options! {
    "relative_root" Text("/")
        "path before all addresses, for a proxy that passes a part of its own addresses on";
    "users" Text("")
        "logins (basic authentication): NAME:PASSWORD pairs separated by spaces; empty: none is \
         needed";
    "realm" Text("RQ")
        "realm of the login that a browser shows at addresses of RQ; elsewhere the default is \
         \"Quintet\"";
    "allowed_ips" Text("")
        "addresses and networks of clients, such as \"10.0.0.0/8 ::1\"; empty: all";
    "trusted_proxies" Text("")
        "addresses and networks of proxies with many clients: they may use all of max_connections, \
         any other address but this machine's three quarters";
    "hosts" Text("")
        "names of this server, beside addresses, localhost and the machine's own; \"*\": any. \
         Requests for other hosts fail, against DNS rebinding by web pages";
    "allow_new_queue" Bool(false)
        "clients may create and delete queues with scripts over HTTP, and so run programs as the \
         server's user";
    "max_header" Bytes(LIMITS.header_bytes_max as u64)
        "longest head of a request, 8KiB to 1MiB; 431 beyond";
    "max_form" Bytes(LIMITS.form_bytes_max as u64)
        "longest form or JSON body, 1KiB to 256MiB, attachments excepted; 413 beyond";
    "max_fields" Number(LIMITS.fields_max as u64)
        "most fields of a form, 10 to 100000; 413 beyond";
    "max_attachment" Bytes(LIMITS.attachment_bytes_max)
        "longest attachment, 1 byte to 1TiB; 413 beyond";
    "max_connections" Number(LIMITS.connections_max as u64)
        "connections of this listener at once, 1 to 100000; event streams, polls and unfinished \
         bodies count separately; more wait, then 503";
    "max_streams" Number(LIMITS.streams_max as u64)
        "event streams (/api/v1/events) of this listener at once, 0 to 100000, each 64KiB of \
         connection_memory; 503 beyond";
    "max_sessions" Number(LIMITS.sessions_max as u64)
        "logins of browsers at once, 1 to 100000; one more ends the oldest";
    "session_time" Text("12h")
        "how long a browser stays logged in, 1m to 30d";
    "max_uploads" Number(LIMITS.uploads_max as u64)
        "attachments that are received at once, 1 to 48; more wait, unread";
    "timeout" Text("30s")
        "time for a request's head, a form, a piece of an attachment, or a piece of a reply";
};

const MINUTE_MS: u64 = 60_000;

/// The options of one listener, read.
pub struct Http {
    /// With a slash at both ends.
    pub relative_root: String,
    pub realm: String,
    /// Names and passwords.
    pub users: Vec<(String, String)>,
    pub reach: Reach,
    pub allow_new_queue: bool,
    pub limits: HttpLimits,
}

impl Http {
    /// Reads them.
    ///
    /// # Errors
    /// A sentence that names the option and what it takes.
    pub fn of(options: &Options) -> Result<Self, String> {
        let session = parse_duration_ms(options.text("session_time"))
            .ok()
            .filter(|ms| (MINUTE_MS..=30 * 24 * 60 * MINUTE_MS).contains(ms))
            .ok_or("session_time takes 1m to 30d")?;
        let timeout = time(options, "timeout", u64::MAX)?.max(Duration::from_millis(1));
        Ok(Self {
            relative_root: relative_root(options.text("relative_root"))?,
            realm: options.text("realm").to_owned(),
            users: pairs(options.text("users"))?,
            reach: Reach::of(options)?,
            allow_new_queue: options.flag("allow_new_queue"),
            limits: HttpLimits {
                header_bytes_max: options.within("max_header", 8 << 10, 1 << 20)?,
                form_bytes_max: options.within("max_form", 1 << 10, 256 << 20)?,
                fields_max: options.within("max_fields", 10, 100_000)?,
                attachment_bytes_max: options.within("max_attachment", 1, 1 << 40)?,
                connections_max: options.within("max_connections", 1, 100_000)?,
                streams_max: options.within("max_streams", 0, 100_000)?,
                sessions_max: options.within("max_sessions", 1, 100_000)?,
                session_time: Duration::from_millis(session),
                uploads_max: options.within("max_uploads", 1, 48)?,
                timeout,
                idle: timeout,
                ..LIMITS
            },
        })
    }
}

/// `relative_root` as it is used: begins and ends with `/`.
///
/// # Errors
/// A sentence, if it does not begin with `/` or is no plain path.
fn relative_root(text: &str) -> Result<String, String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/-_.~".contains(&b);
    if !text.starts_with('/') || !text.bytes().all(plain) {
        return Err(format!(
            "relative_root takes a path such as \"/\" or \"/rq/\", of letters, digits and -_.~, \
             not \"{text}\""
        ));
    }
    let parts = text.split('/').filter(|part| !part.is_empty());
    Ok(parts.fold("/".to_owned(), |root, part| format!("{root}{part}/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table has times as texts: those are said twice.
    #[test]
    fn the_times_of_the_table_are_those_of_the_limits() {
        let read = Http::of(&Options::new(OPTIONS)).expect("the defaults");
        assert_eq!(read.limits.session_time, LIMITS.session_time);
        assert_eq!(read.limits.timeout, LIMITS.timeout);
        assert_eq!(read.limits.idle, LIMITS.idle);
    }

    #[test]
    fn roots_begin_and_end_with_a_slash() {
        assert_eq!(relative_root("/").as_deref(), Ok("/"));
        assert_eq!(relative_root("/a/b").as_deref(), Ok("/a/b/"));
        assert_eq!(relative_root("//a//").as_deref(), Ok("/a/"));
        for bad in ["", "a", "/a?b", "/a b", "/a\"b"] {
            assert!(relative_root(bad).is_err(), "{bad}");
        }
    }
}
