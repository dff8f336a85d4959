//! Sends a message on as the first rule for it says: each copy is a `dup` to a
//! queue here, or to `relay` for one elsewhere.

use std::fs::File;
use std::hash::BuildHasher as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

use quintet_scripts::ROUTER;
use quintet_scripts::rules::{Action, RULES_FILE, Rule, Rules, on_route};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{End, keep, later, log, read, read_message, say, variable};

/// Unit of the time until the next try, s, where the queue is stopped that is
/// next, or rules have just become bad: the server starts no run while they
/// are. A choice, as for `relay`.
const UNIT_S: u64 = 10;

pub(super) fn run() -> End {
    let begun = Plan::kept();
    let is_first_run = begun.is_none();
    if let Some(plan) = begun.filter(|plan| plan.sent > 0) {
        return plan.send();
    }
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
    if rule.log && is_first_run {
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
        Action::Relay | Action::Balance => match Plan::new(rule, dest) {
            Ok(plan) => plan.send(),
            Err(why) => End::Err(why),
        },
    }
}

/// The file of the job that says how far the message is sent.
const PLAN: &str = "router_plan";

/// Where a message goes, and how far it is. What was sent before a run broke
/// off, or had to wait, is not sent again.
#[derive(Deserialize, Serialize)]
struct Plan {
    /// How its copies are called in texts.
    what: String,
    #[serde(rename = "delay")]
    delay_s: u64,
    targets: Vec<String>,
    sent: usize,
    /// The last copy's id.
    last: String,
}

impl Plan {
    fn new(rule: &Rule, dest: &str) -> Result<Self, String> {
        let what = match rule.action {
            Action::Balance => "DUP",
            Action::Relay | Action::Done | Action::Err | Action::Blackhole => "DUP relay",
        };
        // All or none, as far as that is known before.
        let targets = rule.hosts(by_chance).into_iter();
        let targets: Result<_, _> = targets.map(|host| target(dest, host)).collect();
        Ok(Self {
            what: what.to_owned(),
            delay_s: rule.delay_s,
            targets: targets.map_err(|why| format!("{what} failed - {why}"))?,
            sent: 0,
            last: String::new(),
        })
    }

    /// As an earlier run left it.
    fn kept() -> Option<Self> {
        serde_json::from_str(&read(PLAN)?).ok()
    }

    fn keep(&self) -> Result<(), String> {
        let plan = serde_json::to_string(self).map_err(|error| error.to_string())?;
        keep(PLAN, &plan)
    }

    /// Copies the message to where it was not sent yet.
    fn send(mut self) -> End {
        let answers = match File::open(format!("/dev/fd/{}", variable("RQ_READ"))) {
            Ok(pipe) => pipe,
            Err(error) => return End::Err(format!("no answers: {error}")),
        };
        let mut answers = BufReader::new(answers);
        while let Some(target) = self.targets.get(self.sent) {
            let sent = dup(&mut answers, self.delay_s, target);
            if let Ok(id) = &sent {
                // Nobody reads the pipe only if the server is gone.
                let _told = say(&format!("run {} to {id}", self.what));
                self.sent += 1;
                self.last.clone_from(id);
            }
            let kept = self.keep();
            match sent.and(kept) {
                Ok(()) => {}
                // An operator's doing, and soon undone.
                Err(why) if is_stopped(&why) => return later(UNIT_S, why),
                Err(why) => return End::Err(format!("{} failed - {why}", self.what)),
            }
        }
        End::Done(match self.what.as_str() {
            "DUP" => format!("DUP to {}", self.last),
            _ => format!("done relay of {} messages", self.sent),
        })
    }
}

/// True if the queue is there and takes nothing now.
fn is_stopped(why: &str) -> bool {
    ["status: PAUSE", "status: DOWN"]
        .iter()
        .any(|status| why.ends_with(status))
}

/// The target of `dup`: a queue of this server by its name, so that no request to itself comes back
/// to the router; any other by its address.
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
