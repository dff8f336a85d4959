//! Names of queues, their URLs and ARNs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::fault::Fault;

/// Suffix of a FIFO queue's name.
pub(crate) const FIFO: &str = ".fifo";
/// Characters of a name at most.
const NAME_MAX: usize = 80;
/// The same where limits are open.
const OPEN_NAME_MAX: usize = 1024;

/// True if the name is one of a FIFO queue.
pub(crate) fn is_fifo(name: &str) -> bool {
    name.ends_with(FIFO)
}

/// True for a name that a queue of this protocol can have.
pub(crate) fn is_ours(name: &str, open: bool) -> bool {
    let most = if open { OPEN_NAME_MAX } else { NAME_MAX };
    let stem = name.strip_suffix(FIFO).unwrap_or(name);
    (1..=most).contains(&name.len()) && !stem.is_empty() && is_plain(stem)
}

/// True if a text has nothing but letters and digits of ASCII, hyphens and underscores.
pub(crate) fn is_plain(text: &str) -> bool {
    text.bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

/// True if a text begins so, in small letters or capitals.
pub(crate) fn begins(text: &str, prefix: &str) -> bool {
    let begin = text.as_bytes().get(..prefix.len());
    begin.is_some_and(|begin| begin.eq_ignore_ascii_case(prefix.as_bytes()))
}

/// Looks at the name of a queue to be made.
///
/// # Errors
/// It cannot have that name.
pub(crate) fn check(name: &str, fifo: bool, open: bool) -> Result<(), Fault> {
    match (fifo, is_fifo(name)) {
        (true, false) => Err(Fault::parameter(
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or \
             underscores, must end with .fifo suffix and be 1 to 80 in length",
        )),
        (same, named) if same == named && is_ours(name, open) => Ok(()),
        _ => Err(Fault::parameter(
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length",
        )),
    }
}

/// The name in the URL of a queue, or the bare name.
pub(crate) fn of_url(url: &str) -> Option<&str> {
    let path = match url.split_once("://") {
        // A host alone names no queue.
        Some((_, rest)) => rest.split_once('/')?.1,
        None => url,
    };
    let mut parts = path.rsplit('/').filter(|part| !part.is_empty());
    parts.next()
}

/// The name in the ARN of a queue: its sixth part, whatever the others are.
pub(crate) fn of_arn(arn: &str) -> Option<&str> {
    let mut parts = arn.splitn(6, ':');
    if parts.next()? != "arn" {
        return None;
    }
    parts.nth(4).filter(|name| !name.is_empty())
}

/// Where the queues of a listener are, as their URLs and ARNs say.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Twelve digits.
    pub(crate) account: String,
    pub(crate) region: String,
    /// Prefix of URLs; empty: `http://` and the host that was asked.
    pub(crate) url: String,
}

impl Place {
    /// The URL of a queue, for who has asked this host.
    pub(crate) fn url(&self, host: &str, secure: bool, name: &str) -> String {
        let account = &self.account;
        match self.url.as_str() {
            "" => {
                let scheme = if secure { "https" } else { "http" };
                format!("{scheme}://{host}/{account}/{name}")
            }
            url => format!("{}/{account}/{name}", url.trim_end_matches('/')),
        }
    }

    /// The ARN of a queue.
    pub(crate) fn arn(&self, name: &str) -> String {
        format!("arn:aws:sqs:{}:{}:{name}", self.region, self.account)
    }
}

/// The task that a handle names, and the address of the queue that it empties.
pub(crate) fn of_handle(handle: &str) -> Option<(String, String)> {
    let read = STANDARD.decode(handle).ok()?;
    let read: Value = serde_json::from_slice(&read).ok()?;
    let part = |name: &str| Some(read.get(name)?.as_str()?.to_owned());
    Some((part("taskId")?, part("sourceArn")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case 8.
    #[test]
    fn names_are_checked() {
        let long = "a".repeat(80);
        let fifo = format!("{}.fifo", "a".repeat(75));
        for (name, is_fifo, good) in [
            ("a", false, true),
            ("a-b_C9", false, true),
            (&long, false, true),
            (&fifo, true, true),
            ("a b", false, false),
            ("a.b", false, false),
            (&format!("{long}a"), false, false),
            (&format!("a{fifo}"), true, false),
            ("x.fifo", false, false),
            ("x", true, false),
            (".fifo", true, false),
            ("ä", false, false),
        ] {
            assert_eq!(check(name, is_fifo, false).is_ok(), good, "{name}");
        }
        assert!(check(&"a".repeat(1024), false, true).is_ok());
        assert!(check(&"a".repeat(1025), false, true).is_err());
    }

    /// Case 68.
    #[test]
    fn a_url_of_any_host_names_its_queue() {
        for url in [
            "q",
            "http://other:1/999/q",
            "http://h/000000000000/q/",
            "https://sqs.us-east-1.amazonaws.com/000000000000/q",
            "/0/q",
        ] {
            assert_eq!(of_url(url), Some("q"), "{url}");
        }
        assert_eq!(of_url("http://host"), None);
        assert_eq!(of_url("http://host/"), None);
        assert_eq!(of_arn("arn:aws:sqs:us-east-1:000000000000:q"), Some("q"));
        assert_eq!(of_arn("arn:x:y:z:0:q.fifo"), Some("q.fifo"));
        assert_eq!(of_arn("q"), None);
        assert_eq!(of_arn("arn:aws:sqs:us-east-1:0:"), None);
    }
}
