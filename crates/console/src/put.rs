//! The form that puts a message.

use askama::Template;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hyper::StatusCode;
use quintet_client::Did;
use quintet_types::{Body, Command, CommandError, Edit, Message, Name, Outcome, Verb, When};

use super::frame::Frame;
use super::names::{self, Named};
use super::{Answer, PageRequest, Posted, body, render, words};
use quintet_api::{DURATION_MAX_MS, Dedupe, NewMessage, Path, Problem, SMALL, version};
use quintet_http::{DoneWith, Form, reply};

/// Attributes that the form has room for.
const ATTRIBUTES: usize = 4;

/// Text of a field, and the error in it.
#[derive(Clone, Default)]
struct Field {
    value: String,
    wrong: Option<String>,
}

#[derive(Template, Default)]
#[template(path = "put.html")]
struct Put {
    frame: Frame,
    queue: Field,
    body: Field,
    base64: bool,
    delay: Field,
    ttl: Field,
    ttr: Field,
    priority: Field,
    key: Field,
    dedupe: Field,
    attributes: Vec<(usize, String, String)>,
    again: bool,
    /// Where Cancel leads: the queue it came from.
    back: Option<Named>,
    wrong: Option<String>,
}

impl Put {
    fn of(form: &Form) -> Self {
        let field = |name: &str| Field {
            value: form.get(name).unwrap_or_default().to_owned(),
            wrong: None,
        };
        let names = form.all("attr_name").chain(std::iter::repeat(""));
        let values = form.all("attr_value").chain(std::iter::repeat(""));
        let rows = form.all("attr_name").count().max(ATTRIBUTES);
        let pairs = names.zip(values).take(rows).enumerate();
        Self {
            queue: field("queue"),
            body: field("body"),
            base64: form.get("as") == Some("base64"),
            delay: field("delay"),
            ttl: field("ttl"),
            ttr: field("ttr"),
            priority: field("priority"),
            key: field("key"),
            dedupe: field("dedupe"),
            attributes: pairs
                .map(|(at, (name, value))| (at + 1, name.to_owned(), value.to_owned()))
                .collect(),
            again: form.says("again"),
            ..Self::default()
        }
    }

    /// The message, or `None` with what is wrong beside each field.
    fn read(&mut self) -> Option<(Name, NewMessage)> {
        let queue = Name::of_shown(&self.queue.value);
        if !queue.is_possible() {
            self.queue.wrong = Some("A name has 1 to 65,535 bytes.".to_owned());
        }
        let delay_ms = duration(&mut self.delay);
        let ttl_ms = duration(&mut self.ttl);
        let ttr_ms = duration(&mut self.ttr);
        let priority = match self.priority.value.trim() {
            "" => None,
            text => {
                let priority = text.parse().ok();
                if priority.is_none() {
                    self.priority.wrong = Some("A number from 0 to 4,294,967,295.".to_owned());
                }
                priority
            }
        };
        let typed = |field: &Field| Some(field.value.clone()).filter(|text| !text.is_empty());
        // Browsers send lines with a carriage return that nobody typed.
        let body = self.body.value.replace("\r\n", "\n");
        let (body, body_base64) = match self.base64 {
            false => (Some(body), None),
            true => (None, Some(body.split_whitespace().collect())),
        };
        let attributes = self.attributes.iter();
        let message = NewMessage {
            body,
            body_base64,
            key: typed(&self.key),
            headers: attributes
                .filter(|(_, name, _)| !name.is_empty())
                .map(|(_, name, value)| (name.clone(), value.clone()))
                .collect(),
            priority,
            delay_ms,
            ttl_ms,
            ttr_ms,
            dedupe: typed(&self.dedupe).map(|id| Dedupe {
                id,
                window_ms: None,
                until: None,
                on_repeat: None,
            }),
            ..NewMessage::default()
        };
        let fields = [
            &self.queue,
            &self.delay,
            &self.ttl,
            &self.ttr,
            &self.priority,
        ];
        let right = fields.iter().all(|field| field.wrong.is_none());
        right.then_some((queue, message))
    }

    fn shown(mut self, status: StatusCode, frame: &Frame) -> Response {
        let queue = Name::of_shown(&self.queue.value);
        self.back = queue.is_possible().then(|| Named::new(&queue));
        self.frame = frame.of("Put a message", "queues");
        reply::show(status, &self)
    }

    /// Says what the server does not want beside the field it is about.
    fn refused(&mut self, problem: &Problem) {
        let says = Some(problem.detail.clone());
        match problem.field.as_deref() {
            Some(field) if field.ends_with("body_base64") => self.body.wrong = says,
            Some(field) => {
                let name = field.rsplit("].").next().unwrap_or(field);
                self.wrong = Some(format!("{name}: {}", problem.detail));
            }
            None => self.wrong = says,
        }
    }
}

fn duration(field: &mut Field) -> Option<u64> {
    if field.value.trim().is_empty() {
        return None;
    }
    match words::typed_duration(&field.value) {
        Ok(ms) if ms <= DURATION_MAX_MS => Some(ms),
        wrong => {
            let why = wrong.err().unwrap_or("3660d at most.");
            field.wrong = Some(why.to_owned());
            None
        }
    }
}

/// The form; with `copy` filled from a message.
pub(super) async fn page(context: PageRequest) -> Answer {
    let query = context.query()?;
    let mut form = Put::of(&query);
    if let Some(id) = query.get("copy") {
        let (message, queue) = context.message(id).await?;
        let body = small(&message)?;
        form.queue.value = queue.to_string();
        (form.base64, form.body.value) = typed_body(body);
        form.key.value = message
            .key()
            .map(|key| names::plain(key))
            .unwrap_or_default();
        form.priority.value = message.priority.to_string();
        form.ttr.value = message.ttr_ms.map_or(String::new(), |ms| format!("{ms}ms"));
        let attrs = message
            .extra
            .as_deref()
            .map_or(&[][..], |extra| &extra.attrs);
        let attrs = attrs
            .iter()
            .filter(|(name, _)| !name.starts_with(b"dead_letter_"));
        // What is no text cannot be typed.
        let attrs = attrs.filter_map(|(name, value)| {
            let name = std::str::from_utf8(name).ok()?.to_owned();
            Some((name, std::str::from_utf8(value).ok()?.to_owned()))
        });
        form.attributes = attrs
            .chain(std::iter::repeat_n(Default::default(), ATTRIBUTES))
            .enumerate()
            .map(|(at, (name, value))| (at + 1, name, value))
            .collect();
    }
    Ok(form.shown(StatusCode::OK, &context.frame))
}

/// The body of a message that fits into a form.
fn small(message: &Message) -> Result<&[u8], Problem> {
    let body = message.body.as_small();
    body.ok_or_else(|| {
        let detail = format!("larger than {} KiB: download it", SMALL >> 10);
        Problem::field("body", detail)
    })
}

/// Whether a form has bytes as base64, and what stands in it.
fn typed_body(body: &[u8]) -> (bool, String) {
    match std::str::from_utf8(body) {
        // A form has no other line ends, and a browser no control characters.
        Ok(text) if !body::is_binary(body, false) && !text.contains('\r') => {
            (false, text.to_owned())
        }
        _ => (true, BASE64_STANDARD.encode(body)),
    }
}

#[derive(Template)]
#[template(path = "edit.html")]
struct Edited {
    frame: Frame,
    id: u64,
    queue: Named,
    body: String,
    base64: bool,
    priority: u32,
    /// The message as it is looked at.
    seen: String,
}

/// `/messages/ID/edit`.
pub(super) async fn edit_page(context: PageRequest, Path(id): Path<String>) -> Answer {
    let (message, queue) = context.message(&id).await?;
    if !context.requester.may_to(Verb::Edit, &queue) {
        return Err(Problem::refused(CommandError::NotPermitted));
    }
    let (base64, body) = typed_body(small(&message)?);
    render(&Edited {
        frame: context.frame.of(format!("Edit {}", message.id.0), "queues"),
        id: message.id.0,
        queue: Named::new(&queue),
        body,
        base64,
        priority: message.priority,
        seen: version(&message),
    })
}

/// `POST /messages/ID/edit`: what is another is changed, if nobody else changed the message.
pub(super) async fn edit(Path(id): Path<String>, Posted(context, submitted): Posted) -> Answer {
    let (message, queue) = context.message(&id).await?;
    let field = |name: &str| submitted.form.get(name).unwrap_or_default();
    let typed = field("body").replace("\r\n", "\n");
    let body = match submitted.form.get("as") == Some("base64") {
        false => typed.into_bytes(),
        true => {
            let typed: String = typed.split_whitespace().collect();
            let wrong = |_| Problem::field("body", "takes base64: choose Text to write plain text");
            BASE64_STANDARD.decode(typed).map_err(wrong)?
        }
    };
    if body.len() > SMALL {
        let why = format!("at most {} KiB", SMALL >> 10);
        return Err(Problem::field("body", why));
    }
    let priority = field("priority")
        .trim()
        .parse()
        .map_err(|_| Problem::field("priority", "takes a number from 0 to 4,294,967,295"))?;
    let mut due = Field {
        value: field("delay").to_owned(),
        wrong: None,
    };
    let delay_ms = duration(&mut due);
    if let Some(wrong) = due.wrong {
        return Err(Problem::field("delay", wrong));
    }
    let edit = Edit {
        body: (Some(&body[..]) != message.body.as_small()).then(|| Body::new(&body)),
        priority: (priority != message.priority).then_some(priority),
        due: delay_ms.map(When::In),
        ..Edit::default()
    };
    let (app, now) = (&context.console.app, message.id.0);
    if edit == Edit::default() {
        let note = "Nothing was changed.".to_owned();
        return context.redirect(&format!("messages/{now}"), note);
    }
    let command = Command::Edit(message.id, Box::new(edit));
    let (api, seen) = (&context.console.api, Some(field("seen").to_owned()));
    let outcome = api
        .guarded(&context.requester, message.id, seen, command)
        .await?;
    let (now, new_id, note) = if let Outcome::Put { id, .. } = outcome {
        let note = format!("Changed: the message has the id {} now.", id.0);
        (id.0, Some(id.0), note)
    } else {
        (now, None, "Changed.".to_owned())
    };
    let mut response = app.redirect(&format!("messages/{now}"), note);
    let extensions = response.extensions_mut();
    extensions.insert(DoneWith(format!("of {queue}")));
    extensions.insert(Did {
        messages: None,
        new_id,
    });
    Ok(response)
}

/// Puts what the form says, and goes to the message.
pub(super) async fn put(Posted(context, submitted): Posted) -> Answer {
    let mut form = Put::of(&submitted.form);
    let Some((queue, message)) = form.read() else {
        return Ok(form.shown(StatusCode::BAD_REQUEST, &context.frame));
    };
    let stored = async {
        let put = context.console.api.new_put(&queue, message, 0, None);
        context.ask(Command::Put(put.await?)).await
    };
    let id = match stored.await {
        Ok(Outcome::Put { id, .. }) => id.0,
        Ok(_) => return Err(Problem::unexpected()),
        Err(problem) => {
            let status = StatusCode::from_u16(problem.status);
            form.refused(&problem);
            let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            return Ok(form.shown(status, &context.frame).into_response());
        }
    };
    let name = names::in_address(&queue);
    let note = format!(
        "Message {id} was put into {}.",
        names::plain(queue.as_bytes())
    );
    if form.again {
        let typed: String = form_urlencoded::Serializer::new(String::new())
            .append_pair("queue", &form.queue.value)
            .finish();
        return context.redirect(&format!("put?{typed}&again=on"), note);
    }
    // A user that may put may not always peek; and a put that is passed on is 0.
    match id {
        0 => context.redirect(&format!("queues/{name}"), "The message was put."),
        id => context.redirect(&format!("messages/{id}"), note),
    }
}
