//! The fate of a message when its script has ended: a function of the script's lines and its exit.

use crate::pipe::ScriptLine;

/// The first end mark a script gave; later ones do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Done,
    Err,
    Relayed,
    Resend { due_s: u64 },
}

/// How a script ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(i32),
    Signal(i32),
}

/// The fate of its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Archived as done.
    Done(String),
    /// Archived as relayed.
    Relayed(String),
    /// Set aside for an operator.
    Err(String),
    /// Back into the queue, so many seconds from now.
    Again { due_s: u64, status: String },
}

/// The script's lines so far, as far as they count at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScriptReport {
    mark: Option<Mark>,
    /// The status that the operator sees.
    pub(crate) status: String,
}

impl ScriptReport {
    /// Takes a line in. Of a second end mark nothing counts, its text neither:
    /// `err` with the words of `done` would help nobody. Copies are not shown:
    /// they would hide what the script last said of itself.
    pub(crate) fn hear(&mut self, script_line: &ScriptLine) {
        let (mark, text) = match script_line {
            ScriptLine::Run(text)
            | ScriptLine::Progress { text, .. }
            | ScriptLine::Other { text, .. } => (None, text),
            ScriptLine::Done(text) => (Some(Mark::Done), text),
            ScriptLine::Err(text) => (Some(Mark::Err), text),
            ScriptLine::Relayed(text) => (Some(Mark::Relayed), text),
            ScriptLine::Resend { due_s, text } => (Some(Mark::Resend { due_s: *due_s }), text),
            ScriptLine::Dup { .. } | ScriptLine::BadDup => return,
        };
        if mark.is_some() && self.mark.is_some() {
            return;
        }
        self.mark = self.mark.or(mark);
        self.status.clone_from(text);
    }

    /// True if the script said how it ends.
    pub(crate) fn has_mark(&self) -> bool {
        self.mark.is_some()
    }

    /// True if the script asked to be run again.
    pub(crate) fn resends(&self) -> bool {
        matches!(self.mark, Some(Mark::Resend { .. }))
    }
}

/// The rules by which messages are sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResendRules {
    /// How often the message was sent again, this time included.
    pub(crate) count: u32,
    /// How often it may be.
    pub(crate) max_count: u32,
    /// `resend` needs exit status 0.
    pub(crate) strict: bool,
}

pub(crate) fn decide(report: &ScriptReport, exit: Exit, rules: ResendRules) -> Verdict {
    let status = report.status.clone();
    let clean = exit == Exit::Code(0);
    match report.mark {
        Some(Mark::Err) => Verdict::Err(status),
        Some(Mark::Resend { due_s }) if clean || !rules.strict => {
            if rules.count >= rules.max_count {
                Verdict::Err("HIT MAX RESEND COUNT - MOVING TO ERR".to_owned())
            } else {
                Verdict::Again { due_s, status }
            }
        }
        Some(Mark::Done) if clean => Verdict::Done(status),
        Some(Mark::Relayed) if clean => Verdict::Relayed(status),
        mark => {
            let word = match mark {
                Some(Mark::Done) => "done",
                Some(Mark::Relayed) => "relayed",
                Some(Mark::Resend { .. }) => "resend",
                Some(Mark::Err) | None => "none",
            };
            let exit = match exit {
                Exit::Code(code) => code.to_string(),
                Exit::Signal(signal) => format!("signal {signal}"),
            };
            Verdict::Err(format!(
                "PROCESS EXITED IMPROPERLY - MOVING TO ERR - Completion was {word} but exit status was {exit}"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(lines: &[&str], exit: Exit, strict: bool) -> Verdict {
        let mut report = ScriptReport::default();
        let mut parser = crate::pipe::Parser::new(1000);
        for line in lines {
            parser.feed(format!("{line}\n").as_bytes(), |script_line| {
                report.hear(&script_line)
            });
        }
        let rules = ResendRules {
            count: 3,
            max_count: if lines.contains(&"run last time") {
                3
            } else {
                4
            },
            strict,
        };
        decide(&report, exit, rules)
    }

    #[test]
    fn table() {
        const IMPROPER: &str = "PROCESS EXITED IMPROPERLY - MOVING TO ERR - Completion was";
        let done = |text: &str| Verdict::Done(text.to_owned());
        let err = |text: &str| Verdict::Err(text.to_owned());
        let improper = |why: &str| Verdict::Err(format!("{IMPROPER} {why}"));
        let again = |due_s, status: &str| Verdict::Again {
            due_s,
            status: status.to_owned(),
        };
        let (zero, one, killed) = (Exit::Code(0), Exit::Code(1), Exit::Signal(9));
        let table: &[(&[&str], Exit, Verdict)] = &[
            (&["done ok"], zero, done("ok")),
            (&["run a", "done"], zero, done("")),
            (&["done ok", "run after"], zero, done("after")),
            (&["done ok"], one, improper("done but exit status was 1")),
            (
                &["done ok"],
                killed,
                improper("done but exit status was signal 9"),
            ),
            (&["err bad"], zero, err("bad")),
            (&["err bad"], Exit::Code(3), err("bad")),
            (&["err bad"], killed, err("bad")),
            (&["fail bad"], zero, err("bad")),
            (&["err bad", "done ok"], zero, err("bad")),
            (&["done ok", "err bad"], zero, done("ok")),
            (&[], zero, improper("none but exit status was 0")),
            (&["run half"], zero, improper("none but exit status was 0")),
            (&[], killed, improper("none but exit status was signal 9")),
            (
                &["relayed http://x/"],
                zero,
                Verdict::Relayed("http://x/".to_owned()),
            ),
            (
                &["relayed http://x/"],
                one,
                improper("relayed but exit status was 1"),
            ),
            (&["resend 5-busy"], zero, again(5, "5-busy")),
            (&["resend 5-busy"], one, again(5, "5-busy")),
            (&["resend 5-busy"], killed, again(5, "5-busy")),
            (
                &["run last time", "resend 5-busy"],
                zero,
                err("HIT MAX RESEND COUNT - MOVING TO ERR"),
            ),
            (
                &["run kept", "dup 0-X-q", "dup"],
                zero,
                improper("none but exit status was 0"),
            ),
        ];
        for (lines, exit, expected) in table {
            assert_eq!(run(lines, *exit, false), *expected, "{lines:?} {exit:?}");
        }
        assert_eq!(
            run(&["resend 5-busy"], one, true),
            improper("resend but exit status was 1")
        );
        assert_eq!(run(&["resend 5-busy"], zero, true), again(5, "5-busy"));
    }

    #[test]
    fn copies_do_not_hide_the_status() {
        let mut report = ScriptReport::default();
        report.hear(&ScriptLine::Run("half".to_owned()));
        report.hear(&ScriptLine::Dup {
            due_s: 0,
            dest: "q".to_owned(),
        });
        assert_eq!(report.status, "half");
    }
}
