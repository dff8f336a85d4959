//! How long a run of the tests took, and where: printed at its end, and written as JSON.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Tests that the summary names; a choice.
const SLOWEST: usize = 10;

/// Durations of the build, parts, programs and tests, in the order of their ends.
#[derive(Default)]
pub(crate) struct Timings {
    /// Seconds of the one build, if there was one.
    pub(crate) build_s: Option<u64>,
    pub(crate) parts: Vec<(&'static str, u64)>,
    /// A test program, its tests, and the time of the whole program.
    pub(crate) programs: Vec<(String, usize, Duration)>,
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// Test programs that did not run, as nothing has changed since they passed.
    pub(crate) unchanged: usize,
    /// A test with its program.
    pub(crate) tests: Vec<(String, Duration)>,
}

impl Timings {
    /// # Errors
    /// `out` does not take it.
    pub(crate) fn print(&self, out: &mut dyn Write) -> Result<()> {
        if let Some(seconds) = self.build_s {
            writeln!(out, "xtask: building the workspace took {seconds} s")?;
        }
        let mut programs: Vec<_> = self.programs.iter().collect();
        programs.sort_by_key(|(_, _, time)| std::cmp::Reverse(*time));
        for (name, tests, time) in programs {
            writeln!(
                out,
                "xtask: {:7.1} s  {name} ({tests} tests)",
                time.as_secs_f64()
            )?;
        }
        if self.unchanged > 0 {
            writeln!(
                out,
                "xtask: {} test programs did not run: they passed with this seed, and nothing has \
                 changed since; --all runs them",
                self.unchanged
            )?;
        }
        let slowest = self.slowest();
        if !slowest.is_empty() {
            writeln!(out, "xtask: the slowest tests:")?;
        }
        for (name, time) in slowest {
            writeln!(out, "xtask: {:7.1} s  {name}", time.as_secs_f64())?;
        }
        Ok(())
    }

    fn slowest(&self) -> Vec<&(String, Duration)> {
        let mut tests: Vec<_> = self.tests.iter().collect();
        tests.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        tests.truncate(SLOWEST);
        tests
    }

    /// All of it, in seconds.
    fn json(&self) -> Value {
        let programs = self.programs.iter().map(|(name, tests, time)| {
            json!({ "name": name, "tests": tests, "seconds": time.as_secs_f64() })
        });
        let tests = self.tests.iter();
        let tests =
            tests.map(|(name, time)| json!({ "name": name, "seconds": time.as_secs_f64() }));
        let parts = self.parts.iter();
        let parts = parts.map(|(name, s)| json!({ "name": name, "seconds": s }));
        json!({
            "build_seconds": self.build_s,
            "parts": parts.collect::<Vec<_>>(),
            "programs": programs.collect::<Vec<_>>(),
            "tests": tests.collect::<Vec<_>>(),
        })
    }

    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        let text = format!("{:#}\n", self.json());
        std::fs::write(file, text).with_context(|| file.display().to_string())
    }
}

/// A test and its time in a line of pytest's durations or of node's reporter.
pub(crate) fn of_line(line: &str) -> Option<(String, Duration)> {
    let line = line.trim();
    if let Some((time, rest)) = line.split_once("s call") {
        let seconds = time.trim().parse().ok()?;
        return Some((
            rest.trim().to_owned(),
            Duration::try_from_secs_f64(seconds).ok()?,
        ));
    }
    let (name, time) = line.strip_prefix("✔ ")?.rsplit_once(" (")?;
    let ms: f64 = time.strip_suffix("ms)")?.parse().ok()?;
    Some((
        name.to_owned(),
        Duration::try_from_secs_f64(ms / 1000.0).ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Timings, of_line};

    #[test]
    fn the_slowest_come_first_and_all_are_written() {
        let s = Duration::from_secs;
        let timings = Timings {
            build_s: Some(7),
            parts: vec![("unit", 9)],
            programs: vec![("log:log".into(), 3, s(1)), ("server:http".into(), 4, s(5))],
            passed: 7,
            failed: 0,
            unchanged: 3,
            tests: (0..12).map(|at| (format!("t{at}"), s(at))).collect(),
        };
        let mut out = Vec::new();
        timings.print(&mut out).unwrap();
        let output = String::from_utf8(out).unwrap();
        assert!(
            output.starts_with("xtask: building the workspace took 7 s\n"),
            "{output}"
        );
        assert!(output.contains("3 test programs did not run"), "{output}");
        assert!(
            output.find("server:http") < output.find("log:log"),
            "{output}"
        );
        assert!(
            output.contains("t11\n") && !output.contains("t1\n"),
            "{output}"
        );
        let read = timings.json();
        assert_eq!(read["programs"][1]["tests"], 4);
        assert_eq!(read["tests"][11]["seconds"], 11.0);
    }

    #[test]
    fn times_of_other_runners_are_read() {
        let of = |line| of_line(line).map(|(name, time)| (name, time.as_millis()));
        assert_eq!(of("1.50s call     a.py::b"), Some(("a.py::b".into(), 1500)));
        assert_eq!(of("  ✔ a job (12.5ms)"), Some(("a job".into(), 12)));
        assert_eq!(of("0.02s setup    a.py::b"), None);
    }
}
