//! The pages, as their templates want them. Everything in them is escaped.

use askama::Template;
use quintet_client::shown::plain;
use serde_json::Value;

/// Text of a page with what nobody sees, or what turns it around, as `\xNN`.
pub(crate) fn seen(text: &str) -> String {
    plain(text.as_bytes())
}

/// A queue's row in the list of queues.
pub(crate) struct QueueRow {
    pub(crate) name: String,
    pub(crate) seen: String,
    pub(crate) status: &'static str,
    /// In the order of the states.
    pub(crate) sizes: [u64; 7],
}

#[derive(Template)]
#[template(path = "main.html")]
pub(crate) struct Main<'a> {
    pub(crate) root: &'a str,
    pub(crate) notice: Option<String>,
    /// A warning for the operator.
    pub(crate) warning: Option<String>,
    pub(crate) queues: Vec<QueueRow>,
    pub(crate) uptime: u64,
    pub(crate) version: &'a str,
    pub(crate) allow_new_queue: bool,
}

/// Some messages of one state.
pub(crate) struct StateList {
    pub(crate) name: &'static str,
    pub(crate) size: u64,
    pub(crate) ids: Vec<String>,
}

#[derive(Template)]
#[template(path = "queue.html")]
pub(crate) struct Queue<'a> {
    pub(crate) root: &'a str,
    pub(crate) notice: Option<String>,
    pub(crate) name: &'a str,
    pub(crate) seen: String,
    pub(crate) status: &'static str,
    /// How many somebody could acknowledge.
    pub(crate) errors: u64,
    pub(crate) states: Vec<StateList>,
}

/// An attachment's line.
pub(crate) struct FileLine {
    pub(crate) name: String,
    pub(crate) seen: String,
    pub(crate) size: String,
    pub(crate) md5: String,
}

#[derive(Template)]
#[template(path = "message.html")]
pub(crate) struct Message<'a> {
    pub(crate) root: &'a str,
    pub(crate) notice: Option<String>,
    pub(crate) name: &'a str,
    pub(crate) seen: String,
    pub(crate) id: &'a str,
    pub(crate) status: String,
    pub(crate) prepared: bool,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) attachments: Vec<FileLine>,
}

impl<'a> Message<'a> {
    /// From a message's JSON.
    pub(crate) fn new(root: &'a str, name: &'a str, id: &'a str, message: &Value) -> Self {
        let text = |value: &Value| match value.as_str() {
            Some(text) => text.to_owned(),
            None => value.to_string(),
        };
        let all = message.as_object();
        let mut fields = Vec::new();
        let mut attachments = Vec::new();
        for (key, value) in all.into_iter().flatten() {
            if key != "_attachments" {
                fields.push((key.clone(), text(value)));
                continue;
            }
            for (name, about) in value.as_object().into_iter().flatten() {
                attachments.push(FileLine {
                    name: name.clone(),
                    seen: seen(name),
                    size: text(&about["size"]),
                    md5: text(&about["md5"]),
                });
            }
        }
        Self {
            root,
            notice: None,
            name,
            seen: seen(name),
            id,
            status: text(&message["status"]),
            prepared: message["state"] == "prep",
            fields,
            attachments,
        }
    }
}

#[derive(Template)]
#[template(path = "tail.html")]
pub(crate) struct Tail<'a> {
    pub(crate) root: &'a str,
    pub(crate) notice: Option<String>,
    pub(crate) name: &'a str,
    pub(crate) id: &'a str,
    pub(crate) file_name: String,
    /// Its address.
    pub(crate) file: String,
}

pub(crate) struct FormField {
    pub(crate) name: &'static str,
    pub(crate) label: String,
    pub(crate) help: String,
    pub(crate) hidden: bool,
}

#[derive(Template)]
#[template(path = "new_message.html")]
pub(crate) struct NewMessage<'a> {
    pub(crate) root: &'a str,
    pub(crate) notice: Option<String>,
    pub(crate) name: &'a str,
    pub(crate) seen: String,
    pub(crate) dest: String,
    pub(crate) fields: Vec<FormField>,
}

#[derive(Template)]
#[template(path = "new_queue.html")]
pub(crate) struct NewQueue<'a> {
    pub(crate) root: &'a str,
    pub(crate) notice: Option<String>,
}

#[derive(Template)]
#[template(path = "text.html")]
pub(crate) struct Text<'a> {
    pub(crate) root: &'a str,
    pub(crate) notice: Option<String>,
    pub(crate) title: String,
    pub(crate) text: String,
}
