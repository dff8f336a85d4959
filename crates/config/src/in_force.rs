//! Settings in force and where each comes from, for those who operate.

use quintet_client::{Setting, Source};
use quintet_types::{Overrides, Pattern, QueueSettings, QueueSetup};

use super::change::{FIXED, set_by};
use super::cluster::CLUSTER;
use super::print::{self, Secrets};
use super::queues::{QUEUE_SETTINGS, QueueSpec};
use super::schema::SETTINGS;
use super::{CommandLine, Config, scripts};

/// The table of a rule for queues.
const RULE: &str = "[[queue]]";

impl Config {
    /// All settings but users and grants, in the order of `--print-config`.
    /// `given`: what the command line said.
    pub fn settings_in_force(&self, command_line: &CommandLine) -> Vec<Setting> {
        let (mut own, mut usual) = (self.clone(), Self::default());
        print::hide_logins(&mut own.cluster.nats);
        let mut all = Vec::new();
        for (table, specs) in [("", SETTINGS), ("[cluster]", CLUSTER)] {
            for spec in specs {
                let value = (spec.field)(&mut own).show();
                let differs = value != (spec.field)(&mut usual).show();
                let source = match command_line.says(table, spec.key) {
                    true => Source::CommandLine,
                    false => file_if(differs),
                };
                all.push(setting(table, spec.key, value, source, spec.help));
            }
        }
        all.extend(self.settings_of_queues());
        let listeners = self.listen.iter().map(|listen| {
            let source = match (listen.is_default, command_line.names_listeners()) {
                (true, _) => Source::Default,
                (false, true) => Source::CommandLine,
                (false, false) => Source::File,
            };
            let table = format!("[[listen]] {}", listen.served.name());
            let (value, about) = (listen.address.to_string(), listen.served.about());
            setting(&table, "address", value, source, about)
        });
        all.extend(listeners);
        all
    }

    /// Settings of every queue, then the differences of each rule.
    fn settings_of_queues(&self) -> Vec<Setting> {
        let usual = QueueSettings::of_server();
        let mut settings = usual.clone();
        self.defaults.lay_over(&mut settings);
        let mut all = Vec::new();
        for spec in QUEUE_SETTINGS {
            let value = (spec.show)(&settings);
            let differs = value != (spec.show)(&usual);
            let source = file_if(differs || (spec.among)(&self.defaults));
            all.push(Setting {
                locked: spec.is_in(settings.locked),
                ..setting("[defaults]", spec.key, value, source, spec.help)
            });
        }
        for (name, overrides) in &self.rules {
            let mut ruled = settings.clone();
            overrides.lay_over(&mut ruled);
            let of_queues = QUEUE_SETTINGS.iter().filter_map(|spec| {
                let value = (spec.show)(&ruled);
                let says = (spec.among)(overrides) || value != (spec.show)(&settings);
                says.then_some((spec.key, value, spec.help))
            });
            let of_scripts = scripts::of(&self.scripts, name).into_iter();
            let of_scripts = of_scripts.map(|(key, value)| {
                let value = print::script_value(key, value, Secrets::Hidden);
                (key, value, "")
            });
            let table = format!("{RULE} {name}");
            for (key, value, help) in of_queues.chain(of_scripts) {
                all.push(setting(&table, key, value, Source::File, help));
            }
        }
        all
    }
}

impl Config {
    /// Each setting of a queue with its value and its source: default, file or queue.
    pub fn settings_of_queue(&self, setup: &QueueSetup) -> Vec<Setting> {
        let usual = QueueSettings::of_server();
        let rules = self.rules.iter();
        let rules = rules.filter(|(name, _)| Pattern::new(name).matches(setup.name.as_bytes()));
        let rules: Vec<&Overrides> = rules.map(|(_, rule)| rule).collect();
        let says = |spec: &QueueSpec| {
            let mut file = rules.iter().copied().chain([&self.defaults]);
            file.any(|overrides| (spec.among)(overrides))
        };
        let listed = QUEUE_SETTINGS.iter().map(|spec| {
            let value = (spec.show)(&setup.settings);
            let differs = value != (spec.show)(&usual);
            let locked = spec.is_in(setup.settings.locked);
            // Tags that say who set the others are none of the user's.
            let own = !locked && (spec.among)(&setup.own) && (spec.key != "tags" || value != "{}");
            let source = match own {
                true => Source::Queue,
                false => file_if(differs || says(spec)),
            };
            Setting {
                locked: locked || FIXED.contains(&spec.key),
                set_by: set_by(setup, spec.key).filter(|_| own),
                ..setting("", spec.key, value, source, spec.help)
            }
        });
        listed.collect()
    }
}

/// A setting that is not locked.
fn setting(table: &str, key: &str, value: String, source: Source, help: &str) -> Setting {
    Setting {
        table: table.to_owned(),
        key: key.to_owned(),
        value,
        source,
        help: help.to_owned(),
        locked: false,
        set_by: None,
    }
}

fn file_if(differs: bool) -> Source {
    match differs {
        true => Source::File,
        false => Source::Default,
    }
}

impl CommandLine {
    /// True if the command line says where listeners listen.
    fn names_listeners(&self) -> bool {
        !self.listen.is_empty() || !self.port.is_empty()
    }

    /// True if the command line says this setting.
    fn says(&self, table: &str, key: &str) -> bool {
        match (table, key) {
            ("", "data") => self.data.is_some(),
            ("", "sync") => self.sync.is_some(),
            ("[cluster]", "nats") => self.cluster.is_some(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::from_text;
    use super::*;

    fn of<'a>(all: &'a [Setting], table: &str, key: &str) -> &'a Setting {
        let mut all = all.iter();
        let found = all.find(|setting| setting.table == table && setting.key == key);
        found.unwrap_or_else(|| panic!("no {table} {key}"))
    }

    #[test]
    fn a_queue_has_its_settings_and_their_source() {
        let own = Overrides {
            messages_max: Some(0),
            ..Overrides::default()
        };
        let settings = QueueSettings {
            attempts_max: 3,
            ..QueueSettings::of_server()
        };
        // Each says what would hold without it.
        let config = from_text(
            "[defaults]\ntake_burst = 1\n[[queue]]\nname = 'wor?'\ndefault_delay = 0\n\
             [[queue]]\nname = 'other'\nttl = 0\n",
        );
        let all = config.expect("read").settings_of_queue(&QueueSetup {
            name: "work".into(),
            settings,
            own,
            ..QueueSetup::default()
        });
        assert_eq!(all.len(), QUEUE_SETTINGS.len());
        for (key, value, source) in [
            ("attempts_max", "3", Source::File),
            ("messages_max", "0", Source::Queue),
            ("expire_to", "\"\"", Source::Default),
            ("take_burst", "1", Source::File),
            ("default_delay", "\"0\"", Source::File),
            ("ttl", "\"0\"", Source::Default),
        ] {
            let listed = of(&all, "", key);
            assert_eq!(
                (listed.value.as_str(), listed.source),
                (value, source),
                "{key}"
            );
        }
    }

    #[test]
    fn each_value_has_its_source() {
        let config = from_text(
            "queues_max = 77\nsync = 'never'\n[defaults]\nmessages_max = 5\n\
             [[queue]]\nname = 'work*'\nmessages_max = 9\nttl = '5s'\n\
             [[queue]]\nname = 'mail'\nscript = '/m'\nenv_vars = { KEY = 'hush' }\n",
        )
        .expect("read");
        let command_line = CommandLine {
            sync: Some("never".to_owned()),
            ..CommandLine::default()
        };
        let all = config.settings_in_force(&command_line);
        for (table, key, value, source) in [
            ("", "queues_max", "77", Source::File),
            ("", "sync", "\"never\"", Source::CommandLine),
            ("", "shards", "", Source::Default),
            ("[cluster]", "nats", "[]", Source::Default),
            ("[defaults]", "messages_max", "5", Source::File),
            ("[defaults]", "ttl", "", Source::Default),
            ("[[queue]] work*", "messages_max", "9", Source::File),
        ] {
            let listed = of(&all, table, key);
            assert_eq!(listed.source, source, "{table} {key}");
            assert!(value.is_empty() || listed.value == value, "{listed:?}");
        }
        let ruled = all
            .iter()
            .filter(|listed| listed.table == "[[queue]] work*");
        assert_eq!(ruled.count(), 2, "a rule has what it says and no more");
        let secret = of(&all, "[[queue]] mail", "env_vars");
        assert!(
            secret.value.contains("KEY") && !secret.value.contains("hush"),
            "{secret:?}"
        );
    }
}
