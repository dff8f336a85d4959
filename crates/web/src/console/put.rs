//! The form that puts a message.

use askama::Template;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use hyper::StatusCode;
use quintet_engine::{Command, Name, Outcome};

use super::frame::Frame;
use super::names::{self, Named};
use super::{Asked, words};
use crate::api::{Dedupe, NewMessage, Problem};
use crate::form::Form;
use crate::pages;

/// Attributes that the form has room for.
const ATTRIBUTES: usize = 4;

/// What was typed into a field, and what is wrong with it.
#[derive(Clone, Default)]
struct Field {
    value: String,
    wrong: Option<String>,
}

#[derive(Template, Default)]
#[template(path = "console/put.html")]
struct Put {
    frame: Frame,
    queue: Field,
    body: Field,
    base64: bool,
    delay: Field,
    ttl: Field,
    ttr: Field,
    rank: Field,
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
        let pairs = names.zip(values).take(ATTRIBUTES).enumerate();
        Self {
            queue: field("queue"),
            body: field("body"),
            base64: form.get("as") == Some("base64"),
            delay: field("delay"),
            ttl: field("ttl"),
            ttr: field("ttr"),
            rank: field("rank"),
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
        let rank = match self.rank.value.trim() {
            "" => None,
            text => {
                let rank = text.parse().ok();
                if rank.is_none() {
                    self.rank.wrong = Some("A number from 0 to 4,294,967,295.".to_owned());
                }
                rank
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
            name: None,
            tracked: false,
            headers: attributes
                .filter(|(_, name, _)| !name.is_empty())
                .map(|(_, name, value)| (name.clone(), value.clone()))
                .collect(),
            rank,
            delay_ms,
            ttl_ms,
            ttr_ms,
            dedupe: typed(&self.dedupe).map(|id| Dedupe {
                id,
                window_ms: None,
                until: None,
                on_repeat: None,
            }),
            batch: None,
        };
        let fields = [&self.queue, &self.delay, &self.ttl, &self.ttr, &self.rank];
        let right = fields.iter().all(|field| field.wrong.is_none());
        right.then_some((queue, message))
    }

    fn shown(mut self, status: StatusCode, frame: &Frame) -> Response {
        let queue = Name::of_shown(&self.queue.value);
        self.back = queue.is_possible().then(|| Named::new(&queue));
        self.frame = frame.of("Put a message", "queues");
        pages::show(status, &self)
    }

    /// Says what the server does not want beside the field it is about.
    fn refused(&mut self, problem: &Problem) {
        let says = Some(problem.detail.clone());
        match problem.field.as_deref() {
            Some(field) if field.ends_with("body_base64") => self.body.wrong = says,
            _ => self.wrong = says,
        }
    }
}

fn duration(field: &mut Field) -> Option<u64> {
    if field.value.trim().is_empty() {
        return None;
    }
    match words::typed_duration(&field.value) {
        Ok(ms) => Some(ms),
        Err(why) => {
            field.wrong = Some(why.to_owned());
            None
        }
    }
}

/// The form.
pub(super) async fn page(asked: Asked) -> Result<Response, Problem> {
    let form = Put::of(&asked.query()?);
    Ok(form.shown(StatusCode::OK, &asked.frame))
}

/// Puts what the form says, and goes to the message.
pub(super) async fn put(asked: Asked, request: Request) -> Result<Response, Problem> {
    let given = asked.console.app.form(request).await?;
    asked.must_be_ours(&given.form)?;
    let mut form = Put::of(&given.form);
    let Some((queue, message)) = form.read() else {
        return Ok(form.shown(StatusCode::BAD_REQUEST, &asked.frame));
    };
    let stored = async {
        let put = asked.console.api.new_put(&queue, message, 0, None).await?;
        asked.ask(Command::Put(put)).await
    };
    let id = match stored.await {
        Ok(Outcome::Put { id, .. }) => id.0,
        Ok(_) => return Err(Problem::unexpected()),
        Err(problem) => {
            let status = StatusCode::from_u16(problem.status);
            form.refused(&problem);
            let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            return Ok(form.shown(status, &asked.frame).into_response());
        }
    };
    let app = &asked.console.app;
    let name = names::in_address(&queue);
    let note = format!(
        "Put as message {id} into {}.",
        names::plain(queue.as_bytes())
    );
    if form.again {
        let typed: String = form_urlencoded::Serializer::new(String::new())
            .append_pair("queue", &form.queue.value)
            .finish();
        return Ok(app.redirect(&format!("put?{typed}&again=on"), note));
    }
    // Whoever may put may not always look; and a put that is passed on is 0.
    match id {
        0 => Ok(app.redirect(&format!("queues/{name}"), "Put.".to_owned())),
        id => Ok(app.redirect(&format!("messages/{id}"), note)),
    }
}
