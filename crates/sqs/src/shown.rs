//! A queue in the console that SQS's clients reach, or that they made: docs/protocols/sqs.md says
//! which number is which attribute.

use quintet_http::{Called, CalledAs, Elsewhere};
use quintet_types::{DeadLetter, Name, QueueSetup, QueueStats};

use crate::listener::Options;
use crate::names::{self, Place};
use crate::queue::{self, OWN};

/// The listeners, as a queue's page shows them.
#[derive(Clone, Debug, Default)]
pub struct ListenerInfo {
    listeners: Vec<Listener>,
}

#[derive(Clone, Debug)]
struct Listener {
    place: Place,
    /// Where it is, if URLs do not begin otherwise; `None`: at a unix socket.
    host: Option<String>,
    secure: bool,
    open: bool,
}

impl Listener {
    fn has(&self, name: &str) -> bool {
        names::is_ours(name, self.open)
    }

    fn url(&self, name: &str) -> Option<String> {
        match &self.host {
            Some(host) => Some(self.place.url(host, self.secure, name)),
            None if self.place.url.is_empty() => None,
            None => Some(self.place.url("", self.secure, name)),
        }
    }
}

impl ListenerInfo {
    /// A listener: `host` is where it is, with the port; `None`: at a unix socket.
    pub fn add(&mut self, options: &Options, host: Option<String>, secure: bool) {
        self.listeners.push(Listener {
            place: options.place(),
            host,
            secure,
            open: options.open,
        });
    }

    fn reach(&self, name: &str) -> impl Iterator<Item = &Listener> {
        self.listeners
            .iter()
            .filter(move |listener| listener.has(name))
    }
}

fn text(name: &Name) -> Option<&str> {
    std::str::from_utf8(name.as_bytes()).ok()
}

impl Elsewhere for ListenerInfo {
    fn word(&self, queue: &Name) -> Option<&'static str> {
        let name = text(queue)?;
        self.reach(name).next()?;
        Some(if names::is_fifo(name) {
            "SQS FIFO"
        } else {
            "SQS"
        })
    }

    fn made(&self, setup: &QueueSetup) -> bool {
        let own = &setup.own;
        let has = |start: &[u8]| {
            let mut tags = setup.settings.tags.iter();
            tags.any(|(tag, _)| tag.starts_with(start))
        };
        // What a queue has from its making here, unless somebody set it later.
        let own_limits = [own.default_ttr_ms, own.ttl_ms, own.message_bytes_max];
        let by_making = own_limits.iter().flatten().count() >= 2;
        (by_making && !has(b"quintet:set:")) || has(OWN.as_bytes())
    }

    fn legend(&self) -> &'static str {
        "In SQS, ready messages are visible (ApproximateNumberOfMessages), reserved ones in \
         flight (ApproximateNumberOfMessagesNotVisible), and delayed ones delayed \
         (ApproximateNumberOfMessagesDelayed)."
    }

    fn called(&self, stats: &QueueStats, setup: &QueueSetup) -> Option<Called> {
        let name = text(&stats.name)?;
        let settings = &setup.settings;
        let mut listeners = self.reach(name).peekable();
        if !self.made(setup) && listeners.peek().is_none() {
            return None;
        }
        let fifo = names::is_fifo(name);
        let mut facts = Vec::new();
        let mut fact = |word: &str, value| facts.push((word.to_owned(), value));
        for listener in listeners {
            if let Some(url) = listener.url(name) {
                fact("URL", CalledAs::Text(url));
            }
            fact("QueueArn", CalledAs::Text(listener.place.arn(name)));
        }
        let gauges = &stats.gauges;
        for (word, number) in [
            ("ApproximateNumberOfMessages (visible)", gauges.ready),
            (
                "ApproximateNumberOfMessagesNotVisible (in flight)",
                gauges.reserved,
            ),
            ("ApproximateNumberOfMessagesDelayed", gauges.delayed),
        ] {
            fact(word, CalledAs::Count(number));
        }
        for (word, ms) in [
            ("VisibilityTimeout", settings.default_ttr_ms),
            ("DelaySeconds", settings.default_delay_ms),
            ("MessageRetentionPeriod", settings.ttl_ms),
        ] {
            fact(
                word,
                match (word, ms) {
                    ("MessageRetentionPeriod", 0) => CalledAs::Text("for ever".to_owned()),
                    _ => CalledAs::Ms(ms),
                },
            );
        }
        fact(
            "MaximumMessageSize",
            CalledAs::Bytes(settings.message_bytes_max),
        );
        if fifo {
            for (word, default) in queue::of_fifo() {
                let stated = queue::text(&settings.tags, word).unwrap_or(default);
                fact(word, CalledAs::Text(stated.to_owned()));
            }
        }
        if let (DeadLetter::To(to), count @ 1..) = (&settings.dead_letter, settings.attempts_max) {
            let says = format!("maxReceiveCount {count}");
            fact("RedrivePolicy", CalledAs::Queue(to.clone(), says));
        }
        if let Some(allow) = queue::text(&settings.tags, "RedriveAllowPolicy") {
            fact("RedriveAllowPolicy", CalledAs::Text(allow.to_owned()));
        }
        for (tag, value) in queue::tags_of_clients(&settings.tags) {
            fact(&format!("tag {tag}"), CalledAs::Text(value));
        }
        let kind = if fifo { "FIFO queue" } else { "standard queue" };
        let by = match self.word(&stats.name) {
            Some(_) => "",
            None => ", which no sqs listener of this server reaches",
        };
        Some(Called {
            by: "Amazon SQS",
            is: format!("{kind}{by}"),
            facts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quintet_types::{QueueSettings, Tags};
    use std::time::Duration;

    fn shown(open: bool) -> ListenerInfo {
        let options = Options {
            account: "000000000000".to_owned(),
            region: "eu-west-1".to_owned(),
            url: String::new(),
            keys: crate::Keys::default(),
            auto_create: false,
            open,
            message_bytes_max: 1 << 20,
            retry_window: Duration::ZERO,
            purge_interval: Duration::ZERO,
            recreate_after: Duration::ZERO,
        };
        let mut shown = ListenerInfo::default();
        shown.add(&options, Some("127.0.0.1:9324".to_owned()), false);
        shown
    }

    fn of(shown: &ListenerInfo, name: &str, settings: QueueSettings) -> Option<Called> {
        let mut stats = QueueStats {
            name: Name::from(name),
            ..QueueStats::default()
        };
        let gauges = &mut stats.gauges;
        (gauges.ready, gauges.reserved, gauges.delayed) = (7, 5, 3);
        let setup = QueueSetup {
            name: Name::from(name),
            settings,
            ..QueueSetup::default()
        };
        shown.called(&stats, &setup)
    }

    fn value<'a>(called: &'a Called, word: &str) -> Option<&'a CalledAs> {
        let mut facts = called.facts.iter();
        facts.find_map(|(known, value)| (known == word).then_some(value))
    }

    #[test]
    fn a_queue_is_shown_in_the_words_of_its_attributes() {
        let mut tags = Tags::default();
        tags.set(b"team", Some(b"blue"));
        tags.set(b"aws:sqs:DeduplicationScope", Some(b"messageGroup"));
        let settings = QueueSettings {
            tags,
            attempts_max: 4,
            dead_letter: DeadLetter::To(Name::from("dead.fifo")),
            ..QueueSettings::default()
        };
        let called = of(&shown(false), "orders.fifo", settings).expect("it is reached");
        assert_eq!(called.is, "FIFO queue");
        let text = |text: &str| CalledAs::Text(text.to_owned());
        let dead = CalledAs::Queue(Name::from("dead.fifo"), "maxReceiveCount 4".to_owned());
        for (word, expected) in [
            (
                "URL",
                text("http://127.0.0.1:9324/000000000000/orders.fifo"),
            ),
            (
                "QueueArn",
                text("arn:aws:sqs:eu-west-1:000000000000:orders.fifo"),
            ),
            ("ApproximateNumberOfMessages (visible)", CalledAs::Count(7)),
            (
                "ApproximateNumberOfMessagesNotVisible (in flight)",
                CalledAs::Count(5),
            ),
            ("ApproximateNumberOfMessagesDelayed", CalledAs::Count(3)),
            ("DeduplicationScope", text("messageGroup")),
            ("MessageRetentionPeriod", text("for ever")),
            ("DelaySeconds", CalledAs::Ms(0)),
            ("ContentBasedDeduplication", text("false")),
            ("RedrivePolicy", dead),
            ("tag team", text("blue")),
        ] {
            assert_eq!(value(&called, word), Some(&expected), "{word}");
        }
        assert_eq!(value(&called, "tag aws:sqs:DeduplicationScope"), None);
    }

    #[test]
    fn a_queue_that_sqs_neither_reaches_nor_created_is_not_shown() {
        let plain = QueueSettings::default;
        assert_eq!(of(&shown(false), "a name", plain()), None);
        assert_eq!(shown(false).word(&Name::from("a name")), None);
        assert_eq!(of(&ListenerInfo::default(), "orders", plain()), None);
        let long = "x".repeat(100);
        assert_eq!(shown(false).word(&Name::from(long.as_str())), None);
        assert_eq!(shown(true).word(&Name::from(long.as_str())), Some("SQS"));
        // It was made over SQS, and there is no listener any more.
        let mut tags = Tags::default();
        tags.set(b"aws:sqs:changed", Some(b"1"));
        let settings = QueueSettings { tags, ..plain() };
        let called = of(&ListenerInfo::default(), "orders", settings).expect("it was made so");
        assert_eq!(value(&called, "URL"), None);
        assert!(called.is.contains("no sqs listener"), "{}", called.is);
    }
}
