//! `--print-config`: the effective settings as a file that can be used as one.

use std::fmt::Write as _;

use quintet_types::QueueSettings;
use quintet_wire::{Options, Value};

use super::auth::{GRANT, USER};
use super::cluster::CLUSTER;
use super::limits::LIMIT;
use super::queues::QUEUE_SETTINGS;
use super::schedules::{CRON, SCHEDULE};
use super::schema::{Field, SETTINGS, Spec, quoted};
use super::units::{show_bytes, show_duration};
use super::webhooks::WEBHOOK;
use super::{Config, Listen, scripts};

/// Treatment of passwords and the like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Secrets {
    /// They are shown: what is printed can be used as it is.
    Shown,
    /// [`HIDDEN`] stands for each.
    Hidden,
}

/// Stands for a secret.
const HIDDEN: &str = "***";
/// Options of listeners that hold passwords: one, or `NAME:PASSWORD` pairs.
const PASSWORDS: &[&str] = &["password", "users"];
/// Keys of users that hold hashes.
const HASHES: &[&str] = &["password", "tokens"];
/// Tables of queues whose values are secrets mostly.
const VARIABLES: &[&str] = &["env_vars"];

/// Annotated TOML. Writing it to a file and starting with that file gives the
/// same configuration, if the secrets are shown.
pub fn print(config: &Config, secrets: Secrets) -> String {
    let mut config = config.clone();
    if secrets == Secrets::Hidden {
        hide_logins(&mut config.cluster.nats);
    }
    let mut out = String::new();
    for spec in SETTINGS {
        comment(&mut out, spec.help);
        if spec.reload {
            comment(&mut out, "SIGHUP reloads it.");
        }
        line(&mut out, spec.key, &(spec.field)(&mut config).show());
        out.push('\n');
    }
    queues(&mut out, &config, secrets);
    comment(
        &mut out,
        "This server as a node of a cluster: docs/cluster.md.",
    );
    out.push_str("[cluster]\n");
    for spec in CLUSTER {
        comment(&mut out, spec.help);
        line(&mut out, spec.key, &(spec.field)(&mut config).show());
    }
    out.push('\n');
    macro_rules! all {
        ($($name:literal $specs:ident $tables:ident hides $keys:expr, $about:literal;)*) => {
            $(tables(&mut out, $name, $about, ($specs, &config.$tables), hides(secrets, $keys));)*
        };
    }
    all! {
        "user" USER users hides HASHES,
            "Users. Without a [[user]] and a [[grant]] every client may do everything. SIGHUP \
             reloads them: open connections get the new rights.";
        "grant" GRANT grants hides &[],
            "Rights of users; they have no others. SIGHUP reloads them.";
        "limit" LIMIT limits hides &[],
            "Limits of each address or each user. SIGHUP reloads them.";
        "cron" CRON crons hides &[],
            "Schedules by the calendar (docs/schedules.md). SIGHUP reloads them.";
        "schedule" SCHEDULE schedules hides &[],
            "Schedules by the calendar, at intervals or at moments.";
        // Some have a token in the address.
        "webhook" WEBHOOK webhooks hides &["url"],
            "Addresses that get the events of messages (docs/events.md).";
    }
    comment(
        &mut out,
        "One table per listener. Each protocol has options of its own.",
    );
    for listen in &config.listen {
        listener(&mut out, listen, secrets);
    }
    out
}

/// Those of these keys whose values are hidden.
fn hides(secrets: Secrets, keys: &'static [&'static str]) -> &'static [&'static str] {
    match secrets {
        Secrets::Hidden => keys,
        Secrets::Shown => &[],
    }
}

/// `[defaults]` and each `[[queue]]`.
fn queues(out: &mut String, config: &Config, secrets: Secrets) {
    comment(
        out,
        "Settings of every queue, unless a [[queue]] has its own. SIGHUP reloads them.",
    );
    out.push_str("[defaults]\n");
    let mut settings = QueueSettings::of_server();
    config.defaults.lay_over(&mut settings);
    for spec in QUEUE_SETTINGS {
        comment(out, spec.help);
        line(out, spec.key, &(spec.show)(&settings));
    }
    out.push('\n');
    comment(
        out,
        "One table per queue or pattern (* any run of characters, ? any one), with the keys of \
         [defaults]. Later ones win over earlier, exact names over patterns. SIGHUP reloads them.",
    );
    if config.rules.is_empty() {
        comment(out, "[[queue]]");
        comment(out, "name = \"work*\"");
        comment(out, "messages_max = 1000");
    }
    for (name, overrides) in &config.rules {
        out.push_str("[[queue]]\n");
        line(out, "name", &quoted(name));
        // Only what differs from the defaults was said by the rule or has no effect.
        let mut ruled = settings.clone();
        overrides.lay_over(&mut ruled);
        for spec in QUEUE_SETTINGS {
            let shown = (spec.show)(&ruled);
            if shown != (spec.show)(&settings) {
                line(out, spec.key, &shown);
            }
        }
        for (key, value) in scripts::of(&config.scripts, name) {
            line(out, key, &script_value(key, value, secrets));
        }
    }
    out.push('\n');
}

/// A `[[listen]]` table.
fn listener(out: &mut String, listen: &Listen, secrets: Secrets) {
    out.push_str("[[listen]]\n");
    let tls = &listen.tls;
    macro_rules! rows {
        ($($key:literal = $value:expr, $about:expr;)*) => {
            $(comment(out, $about); line(out, $key, &$value);)*
        };
    }
    rows! {
        "protocol" = quoted(listen.served.name()),
            listen.served.about();
        "address" = quoted(&listen.address.to_string()),
            "HOST:PORT, :PORT, PORT (both on 127.0.0.1) or unix:PATH.";
        "idle" = quoted(&show_duration(listen.idle_ms)),
            "Connections without traffic are closed after this time; 0: never.";
        "user" = quoted(&listen.user),
            "Clients are this user until they log in as another; empty: no user.";
        "insecure" = listen.insecure.to_string(),
            "Listen beyond this machine without a login; otherwise an error at the start.";
        "tls" = quoted(tls.mode.name()),
            "TLS: \"auto\" (as the server's tls says), \"off\", \"on\" or \"self-signed\"; files of \
             its own, empty: the server's.";
    }
    line(out, "tls_cert", &quoted(&tls.cert));
    line(out, "tls_key", &quoted(&tls.key));
    line(out, "tls_client_ca", &quoted(&tls.client_ca));
    for spec in listen.served.options() {
        comment(out, spec.help);
        let value = match (spec.name, &listen.options) {
            (name, options) if !hides(secrets, PASSWORDS).contains(&name) => {
                option(options, name, spec.default)
            }
            ("password", options) if !options.text("password").is_empty() => quoted(HIDDEN),
            (name, options) => quoted(&without_passwords(options.text(name))),
        };
        line(out, spec.name, &value);
    }
}

/// Takes names and passwords out of addresses.
pub(crate) fn hide_logins(addresses: &mut [String]) {
    for address in addresses {
        let start = address.find("://").map_or(0, |at| at + 3);
        if let Some(end) = address[start..].rfind('@') {
            address.replace_range(start..start + end, HIDDEN);
        }
    }
}

/// A script's value of a rule.
pub(crate) fn script_value(key: &str, value: String, secrets: Secrets) -> String {
    match secrets == Secrets::Hidden && VARIABLES.contains(&key) {
        true => without_values(&value),
        false => value,
    }
}

/// Tables of a name; without one, commented out what they take. The values of `hides` are hidden.
fn tables<T: Clone + Default>(
    out: &mut String,
    name: &str,
    about: &str,
    (specs, tables): (&[Spec<T>], &[T]),
    hides: &[&str],
) {
    comment(out, about);
    if tables.is_empty() {
        comment(out, &format!("[[{name}]]"));
        for spec in specs {
            comment(out, &format!("{} = ... {}", spec.key, spec.help));
        }
    }
    for table in tables {
        let mut table = table.clone();
        out.push_str(&format!("[[{name}]]\n"));
        for spec in specs {
            if hides.contains(&spec.key) {
                hide((spec.field)(&mut table));
            }
            let value = (spec.field)(&mut table).show();
            if !UNSAID.contains(&value.as_str()) {
                line(out, spec.key, &value);
            }
        }
    }
    out.push('\n');
}

/// Values of rows that are left out.
const UNSAID: &[&str] = &["", "\"\"", "[]"];

/// Hides the text of a row, or its texts.
fn hide(field: Field<'_>) {
    if let Field::Text(text) = field {
        if !text.is_empty() {
            *text = hidden(text);
        }
    } else if let Field::Texts(texts) = field {
        texts.iter_mut().for_each(|text| *text = hidden(text));
    }
}

/// A value that still reads back, and lets nobody in.
fn hidden(value: &str) -> String {
    match value.split_once(' ') {
        // A token's end is no secret.
        Some((_, until)) => format!("{HIDDEN} {until}"),
        None => HIDDEN.to_owned(),
    }
}

/// `NAME:PASSWORD` pairs with the names alone.
fn without_passwords(pairs: &str) -> String {
    let names = pairs.split_whitespace().map(|pair| {
        let name = pair.split_once(':').map_or("", |(name, _)| name);
        format!("{name}:{HIDDEN}")
    });
    names.collect::<Vec<_>>().join(" ")
}

/// An inline table with the keys alone.
fn without_values(table: &str) -> String {
    let read = format!("t = {table}").parse::<toml::Table>();
    let Some(toml::Value::Table(values)) = read.ok().and_then(|mut read| read.remove("t")) else {
        return "{}".to_owned();
    };
    let hidden = values.into_iter().map(|(key, _)| (key, HIDDEN.into()));
    toml::Value::Table(hidden.collect()).to_string()
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
    use super::super::{CommandLine, load};
    use super::{Secrets, print};

    #[test]
    fn a_printed_configuration_reads_back_the_same() {
        let mut config = load(&CommandLine::default()).expect("defaults");
        config.rules = from_text("[[queue]]\nname='a?'\npaused=true\nttl='5s'")
            .expect("rule")
            .rules;
        let printed = print(&config, Secrets::Shown);
        let again = print(
            &from_text(&printed).expect("printed text reads back"),
            Secrets::Shown,
        );
        assert_eq!(printed, again);
    }

    /// The page for people lists every setting and option that the server
    /// takes, with its default as printed.
    #[test]
    fn documentation_lists_every_setting() {
        let page = include_str!("../../../docs/configuration.md");
        let config = load(&CommandLine::default()).expect("defaults");
        let printed = print(&config, Secrets::Shown);
        let rows: Vec<(&str, &str)> = printed
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split_once(" = "))
            .collect();
        assert!(rows.len() >= SETTINGS.len() + QUEUE_SETTINGS.len() + super::CLUSTER.len());
        for (key, value) in rows {
            assert!(
                page.contains(&format!("| `{key}` | `{value}` |")),
                "docs/configuration.md has no row \"| `{key}` | `{value}` |\""
            );
        }
    }

    #[test]
    fn secrets_are_hidden_wherever_they_stand() {
        let text = "[[queue]]\nname = 'm'\nscript = '/m'\nenv_vars = { KEY = 'hush', B = 'hush too' }\n\
                    [cluster]\nnats = ['nats://ann:hush@a:4222', 'b:4222', 'tok@hush@c']\n\
                    [[listen]]\nprotocol = 'http'\naddress = '0'\nusers = 'ann:hush bob:h:ush'\n";
        let config = from_text(text).expect("read");
        let shown = print(&config, Secrets::Shown);
        assert!(shown.contains("ann:hush bob:h:ush") && shown.contains("KEY = \"hush\""));
        let hidden = print(&config, Secrets::Hidden);
        assert!(
            !hidden.contains("hush") && !hidden.contains("h:ush"),
            "{hidden}"
        );
        assert!(hidden.contains("users = \"ann:*** bob:***\""), "{hidden}");
        assert!(
            hidden.contains("KEY = \"***\"") && hidden.contains("B = \"***\""),
            "{hidden}"
        );
        let nats = "nats = [\"nats://***@a:4222\", \"b:4222\", \"***@c\"]";
        assert!(hidden.contains(nats), "{hidden}");
        // It still is a configuration.
        from_text(&hidden).expect("reads back");
    }

    /// An option that takes a secret is in the list above.
    #[test]
    fn no_option_with_a_password_is_forgotten() {
        for served in super::super::Served::all() {
            for spec in served.options() {
                let about = format!("{} {}", spec.name, spec.help).to_lowercase();
                let secret = ["password", "secret", "token"];
                if secret.iter().any(|word| about.contains(word)) {
                    assert!(super::PASSWORDS.contains(&spec.name), "{}", spec.name);
                }
            }
        }
    }
}
