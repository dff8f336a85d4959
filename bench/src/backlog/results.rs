//! The files that experiments leave in `bench/results`.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use super::sheet::Found;
use super::{Experiment, plot};

/// Puts an experiment into the results under `root`; others there stay.
///
/// # Errors
/// A file cannot be written, or `backlog.json` holds something else.
pub(super) fn write(
    root: &Path,
    experiment: &Experiment,
    ran: &Value,
    found: &Found,
) -> Result<()> {
    let results = root.join("bench/results");
    fs::create_dir_all(&results).with_context(|| format!("cannot make {}", results.display()))?;
    let put = |path: &Path, text: &str| {
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    let path = results.join("backlog.json");
    let old = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => "{}".to_owned(),
        Err(error) => return Err(error).context(format!("cannot read {}", path.display())),
    };
    let mut all: Map<String, Value> = serde_json::from_str(&old)
        .with_context(|| format!("{} holds something else", path.display()))?;
    let (title, name) = (experiment.title, experiment.name);
    let one = json!({ "title": title, "ran": ran, "found": found });
    all.insert(name.to_owned(), one);
    put(&path, &(serde_json::to_string_pretty(&all)? + "\n"))?;
    if !found.plots.is_empty() {
        let path = results.join(format!("backlog-{name}.svg"));
        put(&path, &plot::svg(&found.plots))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::write;
    use crate::backlog::EXPERIMENTS;
    use crate::backlog::sheet::Found;

    #[test]
    fn results_are_kept_beside_others() {
        let folder = tempfile::tempdir().unwrap();
        let ran = |messages: u64| json!({ "messages": messages });
        let found = Found::default();
        for (experiment, messages) in [(0, 1), (1, 2), (0, 3)] {
            let experiment = &EXPERIMENTS[experiment];
            write(folder.path(), experiment, &ran(messages), &found).unwrap();
        }
        let text = std::fs::read_to_string(folder.path().join("bench/results/backlog.json"));
        let all: Value = serde_json::from_str(&text.unwrap()).unwrap();
        assert_eq!(all[EXPERIMENTS[0].name]["ran"]["messages"], 3);
        assert_eq!(all[EXPERIMENTS[1].name]["ran"]["messages"], 2);
    }
}
