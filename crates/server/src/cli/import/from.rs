//! What `import --from` names, and what all of it can do.

mod attached;
mod beanstalk;
mod binlog;
mod bodies;
mod journal;
mod kestrel;
mod line;
mod peer;
mod rq;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Result;

pub(super) use attached::{Attached, still_runs};
pub(super) use binlog::Binlog;
pub(super) use journal::Journal;
pub(super) use peer::Peer;
pub(super) use rq::{Folder as RqFolder, Messages as RqMessages};

/// What `--from` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A running beanstalkd, all tubes or one of them.
    Beanstalk {
        /// HOST:PORT.
        address: String,
        /// All without one.
        tube: Option<String>,
    },
    /// A running Kestrel or Darner, all queues or one of them.
    Kestrel {
        /// HOST:PORT.
        address: String,
        /// All without one.
        queue: Option<String>,
    },
    /// A directory of beanstalkd's binlog.
    Binlog(PathBuf),
    /// A journal of one of Kestrel's queues.
    Journal(PathBuf),
    /// A folder of RQ.
    Rq(PathBuf),
}

/// The kinds, for who names none of them.
const KINDS: &str = "beanstalk://HOST:PORT[/TUBE], kestrel://HOST:PORT[/QUEUE], binlog:DIR, kestrel-journal:FILE, rq:FOLDER";

/// Ports where none is said.
const BEANSTALK_PORT: u16 = 11300;
const KESTREL_PORT: u16 = 22133;

impl std::str::FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text
            .split_once(':')
            .ok_or_else(|| format!("\"{text}\" is none of {KINDS}"))?;
        match scheme {
            "beanstalk" | "beanstalkd" => {
                let (address, tube) = remote(rest, BEANSTALK_PORT)?;
                Ok(Self::Beanstalk { address, tube })
            }
            "kestrel" | "darner" | "memcache" => {
                let (address, queue) = remote(rest, KESTREL_PORT)?;
                Ok(Self::Kestrel { address, queue })
            }
            "sqs" => Err(
                "SQS is not read from: move its messages by a consumer of its own, \
                          which puts them here"
                    .to_owned(),
            ),
            "quintet" => Err("another Quintet is read from by one of its listeners, \
                              beanstalk://HOST:PORT (states, ranks and times) or \
                              kestrel://HOST:PORT (ready messages, with flags), or moved by \
                              `quintet export` and `quintet import`"
                .to_owned()),
            "binlog" if rest.is_empty() => Err("which directory? binlog:DIR".to_owned()),
            "binlog" => Ok(Self::Binlog(rest.into())),
            "kestrel-journal" if rest.is_empty() => {
                Err("which file? kestrel-journal:FILE".to_owned())
            }
            "kestrel-journal" => Ok(Self::Journal(rest.into())),
            "rq" if rest.is_empty() => Err("which folder? rq:FOLDER".to_owned()),
            "rq" => Ok(Self::Rq(rest.into())),
            _ => Err(format!("\"{scheme}:\" is none of {KINDS}")),
        }
    }
}

/// `//HOST[:PORT][/NAME]`.
fn remote(rest: &str, port: u16) -> Result<(String, Option<String>), String> {
    let rest = rest.strip_prefix("//").ok_or("where? //HOST:PORT")?;
    let (host, name) = rest
        .split_once('/')
        .map_or((rest, ""), |(host, name)| (host, name));
    if host.is_empty() {
        return Err("where? //HOST:PORT".to_owned());
    }
    let behind = host.rsplit_once(']').map_or(host, |(_, behind)| behind);
    let address = match behind.contains(':') {
        true => host.to_owned(),
        false => format!("{host}:{port}"),
    };
    Ok((
        address,
        Some(name.to_owned()).filter(|name| !name.is_empty()),
    ))
}

/// Connects to a beanstalkd. `stop` ends it in good order: it then gives nothing more.
///
/// # Errors
/// It cannot be reached, or is something else.
pub(super) fn beanstalk(
    address: &str,
    tube: Option<&str>,
    stop: &Arc<AtomicBool>,
) -> Result<Box<dyn Peer>> {
    let (tube, stop) = (tube.map(str::to_owned), Arc::clone(stop));
    Ok(Box::new(beanstalk::Beanstalk::connect(
        address, tube, stop,
    )?))
}

/// Connects to a Kestrel or Darner, as [`beanstalk`] does.
///
/// # Errors
/// As there.
pub(super) fn kestrel(
    address: &str,
    queue: Option<&str>,
    stop: &Arc<AtomicBool>,
) -> Result<Box<dyn Peer>> {
    let (queue, stop) = (queue.map(str::to_owned), Arc::clone(stop));
    Ok(Box::new(kestrel::Kestrel::connect(address, queue, stop)?))
}

#[cfg(test)]
mod tests {
    use super::Origin;

    fn beanstalk(address: &str, tube: Option<&str>) -> Origin {
        Origin::Beanstalk {
            address: address.to_owned(),
            tube: tube.map(str::to_owned),
        }
    }

    #[test]
    fn what_is_named_is_found() {
        for (text, origin) in [
            ("beanstalk://a:1", beanstalk("a:1", None)),
            ("beanstalk://a/", beanstalk("a:11300", None)),
            (
                "beanstalk://[::1]/mail",
                beanstalk("[::1]:11300", Some("mail")),
            ),
            (
                "beanstalkd://[::1]:7/a/b",
                beanstalk("[::1]:7", Some("a/b")),
            ),
            (
                "darner://a/mail",
                Origin::Kestrel {
                    address: "a:22133".to_owned(),
                    queue: Some("mail".to_owned()),
                },
            ),
            ("binlog:b", Origin::Binlog("b".into())),
            ("kestrel-journal:j/q", Origin::Journal("j/q".into())),
            ("rq:/var/a:b", Origin::Rq("/var/a:b".into())),
        ] {
            assert_eq!(text.parse(), Ok(origin), "{text}");
        }
    }

    #[test]
    fn nonsense_is_named() {
        for (text, why) in [
            ("work.jsonl", "none of"),
            ("beanstalk:a", "where?"),
            ("beanstalk://", "where?"),
            ("beanstalk:///tube", "where?"),
            ("sqs://queue", "SQS is not read"),
            ("amqp://a", "none of"),
            ("quintet://a", "by one of its listeners"),
            ("rq:", "which folder?"),
            ("kestrel-journal:", "which file?"),
            ("binlog:", "which directory?"),
        ] {
            let error = text.parse::<Origin>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
