//! Replies of the manager and the queues, in RQ's words.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use quintet_client::Entry;
use quintet_client::shown::plain;
use quintet_types::{CommandError, Operation};
use serde_json::{Value, json};

use crate::admin::AdminOp;
use crate::config::{QueueConfig, text};
use crate::fault::Fault;
use crate::new::{Method, NewMessage};
use crate::record::STATES;
use crate::service::Rq;

/// Messages listed if the request does not say how many.
const LISTED: usize = 1000;

/// The reply to a payload.
pub(crate) fn answer(rq: &Arc<Rq>, queue: Option<&str>, payload: &[u8]) -> Option<Value> {
    let Ok(payload) = std::str::from_utf8(payload) else {
        return Some(fail("request is not UTF-8"));
    };
    let (command, argument) = payload.split_once(' ').unwrap_or((payload, ""));
    let answered = match queue {
        None => manager(rq, command, argument),
        Some(queue) => of_queue(rq, queue, command, argument),
    };
    note(rq, queue, (command, argument), &answered);
    match answered {
        // That it failed would be taken for not done.
        Err(Fault::Refused(CommandError::Unknown)) => None,
        answered => Some(answered.unwrap_or_else(fail)),
    }
}

/// Everyday work of programs. All other commands administer.
const WORK: &str = "attach_message clone_message commit_message config create_message \
                    delete_attach delete_attach_message environment get_message get_message_state \
                    get_message_status messages num_messages ping prep_message queues single_que \
                    status uptime version";

/// The operation of a command.
fn operation(command: &str) -> Operation {
    match command {
        "create_queue" | "create_queue_link" => Operation::NewQueue,
        "delete_queue" => Operation::DeleteQueue,
        "delete_message" => Operation::Delete,
        "destroy_message" => Operation::Destroy,
        "run_message" => Operation::RunNow,
        "pause_queue" | "pause" => Operation::Pause,
        "resume_queue" | "resume" => Operation::Resume,
        word if word.is_empty() || WORK.split(' ').any(|work| work == word) => Operation::Work,
        _ => Operation::OnQueue,
    }
}

/// Has the audit note a command that administers, without what may be secret in its argument.
fn note(
    rq: &Rq,
    queue: Option<&str>,
    (command, argument): (&str, &str),
    answered: &Result<Value, Fault>,
) {
    let result = match answered {
        // There is no such command.
        Ok(answer) if answer[0] == "error" || answer[0] == "ERROR" => return,
        Ok(_) => "ok",
        Err(Fault::Refused(CommandError::Unknown)) => "unknown",
        Err(_) => "failed",
    };
    let operation = operation(command);
    let audit = rq.options.audit.as_ref();
    let Some(audit) = audit.filter(|_| operation.is_recorded()) else {
        return;
    };
    let named = match object(argument) {
        Ok(fields) => text(fields.get("msg_id").or(fields.get("name"))).unwrap_or_default(),
        Err(_) => argument.to_owned(),
    };
    let what = match queue {
        Some(queue) => format!("{queue} {named}"),
        None => named,
    };
    audit.write(&Entry {
        said: Some(&format!("rq {command}")),
        what: &plain(what.trim_end().as_bytes()),
        result,
        ..Entry::of(operation)
    });
}

fn fail(why: impl ToString) -> Value {
    json!(["fail", why.to_string()])
}

fn manager(rq: &Arc<Rq>, command: &str, argument: &str) -> Result<Value, Fault> {
    let admin = |op| rq.admin(argument, op).map(|()| json!(["ok", argument]));
    Ok(match command {
        "ping" => json!(["pong"]),
        "environment" => json!([rq.options.env]),
        "version" => json!([env!("CARGO_PKG_VERSION")]),
        "uptime" => json!([rq.started.elapsed().as_secs()]),
        "queues" => json!(rq.queues()),
        "up_queue" | "up" => admin(AdminOp::Up)?,
        "down_queue" | "down" => admin(AdminOp::Down)?,
        "pause_queue" | "pause" => admin(AdminOp::Pause)?,
        "resume_queue" | "resume" => admin(AdminOp::Resume)?,
        "restart_queue" | "restart" => rq.restart(argument).map(|()| json!(["ok", argument]))?,
        "create_queue" => {
            rq.create_queue(QueueConfig::from_json(&object(argument)?, None)?)?;
            json!(["success", "queue created - awesome"])
        }
        "create_queue_link" => {
            rq.create_queue_link(Path::new(argument))?;
            json!(["success", "queue created - awesome"])
        }
        "delete_queue" => rq
            .delete_queue(argument)
            .map(|_| json!(["ok", "started deleting queue"]))?,
        _ => json!(["error"]),
    })
}

fn of_queue(rq: &Arc<Rq>, queue: &str, command: &str, argument: &str) -> Result<Value, Fault> {
    match command {
        "ping" => return Ok(json!(["pong"])),
        "uptime" => return Ok(json!([rq.queue(queue)?.uptime.as_secs()])),
        "config" => return Ok(json!(["ok", rq.queue_config(queue)?])),
        "status" => {
            let admin = rq.read_admin(queue);
            return Ok(json!([admin.word(), rq.queue(queue)?.status]));
        }
        // Queues are no processes here: this one stops by going down.
        "shutdown" => return rq.admin(queue, AdminOp::Down).map(|()| json!(["ok"])),
        "num_messages" => {
            let sizes = rq.queue(queue)?.sizes;
            return Ok(json!({
                "prep": sizes.prep, "que": sizes.que, "run": sizes.run, "pause": [],
                "done": sizes.done, "relayed": sizes.relayed, "err": sizes.err,
                "errack": sizes.errack,
            }));
        }
        "messages" => return messages(rq, queue, &object(argument)?),
        _ => {}
    }
    // All else is refused while the queue is down.
    rq.must_be_up(queue)?;
    let fields = || object(argument);
    let id = || id_of(&object(argument)?);
    let did = |done: Result<(), Fault>, text: &str| found(done).map(|()| json!(["ok", text]));
    Ok(match command {
        "create_message" => create(rq, queue, &fields()?, Method::Commit)?,
        "single_que" => create(rq, queue, &fields()?, Method::SingleQue)?,
        "prep_message" => create(rq, queue, &fields()?, Method::Prep)?,
        "attach_message" => {
            let fields = fields()?;
            attach(rq, queue, &id_of(&fields)?, &fields)?
        }
        "delete_attach_message" | "delete_attach" => {
            let fields = fields()?;
            let name = text(fields.get("attachment_name")).unwrap_or_default();
            rq.delete_attachment(queue, &id_of(&fields)?, &name)?;
            json!(["ok", "Attachment deleted successfully"])
        }
        "commit_message" => {
            match rq.commit(queue, &id()?) {
                Err(Fault::MessageNotFound) => return Ok(fail("cannot find message")),
                other => other?,
            }
            json!(["ok", "msg commited"])
        }
        "get_message" => json!(["ok", found(rq.message(queue, &id()?))?]),
        "get_message_state" => json!(["ok", found(rq.state(queue, &id()?))?]),
        "get_message_status" => json!(["ok", { "status": found(rq.status(queue, &id()?))? }]),
        "delete_message" => did(rq.delete(queue, &id()?), "msg deleted")?,
        "destroy_message" => did(rq.destroy(queue, &id()?), "msg destroyed")?,
        "run_message" => did(rq.run_now(queue, &id()?), "msg sent to front of run queue")?,
        "ack_errs" => json!(["ok", rq.ack_errs(queue)?]),
        "clone_message" => json!(["ok", found(rq.clone_message(queue, &id()?))?]),
        _ => json!(["ERROR"]),
    })
}

/// RQ's sockets say it in other words than its pages.
fn found<T>(answer: Result<T, Fault>) -> Result<T, Fault> {
    answer.map_err(|fault| match matches!(fault, Fault::MessageNotFound) {
        true => Fault::Failed("msg not found".to_owned()),
        false => fault,
    })
}

fn object(argument: &str) -> Result<Value, Fault> {
    match serde_json::from_str(argument) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(Fault::Failed("the argument is not an object".to_owned())),
        Err(error) => Err(Fault::Failed(format!("the argument is not JSON: {error}"))),
    }
}

fn id_of(fields: &Value) -> Result<String, Fault> {
    text(fields.get("msg_id")).ok_or_else(|| Fault::Failed("lacking 'msg_id' field".to_owned()))
}

fn create(rq: &Arc<Rq>, queue: &str, fields: &Value, method: Method) -> Result<Value, Fault> {
    let id = rq.create(queue, NewMessage::from_json(fields)?, method)?;
    Ok(json!(["ok", id]))
}

/// Takes a file of this machine: each client that may connect may read what the server
/// may.
fn attach(rq: &Arc<Rq>, queue: &str, id: &str, fields: &Value) -> Result<Value, Fault> {
    let path = text(fields.get("pathname"))
        .ok_or_else(|| Fault::Failed("lacking 'pathname' field".to_owned()))?;
    let path = Path::new(&path);
    if !path.is_absolute() {
        return Err(Fault::BadName("pathname is not a full path".to_owned()));
    }
    let own = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let name = text(fields.get("name"))
        .or(own)
        .ok_or_else(|| Fault::BadName("pathname names no file".to_owned()))?;
    // One that is opened to be read could hang on a pipe.
    if !path.metadata()?.is_file() {
        return Err(Fault::BadName("pathname is not a file".to_owned()));
    }
    match rq.attach(queue, id, &name, &mut File::open(path)?, None) {
        Ok(attached) => Ok(json!([
            "ok",
            format!("{}-Attached successfully", attached.md5)
        ])),
        Err(Fault::MessageNotFound) => Ok(fail("cannot find message")),
        Err(fault) => Err(fault),
    }
}

fn messages(rq: &Arc<Rq>, queue: &str, fields: &Value) -> Result<Value, Fault> {
    let Some(state) = text(fields.get("state")) else {
        return Ok(fail("lacking 'state' field"));
    };
    if !STATES.contains(&state.as_str()) {
        return Ok(fail(format!("invalid 'state' field ({state})")));
    }
    let limit = fields.get("limit").and_then(Value::as_u64);
    let limit = limit.map_or(LISTED, |limit| usize::try_from(limit).unwrap_or(LISTED));
    let ids = rq.list(queue, &state, limit)?;
    // With what an operator wants to know of them.
    let word = match state.as_str() {
        "que" => "due",
        "run" => "status",
        _ => return Ok(json!(ids)),
    };
    let with = ids.into_iter().filter_map(|id| {
        // One that has gone on meanwhile is not listed.
        let message = rq.message(queue, &id).ok()?;
        Some(json!([id, message.get(word)]))
    });
    Ok(with.collect())
}
