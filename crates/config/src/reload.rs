//! Settings of a newer configuration that count without a restart.

use super::Config;
use super::cluster::CLUSTER;
use super::schema::SETTINGS;

impl Config {
    /// Takes over from `newer` the settings whose row says `reload: true`, and
    /// the tables of queues. Answers the keys of those that changed but wait
    /// for a restart.
    pub fn take_over(&mut self, mut newer: Config) -> Vec<&'static str> {
        let mut waiting = Vec::new();
        for spec in SETTINGS.iter().chain(CLUSTER) {
            if spec.reload {
                (spec.field)(self).swap((spec.field)(&mut newer));
            } else if (spec.field)(self).show() != (spec.field)(&mut newer).show() {
                waiting.push(spec.key);
            }
        }
        self.defaults = newer.defaults;
        self.rules = newer.rules;
        self.scripts = newer.scripts;
        self.users = newer.users;
        self.grants = newer.grants;
        self.limits = newer.limits;
        self.crons = newer.crons;
        if self.webhooks != newer.webhooks {
            waiting.push("webhook");
        }
        self.schedules = newer.schedules;
        waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value of each kind that is not the default, as a file would say it.
    fn other(shown: &str, key: &str) -> toml::Value {
        let tried = [
            toml::Value::Boolean(shown != "true"),
            toml::Value::Integer(if shown == "7" { 8 } else { 7 }),
            toml::Value::Integer(54_321),
            toml::Value::String("48MiB".to_owned()),
            toml::Value::String("512KiB".to_owned()),
            toml::Value::String("17s".to_owned()),
            toml::Value::String("debug".to_owned()),
            toml::Value::String("json".to_owned()),
            toml::Value::String("self-signed".to_owned()),
            toml::Value::String("some/where".to_owned()),
            toml::Value::Array(vec![toml::Value::String("some*".to_owned())]),
        ];
        let spec = SETTINGS.iter().find(|spec| spec.key == key).unwrap();
        tried
            .into_iter()
            .find(|value| {
                let mut config = Config::default();
                (spec.field)(&mut config).set(value).is_ok()
                    && (spec.field)(&mut config).show() != shown
            })
            .unwrap_or_else(|| panic!("no other value for {key}"))
    }

    #[test]
    fn every_setting_counts_at_once_or_is_named() {
        for spec in SETTINGS {
            let (mut current, mut newer) = (Config::default(), Config::default());
            let before = (spec.field)(&mut current).show();
            let value = other(&before, spec.key);
            (spec.field)(&mut newer).set(&value).unwrap();
            let after = (spec.field)(&mut newer).show();
            let waiting = current.take_over(newer);
            let now = (spec.field)(&mut current).show();
            if spec.reload {
                assert_eq!((now, waiting), (after, vec![]), "{}", spec.key);
            } else {
                assert_eq!((now, waiting), (before, vec![spec.key]), "{}", spec.key);
            }
        }
    }
}
