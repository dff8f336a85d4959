//! `--print-config`: the effective settings as a file that can be used as one.

use std::fmt::Write as _;

use quintet_engine::QueueSettings;
use quintet_wire::{Options, Value};

use super::queues::QUEUE_SETTINGS;
use super::schema::{SETTINGS, quoted};
use super::units::{show_bytes, show_duration};
use super::{Config, scripts};

/// Annotated TOML. Writing it to a file and starting with that file gives the
/// same configuration.
pub(crate) fn print(config: &Config) -> String {
    let mut config = config.clone();
    let mut out = String::new();
    for spec in SETTINGS {
        comment(&mut out, spec.help);
        if spec.reload {
            comment(&mut out, "SIGHUP reloads it.");
        }
        line(&mut out, spec.key, &(spec.field)(&mut config).show());
        out.push('\n');
    }
    comment(
        &mut out,
        "What counts for every queue unless a [[queue]] says else. SIGHUP reloads it.",
    );
    out.push_str("[defaults]\n");
    let mut settings = QueueSettings::default();
    config.defaults.lay_over(&mut settings);
    for spec in QUEUE_SETTINGS {
        comment(&mut out, spec.help);
        line(&mut out, spec.key, &(spec.show)(&settings));
    }
    out.push('\n');
    comment(
        &mut out,
        "One table per queue or pattern (* any run of characters, ? any one), with the keys of \
         [defaults]. Later ones win over earlier, exact names over patterns. SIGHUP reloads them.",
    );
    if config.rules.is_empty() {
        comment(&mut out, "[[queue]]");
        comment(&mut out, "name = \"work*\"");
        comment(&mut out, "messages_max = 1000");
    }
    for (name, overrides) in &config.rules {
        out.push_str("[[queue]]\n");
        line(&mut out, "name", &quoted(name));
        // Only what differs from the defaults was said by the rule or has no effect.
        let mut ruled = settings.clone();
        overrides.lay_over(&mut ruled);
        for spec in QUEUE_SETTINGS {
            let shown = (spec.show)(&ruled);
            if shown != (spec.show)(&settings) {
                line(&mut out, spec.key, &shown);
            }
        }
        for (key, value) in scripts::of(&config.scripts, name) {
            line(&mut out, key, &value);
        }
    }
    out.push('\n');
    comment(
        &mut out,
        "One table per listener. Each voice has options of its own.",
    );
    for listen in &config.listen {
        out.push_str("[[listen]]\n");
        comment(&mut out, listen.served.about());
        line(&mut out, "voice", &quoted(listen.served.name()));
        comment(
            &mut out,
            "HOST:PORT, :PORT, PORT (both on 127.0.0.1) or unix:PATH.",
        );
        line(&mut out, "address", &quoted(&listen.address.to_string()));
        comment(
            &mut out,
            "Connections without traffic are closed after this time; 0: never.",
        );
        line(&mut out, "idle", &quoted(&show_duration(listen.idle_ms)));
        for spec in listen.served.options() {
            comment(&mut out, spec.help);
            line(
                &mut out,
                spec.name,
                &option(&listen.options, spec.name, spec.default),
            );
        }
    }
    out
}

fn option(options: &Options, name: &str, default: Value<'_>) -> String {
    match default {
        Value::Bool(_) => options.flag(name).to_string(),
        Value::Number(_) => options.number(name).to_string(),
        Value::Bytes(_) => quoted(&show_bytes(options.number(name))),
        Value::Text(_) => quoted(options.text(name)),
    }
}

fn line(out: &mut String, key: &str, value: &str) {
    writeln!(out, "{key} = {value}").unwrap_or_default();
}

/// Wraps at 78 columns.
fn comment(out: &mut String, text: &str) {
    let mut column = 0;
    for word in text.split_whitespace() {
        if column == 0 || column + 1 + word.len() > 78 {
            if column > 0 {
                out.push('\n');
            }
            out.push('#');
            column = 1;
        }
        out.push(' ');
        out.push_str(word);
        column += 1 + word.len();
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::super::load::from_text;
    use super::super::queues::QUEUE_SETTINGS;
    use super::super::schema::SETTINGS;
    use super::super::{Given, load};
    use super::print;

    #[test]
    fn what_is_printed_reads_back_the_same() {
        let mut config = load(&Given::default()).expect("defaults");
        config.rules = from_text("[[queue]]\nname='a?'\npaused=true\nttl='5s'")
            .expect("rule")
            .rules;
        let printed = print(&config);
        let again = print(&from_text(&printed).expect("printed text reads back"));
        assert_eq!(printed, again);
    }

    /// The page for people lists every setting and option that the server
    /// takes, with its default as printed.
    #[test]
    fn documentation_lists_every_setting() {
        let page = include_str!("../../../../docs/configuration.md");
        let config = load(&Given::default()).expect("defaults");
        let printed = print(&config);
        let rows: Vec<(&str, &str)> = printed
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split_once(" = "))
            .collect();
        assert!(rows.len() >= SETTINGS.len() + QUEUE_SETTINGS.len());
        for (key, value) in rows {
            assert!(
                page.contains(&format!("| `{key}` | `{value}` |")),
                "docs/configuration.md has no row \"| `{key}` | `{value}` |\""
            );
        }
    }
}
