//! Rules of `rq_router`: which queues of which servers a new message goes to,
//! by where it comes from and where it is to go. RQ's are a Ruby program; these
//! say the same in TOML. The mapping is in `docs/protocols/rq.md`.

use std::sync::Mutex;
use std::time::SystemTime;

use regex::{Regex, RegexBuilder};
use toml::{Table, Value};

/// The file under `config/`.
pub const RULES_FILE: &str = "rq_router_rules.toml";

/// RQ's file, which is a program and not read.
pub const RUBY_FILE: &str = "rq_router_rules.rb";

/// The description of the rule for what no other matches (RQ's).
const DEFAULT: &str = "default";

/// Rules in a file at most; a choice.
const RULES_MAX: usize = 1000;

/// Servers of a rule at most; a choice.
const ROUTES_MAX: usize = 1000;

/// Bytes a compiled pattern has at most; a choice. All are compiled for each
/// message.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Longest delay: the most `dup` takes in any sensible use, ten years in s.
const DELAY_MAX_S: i64 = 315_360_000;

/// RQ's port, where a route has none.
const PORT: u16 = 3333;

/// Whether rules are in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RulesState {
    /// There is no file: nothing is routed.
    None,
    /// There is only RQ's own file, which is not read: nothing is routed.
    OnlyRuby,
    /// So many rules, the default included.
    Good(usize),
    /// The file is not understood: what is new waits in `rq_router`. What is
    /// wrong, a line each.
    Bad(Vec<String>),
}

/// The last reading of the rules.
#[derive(Default)]
pub(crate) struct RulesRead {
    pub(crate) read: Mutex<Option<(Stamp, RulesState)>>,
    /// The last state that was logged.
    pub(crate) reported: Mutex<Option<RulesState>>,
}

/// Changes when somebody changes the file.
pub(crate) type Stamp = (Option<SystemTime>, u64, u64);

quintet_types::named! {
    /// The treatment of a message that matches a rule.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Action, word {
        /// A copy for each route.
        Relay = "relay",
        /// A copy for one of the routes, by chance.
        Balance = "balance",
        /// Nothing more: it is done.
        Done = "done",
        /// It ends in `err`.
        Err = "err",
        /// As [`Action::Done`], and always logged.
        Blackhole = "blackhole",
    }
}

impl Action {
    fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.word() == word)
    }
}

/// A rule of RQ's router: the messages that it matches, and its action.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its place in the file, from 1 on; 0 for the default nobody wrote.
    pub num: usize,
    /// Its name in the log.
    pub desc: String,
    pub action: Action,
    /// Seconds from now until a copy is due.
    pub delay_s: u64,
    /// A line in `log/rq_router.log` for each message.
    pub log: bool,
    src: Option<Regex>,
    dest: Option<Regex>,
    /// Of each one is chosen.
    routes: Vec<Vec<String>>,
}

impl Rule {
    /// True if the message is one it is for. A pattern for a field the message
    /// does not have matches nothing.
    fn matches(&self, src: Option<&str>, dest: Option<&str>) -> bool {
        let fits = |pattern: &Option<Regex>, text: Option<&str>| match (pattern, text) {
            (None, _) => true,
            (Some(pattern), Some(text)) => pattern.is_match(text),
            (Some(_), None) => false,
        };
        fits(&self.src, src) && fits(&self.dest, dest)
    }

    /// The routes a message takes. `choose` answers a number less than the one
    /// it is asked with.
    pub fn hosts(&self, mut choose: impl FnMut(usize) -> usize) -> Vec<&str> {
        let mut one = |of: &'_ [String]| choose(of.len()) % of.len().max(1);
        match self.action {
            Action::Relay => {
                let chosen = self.routes.iter().map(|of| (of, one(of)));
                chosen
                    .filter_map(|(of, at)| of.get(at).map(String::as_str))
                    .collect()
            }
            Action::Balance => {
                let all: Vec<&str> = self.routes.iter().flatten().map(String::as_str).collect();
                let at = choose(all.len()) % all.len().max(1);
                all.get(at).copied().into_iter().collect()
            }
            Action::Done | Action::Err | Action::Blackhole => Vec::new(),
        }
    }
}

/// Rules in the order of their file; the first match counts.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The default is the last.
    rules: Vec<Rule>,
}

impl Rules {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// All that is wrong with it, a line each, which names the rule.
    pub fn parse(text: &str) -> Result<Self, Vec<String>> {
        let table: Table = text
            .parse()
            .map_err(|error| vec![toml_error(text, &error)])?;
        let mut problems = Vec::new();
        let mut rules: Vec<Rule> = Vec::new();
        for (key, value) in &table {
            match (key.as_str(), value) {
                ("rule", Value::Array(all)) => {
                    if all.len() > RULES_MAX {
                        problems.push(format!("more than {RULES_MAX} rules"));
                    }
                    for (at, rule) in all.iter().take(RULES_MAX).enumerate() {
                        rules.extend(read(at + 1, rule, &mut problems));
                    }
                }
                ("rule", _) => problems.push("rules are tables: [[rule]]".to_owned()),
                (key, _) => problems.push(format!("unknown key {key}: rules are [[rule]]")),
            }
        }
        // As a file is while it is written again.
        if table.is_empty() {
            problems.push("no rules".to_owned());
        }
        let (mut defaults, mut rules): (Vec<_>, Vec<_>) =
            rules.into_iter().partition(|rule| rule.desc == DEFAULT);
        if defaults.len() > 1 {
            problems.extend(defaults.iter().skip(1).map(|rule| {
                let first = defaults.first().map_or(0, |rule| rule.num);
                format!("rule {} ({DEFAULT}): rule {first} is the default", rule.num)
            }));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        rules.push(defaults.pop().unwrap_or_else(refuse_all));
        Ok(Self { rules })
    }

    /// Reads a file, of 1 MiB at most.
    ///
    /// # Errors
    /// As [`Rules::parse`]; or it cannot be read.
    pub fn read(path: &std::path::Path) -> Result<Self, Vec<String>> {
        let bytes = crate::paths::read_small(path).map_err(|fault| vec![fault.to_string()])?;
        let text =
            std::str::from_utf8(&bytes).map_err(|error| vec![format!("not UTF-8: {error}")])?;
        Self::parse(text)
    }

    /// The rules, in the order they are tried; the default is the last.
    pub fn all(&self) -> &[Rule] {
        &self.rules
    }

    /// The first rule for such a message. `None` never comes: the default
    /// matches all.
    pub fn first_match(&self, src: Option<&str>, dest: Option<&str>) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.matches(src, dest))
    }
}

/// RQ's own default: what no rule is for is an error.
fn refuse_all() -> Rule {
    Rule {
        num: 0,
        desc: DEFAULT.to_owned(),
        action: Action::Err,
        delay_s: 0,
        log: true,
        src: None,
        dest: None,
        routes: Vec::new(),
    }
}

/// An error of TOML in one line, with the place it is about and without the text there, which may
/// be a password.
pub fn toml_error(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    let what = error.message().replace('\n', ", ");
    let Some(before) = before else { return what };
    let (lines, last) = before.rsplit_once('\n').unwrap_or(("", before));
    let line = 1 + usize::from(before.contains('\n')) + lines.matches('\n').count();
    let column = 1 + last.chars().count();
    format!("line {line}, column {column}: {what}")
}

/// Reads one rule; what is wrong with it goes to `problems`.
fn read(num: usize, value: &Value, problems: &mut Vec<String>) -> Option<Rule> {
    let before = problems.len();
    let Some(table) = value.as_table() else {
        problems.push(format!("rule {num}: not a table"));
        return None;
    };
    let desc = table.get("desc").and_then(Value::as_str);
    let name = match desc {
        Some(desc) => format!("rule {num} ({})", desc.escape_debug()),
        None => format!("rule {num}"),
    };
    let mut wrong = |what: String| problems.push(format!("{name}: {what}"));
    if desc.is_none_or(str::is_empty) {
        wrong("desc: the name of the rule is missing".to_owned());
    }
    let mut rule = Rule {
        num,
        desc: desc.unwrap_or_default().to_owned(),
        log: false,
        ..refuse_all()
    };
    let mut action = None;
    for (key, value) in table {
        let read = match key.as_str() {
            "desc" => match value.is_str() {
                true => Ok(()),
                false => Err("not a text".to_owned()),
            },
            "src" => pattern(value).map(|pattern| rule.src = Some(pattern)),
            "dest" => pattern(value).map(|pattern| rule.dest = Some(pattern)),
            "action" => action_of(value).map(|found| action = Some(found)),
            "route" => routes(value).map(|routes| rule.routes = routes),
            "delay" => delay(value).map(|delay| rule.delay_s = delay),
            "log" => value
                .as_bool()
                .map(|log| rule.log = log)
                .ok_or_else(|| "neither true nor false".to_owned()),
            "num" => match value.as_integer() {
                Some(own) if usize::try_from(own) == Ok(num) => Ok(()),
                Some(own) => Err(format!("{own}, but it is rule {num}")),
                None => Err("not a number".to_owned()),
            },
            _ => Err("no such key; there are desc src dest action route delay log num".to_owned()),
        };
        if let Err(what) = read {
            wrong(format!("{key}: {what}"));
        }
    }
    match action {
        Some(action) => rule.action = action,
        None if table.contains_key("action") => {}
        None => wrong("action: missing; relay, balance, done, err or blackhole".to_owned()),
    }
    let patterns = table.contains_key("src") || table.contains_key("dest");
    if rule.desc == DEFAULT && patterns {
        wrong("the default takes what no other rule matches: no src, no dest".to_owned());
    }
    if rule.desc != DEFAULT && !patterns {
        wrong("src or dest: a rule must have one".to_owned());
    }
    let copies = matches!(action, Some(Action::Relay | Action::Balance));
    if copies && !table.contains_key("route") {
        wrong("route: missing; where it is to go".to_owned());
    }
    if action == Some(Action::Balance) && rule.routes.iter().any(|of| of.len() != 1) {
        wrong("route: lists in the list are for relay".to_owned());
    }
    rule.log |= matches!(action, Some(Action::Err | Action::Blackhole));
    (problems.len() == before).then_some(rule)
}

fn action_of(value: &Value) -> Result<Action, String> {
    let word = value.as_str().ok_or("not a text")?;
    Action::parse(word)
        .ok_or_else(|| format!("{word:?} is not one of relay, balance, done, err, blackhole"))
}

/// As in Ruby, `^` and `$` stand for the ends of lines too.
fn pattern(value: &Value) -> Result<Regex, String> {
    let text = value.as_str().ok_or("not a text")?;
    let built = RegexBuilder::new(text)
        .multi_line(true)
        .size_limit(PATTERN_BYTES_MAX)
        .build();
    built.map_err(|error| {
        // Behind a drawing of the place.
        let text = error.to_string();
        let last = text.lines().last().unwrap_or_default().trim();
        last.trim_start_matches("error: ").to_owned()
    })
}

fn delay(value: &Value) -> Result<u64, String> {
    value
        .as_integer()
        .filter(|seconds| (0..=DELAY_MAX_S).contains(seconds))
        .and_then(|seconds| u64::try_from(seconds).ok())
        .ok_or_else(|| format!("not a number of seconds from 0 to {DELAY_MAX_S}"))
}

/// A list of routes; one that is a list itself stands for one of its routes.
fn routes(value: &Value) -> Result<Vec<Vec<String>>, String> {
    let list = match value.as_array() {
        Some(list) => list.as_slice(),
        None => std::slice::from_ref(value),
    };
    let mut number = 0;
    let mut count = |of: usize| {
        number += of;
        match of {
            0 => Err("an empty list".to_owned()),
            _ if number > ROUTES_MAX => Err(format!("more than {ROUTES_MAX}")),
            _ => Ok(()),
        }
    };
    if list.is_empty() {
        return Err("an empty list".to_owned());
    }
    let each = |value: &Value| match value.as_array() {
        Some(of) => {
            count(of.len())?;
            of.iter().map(route).collect()
        }
        None => {
            count(1)?;
            Ok(vec![route(value)?])
        }
    };
    list.iter().map(each).collect()
}

/// `HOST`, `HOST:PORT`, or the whole address of a queue.
fn route(value: &Value) -> Result<String, String> {
    let text = value.as_str().ok_or("not a text")?;
    let bad = |what: &str| Err(format!("{text:?}: {what}"));
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return bad("not HOST, HOST:PORT or the address of a queue");
    }
    if is_address(text) {
        let queue = text.split_once("/q/").map(|(_, queue)| queue);
        return match queue.map(|queue| crate::config::check_queue_name(queue.trim_end_matches('/')))
        {
            Some(Ok(())) => Ok(text.to_owned()),
            Some(Err(fault)) => bad(&fault.to_string()),
            None => bad("an address ends in /q/QUEUE"),
        };
    }
    if text.contains('/') {
        return bad("a whole address begins with http:// or https://");
    }
    Ok(text.to_owned())
}

fn is_address(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}

/// The queue that a `dest` names, here or on another server; it need not be a possible name.
pub fn queue_of(dest: &str) -> Option<&str> {
    let queue = if is_address(dest) {
        dest.split_once("/q/").map(|(_, queue)| queue)
    } else {
        Some(dest)
    };
    queue.map(|queue| queue.trim_end_matches('/'))
}

/// Where a message for `dest` goes on a route: the same queue on another
/// server, or the queue the route names.
///
/// # Errors
/// `dest` names no queue.
pub fn on_route(dest: &str, route: &str) -> Result<String, String> {
    if is_address(route) {
        return Ok(route.trim_end_matches('/').to_owned());
    }
    let queue = queue_of(dest)
        .filter(|queue| crate::config::check_queue_name(queue).is_ok())
        .ok_or_else(|| format!("no queue in dest {dest:?}"))?;
    // A login and an address of IPv6 have colons of their own.
    let host = route.rsplit_once('@').map_or(route, |(_, host)| host);
    let has_port = match host.rsplit_once(']') {
        Some((_, rest)) => rest.starts_with(':'),
        None => host.contains(':'),
    };
    let port = if has_port {
        String::new()
    } else {
        format!(":{PORT}")
    };
    Ok(format!("http://{route}{port}/q/{queue}"))
}

#[cfg(test)]
mod tests;
