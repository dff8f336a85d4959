//! `[[webhook]]`: addresses that get events of messages.

use std::collections::HashSet;

use quintet_client::EventKind;
use quintet_types::{Name, Pattern};

use super::Config;
use super::auth::private;
use super::schema::table;
use super::wrong::Wrong;

/// Webhooks at most: each has a thread.
const WEBHOOKS_MAX: usize = 32;
/// Letters of a name at most: it is a label of metrics.
const NAME_MAX: usize = 64;

/// A receiver of events.
#[derive(Clone, Debug, Default)]
pub struct Webhook {
    /// Its position is kept under this name.
    pub name: String,
    /// `http://` or `https://`, without a login.
    pub url: String,
    /// Key of signatures; `None`: there is none.
    pub secret: Option<Vec<u8>>,
    /// Empty: all queues.
    pub queues: Vec<Pattern>,
    /// Empty: all kinds.
    pub kinds: Vec<EventKind>,
}

table! {
    /// One `[[webhook]]` table, as the file says it.
    #[derive(Clone, Default, PartialEq)]
    pub struct WebhookTable, WEBHOOK;
    "name" Text(name)
        "Name, 1 to 64 of a-z, 0-9, - and _: the position is kept under it.";
    "url" Text(url)
        "Address, http:// or https:// (relay_ca: its authorities), without a login.";
    "secret_file" Text(secret_file)
        "File with the secret of signatures, mode 0600; empty: none.";
    "queues" Texts(queues)
        "Events of these queues or patterns; empty: of all.";
    "kinds" Texts(kinds)
        "Events of these kinds, such as [\"failed\", \"dead\"]; empty: all.";
}

impl WebhookTable {
    fn webhook(&self) -> Result<Webhook, Wrong> {
        let mut rest = ["http://", "https://"].iter();
        let rest = rest.find_map(|scheme| self.url.strip_prefix(scheme));
        let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next());
        if host.is_none_or(|host| host.is_empty() || host.contains('@')) {
            let why = "takes an address such as https://example.org/events, without a login";
            // It may be a secret.
            return Err(Wrong::of_text("url", "...", why));
        }
        let secret = match self.secret_file.as_str() {
            "" => None,
            path => {
                let read =
                    private(path).map_err(|why| Wrong::of_text("secret_file", path, &why))?;
                let read = read.trim_ascii();
                if read.is_empty() {
                    return Err(Wrong::of_text("secret_file", path, "the file is empty"));
                }
                Some(read.to_vec())
            }
        };
        let kinds = self.kinds.iter().map(|kind| {
            let kinds = EventKind::list(kind);
            kinds.map_err(|why| Wrong::of_text("kinds", kind, &why))
        });
        let kinds = kinds.collect::<Result<Vec<_>, _>>()?;
        let queues = self.queues.iter();
        Ok(Webhook {
            name: self.name.clone(),
            url: self.url.clone(),
            secret,
            queues: queues
                .map(|name| Pattern::of_name(Name::of_shown(name).as_bytes()))
                .collect(),
            kinds: kinds.concat(),
        })
    }
}

impl Config {
    /// The `[[webhook]]` tables. Reads the files of secrets.
    ///
    /// # Errors
    /// The first that is wrong.
    pub fn receivers(&self) -> Result<Vec<Webhook>, Wrong> {
        if self.webhooks.len() > WEBHOOKS_MAX {
            return Err(format!("there are more than {WEBHOOKS_MAX} [[webhook]] tables").into());
        }
        let mut names = HashSet::new();
        let rows = self.webhooks.iter().enumerate().map(|(row, table)| {
            let wrong = |why: String| Wrong::from(why).of_row(row);
            let letter = |c: u8| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
            if !(1..=NAME_MAX).contains(&table.name.len()) || !table.name.bytes().all(letter) {
                let why = "a [[webhook]] needs a name of a-z, 0-9, - and _, 64 at most";
                return Err(wrong(why.to_owned()));
            }
            let place = format!("[[webhook]] {}", table.name);
            if !names.insert(&table.name) {
                return Err(wrong(format!("{place}: there are two of this name")));
            }
            let webhook = table.webhook();
            webhook.map_err(|wrong| wrong.within(&place).of_row(row))
        });
        rows.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::from_text;

    fn read(text: &str) -> Result<usize, String> {
        let config = from_text(text).map_err(|error| format!("{error:#}"))?;
        let rows = config.receivers().map_err(|wrong| wrong.to_string())?;
        Ok(rows.len())
    }

    #[test]
    fn a_webhook_has_a_name_and_an_address() {
        const GOOD: &str = "[[webhook]]\nname = 'a'\nurl = 'https://example.org/x'\n";
        assert_eq!(
            read(&format!(
                "{GOOD}kinds = ['dead', 'failed']\nqueues = ['w*']"
            )),
            Ok(1)
        );
        for (text, says) in [
            ("[[webhook]]\nurl = 'http://h/'".to_owned(), "needs a name"),
            (
                "[[webhook]]\nname = 'A'\nurl = 'http://h/'".to_owned(),
                "needs a name",
            ),
            ("[[webhook]]\nname = 'a'".to_owned(), "url"),
            (
                "[[webhook]]\nname = 'a'\nurl = 'ftp://h/'".to_owned(),
                "url",
            ),
            (
                "[[webhook]]\nname = 'a'\nurl = 'http://u:pw@h/'".to_owned(),
                "url",
            ),
            (format!("{GOOD}{GOOD}"), "two of this name"),
            (format!("{GOOD}kinds = ['born']"), "not \"born\""),
            (format!("{GOOD}secret_file = '/nowhere'"), "secret_file"),
        ] {
            let error = read(&text).expect_err(&text);
            assert!(error.contains(says), "{text}: {error}");
            assert!(!error.contains("pw"), "{error}");
        }
    }
}
