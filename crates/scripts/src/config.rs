//! Settings of a queue with a script: RQ's `config.json`, or the same in the server's settings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use quintet_policy::Cron;
use serde_json::{Map, Value, json};

use crate::fault::Fault;

/// Characters no queue name has, besides control characters.
const NOT_IN_QUEUE: &str = " /.,;:@\"(){}\\+='^`#~?[]%|$&<>*";

quintet_types::defaults! {
    /// Settings of a queue with a script.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct QueueConfig {
        pub name: String = String::new(),
        /// The program: a path, or `builtin:NAME`.
        pub script: String = String::new(),
        /// Scripts at a time.
        pub num_workers: u32 = 1,
        /// Words before the script's path; empty: none.
        pub exec_prefix: String = "bash -lc".to_owned(),
        /// Added to the scripts' environment; those that begin with `RQ_` are not.
        pub env_vars: BTreeMap<String, String> = BTreeMap::new(),
        /// Parameters (1 to 4) that make messages duplicates of each other.
        pub coalesce_params: Vec<u8> = Vec::new(),
        /// Parameters (1 to 4) no two running messages share.
        pub blocking_params: Vec<u8> = Vec::new(),
        /// Messages the queue puts to itself at times.
        pub schedule: Vec<ScheduleEntry> = Vec::new(),
        /// True: `resend` needs exit status 0 too, as in RQ's source.
        pub strict_exit: bool = false,
    }
}

/// A message a queue puts to itself at times.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ScheduleEntry {
    /// When: five fields of cron or a word such as `@daily`, in the server's time zone.
    pub cron: String,
    /// Its parameters, 1 to 4.
    pub params: [Option<String>; 4],
}

/// Says whether a queue may have this name with RQ: 1 to 128 characters, none
/// of those that would have to be escaped in a path or an address.
///
/// # Errors
/// [`Fault::BadName`] with RQ's text.
pub fn check_queue_name(name: &str) -> Result<(), Fault> {
    let no = |text: &str| Err(Fault::BadName(text.to_owned()));
    if name.is_empty() {
        return no("queue name is empty");
    }
    if name.chars().count() > 128 {
        return no("queue name too long");
    }
    if name
        .chars()
        .any(|c| c.is_control() || NOT_IN_QUEUE.contains(c))
    {
        return no("queue name has invalid characters");
    }
    Ok(())
}

impl QueueConfig {
    /// Reads RQ's `config.json`. Numbers may be written as strings, and the
    /// old `coalesce` with `coalesce_paramN` is understood. `name` wins over
    /// the one inside.
    ///
    /// # Errors
    /// [`Fault::BadName`] for the name, [`Fault::Failed`] for what cannot be.
    pub fn from_json(value: &Value, name: Option<&str>) -> Result<Self, Fault> {
        let failed = |text: &str| Fault::Failed(text.to_owned());
        let all = value
            .as_object()
            .ok_or_else(|| failed("queue config is not an object"))?;
        let name = name
            .map(str::to_owned)
            .or_else(|| text(all.get("name")))
            .unwrap_or_default();
        let mut config = Self {
            name,
            ..Self::default()
        };
        check_queue_name(&config.name)?;
        config.script = text(all.get("script")).unwrap_or_default();
        if config.script.is_empty() {
            return Err(failed("queue config has no script"));
        }
        if config.script.contains('\0') {
            return Err(failed("script path has a NUL"));
        }
        if let Some(workers) = text(all.get("num_workers")).filter(|text| !text.is_empty()) {
            config.num_workers = workers
                .parse()
                .ok()
                .filter(|&workers| workers > 0)
                .ok_or_else(|| failed("num_workers is not a number over 0"))?;
        }
        if let Some(prefix) = text(all.get("exec_prefix")) {
            config.exec_prefix = prefix;
        }
        if let Some(vars) = all.get("env_vars").and_then(Value::as_object) {
            for (key, value) in vars {
                config
                    .env_vars
                    .insert(key.clone(), text(Some(value)).unwrap_or_default());
            }
        }
        config.coalesce_params = params(all.get("coalesce_params"))?;
        if text(all.get("coalesce")).is_some_and(|on| ["true", "yes", "1"].contains(&on.as_str())) {
            for n in 1..=4u8 {
                let on = text(all.get(&format!("coalesce_param{n}")));
                if on.is_some_and(|on| on == "1" || on == "true") {
                    config.coalesce_params.push(n);
                }
            }
        }
        config.coalesce_params.sort_unstable();
        config.coalesce_params.dedup();
        config.blocking_params = params(all.get("blocking_params"))?;
        config.schedule = schedule(all.get("schedule"))?;
        config.strict_exit = text(all.get("strict_exit")).is_some_and(|on| on == "true");
        Ok(config)
    }

    /// As RQ's `config.json` has it.
    pub fn to_json(&self) -> Value {
        let schedule = self.schedule.iter().map(|entry| {
            let params = (1..).zip(&entry.params);
            let params = params.filter_map(|(n, param)| {
                let param = param.as_deref()?;
                Some((format!("param{n}"), Value::from(param)))
            });
            let cron = ("cron".to_owned(), Value::from(entry.cron.as_str()));
            [cron]
                .into_iter()
                .chain(params)
                .collect::<Map<String, Value>>()
        });
        json!({
            "name": self.name,
            "script": self.script,
            "num_workers": self.num_workers,
            "exec_prefix": self.exec_prefix,
            "env_vars": self.env_vars,
            "coalesce_params": self.coalesce_params,
            "blocking_params": self.blocking_params,
            "schedule": schedule.collect::<Vec<_>>(),
            "strict_exit": self.strict_exit,
        })
    }

    /// The script as a path, unless it is built in; `root`: the folder of scripts.
    pub(crate) fn script_path(&self, root: &Path) -> Option<PathBuf> {
        (!self.script.starts_with("builtin:")).then(|| root.join(&self.script))
    }
}

/// A string, or a number or truth value as one.
pub(crate) fn text(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A list of parameter numbers. A form's empty box counts for nothing.
fn params(value: Option<&Value>) -> Result<Vec<u8>, Fault> {
    let mut numbers = Vec::new();
    for entry in value.and_then(Value::as_array).into_iter().flatten() {
        let entry = text(Some(entry)).unwrap_or_default();
        if entry.is_empty() {
            continue;
        }
        match entry.parse::<u8>() {
            Ok(n @ 1..=4) => numbers.push(n),
            _ => return Err(Fault::Failed(format!("no such parameter: {entry}"))),
        }
    }
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

fn schedule(value: Option<&Value>) -> Result<Vec<ScheduleEntry>, Fault> {
    let mut all = Vec::new();
    for entry in value.and_then(Value::as_array).into_iter().flatten() {
        let cron = text(entry.get("cron")).unwrap_or_default();
        Cron::of_script(&cron).map_err(|why| Fault::Failed(format!("schedule {cron:?}: {why}")))?;
        let param = |n: u8| text(entry.get(format!("param{n}")));
        all.push(ScheduleEntry {
            cron,
            params: [param(1), param(2), param(3), param(4)],
        });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for name in ["test", "a-b_c", "ü", &"x".repeat(128)] {
            assert_eq!(check_queue_name(name), Ok(()), "{name}");
        }
        for name in ["bad que", "a.b", "..", "a/b", "", "a\0b", "a\nb", "q*"] {
            assert!(check_queue_name(name).is_err(), "{name:?}");
        }
        assert!(check_queue_name(&"x".repeat(129)).is_err());
        assert_eq!(
            check_queue_name("bad que").map_err(|fault| fault.to_string()),
            Err("queue name has invalid characters".to_owned())
        );
    }

    #[test]
    fn forms_of_config() {
        let config = QueueConfig::from_json(
            &json!({
                "name": "test", "script": "/bin/true", "num_workers": "3",
                "coalesce": "true", "coalesce_param2": 1, "coalesce_params": ["1", ""],
                "blocking_params": [4, 2],
                "schedule": [{"cron": "*/10 * * * *", "param1": "x"}],
                "env_vars": {"A": 1},
            }),
            None,
        )
        .expect("good");
        assert_eq!(config.num_workers, 3);
        assert_eq!(config.coalesce_params, [1, 2]);
        assert_eq!(config.blocking_params, [2, 4]);
        assert_eq!(config.exec_prefix, "bash -lc");
        assert_eq!(config.env_vars["A"], "1");
        let again = QueueConfig::from_json(&config.to_json(), None).expect("own form");
        assert_eq!(again, config);
    }

    #[test]
    fn bad_config() {
        for bad in [
            json!([]),
            json!({"script": "/x"}),
            json!({"name": "a/b", "script": "/x"}),
            json!({"name": "a"}),
            json!({"name": "a", "script": "/x", "num_workers": 0}),
            json!({"name": "a", "script": "/x", "num_workers": "many"}),
            json!({"name": "a", "script": "/x", "blocking_params": [5]}),
            json!({"name": "a", "script": "/x", "schedule": [{"cron": "never"}]}),
        ] {
            assert!(QueueConfig::from_json(&bad, None).is_err(), "{bad}");
        }
    }
}
