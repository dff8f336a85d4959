//! `rq_router`: while there is a file of rules, new messages that come over
//! HTTP go to this queue, whose built-in script sends them on by the rules.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quintet_types::locked;

use crate::config::{QueueConfig, check_queue_name};
use crate::fault::Fault;
use crate::new::{Method, NewMessage};
use crate::rules::{RUBY_FILE, RULES_FILE, Rules, RulesState};
use crate::service::Rq;

/// The queue whose messages the rules send on.
pub const ROUTER: &str = "rq_router";

/// Its script, unless the settings have another.
pub(crate) const SCRIPT: &str = "builtin:rq_router";

/// Messages sent on at a time; a choice. Each takes some ms.
const WORKERS: u32 = 4;

/// Queues whose messages go to them as ever (RQ's, and the router itself).
const NOT_ROUTED: [&str; 3] = ["relay", "cleaner", ROUTER];

impl Rq {
    fn rules_path(&self) -> PathBuf {
        self.paths.config().join(RULES_FILE)
    }

    /// The folder of the built-in script.
    pub(crate) fn root(&self) -> PathBuf {
        self.paths.absolute(Path::new(""))
    }

    /// True while new messages go to the router. A link that leads nowhere
    /// counts as rules, bad ones: somebody wanted some.
    fn has_rules(&self) -> bool {
        std::fs::symlink_metadata(self.rules_path()).is_ok()
    }

    /// True while new messages for this queue go to the router.
    pub fn routes(&self, queue: &str) -> bool {
        !NOT_ROUTED.contains(&queue) && self.has_rules()
    }

    /// How the rules are now.
    pub fn rules(&self) -> RulesState {
        if !self.has_rules() {
            return match std::fs::symlink_metadata(self.paths.config().join(RUBY_FILE)) {
                Ok(_) => RulesState::OnlyRuby,
                Err(_) => RulesState::None,
            };
        }
        let path = self.rules_path();
        let stamp = std::fs::metadata(&path).ok();
        let stamp = stamp.map(|about| (about.modified().ok(), about.len(), about.ino()));
        let mut known = locked(&self.router.read);
        if let (Some(stamp), Some((own, state))) = (stamp, &*known)
            && stamp == *own
        {
            return state.clone();
        }
        let state = match Rules::read(&path) {
            Ok(rules) => RulesState::Good(rules.all().len()),
            Err(problems) => RulesState::Bad(problems),
        };
        *known = stamp.map(|stamp| (stamp, state.clone()));
        state
    }

    /// False while the router has to wait for good rules.
    pub(crate) fn may_route(&self) -> bool {
        matches!(self.rules(), RulesState::Good(_))
    }

    /// Makes a message that came from outside: where there are rules, in the
    /// router's queue, with the queue it was for as its `dest` unless it says
    /// another; that queue need not be here. The rest as [`Rq::create`], but
    /// for [`Method::SingleQue`], which the router does not know: what waits
    /// there is for any queue.
    ///
    /// # Errors
    /// As [`Rq::create`]; [`Fault::BadName`].
    pub fn create_routed(
        self: &Arc<Self>,
        queue: &str,
        mut new: NewMessage,
        method: Method,
    ) -> Result<String, Fault> {
        if !self.routes(queue) {
            return self.create(queue, new, method);
        }
        check_queue_name(queue)?;
        self.start_router();
        new.dest = new
            .dest
            .filter(|dest| !dest.is_empty())
            .or_else(|| Some(self.address(queue)));
        let method = match method {
            Method::SingleQue => Method::Commit,
            Method::Commit | Method::Prep => method,
        };
        self.create(ROUTER, new, method)
    }

    fn start_router(self: &Arc<Self>) {
        if self.scripted(ROUTER).is_none() {
            self.add_queue(QueueConfig {
                name: ROUTER.to_owned(),
                script: SCRIPT.to_owned(),
                num_workers: WORKERS,
                ..QueueConfig::default()
            });
        }
    }

    /// Starts the router if there are rules, and tells the log how they are if
    /// that is new.
    pub(crate) fn check_rules(self: &Arc<Self>) {
        let state = self.rules();
        if self.has_rules() {
            self.start_router();
        }
        let mut reported = locked(&self.router.reported);
        if reported.as_ref() == Some(&state) {
            return;
        }
        match &state {
            RulesState::None if reported.is_some() => {
                tracing::info!("rq_router: the rules are gone")
            }
            RulesState::None => {}
            RulesState::OnlyRuby => tracing::warn!("{}", self.only_ruby()),
            RulesState::Good(number) => tracing::info!(number, "rq_router: rules read"),
            RulesState::Bad(problems) => {
                for problem in problems {
                    tracing::error!("rq_router: {RULES_FILE}: {problem}");
                }
            }
        }
        *reported = Some(state);
    }

    /// The warning for an operator whose rules are RQ's own.
    pub(crate) fn only_ruby(&self) -> String {
        format!(
            "{} has rules in Ruby, which are not run: write them as {RULES_FILE} beside it \
             (docs/protocols/rq.md), or remove it",
            self.paths.config().join(RUBY_FILE).display()
        )
    }

    /// The fault in the rules, for an operator; `None` if there is none.
    pub fn rules_warning(&self) -> Option<String> {
        /// Told at a time.
        const TOLD: usize = 5;
        match self.rules() {
            RulesState::None | RulesState::Good(_) => None,
            RulesState::OnlyRuby => Some(self.only_ruby()),
            RulesState::Bad(problems) => {
                let more = match problems.len() {
                    0..=TOLD => "",
                    _ => "; ...",
                };
                let reported = problems.iter().take(TOLD).cloned().collect::<Vec<_>>();
                Some(format!(
                    "{RULES_FILE} is not understood, new messages wait in {ROUTER}: {}{more}",
                    reported.join("; ")
                ))
            }
        }
    }
}
