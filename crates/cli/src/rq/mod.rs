//! `quintet rq`, and the binary under the name `rq`: RQ's command line, over the
//! sockets in RQ's folder.

pub(super) mod client;
mod words;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use quintet_scripts::rules::{RUBY_FILE, RULES_FILE, Rules};
use serde_json::{Map, Value, json};

use client::Folder;
use words::Words;

#[derive(clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:\n  quintet rq sendmesg --dest work --src me --param1 hello\n  quintet \
                  rq statusmesg --msg_id http://127.0.0.1:3333/q/mail/20261121.1200.00.000.7\n  \
                  quintet rq help"
)]
pub(super) struct Rq {
    /// A command and its options; `help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

const HELP: &str = "\
Usage: {rq} COMMAND [--name value | --name=value]...

Messages:
  sendmesg    --dest QUEUE [FIELDS]        put a message
  prepmesg    --dest QUEUE [FIELDS]        prepare one, to attach files to
  single_que  --dest QUEUE [FIELDS]        put one unless one waits
  attachmesg  --msg_id ID --pathname FILE [--name NAME]
  commitmesg  --msg_id ID                  put a prepared message
  statusmesg  --msg_id ID                  its state and the last output of its script
  state       --msg_id ID                  its state alone
  statuscountmesg  --msg_id ID             how often it was sent again
  attachstatusmesg --msg_id ID             its attachments: name, md5, size, path
  clone       --msg_id ID                  put one like it
  run_now     --msg_id ID                  make it the next one
  deletemesg  --msg_id ID                  delete one that does not run
  destroymesg --msg_id ID                  end the script that runs for it
FIELDS: --src --param1 --param2 --param3 --param4 --due SECONDS --count --max_count
        --force_remote; --relay-ok allows a --dest of another server

Queues:
  queues                                   their names
  queue NAME                               its status and messages by state
  up, down, pause, resume, restart NAME
  create_queue --name NAME --script FILE [--num_workers N] [--exec_prefix WORDS]
  create_queue_link FILE                   with the settings in a JSON file
  delete_queue NAME

  verify_rules [FILE]                      errors in the rules of rq_router, by rule;
                                           config/rq_router_rules.toml by default
  help, version

RQ's folder is --root DIR or $RQ_ROOT; else the one above this program if it is one,
the current one if it is one, or rq in the data directory ($QUINTET_DATA, data).
ID is the full id as it was printed. Prints \"ok ...\", or \"fail ...\" and exits with 1.

Examples:
  {rq} sendmesg --dest mail --param1 7
  {rq} statusmesg --msg_id http://localhost:3333/q/mail/1
";

impl Rq {
    pub(super) fn run(self) -> Result<ExitCode> {
        run(self.words)
    }
}

/// True if the binary runs under the name `rq`: a link or a copy of that name is RQ's command.
pub(super) fn is_named() -> bool {
    let name = std::env::args_os().next().map(PathBuf::from);
    name.is_some_and(|name| name.file_name().is_some_and(|name| name == "rq"))
}

/// The command as it is typed.
fn called() -> &'static str {
    match is_named() {
        true => "rq",
        false => "quintet rq",
    }
}

/// Does what the words say; the first is the command.
///
/// # Errors
/// Nothing could be asked, or standard output is closed.
pub(super) fn run(words: Vec<OsString>) -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let words = match Words::parse(words) {
        Ok(words) => words,
        Err(why) => {
            writeln!(out, "fail {why}")?;
            return Ok(ExitCode::FAILURE);
        }
    };
    match words.command.as_str() {
        "" | "help" | "--help" | "-h" => {
            out.write_all(HELP.replace("{rq}", called()).as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        "version" | "--version" => {
            writeln!(out, "ok {}", env!("CARGO_PKG_VERSION"))?;
            return Ok(ExitCode::SUCCESS);
        }
        _ => {}
    }
    if words.command == "verify_rules" {
        // No server is asked: rules are looked at before one has them.
        let (lines, code) = match verify_rules(&words) {
            Ok(number) => (vec![format!("ok {number} rules")], ExitCode::SUCCESS),
            Err(problems) => (problems, ExitCode::FAILURE),
        };
        for line in lines {
            writeln!(out, "{line}")?;
        }
        return Ok(code);
    }
    let folder = Folder(find_folder(words.field("root"))?);
    let (lines, code) = match answer(&folder, &words) {
        Ok(lines) => (lines, ExitCode::SUCCESS),
        Err(why) => (vec![format!("fail {why:#}")], ExitCode::FAILURE),
    };
    for line in lines {
        writeln!(out, "{line}")?;
    }
    Ok(code)
}

/// Where RQ's sockets are.
fn find_folder(supplied: Option<&str>) -> Result<PathBuf> {
    let is_one = |folder: &Path| folder.join("config/queuemgr.sock").exists();
    if let Some(folder) = supplied {
        return Ok(folder.into());
    }
    if let Some(folder) = std::env::var_os("RQ_ROOT") {
        return Ok(folder.into());
    }
    let here = std::env::current_dir().context("no current directory")?;
    // As it was called, not where a link leads to: RQ's scripts call bin/rq.
    let called = std::env::args_os().next().map(PathBuf::from);
    let above = called
        .as_deref()
        .and_then(Path::parent)
        .map(|bin| here.join(bin).join(".."));
    if let Some(above) = above.filter(|above| is_one(above)) {
        return Ok(above);
    }
    if is_one(&here) {
        return Ok(here);
    }
    let data = std::env::var_os("QUINTET_DATA").unwrap_or_else(|| "data".into());
    Ok(Path::new(&data).join("rq"))
}

/// The lines a command prints.
fn answer(folder: &Folder, words: &Words) -> Result<Vec<String>> {
    let line = |text: &str| anyhow::Ok(vec![format!("ok {text}")]);
    let of_message = |command: &str| line(&text(&ask(folder, words, command)?));
    let of_manager = |command: &str, argument: &str| {
        let answer = folder.manager(command, argument)?;
        line(&text(&value_of(&answer)?))
    };
    match words.command.as_str() {
        "sendmesg" => put(folder, words, "create_message"),
        "prepmesg" => put(folder, words, "prep_message"),
        "single_que" => put(folder, words, "single_que"),
        "attachmesg" => attach(folder, words),
        "commitmesg" => of_message("commit_message"),
        "deletemesg" => of_message("delete_message"),
        "destroymesg" => of_message("destroy_message"),
        "run_now" => of_message("run_message"),
        "clone" => of_message("clone_message"),
        "state" => of_message("get_message_state"),
        "statusmesg" => line(&text(&ask(folder, words, "get_message")?["status"])),
        "statuscountmesg" => {
            let message = ask(folder, words, "get_message")?;
            line(&text(message.get("count").unwrap_or(&json!(0))))
        }
        "attachstatusmesg" => Ok(attachments(&ask(folder, words, "get_message")?)),
        "queues" => {
            let queues = folder.manager("queues", "")?;
            let names: Vec<String> = queues.as_array().into_iter().flatten().map(text).collect();
            let mut lines = vec![format!("ok {}", names.len())];
            lines.extend(names);
            Ok(lines)
        }
        "queue" => {
            let name = words.name()?;
            let status = folder.queue(name, "status", &Value::Null)?;
            let sizes = folder.queue(name, "num_messages", &Value::Null)?;
            let mut lines = vec![format!("ok {}", text(&status[1]))];
            let states = ["prep", "que", "run", "done", "relayed", "err", "errack"];
            lines.extend(states.map(|state| format!("{state} {}", text(&sizes[state]))));
            Ok(lines)
        }
        command @ ("up" | "down" | "pause" | "resume" | "restart" | "delete_queue") => {
            of_manager(command, words.name()?)
        }
        "create_queue" => {
            let config = Value::Object(words.fields.clone()).to_string();
            of_manager("create_queue", &config)
        }
        "create_queue_link" => {
            let path = std::path::absolute(words.name()?)?;
            of_manager("create_queue_link", &path.to_string_lossy())
        }
        other => anyhow::bail!("unknown command {other}; see {} help", called()),
    }
}

/// How many rules there are, a default nobody wrote not counted; or `fail` and
/// a line for each thing that is wrong.
fn verify_rules(words: &Words) -> Result<usize, Vec<String>> {
    let fail = |why: anyhow::Error| vec![format!("fail {why:#}")];
    let path = match words.optional().map_err(fail)? {
        Some(file) => PathBuf::from(file),
        None => {
            let config = find_folder(words.field("root"))
                .map_err(fail)?
                .join("config");
            let path = config.join(RULES_FILE);
            let ruby = config.join(RUBY_FILE);
            if !path.exists() && ruby.exists() {
                return Err(vec![format!(
                    "fail {} is Ruby, which is not run: write its rules as {RULES_FILE}",
                    ruby.display()
                )]);
            }
            path
        }
    };
    match Rules::read(&path) {
        Ok(rules) => Ok(rules.all().iter().filter(|rule| rule.num > 0).count()),
        Err(problems) => {
            let mut lines = vec![format!("fail {}: {} wrong", path.display(), problems.len())];
            lines.extend(problems);
            Err(lines)
        }
    }
}

fn put(folder: &Folder, words: &Words, command: &str) -> Result<Vec<String>> {
    const FIELDS: &str = "dest src count max_count param1 param2 param3 param4 due force_remote \
                          orig_msg_id post_run_webhook";
    let dest = words.need("dest")?;
    let is_remote = ["http:", "https:"]
        .iter()
        .any(|begin| dest.starts_with(begin));
    let queue = match (is_remote, words.field("relay-ok")) {
        (false, _) => dest,
        (true, Some(_)) => "relay",
        (true, None) => anyhow::bail!("Sorry - cannot relay message"),
    };
    let mut message = Map::new();
    for name in FIELDS.split(' ') {
        if let Some(value) = words.fields.get(name) {
            message.insert(name.to_owned(), value.clone());
        }
    }
    if let Some(hook) = message.get("post_run_webhook").cloned() {
        message.insert("post_run_webhook".to_owned(), json!([hook]));
    }
    let id = value_of(&folder.queue(queue, command, &Value::Object(message))?)?;
    Ok(vec![format!("ok {}", text(&id))])
}

fn attach(folder: &Folder, words: &Words) -> Result<Vec<String>> {
    let (queue, id) = words.message()?;
    let path = Path::new(words.need("pathname")?);
    let shown = path.display();
    anyhow::ensure!(path.exists(), "No such file {shown} to attach to message");
    anyhow::ensure!(
        !path.is_dir(),
        "Attachment currently cannot be a directory {shown}"
    );
    let full = std::path::absolute(path)?;
    let fields = json!({
        "msg_id": id, "pathname": full.to_string_lossy(), "name": words.field("name"),
    });
    let attached = value_of(&folder.queue(queue, "attach_message", &fields)?)?;
    let message = words.need("msg_id")?;
    Ok(vec![format!(
        "ok {} for Message: {message} attachment",
        text(&attached)
    )])
}

fn attachments(message: &Value) -> Vec<String> {
    let files: Vec<_> = message["_attachments"]
        .as_object()
        .into_iter()
        .flatten()
        .collect();
    let mut lines = vec![format!("ok {}", files.len())];
    lines.extend(files.into_iter().map(|(name, file)| {
        format!(
            "{name} {} {} {}",
            text(&file["md5"]),
            text(&file["size"]),
            text(&file["path"])
        )
    }));
    lines
}

/// Asks the queue of the message that is named.
fn ask(folder: &Folder, words: &Words, command: &str) -> Result<Value> {
    let (queue, id) = words.message()?;
    value_of(&folder.queue(queue, command, &json!({ "msg_id": id }))?)
}

/// The value of a good answer.
fn value_of(answer: &Value) -> Result<Value> {
    match answer[0].as_str() {
        Some("ok" | "success") => Ok(answer[1].clone()),
        Some("fail") => anyhow::bail!("{}", text(&answer[1])),
        _ => anyhow::bail!("unexpected answer {answer}"),
    }
}

fn text(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None => value.to_string(),
    }
}
