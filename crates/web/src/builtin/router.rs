//! Sends a message on as the first rule for it says: each copy is a `dup` to a
//! queue here, or to `relay` for one elsewhere.

use std::fs::File;
use std::hash::BuildHasher as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

use quintet_scripts::ROUTER;
use quintet_scripts::rules::{Action, RULES_FILE, Rule, Rules, on_route};
use serde_json::Value;

use super::{End, later, log, say, variable};

/// Unit of the time until the next try, s, where the queue is stopped that is
/// next, or rules have just become bad: the server starts no run while they
/// are. A choice, as for `relay`.
const UNIT_S: u64 = 10;

pub(super) fn run() -> End {
    let root = PathBuf::from(variable("RQ_ROOT"));
    let rules = match Rules::read(&root.join("config").join(RULES_FILE)) {
        Ok(rules) => rules,
        Err(problems) => return later(UNIT_S, problems.join("; ")),
    };
    let message = match read_message() {
        Ok(message) => message,
        Err(why) => return End::Err(why),
    };
    let field = |name: &str| message.get(name).and_then(Value::as_str);
    let Some(rule) = rules.first_match(field("src"), field("dest")) else {
        return End::Err("no rule for this message".to_owned());
    };
    log(&format!(
        "rule {} ({}): {}",
        rule.num,
        rule.desc.escape_debug(),
        rule.action.word()
    ));
    if rule.log {
        let line = log_line(rule, field("msg_id"), field("src"));
        if let Err(error) = append(&root, &line) {
            log(&format!("cannot write log/rq_router.log: {error}"));
        }
    }
    let dest = field("dest").unwrap_or_default();
    match rule.action {
        Action::Done => End::Done("router processed a done".to_owned()),
        Action::Blackhole => End::Done("router processed a blackhole".to_owned()),
        Action::Err => End::Err("router processed an err".to_owned()),
        Action::Relay | Action::Balance => send(rule, dest),
    }
}

/// Copies the message to where the rule says. A run that broke off is done
/// again whole: what had been sent then is sent twice.
fn send(rule: &Rule, dest: &str) -> End {
    let answers = match File::open(format!("/dev/fd/{}", variable("RQ_READ"))) {
        Ok(pipe) => pipe,
        Err(error) => return End::Err(format!("no answers: {error}")),
    };
    let mut answers = BufReader::new(answers);
    let hosts = rule.hosts(by_chance);
    let what = match rule.action {
        Action::Balance => "DUP",
        _ => "DUP relay",
    };
    // All or none, as far as that can be told before.
    let targets: Result<Vec<String>, String> =
        hosts.iter().map(|host| target(dest, host)).collect();
    let targets = match targets {
        Ok(targets) => targets,
        Err(why) => return End::Err(format!("{what} failed - {why}")),
    };
    let mut last = String::new();
    for target in &targets {
        match dup(&mut answers, rule.delay_s, target) {
            Ok(id) => {
                // Nobody reads the pipe only if the server is gone.
                let _told = say(&format!("run {what} to {id}"));
                last = id;
            }
            // An operator's doing, and soon undone; but nothing is sent twice
            // for it.
            Err(why) if last.is_empty() && is_stopped(&why) => return later(UNIT_S, why),
            Err(why) => return End::Err(format!("{what} failed - {why}")),
        }
    }
    End::Done(match rule.action {
        Action::Balance => format!("DUP to {last}"),
        _ => format!("done relay of {} messages", targets.len()),
    })
}

/// True if the queue is there and takes nothing now.
fn is_stopped(why: &str) -> bool {
    ["status: PAUSE", "status: DOWN"]
        .iter()
        .any(|status| why.ends_with(status))
}

/// What `dup` is told: a queue of this server by its name, so that no request
/// to itself comes back to the router; any other by its address.
fn target(dest: &str, host: &str) -> Result<String, String> {
    let to = on_route(dest, host)?;
    let here = format!("{}q/", variable("RQ_HOST"));
    match to.strip_prefix(&here) {
        Some(ROUTER) => Err(format!("{to} is the router itself")),
        Some(queue) => Ok(queue.to_owned()),
        None => Ok(to),
    }
}

fn dup(answers: &mut BufReader<File>, delay_s: u64, target: &str) -> Result<String, String> {
    say(&format!("dup {delay_s}-X-{target}")).map_err(|error| error.to_string())?;
    let mut line = String::new();
    answers
        .read_line(&mut line)
        .map_err(|error| error.to_string())?;
    match line.trim_end().split_once(' ') {
        Some(("ok", id)) => Ok(id.to_owned()),
        Some(("fail", why)) => Err(why.to_owned()),
        _ => Err(format!("the server answered {:?}", line.trim_end())),
    }
}

/// The standard library's hash keys are random.
fn by_chance(of: usize) -> usize {
    let number = std::hash::RandomState::new().hash_one(of);
    usize::try_from(number % of.max(1) as u64).unwrap_or(0)
}

/// RQ's form: process, time, rule, action, message, source. What others wrote
/// stays in its line.
fn log_line(rule: &Rule, id: Option<&str>, src: Option<&str>) -> String {
    let plain = |text: &str| text.escape_debug().to_string();
    format!(
        "{} - {} - {} - {} - {} - {}\n",
        std::process::id(),
        chrono::Local::now().format("%Y-%m-%d %H:%M:%S %z"),
        plain(&rule.desc),
        rule.action.word(),
        id.unwrap_or_default(),
        plain(src.unwrap_or_default()),
    )
}

/// In one write: others write too.
fn append(root: &Path, line: &str) -> std::io::Result<()> {
    let path = root.join("log").join("rq_router.log");
    let mut file = File::options().append(true).create(true).open(path)?;
    file.write_all(line.as_bytes())
}

fn read_message() -> Result<Value, String> {
    let bytes = std::fs::read("../msg").map_err(|error| format!("cannot read msg: {error}"))?;
    serde_json::from_slice(&bytes).map_err(|error| format!("msg is no JSON: {error}"))
}
