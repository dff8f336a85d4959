//! The audit of operations on the server.

use std::net::IpAddr;

use quintet_types::Operation;
use serde::{Deserialize, Serialize};

use crate::{Did, words};

/// A line for the audit.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// A user, or an account of the server's machine; empty: the server itself.
    pub who: &'a str,
    pub from: Option<IpAddr>,
    pub operation: Operation,
    /// The protocol's own word, if it is not the operation's name.
    pub said: Option<&'a str>,
    /// Which queue or the like.
    pub what: &'a str,
    /// `ok`, or the word of an error.
    pub result: &'a str,
    pub did: Did,
    /// It is done in steps, and whether this is not the first: those that follow one another are
    /// few lines, with their number.
    pub step: Option<bool>,
}

impl Entry<'_> {
    /// Of the server itself, and done.
    pub fn of(operation: Operation) -> Self {
        Self {
            who: "",
            from: None,
            operation,
            said: None,
            what: "",
            result: "ok",
            did: Did::default(),
            step: None,
        }
    }
}

/// Where it is written.
pub trait AuditLog: Send + Sync {
    /// Writes a line.
    fn write(&self, entry: &Entry<'_>);
}

/// A line of the audit, as the file has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuditLine {
    /// Wall clock, ms since 1970.
    pub at_ms: u64,
    /// A user, an account of this machine (`uid 0`), or nothing for the server.
    pub who: String,
    /// The client's address; nothing on this machine.
    pub from: String,
    /// `login`, `reload`, a command.
    pub act: String,
    /// The same in the words of all protocols ([`Operation`]).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub operation: String,
    /// Which queue or the like.
    pub what: String,
    /// `ok`, or the word of an error.
    pub result: String,
    /// Of an act in steps, how many more of them came since the line before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub steps: u64,
    /// Messages it was done to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<u64>,
    /// The id that its message has from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_id: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl AuditLine {
    /// Its result, and the number of steps.
    pub fn result_text(&self) -> String {
        let mut reported = self.result.clone();
        if let Some(messages) = self.messages {
            let messages = words::of(messages, "message", "messages");
            reported.push_str(&format!(", {messages}"));
        }
        if let Some(id) = self.new_id {
            reported.push_str(&format!(", now message {id}"));
        }
        match self.steps {
            0 => {}
            1 => reported.push_str(" (1 step more)"),
            steps => reported.push_str(&format!(" ({steps} steps more)")),
        }
        reported
    }

    /// As an operator reads it.
    pub fn line(&self) -> String {
        let shown = |text: &str| match text {
            "" => "-".to_owned(),
            text => text.to_owned(),
        };
        format!(
            "{} {} {} {} {} {}",
            words::utc(self.at_ms),
            shown(&self.who),
            shown(&self.from),
            self.act,
            shown(&self.what),
            self.result_text()
        )
    }
}
