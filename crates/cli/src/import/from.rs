//! Sources of `import --from`, and their common interface.

mod attached;
mod beanstalk;
mod binlog;
mod bodies;
mod faktory;
mod http;
mod journal;
mod kestrel;
mod line;
mod peer;
mod quintet;
mod rq;
mod sqs;

use std::path::PathBuf;

use percent_encoding::percent_decode_str;

pub(super) use attached::{Attached, still_runs};
pub(super) use beanstalk::Beanstalk;
pub(super) use binlog::inspect as inspect_binlog;
pub(super) use bodies::{Files, Stored};
pub(super) use faktory::Faktory;
pub(super) use journal::inspect as inspect_journal;
pub(super) use kestrel::Kestrel;
pub(super) use peer::{Mover, Server};
pub(super) use quintet::{Quintet, Site};
pub(super) use rq::Folder as RqFolder;
pub(super) use sqs::{Place as SqsPlace, Sqs};

/// All queues of a running server, or one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remote {
    /// HOST:PORT.
    address: String,
    password: Option<String>,
    /// All without one.
    queue: Option<String>,
}

/// A source of `--from`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A running beanstalkd, all tubes or one of them.
    Beanstalk(Remote),
    /// A running Kestrel or Darner, all queues or one of them.
    Kestrel(Remote),
    /// A running Faktory, all queues or one of them.
    Faktory(Remote),
    /// Another running Quintet, all queues or one of them.
    Quintet(Site),
    /// Amazon SQS, all queues of a region or one of them.
    Sqs(SqsPlace),
    /// A directory of beanstalkd's binlog.
    Binlog(PathBuf),
    /// A journal of one of Kestrel's queues.
    Journal(PathBuf),
    /// A folder of RQ.
    Rq(PathBuf),
}

impl Origin {
    /// The one queue that is requested.
    pub(super) fn queue(&self) -> Option<&str> {
        match self {
            Self::Beanstalk(at) | Self::Kestrel(at) | Self::Faktory(at) => at.queue.as_deref(),
            Self::Quintet(site) => site.queue.as_deref(),
            Self::Sqs(place) => place.queue.as_deref(),
            Self::Binlog(_) | Self::Journal(_) | Self::Rq(_) => None,
        }
    }

    /// The running server, for people; `None`: files.
    pub(super) fn server(&self) -> Option<String> {
        match self {
            Self::Beanstalk(at) => Some(format!("beanstalkd at {}", at.address)),
            Self::Kestrel(at) => Some(format!("the queue server at {}", at.address)),
            Self::Faktory(at) => Some(format!("the Faktory at {}", at.address)),
            Self::Quintet(site) => Some(format!("the Quintet at {}", site.shown())),
            Self::Sqs(_) => Some("SQS".to_owned()),
            Self::Binlog(_) | Self::Journal(_) | Self::Rq(_) => None,
        }
    }
}

/// The kinds, for who names none of them.
const KINDS: &str = "beanstalk://HOST:PORT[/TUBE], kestrel://HOST:PORT[/QUEUE], \
                     faktory://[:PASSWORD@]HOST:PORT[/QUEUE], \
                     quintet://[USER[:PASSWORD]@]HOST:PORT[/QUEUE], \
                     sqs://[[ACCOUNT/]QUEUE][?region=REGION], binlog:DIR, kestrel-journal:FILE, \
                     rq:FOLDER";

/// Ports where none is said.
const BEANSTALK_PORT: u16 = 11300;
const KESTREL_PORT: u16 = 22133;
const QUINTET_PORT: u16 = 3333;
const FAKTORY_PORT: u16 = 7419;

impl std::str::FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text
            .split_once(':')
            .ok_or_else(|| format!("\"{text}\" is not a source; sources are {KINDS}"))?;
        let files = |of: fn(PathBuf) -> Self, what: &str| match rest {
            "" => Err(format!("name the {what}")),
            path => Ok(of(path.into())),
        };
        match scheme {
            "beanstalk" | "beanstalkd" => remote(rest, BEANSTALK_PORT).map(Self::Beanstalk),
            "kestrel" | "darner" | "memcache" => remote(rest, KESTREL_PORT).map(Self::Kestrel),
            "faktory" => faktory_place(rest),
            "sqs" => sqs_place(rest),
            "quintet" | "quintet+http" => site("http", rest),
            "quintet+https" => site("https", rest),
            "binlog" => files(Self::Binlog, "directory: binlog:DIR"),
            "kestrel-journal" => files(Self::Journal, "file: kestrel-journal:FILE"),
            "rq" => files(Self::Rq, "folder: rq:FOLDER"),
            _ => Err(format!(
                "\"{scheme}:\" is not a source; sources are {KINDS}"
            )),
        }
    }
}

const NO_ADDRESS: &str = "the address is missing: write //HOST:PORT after the scheme";

/// A text without the `%XX` of addresses.
fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// A queue's name, if there is one.
fn named(name: &str) -> Option<String> {
    Some(name.to_owned()).filter(|name| !name.is_empty())
}

/// `//HOST[:PORT][/NAME]`.
fn remote(rest: &str, port: u16) -> Result<Remote, String> {
    let rest = rest.strip_prefix("//").ok_or(NO_ADDRESS)?;
    let (host, name) = rest.split_once('/').unwrap_or((rest, ""));
    if host.is_empty() {
        return Err(NO_ADDRESS.to_owned());
    }
    let behind = host.rsplit_once(']').map_or(host, |(_, behind)| behind);
    let address = match behind.contains(':') {
        true => host.to_owned(),
        false => format!("{host}:{port}"),
    };
    Ok(Remote {
        address,
        password: None,
        queue: named(name),
    })
}

/// `//[:PASSWORD@]HOST[:PORT][/QUEUE]` of a Faktory.
fn faktory_place(rest: &str) -> Result<Origin, String> {
    let rest = rest.strip_prefix("//").ok_or(NO_ADDRESS)?;
    let Some((login, rest)) = rest.rsplit_once('@') else {
        return remote(&format!("//{rest}"), FAKTORY_PORT).map(Origin::Faktory);
    };
    let password = login.split_once(':').map_or(login, |(_, word)| word);
    Ok(Origin::Faktory(Remote {
        password: Some(decoded(password)),
        ..remote(&format!("//{rest}"), FAKTORY_PORT)?
    }))
}

/// `//[USER[:PASSWORD]@]HOST[:PORT][/QUEUE]` of another Quintet.
fn site(scheme: &str, rest: &str) -> Result<Origin, String> {
    let rest = rest.strip_prefix("//").unwrap_or_default();
    let end = rest.find('/').unwrap_or(rest.len());
    let (login, host) = match rest[..end].rsplit_once('@') {
        Some((login, host)) => (Some(login), host),
        None => (None, &rest[..end]),
    };
    let Remote { address, queue, .. } = remote(&format!("//{host}{}", &rest[end..]), QUINTET_PORT)?;
    let url = format!("{scheme}://{address}");
    if url.parse::<ureq::http::Uri>().is_err() {
        return Err(format!(
            "{address} is not an address: write HOST or HOST:PORT"
        ));
    }
    Ok(Origin::Quintet(Site {
        url,
        login: login.map(decoded),
        queue,
    }))
}

/// `//[[ACCOUNT/]QUEUE][?region=REGION&endpoint=URL]`.
fn sqs_place(rest: &str) -> Result<Origin, String> {
    let rest = rest
        .strip_prefix("//")
        .ok_or("name the queue: sqs://QUEUE")?;
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let path = path.trim_end_matches('/');
    let (account, queue) = match path.rsplit_once('/') {
        Some((account, queue)) => (Some(account.to_owned()), named(queue)),
        None => (None, named(path)),
    };
    let (mut region, mut endpoint) = (None, None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decoded(value);
        match name {
            "region" => region = Some(value),
            "endpoint" => {
                let url = value.trim_end_matches('/').to_owned();
                let host = url.strip_prefix("https://").or(url.strip_prefix("http://"));
                let is_one = |host: &str| !host.is_empty() && !host.contains('/');
                if !host.is_some_and(is_one) || url.parse::<ureq::http::Uri>().is_err() {
                    return Err(format!("{url} is not an endpoint: write http://HOST:PORT"));
                }
                endpoint = Some(url);
            }
            _ => {
                return Err(format!(
                    "unknown parameter \"{name}\": sqs:// has region and endpoint"
                ));
            }
        }
    }
    Ok(Origin::Sqs(SqsPlace {
        endpoint,
        region,
        account,
        queue,
    }))
}

#[cfg(test)]
mod tests {
    use super::{Origin, Remote, Site, SqsPlace};

    fn sqs(account: Option<&str>, queue: Option<&str>, supplied: [Option<&str>; 2]) -> Origin {
        let [region, endpoint] = supplied.map(|text| text.map(str::to_owned));
        Origin::Sqs(SqsPlace {
            endpoint,
            region,
            account: account.map(str::to_owned),
            queue: queue.map(str::to_owned),
        })
    }

    fn quintet(url: &str, login: Option<&str>, queue: Option<&str>) -> Origin {
        Origin::Quintet(Site {
            url: url.to_owned(),
            login: login.map(str::to_owned),
            queue: queue.map(str::to_owned),
        })
    }

    fn remote(address: &str, password: Option<&str>, queue: Option<&str>) -> Remote {
        Remote {
            address: address.to_owned(),
            password: password.map(str::to_owned),
            queue: queue.map(str::to_owned),
        }
    }

    fn beanstalk(address: &str, tube: Option<&str>) -> Origin {
        Origin::Beanstalk(remote(address, None, tube))
    }

    #[test]
    fn a_named_source_is_found() {
        for (text, origin) in [
            ("beanstalk://a:1", beanstalk("a:1", None)),
            ("beanstalk://a/", beanstalk("a:11300", None)),
            (
                "faktory://:s%40x@a/q",
                Origin::Faktory(remote("a:7419", Some("s@x"), Some("q"))),
            ),
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
                Origin::Kestrel(remote("a:22133", None, Some("mail"))),
            ),
            ("quintet://a", quintet("http://a:3333", None, None)),
            (
                "quintet+https://ann:a%40b@[::1]:1/m/x@y",
                quintet("https://[::1]:1", Some("ann:a@b"), Some("m/x@y")),
            ),
            ("sqs://", sqs(None, None, [None, None])),
            (
                "sqs://1234/q.fifo?region=eu&endpoint=http%3A//h:1/",
                sqs(
                    Some("1234"),
                    Some("q.fifo"),
                    [Some("eu"), Some("http://h:1")],
                ),
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
            ("work.jsonl", "is not a source"),
            ("beanstalk:a", "write //HOST:PORT"),
            ("beanstalk://", "write //HOST:PORT"),
            ("beanstalk:///tube", "write //HOST:PORT"),
            ("sqs:queue", "name the queue"),
            ("sqs://queue?zone=a", "unknown parameter"),
            ("sqs://queue?endpoint=h:1", "is not an endpoint"),
            ("sqs://queue?endpoint=http://h/p", "is not an endpoint"),
            ("amqp://a", "is not a source"),
            ("quintet:a", "write //HOST:PORT"),
            ("quintet://ann@", "write //HOST:PORT"),
            ("quintet://a b", "is not an address"),
            ("rq:", "name the folder"),
            ("kestrel-journal:", "name the file"),
            ("binlog:", "name the directory"),
        ] {
            let error = text.parse::<Origin>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
