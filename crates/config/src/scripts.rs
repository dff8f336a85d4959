//! Settings of a queue's script in `[[queue]]`: RQ's `config.json`, in TOML.

use quintet_scripts::QueueConfig;

use super::queues::{SCRIPT_KEYS, script_takes};
use super::wrong::Wrong;

/// A queue's script, if its table names one.
///
/// # Errors
/// A sentence; patterns cannot have a script.
pub(crate) fn read(name: &str, table: &toml::Table) -> Result<Option<QueueConfig>, Wrong> {
    let stated: toml::Table = table
        .iter()
        .filter(|(key, _)| SCRIPT_KEYS.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if stated.is_empty() {
        return Ok(None);
    }
    if !stated.contains_key("script") {
        let keys: Vec<&str> = stated.keys().map(String::as_str).collect();
        let why = format!(
            "{} needs script = \"FILE\" in the same table",
            keys.join(", ")
        );
        return Err(why.into());
    }
    for (key, value) in &stated {
        if let Some(why) = script_takes(key, value) {
            return Err(Wrong::of_value(key, value, why));
        }
    }
    let json = serde_json::to_value(&stated).map_err(|error| error.to_string())?;
    QueueConfig::from_json(&json, Some(name))
        .map(Some)
        .map_err(|fault| fault.to_string().into())
}

/// The lines of a queue's script, as they can be read again.
pub(crate) fn of(scripts: &[QueueConfig], name: &str) -> Vec<(&'static str, String)> {
    let Some(config) = scripts.iter().rev().find(|config| config.name == name) else {
        return Vec::new();
    };
    let json = config.to_json();
    let line = |key: &&'static str| {
        let value = toml::Value::try_from(json.get(*key)?).ok()?;
        Some((*key, value.to_string()))
    };
    SCRIPT_KEYS.iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::super::load::from_text;
    use super::super::{Secrets, print};

    const FULL: &str = "[[queue]]\nname = 'mail'\nscript = '/srv/mail'\nnum_workers = 3\n\
                        exec_prefix = ''\nenv_vars = { A = '1' }\ncoalesce_params = [1, 2]\n\
                        blocking_params = [3]\nschedule = [{ cron = '*/5 * * * *', param1 = 'x' }]\n\
                        strict_exit = true\nmessages_max = 5\n";

    #[test]
    fn scripts_are_read_and_printed() {
        let config = from_text(FULL).expect("good");
        let mail = &config.scripts[0];
        assert_eq!((mail.name.as_str(), mail.num_workers), ("mail", 3));
        assert_eq!(mail.coalesce_params, [1, 2]);
        assert_eq!(mail.schedule[0].params[0].as_deref(), Some("x"));
        let printed = print(&config, Secrets::Shown);
        let again = from_text(&printed).expect("printed text reads back");
        assert_eq!(again.scripts, config.scripts, "{printed}");
    }

    #[test]
    fn wrong_keys_of_a_script_are_errors() {
        for (text, says) in [
            ("[[queue]]\nname='a*'\nscript='/x'", "invalid characters"),
            ("[[queue]]\nname='a'\nnum_workers=2", "needs script"),
            (
                "[[queue]]\nname='a'\nscript='/x'\nnum_workers=0",
                "num_workers",
            ),
            (
                "[[queue]]\nname='a'\nscript='/x'\nblocking_params=[7]",
                "parameter",
            ),
            ("[[queue]]\nname='a'\nscirpt='/x'", "\"script\""),
            ("[defaults]\nscript='/x'", "unknown key"),
        ] {
            let error = match from_text(text) {
                Ok(_) => panic!("accepted: {text}"),
                Err(error) => format!("{error:#}"),
            };
            assert!(error.contains(says), "{error}");
        }
    }
}
