//! Messages: made, shown, changed.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use hyper::{StatusCode, Uri};
use quintet_scripts::rules::queue_of;
use quintet_scripts::{Fault, Method, NewMessage, Rq};
use quintet_types::{CommandError, Operation, Verb};
use serde_json::{Map, Value, json};

use super::{Answer, OfMessage, Posted, back, escaped, existing, problem, told};
use crate::app::App;
use crate::pages;
use quintet_http::{
    DoneWith, Problem, RequestBody, Requester,
    gate::not_permitted,
    reply::{self, document, result_value},
};

/// The form for a message, shaped by the queue's `form.json`.
pub(super) async fn new_page(
    State(app): State<Arc<App>>,
    Path(queue): Path<String>,
    uri: Uri,
) -> Answer {
    let requested = queue.clone();
    let shape = app
        .ask(move |rq| existing(rq, &requested).map(|()| rq.queue_form(&requested)))
        .await?
        .map_err(|fault| problem(&fault))?;
    let hidden_unless_named = shape["default"] == "hidden";
    let field = |name: &'static str| {
        let about = &shape[format!("mesg_{name}")];
        let text = |key: &str| about[key].as_str().map(str::to_owned);
        pages::FormField {
            name,
            label: text("label").unwrap_or_else(|| name.to_owned()),
            help: text("help").unwrap_or_default(),
            hidden: about == "hidden" || (hidden_unless_named && about.is_null()),
        }
    };
    let names = [
        "src",
        "param1",
        "param2",
        "param3",
        "param4",
        "count",
        "max_count",
        "due",
        "post_run_webhook",
    ];
    let page = pages::NewMessage {
        root: &app.http.settings().relative_root,
        notice: app.notice(&uri),
        name: &queue,
        seen: pages::seen(&queue),
        dest: queue.clone(),
        fields: names.into_iter().map(field).collect(),
    };
    Ok(reply::show(StatusCode::OK, &page))
}

/// Takes a message as JSON, as JSON in a form, or as a form's fields.
pub(super) async fn create(
    Path(queue): Path<String>,
    Extension(requester): Extension<Requester>,
    Posted(app, form): Posted,
) -> Answer {
    let html = form.json.is_none() && form.form.get("x_format") == Some("html");
    let mut fields = fields(&form, html)?;
    // Either a list, or words in a text.
    if let Some(Value::String(hooks)) = fields.get("post_run_webhook") {
        let hooks: Vec<&str> = hooks.split_whitespace().collect();
        let hooks = Value::from(hooks);
        fields.insert("post_run_webhook".to_owned(), hooks);
    }
    let method = match fields.get("_method") {
        None | Some(Value::Null) => Method::Commit,
        Some(word) => word
            .as_str()
            .and_then(Method::parse)
            .ok_or_else(|| Problem::bad("Invalid method param"))?,
    };
    let requested = queue.clone();
    let result = app
        .ask(move |rq| {
            let message = NewMessage::from_json(&Value::Object(fields))?;
            // The router sends it on as the server.
            let dest = message.dest.as_deref().filter(|dest| !dest.is_empty());
            let to = dest.filter(|_| rq.routes(&requested)).and_then(queue_of);
            if to.is_some_and(|to| !requester.may(Verb::Put, to)) {
                return Err(Fault::Refused(CommandError::NotPermitted));
            }
            rq.create_routed(&requested, message, method)
        })
        .await?;
    if let Err(Fault::Refused(CommandError::NotPermitted)) = &result {
        return Err(not_permitted());
    }
    let result = told(result)?;
    if !html {
        let mut response = document(&result_value(&result));
        if matches!(result, Err(Fault::Down)) {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        return Ok(response);
    }
    if matches!(result, Err(Fault::Down)) {
        return Err(problem(&Fault::Down));
    }
    let notice = match &result {
        Ok(id) => format!("Created message {id}"),
        Err(fault) => format!("Error creating message: {fault}"),
    };
    if form.form.says("back") {
        return Ok(back(&app, &form.form, &queue, notice));
    }
    let page = pages::Text {
        root: &app.http.settings().relative_root,
        notice: None,
        title: pages::seen(&queue),
        text: pages::seen(&notice),
    };
    Ok(reply::show(StatusCode::OK, &page))
}

/// The message's fields, wherever they stand.
fn fields(form: &RequestBody, html: bool) -> Result<Map<String, Value>, Problem> {
    if html {
        let mut fields = form.form.object("mesg").unwrap_or_default();
        // A form sends its empty boxes too.
        fields.retain(|_, value| value != "");
        return Ok(fields);
    }
    let parsed = match (&form.json, form.form.get("mesg")) {
        (Some(body), _) => serde_json::from_slice(body),
        (None, Some(mesg)) => serde_json::from_str(mesg),
        (None, None) => return Err(Problem::bad("Missing mesg param")),
    };
    match parsed {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(Problem::bad("mesg is not a JSON object")),
        Err(error) => Err(Problem::bad(format!("mesg is not JSON: {error}"))),
    }
}

/// A message as a page or, with `.json` behind its id, as JSON.
pub(super) async fn show(
    State(app): State<Arc<App>>,
    Path((queue, last)): OfMessage,
    uri: Uri,
) -> Answer {
    let (id, json) = match last.strip_suffix(".json") {
        Some(id) => (id.to_owned(), true),
        None => (last, false),
    };
    if json {
        return app
            .document(move |rq| {
                let message = existing(rq, &queue).and_then(|()| rq.message(&queue, &id));
                message.map_err(|fault| problem(&fault))
            })
            .await;
    }
    let (requested, which) = (queue.clone(), id.clone());
    let message = app
        .ask(move |rq| existing(rq, &requested).and_then(|()| rq.message(&requested, &which)))
        .await?
        .map_err(|fault| problem(&fault))?;
    let mut page = pages::Message::new(&app.http.settings().relative_root, &queue, &id, &message);
    page.notice = app.notice(&uri);
    Ok(reply::show(StatusCode::OK, &page))
}

/// `["done"]`.
pub(super) async fn state(State(app): State<Arc<App>>, Path((queue, id)): OfMessage) -> Answer {
    let state = app
        .ask(move |rq| existing(rq, &queue).and_then(|()| rq.state(&queue, &id)))
        .await?
        .map_err(|fault| problem(&fault))?;
    Ok(document(&json!([state])))
}

/// The effect of a `_method`, its name in a notice, and whether the message is still there to be
/// shown after it.
struct Act {
    run: fn(&Rq, &str, &str) -> Result<(), Fault>,
    operation: Operation,
    /// RQ's reply to it, spelt as RQ does.
    done: &'static str,
    notice: &'static str,
    stays: bool,
}

fn act_of(method: Option<&str>) -> Option<Act> {
    Some(match method? {
        "delete" => Act {
            run: |rq, queue, id| rq.delete(queue, id),
            operation: Operation::Delete,
            done: "msg deleted",
            notice: "Message deleted successfully",
            stays: false,
        },
        "destroy" => Act {
            run: |rq, queue, id| rq.destroy(queue, id),
            operation: Operation::Destroy,
            done: "msg destroyed",
            notice: "Message destroyed successfully",
            stays: false,
        },
        "commit" => Act {
            run: |rq, queue, id| rq.commit(queue, id),
            operation: Operation::Commit,
            done: "msg commited",
            notice: "Message committed successfully",
            stays: true,
        },
        "run_now" => Act {
            run: |rq, queue, id| rq.run_now(queue, id),
            operation: Operation::RunNow,
            done: "msg set to run now",
            notice: "Message in run successfully",
            stays: true,
        },
        _ => return None,
    })
}

/// Does to a message what `_method` says.
pub(super) async fn act(
    state: State<Arc<App>>,
    path: OfMessage,
    requester: Extension<Requester>,
    request: Request,
) -> Response {
    let mut operation = Operation::Work;
    let done = act_by(state, path, requester, request, &mut operation);
    let mut response = done.await.unwrap_or_else(IntoResponse::into_response);
    let extensions = response.extensions_mut();
    extensions.insert(operation);
    extensions.insert(DoneWith(operation.name().to_owned()));
    response
}

/// [`act`]; `operation`: what was asked for, if anything was.
async fn act_by(
    State(app): State<Arc<App>>,
    Path((queue, id)): OfMessage,
    Extension(requester): Extension<Requester>,
    request: Request,
    operation: &mut Operation,
) -> Answer {
    let form = app.http.form(request).await?;
    let method = form.form.get("_method");
    let act = act_of(method).ok_or_else(|| Problem::bad("Invalid method param"))?;
    *operation = act.operation;
    requester.must(act.operation, &queue)?;
    let json = form.form.get("x_format") == Some("json");
    let (requested, which, run) = (queue.clone(), id.clone(), act.run);
    let result = app
        .ask(move |rq| existing(rq, &requested).and_then(|()| run(rq, &requested, &which)))
        .await?;
    let result = told(result)?.map(|()| act.done);
    if json {
        return Ok(document(&result_value(&result.map_err(gone))));
    }
    let queue_page = format!("q/{}", escaped(&queue));
    let message_page = format!("{queue_page}/{id}", id = escaped(&id));
    Ok(match result {
        Ok(_) if act.stays => app.http.redirect(&message_page, act.notice.to_owned()),
        Ok(_) => app.http.redirect(&queue_page, act.notice.to_owned()),
        Err(fault) => {
            let notice = format!("{} got {}", method.unwrap_or_default(), gone(fault));
            app.http.redirect(&message_page, notice)
        }
    })
}

/// RQ's words for a message that is not there to be changed; relays wait for
/// them.
pub(super) fn gone(fault: Fault) -> String {
    match matches!(fault, Fault::MessageNotFound) {
        true => "cannot find message".to_owned(),
        false => fault.to_string(),
    }
}

pub(super) async fn clone(Path((queue, id)): OfMessage, Posted(app, form): Posted) -> Answer {
    let requested = queue.clone();
    let result = app
        .ask(move |rq| existing(rq, &requested).and_then(|()| rq.clone_message(&requested, &id)))
        .await?;
    let page = format!("q/{}", escaped(&queue));
    changed(&app, &form, result, &page, "Message cloned successfully")
}

pub(super) async fn run_now(Path((queue, id)): OfMessage, Posted(app, form): Posted) -> Answer {
    let (requested, which) = (queue.clone(), id.clone());
    let result = app
        .ask(move |rq| existing(rq, &requested).and_then(|()| rq.run_now(&requested, &which)))
        .await?;
    let result = result.map(|()| "msg set to run now".to_owned());
    let page = format!("q/{}/{}", escaped(&queue), escaped(&id));
    changed(&app, &form, result, &page, "Message in run successfully")
}

/// The reply to a change, in the format that was asked for.
fn changed(
    app: &App,
    form: &RequestBody,
    result: Result<String, Fault>,
    page: &str,
    notice: &str,
) -> Answer {
    let json = form.form.get("x_format") == Some("json");
    match result {
        Err(fault) if !json || fault == Fault::Refused(CommandError::Unknown) => {
            Err(problem(&fault))
        }
        result if json => Ok(document(&result_value(&result.map_err(gone)))),
        _ => Ok(app.http.redirect(page, notice.to_owned())),
    }
}
