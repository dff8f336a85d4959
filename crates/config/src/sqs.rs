//! The options of `sqs` listeners.

use std::time::Duration;

use quintet_types::HttpLimits;
use quintet_wire::{OptionSpec, Options, Value};

use super::reach::{Reach, pairs, time};

/// The value of `protocol` in `[[listen]]`.
pub const NAME: &str = "sqs";
/// As ElasticMQ has it.
pub const PORT: u16 = 9324;
/// The line that `--print-config` and `quintet settings` show for a listener.
pub const ABOUT: &str = "Amazon SQS, both protocols (JSON 1.0 and Query): AWS's SDKs as they are.";

/// Keys that a `[[listen]]` table of this protocol takes beside the common ones.
pub const OPTIONS: &[OptionSpec] = quintet_wire::options! {
    "account" Text("000000000000")
        "account in URLs and ARNs of queues, twelve digits; queues of other accounts are the same \
         ones";
    "region" Text("us-east-1")
        "region in ARNs of queues; those of other regions are the same ones";
    "url" Text("")
        "start of queue URLs, such as \"https://queues.example\"; empty: http:// (with TLS \
         https://) and the host of the request";
    "users" Text("")
        "access keys of signed requests: KEYID:SECRET pairs separated by spaces; empty: signatures \
         are not checked";
    "allowed_ips" Text("")
        "addresses and networks of clients, such as \"10.0.0.0/8 ::1\"; empty: all";
    "trusted_proxies" Text("")
        "addresses and networks of proxies with many clients: they may use all of max_connections, \
         any other address but this machine's three quarters";
    "hosts" Text("")
        "names of this server, beside addresses, localhost, names without a dot and the machine's \
         own; \"*\": any";
    "auto_create" Bool(false)
        "the first use of a queue creates it, as with other protocols; AWS needs CreateQueue";
    "limits" Text("aws")
        "\"aws\": the bounds of AWS; \"open\": any delay, visibility and retention, waits of an \
         hour, batches of 1000, names of 1024 characters";
    "max_message_size" Bytes(1 << 20)
        "longest message with its attributes, 1KiB to 64MiB, whatever its queue says; longer ones \
         of other protocols are skipped";
    "max_request" Bytes(8 << 20)
        "longest body of a request, 64KiB to 512MiB; 413 beyond";
    "retry_window" Text("2m")
        "how long the reply to a send is kept for a retry by an SDK, 0 to 1h; 65,536 calls at most";
    "purge_interval" Text("0")
        "shortest time between two PurgeQueue of a queue, 0 to 1h; AWS has 60s";
    "recreate_after" Text("0")
        "how long a deleted queue cannot be created again, 0 to 1h; AWS has 60s";
    "max_connections" Number(5000)
        "connections of this listener at once, 1 to 100000; polls and unfinished bodies count \
         separately; more wait, then 503";
    "timeout" Text("30s")
        "time for a request's body, or a piece of a reply";
};

const HOUR_MS: u64 = 3_600_000;

/// A connection that says nothing may stay so long where no `idle` is set.
const EVER: Duration = Duration::from_secs(24 * 3600);

/// The options of one listener, read.
pub struct Sqs {
    /// Twelve digits.
    pub account: String,
    pub region: String,
    pub url: String,
    /// Ids of keys and their secrets.
    pub users: Vec<(String, String)>,
    pub reach: Reach,
    pub auto_create: bool,
    /// No bounds of AWS.
    pub open: bool,
    pub message_bytes_max: u64,
    pub retry_window: Duration,
    pub purge_interval: Duration,
    pub recreate_after: Duration,
    pub limits: HttpLimits,
}

impl Sqs {
    /// Reads them.
    ///
    /// # Errors
    /// A sentence that names the option and what it takes.
    pub fn of(options: &Options) -> Result<Self, String> {
        let account = options.text("account");
        if account.len() != 12 || !account.bytes().all(|b| b.is_ascii_digit()) {
            return Err("account takes twelve digits".to_owned());
        }
        let region = options.text("region");
        let is_region = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        if region.is_empty() || !region.bytes().all(is_region) {
            return Err("region takes letters, digits and -".to_owned());
        }
        let url = options.text("url");
        if !url.is_empty() && !url.starts_with("http://") && !url.starts_with("https://") {
            return Err("url begins with http:// or https://".to_owned());
        }
        Ok(Self {
            account: account.to_owned(),
            region: region.to_owned(),
            url: url.to_owned(),
            users: pairs(options.text("users"))?,
            reach: Reach::of(options)?,
            auto_create: options.flag("auto_create"),
            open: match options.text("limits") {
                "aws" => false,
                "open" => true,
                _ => return Err("limits takes \"aws\" or \"open\"".to_owned()),
            },
            message_bytes_max: options.within("max_message_size", 1 << 10, 64 << 20)?,
            retry_window: time(options, "retry_window", HOUR_MS)?,
            purge_interval: time(options, "purge_interval", HOUR_MS)?,
            recreate_after: time(options, "recreate_after", HOUR_MS)?,
            limits: HttpLimits {
                form_bytes_max: options.within("max_request", 64 << 10, 512 << 20)?,
                connections_max: options.within("max_connections", 1, 100_000)?,
                streams_max: 0,
                timeout: time(options, "timeout", u64::MAX)?.max(Duration::from_millis(1)),
                idle: EVER,
                ..HttpLimits::DEFAULT
            },
        })
    }
}
