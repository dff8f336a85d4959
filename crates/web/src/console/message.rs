//! A message: its body, and all that is known of it.

use askama::Template;
use axum::response::Response;
use hyper::StatusCode;
use quintet_engine::{ListState, Message, Ms};

use super::batches::{self, Member};
use super::body::{self, SHOWN};
use super::frame::Frame;
use super::names::{self, Named, Piece};
use super::queue::May;
use super::run::{self, Log};
use super::{Asked, assets, listing, words};
use crate::api::{Path, Problem};
use crate::pages;

/// A fact: its word, what it is, and what is said below.
struct Fact {
    word: &'static str,
    text: String,
    below: String,
}

struct Attribute {
    name: Vec<Piece>,
    value: Vec<Piece>,
}

struct File {
    name: Vec<Piece>,
    about: String,
}

#[derive(Template)]
#[template(path = "console/message.html")]
struct Shown {
    frame: Frame,
    id: u64,
    queue: Named,
    state: &'static str,
    may: May,
    can_retry: bool,
    reserved: bool,
    status: Vec<Piece>,
    size: String,
    empty: bool,
    /// Longer than is shown.
    cut: bool,
    text: Vec<Piece>,
    json: Option<String>,
    hex: String,
    facts: Vec<Fact>,
    attributes: Vec<Attribute>,
    files: Vec<File>,
    from: Option<Named>,
    batch: Option<Member>,
    log: Option<Log>,
    log_script: &'static str,
}

/// `/messages/ID`.
pub(super) async fn page(asked: Asked, Path(id): Path<String>) -> Result<Response, Problem> {
    let (message, queue) = asked.message(&id).await?;
    let door = asked.console.api.door();
    let now = door.now();
    let body = message.body.clone();
    let head = tokio::task::spawn_blocking(move || {
        let mut head = vec![0; SHOWN];
        let read = door.read(&body, 0, &mut head)?;
        head.truncate(read);
        Ok::<_, std::io::Error>(head)
    });
    let head = head
        .await
        .map_err(|error| Problem::internal(error.to_string()))?;
    let head = head.map_err(|error| Problem::internal(error.to_string()))?;
    let state = listing::state_of(&message, now);
    let log = run::log(&asked, &message, &queue, state).await?;
    let name = Named::new(&queue);
    let extra = message.extra.as_deref();
    let attributes = extra.map_or(&[][..], |extra| &extra.attrs).iter();
    let files = extra.map_or(&[][..], |extra| &extra.attachments).iter();
    let cut = message.body.len() > SHOWN as u64;
    let page = Shown {
        frame: asked
            .frame
            .of(format!("{} of {}", message.id.0, name.plain), "queues"),
        id: message.id.0,
        state: listing::word(state),
        may: May::of(&asked.visitor, &queue),
        can_retry: matches!(state, ListState::Buried | ListState::Delayed),
        reserved: state == ListState::Reserved,
        status: extra
            .map(|extra| names::first_line(&extra.status))
            .unwrap_or_default(),
        size: words::bytes(message.body.len()),
        empty: message.body.is_empty(),
        cut,
        json: body::json(&head).filter(|_| !cut),
        text: body::text(&head),
        hex: body::hex(&head),
        facts: facts(&asked, &message, now),
        attributes: attributes
            .map(|(name, value)| Attribute {
                name: names::pieces(name),
                value: names::pieces(value),
            })
            .collect(),
        files: files
            .map(|file| File {
                name: names::pieces(&file.name),
                about: words::bytes(file.len),
            })
            .collect(),
        from: message.came_from().as_ref().map(Named::new),
        batch: match message.tie() {
            Some(tie) => Some(batches::of(&asked, tie).await),
            None => None,
        },
        log,
        log_script: &assets::LOG_SCRIPT.name,
        queue: name,
    };
    Ok(pages::show(StatusCode::OK, &page))
}

fn facts(asked: &Asked, message: &Message, now: Ms) -> Vec<Fact> {
    let ahead = asked.console.api.door();
    let wall = move |at: Ms| {
        // What is stored is engine time; people read the wall clock.
        let ahead = quintet_engine::WallAhead::between(ahead.now(), ahead.wall());
        words::moment(ahead.wall_at(at).0)
    };
    let extra = message.extra.as_deref();
    let plain = |word, text: String| Fact {
        word,
        text,
        below: String::new(),
    };
    let mut all = vec![Fact {
        word: "Age",
        text: words::duration(now.since(message.created)),
        below: format!("put {}", wall(message.created)),
    }];
    if let Some(due) = message.due().filter(|due| *due > now) {
        all.push(Fact {
            word: "Due in",
            text: words::duration(due.since(now)),
            below: wall(due),
        });
    }
    all.push(plain("Attempts", words::count(u64::from(message.reserves))));
    if let Some(extra) = extra {
        for (word, number) in [
            ("Leases that ran out", extra.timeouts),
            ("Released", extra.releases),
            ("Buried", extra.buries),
            ("Kicked", extra.kicks),
        ] {
            if number > 0 {
                all.push(plain(word, words::count(u64::from(number))));
            }
        }
    }
    all.push(plain("Rank", message.rank.to_string()));
    if let Some(key) = message.key() {
        all.push(plain("Key", names::plain(key)));
    }
    all.push(plain(
        "Time to run",
        match message.ttr_ms {
            None => "as the queue says".to_owned(),
            Some(0) => "no end".to_owned(),
            Some(ms) => words::duration(ms),
        },
    ));
    all.push(match message.expires() {
        None => plain("Expires", "never".to_owned()),
        Some(at) => Fact {
            word: "Expires in",
            text: words::duration(at.since(now)),
            below: wall(at),
        },
    });
    all
}
