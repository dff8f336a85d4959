//! Reads the file and the command line into a [`Config`].

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use quintet_scripts::rules::toml_error;
use quintet_types::{Name, Overrides};
use quintet_wire::{Options, Value};

use super::cluster::CLUSTER;
use super::queues::{QUEUE_SETTINGS, SCRIPT_KEYS};
use super::schema::{SETTINGS, Spec, duration, parse_sync, takes, text};
use super::units::show_bytes;
use super::wrong::{Lines, Wrong, known, renamed, unknown};
use super::{
    Address, Config, Listen, ListenTls, Served, TlsMode, auth, control, limits, schedules, scripts,
    webhooks,
};

/// Settings of the command line; they win over the file.
#[derive(Clone, Debug, Default)]
pub struct CommandLine {
    pub config: Option<PathBuf>,
    pub data: Option<PathBuf>,
    pub listen: Vec<String>,
    /// Default listeners on other ports.
    pub port: Vec<String>,
    pub sync: Option<String>,
    /// Of `[cluster]`: `nats`, its addresses separated by commas.
    pub cluster: Option<String>,
}

/// The effective configuration.
///
/// # Errors
/// Names the file, the key and what it takes.
pub fn load(command_line: &CommandLine) -> Result<Config> {
    let file = match &command_line.config {
        Some(path) => std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the configuration {}", path.display()))?,
        None => String::new(),
    };
    load_text(command_line, &file)
}

/// As [`load`], with this text in place of the file's.
///
/// # Errors
/// As [`load`].
pub fn load_text(command_line: &CommandLine, file: &str) -> Result<Config> {
    let mut config = Config::default();
    if let Some(path) = &command_line.config {
        config = from_text(file).with_context(|| format!("in {}", path.display()))?;
    }
    if let Some(data) = &command_line.data {
        config.data.clone_from(data);
    }
    if let Some(sync) = &command_line.sync {
        config.sync = parse_sync(sync).map_err(|why| anyhow!("--sync {why}"))?;
    }
    if let Some(servers) = &command_line.cluster {
        config.cluster.nats = servers.split(',').map(str::to_owned).collect();
    }
    let names_all = !command_line.listen.is_empty() || !config.listen.is_empty();
    if let Some(flag) = command_line.port.first().filter(|_| names_all) {
        bail!(
            "--port {flag}: the listeners are named one by one, by --listen or [[listen]]: give \
             the port there"
        );
    }
    if !command_line.listen.is_empty() {
        config.listen = command_line
            .listen
            .iter()
            .map(|text| from_flag(text, &config.listen))
            .collect::<Result<_>>()?;
    } else if config.listen.is_empty() {
        config.listen = Served::all().map(by_default).collect();
        for listen in &mut config.listen {
            listen.is_default = true;
        }
        for flag in &command_line.port {
            set_port(flag, &mut config.listen)?;
        }
    }
    for listen in &config.listen {
        let (name, address) = (listen.served.name(), &listen.address);
        let tls = config.tls_of(listen);
        tls.map_err(|why| anyhow!("the listener {name} at {address}: {why}"))?;
    }
    let rows = config.schedules().map_err(|wrong| (wrong, "cron"));
    let rows = rows.and_then(|_| config.checked_limits().map_err(|wrong| (wrong, "limit")));
    let rows = rows.and_then(|_| config.receivers().map_err(|wrong| (wrong, "webhook")));
    let rows = rows.and_then(|_| config.together().map_err(|wrong| (wrong, "queue")));
    if let Err((wrong, table)) = rows {
        let error = wrong.on_line(file, table);
        return Err(match &command_line.config {
            Some(path) => error.context(format!("in {}", path.display())),
            None => error,
        });
    }
    let least = quintet_policy::smallest(config.shards);
    if config.memory < least {
        bail!(
            "memory = \"{}\" is too small for shards = {}: the smallest that works is {}",
            show_bytes(config.memory),
            config.shards,
            show_bytes(least)
        );
    }
    Ok(config)
}

/// A listener nothing is said about.
fn by_default(served: Served) -> Listen {
    Listen {
        served,
        address: Address::local(served.port()),
        is_default: false,
        idle_ms: 0,
        user: String::new(),
        insecure: false,
        tls: ListenTls::default(),
        options: Options::new(served.options()),
    }
}

/// `--listen PROTOCOL=ADDR[,KEY[=VALUE]]...`, with keys of `[[listen]]`. What the
/// file gives the same protocol still counts.
fn from_flag(flag: &str, of_file: &[Listen]) -> Result<Listen> {
    let (name, rest) = flag.split_once('=').ok_or_else(|| {
        anyhow!(
            "--listen {flag}: write PROTOCOL=ADDRESS, for example memcache=127.0.0.1:22133, with \
             options behind commas, for example memcache=0.0.0.0:22133,tls"
        )
    })?;
    let served = served(name).map_err(|why| anyhow!("--listen {flag}: {why}"))?;
    let mut words = rest.split(',');
    let address = Address::parse(words.next().unwrap_or_default());
    let address = address.map_err(|why| anyhow!("--listen {flag}: {why}"))?;
    let same = of_file
        .iter()
        .find(|listen| listen.served.name() == served.name());
    let mut listen = Listen {
        address,
        ..same.cloned().unwrap_or_else(|| by_default(served))
    };
    for word in words {
        let (key, value) = match word.split_once('=') {
            None => (word, toml::Value::Boolean(true)),
            Some((key, text)) => (key, as_value(text)),
        };
        set(&mut listen, key, &value).map_err(|why| anyhow!("--listen {flag}: {why}"))?;
    }
    let check = served.check(&listen.options);
    check.map_err(|why| anyhow!("--listen {flag}: {why}"))?;
    Ok(listen)
}

/// `--port PROTOCOL=PORT`: the default listener of that protocol listens there.
fn set_port(flag: &str, listen: &mut [Listen]) -> Result<()> {
    let wrong = || anyhow!("--port {flag}: write PROTOCOL=PORT, for example beanstalk=11301");
    let (name, port) = flag.split_once('=').ok_or_else(wrong)?;
    let port: u16 = port.parse().map_err(|_| wrong())?;
    let named = listen.iter_mut().find(|one| one.served.name() == name);
    let Some(listen) = named else {
        let why = served(name).map_or_else(|why| why, |_| "it has no default listener".to_owned());
        bail!("--port {flag}: {why}");
    };
    listen.address = Address::local(port);
    listen.is_default = false;
    Ok(())
}

/// A value as the file would have it: text needs no quotes here.
fn as_value(text: &str) -> toml::Value {
    if let Ok(flag) = text.parse() {
        return toml::Value::Boolean(flag);
    }
    match text.parse() {
        Ok(number) => toml::Value::Integer(number),
        Err(_) => toml::Value::String(text.to_owned()),
    }
}

fn served(name: &str) -> Result<Served, String> {
    if name == control::NAME {
        return Err(control::GONE.to_owned());
    }
    let names = || Served::all().map(Served::name);
    Served::by_name(name).ok_or_else(|| unknown("protocol", name, names()))
}

fn read(text: &str, config: &mut Config) -> Result<()> {
    let table = text.parse::<toml::Table>();
    let table =
        table.map_err(|error| anyhow!("TOML parse error at {}", toml_error(text, &error)))?;
    for (name, value) in &table {
        set_or_table(name, value, config).map_err(|wrong| wrong.on_line(text, name))?;
    }
    let lines = Lines::of_all(text, "user");
    (config.users.iter_mut().zip(lines)).for_each(|(user, lines)| user.lines = lines);
    let lines = Lines::of_all(text, "grant");
    (config.grants.iter_mut().zip(lines)).for_each(|(grant, lines)| grant.lines = lines);
    Ok(())
}

/// Reads a setting, or a table or all tables of a name.
fn set_or_table(name: &str, value: &toml::Value, config: &mut Config) -> Result<(), Wrong> {
    match name {
        "defaults" => {
            config.defaults = overrides(as_table(value, "[defaults]")?, &["name"], "[defaults]")?;
            Ok(())
        }
        "queue" => each(value, "[[queue]]", |table| rule(table, config)),
        "listen" => each(value, "[[listen]]", |table| {
            config.listen.push(listener(table)?);
            Ok(())
        }),
        "user" => rows(value, name, auth::USER, &mut config.users),
        "grant" => rows(value, name, auth::GRANT, &mut config.grants),
        "limit" => rows(value, name, limits::LIMIT, &mut config.limits),
        "cron" => rows(value, name, schedules::CRON, &mut config.crons),
        "schedule" => rows(value, name, schedules::SCHEDULE, &mut config.schedules),
        "webhook" => rows(value, name, webhooks::WEBHOOK, &mut config.webhooks),
        "cluster" => set_all(as_table(value, "[cluster]")?, "[cluster]", CLUSTER, config),
        key => {
            let spec = known(SETTINGS, key, |spec| spec.key, TABLES)?;
            let set = (spec.field)(config).set(value);
            set.map_err(|why| Wrong::of_value(key, value, &why))
        }
    }
}

/// Reads a `[[queue]]` table.
fn rule(table: &toml::Table, config: &mut Config) -> Result<(), Wrong> {
    let name = table
        .get("name")
        .and_then(toml::Value::as_str)
        .filter(|name| !name.is_empty())
        .ok_or_else(|| "a [[queue]] needs name = \"queue or pattern\"".to_owned())?;
    let place = format!("[[queue]] {name}");
    let overrides = overrides(table, &[], &place)?;
    let own = Name::new(name.as_bytes());
    if overrides.expire_to.as_ref() == Some(&own) {
        let why = "expire_to is the queue itself: its expired messages would be lost";
        return Err(Wrong::of_key("expire_to", why.to_owned()).within(&place));
    }
    config.rules.push((name.to_owned(), overrides));
    let script = scripts::read(name, table).map_err(|wrong| wrong.within(&place))?;
    config.scripts.extend(script);
    Ok(())
}

/// Reads all tables of a name.
fn each(
    value: &toml::Value,
    place: &str,
    mut read: impl FnMut(&toml::Table) -> Result<(), Wrong>,
) -> Result<(), Wrong> {
    let Some(array) = value.as_array() else {
        let why = format!("write {place} with two brackets: there may be several");
        return Err(why.into());
    };
    for (row, value) in array.iter().enumerate() {
        let table = as_table(value, place);
        table
            .and_then(&mut read)
            .map_err(|wrong| wrong.of_row(row))?;
    }
    Ok(())
}

/// Reads tables that are rows of these fields.
fn rows<T: Default>(
    value: &toml::Value,
    name: &str,
    specs: &[Spec<T>],
    into: &mut Vec<T>,
) -> Result<(), Wrong> {
    let place = format!("[[{name}]]");
    each(value, &place, |table| {
        let mut row = T::default();
        set_all(table, &place, specs, &mut row)?;
        into.push(row);
        Ok(())
    })
}

/// Sets the keys that a table has.
fn set_all<T>(
    table: &toml::Table,
    place: &str,
    specs: &[Spec<T>],
    of: &mut T,
) -> Result<(), Wrong> {
    for (key, value) in table {
        let spec = known(specs, key, |spec| spec.key, &[]);
        let spec = spec.map_err(|why| Wrong::of_key(key, why).within(place))?;
        let set = (spec.field)(of).set(value);
        set.map_err(|why| Wrong::of_value(key, value, &why).within(place))?;
    }
    Ok(())
}

/// Tables of the file beside settings.
const TABLES: &[&str] = &[
    "cluster", "cron", "defaults", "grant", "limit", "listen", "queue", "schedule", "user",
    "webhook",
];

/// `[defaults]` may not have a name; `refused` lists such keys.
fn overrides(table: &toml::Table, refused: &[&str], place: &str) -> Result<Overrides, Wrong> {
    let mut overrides = Overrides::default();
    for (key, value) in table {
        // A queue's name, and the variables of its script, is not for the engine.
        let named = !refused.contains(&"name");
        if named && (key == "name" || SCRIPT_KEYS.contains(&key.as_str())) {
            continue;
        }
        let of_scripts = if named { SCRIPT_KEYS } else { &[] };
        let spec = known(QUEUE_SETTINGS, key, |spec| spec.key, of_scripts);
        let spec = spec.map_err(|why| Wrong::of_key(key, why).within(place))?;
        (spec.set)(&mut overrides, value)
            .map_err(|why| Wrong::of_value(key, value, &why).within(place))?;
    }
    Ok(overrides)
}

fn listener(table: &toml::Table) -> Result<Listen, Wrong> {
    if let Some((key, why)) = table.keys().find_map(|key| Some((key, renamed(key)?))) {
        return Err(Wrong::of_key(key, why).within("[[listen]]"));
    }
    let name = table
        .get("protocol")
        .and_then(toml::Value::as_str)
        .ok_or_else(|| "a [[listen]] needs protocol = \"NAME\"".to_owned())?;
    let served = served(name).map_err(|why| Wrong::of_key("protocol", why).within("[[listen]]"))?;
    let place = format!("[[listen]] {name}");
    let mut listen = by_default(served);
    for (key, value) in table {
        if key != "protocol" {
            set(&mut listen, key, value).map_err(|wrong| wrong.within(&place))?;
        }
    }
    // What the protocol itself refuses is better said now than at the first use.
    let check = served.check(&listen.options);
    check.map_err(|why| format!("in {place}: {why}"))?;
    Ok(listen)
}

/// Sets one key of a `[[listen]]` table.
///
/// # Errors
/// Names the key and what it takes.
fn set(listen: &mut Listen, key: &str, value: &toml::Value) -> Result<(), Wrong> {
    let fail = |why: String| Wrong::of_value(key, value, &why);
    let words = |value| text(value).map(str::to_owned).map_err(fail);
    match key {
        "address" => {
            let address = match value.as_integer() {
                Some(port) => Address::parse(&port.to_string()),
                None => text(value).and_then(Address::parse),
            };
            listen.address = address.map_err(fail)?;
        }
        "idle" => listen.idle_ms = duration(value).map_err(fail)?,
        "user" => listen.user = words(value)?,
        "insecure" => listen.insecure = super::schema::flag(value).map_err(fail)?,
        "tls" => listen.tls.mode = TlsMode::read(value).map_err(fail)?,
        "tls_cert" => listen.tls.cert = words(value)?,
        "tls_key" => listen.tls.key = words(value)?,
        "tls_client_ca" => listen.tls.client_ca = words(value)?,
        key => {
            let spec = known(listen.served.options(), key, |spec| spec.name, LISTEN_KEYS);
            let spec = spec.map_err(|why| Wrong::of_key(key, why))?;
            let read = option_value(value, spec.default).map_err(fail)?;
            let set = listen.options.set(key, read);
            set.map_err(|why| Wrong::of_key(key, why))?;
        }
    }
    Ok(())
}

/// Keys of a `[[listen]]` table that are no protocol's own.
const LISTEN_KEYS: &[&str] = &[
    "protocol",
    "address",
    "idle",
    "user",
    "insecure",
    "tls",
    "tls_cert",
    "tls_key",
    "tls_client_ca",
];

fn option_value<'a>(value: &'a toml::Value, default: Value<'_>) -> Result<Value<'a>, String> {
    Ok(match (value, default) {
        (value, Value::Bytes(_)) => Value::Bytes(super::schema::bytes(value)?),
        (value, Value::Bool(_)) => Value::Bool(super::schema::flag(value)?),
        (toml::Value::Integer(n), Value::Number(_)) if *n >= 0 => Value::Number(n.unsigned_abs()),
        (value, Value::Number(n)) => {
            return Err(takes(&format!("a whole number, such as {n}"), value));
        }
        (toml::Value::String(text), Value::Text(_)) => Value::Text(text),
        (_, Value::Text("")) => return Err("takes text, in quotes".to_owned()),
        (_, Value::Text(known)) => {
            return Err(format!("takes text in quotes, such as \"{known}\""));
        }
    })
}

fn as_table<'a>(value: &'a toml::Value, place: &str) -> Result<&'a toml::Table, Wrong> {
    let table = value.as_table();
    table.ok_or_else(|| format!("{place} is a table").into())
}

/// Reads the text of a configuration file.
///
/// # Errors
/// As [`load`].
pub fn from_text(text: &str) -> Result<Config> {
    let mut config = Config::default();
    read(text, &mut config)?;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        match from_text(text) {
            Ok(_) => panic!("accepted: {text}"),
            Err(error) => format!("{error:#}"),
        }
    }

    #[test]
    fn unknown_keys_name_the_nearest() {
        for (text, nearest) in [
            ("snyc = 'always'", "\"sync\""),
            ("[defaults]\nmesages_max = 1", "\"messages_max\""),
            ("[[queue]]\nname='a'\npuased = true", "\"paused\""),
            ("[[lissten]]\nprotocol='memcache'", "\"listen\""),
            ("[[queue]]\nname='a'\nmax_retries = 3", "\"retry_max\""),
            (
                "[[queue]]\nname='a'\nscript='/x'\nworkers = 3",
                "\"num_workers\"",
            ),
            ("fsync = 'always'", "\"sync\""),
        ] {
            let error = error(text);
            assert!(
                error.contains("did you mean") && error.contains(nearest),
                "{error}"
            );
        }
    }

    #[test]
    fn an_old_name_is_an_error_that_names_the_new_one() {
        let text = "sync = 'always'\n[[listen]]\nprotocol = 'http'\n[[listen]]\nvoice = 'sqs'\n";
        let says = error(text);
        assert!(
            says.contains("line 5: ") && says.contains("voice is called protocol now"),
            "{says}"
        );
        let old = crate::old_names(&format!("{text}[[listen]]\nvoice = 'http'\n"));
        let why = "voice is called protocol now".to_owned();
        assert_eq!(old.0, [(5, why.clone()), (7, why)]);
        let (old, now) = crate::old_names("beat = '5s'\n[defaults]\ndefault_rank = 1\n");
        let why = |old: &str, new: &str| format!("{old} is called {new} now");
        let of_rank = why("default_rank", "default_priority");
        assert_eq!(old, [(1, why("beat", "heartbeat")), (3, of_rank)]);
        assert_eq!(now, "heartbeat = '5s'\n[defaults]\ndefault_priority = 1\n");
    }

    #[test]
    fn names_that_users_choose_are_no_old_names() {
        for text in [
            "[[queue]]\nname = 'voice'\n",
            "[[queue]]\nname = 'w'\nscript = '/x'\ntags = { voice = 'alto' }\nenv_vars = { rank = '7' }\n",
            "[[queue]]\nname = 'w'\n[queue.tags]\nbeat = 'four'\n",
        ] {
            assert_eq!(crate::old_names(text), (Vec::new(), text.to_owned()));
            from_text(text).expect("read");
        }
    }

    #[test]
    fn errors_of_values_out_of_range_have_the_range() {
        for (text, says) in [
            ("sync = 'often'", "\"always\", \"never\""),
            ("shards = 65", "1 to 64"),
            ("segment_bytes = '1KiB'", "4MiB to 1GiB"),
            ("log_level = 'loud'", "debug"),
            ("log_format = 'xml'", "text, json"),
            ("login_threads = 0", "1 to 64"),
            ("stop_wait = true", "duration"),
            ("[[queue]]\nmessages_max = 1", "needs name"),
            ("queue = 3", "two brackets"),
            ("data = ", "TOML"),
        ] {
            let error = error(text);
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_flag_takes_the_keys_of_its_table() {
        let flag = |text: &str| from_flag(text, &[]);
        let listen =
            flag("memcache=0.0.0.0:1,tls=self-signed,idle=10m,max_line=4KiB").expect("read");
        assert_eq!(listen.tls.mode, TlsMode::SelfSigned);
        assert_eq!(
            (listen.idle_ms, listen.options.number("max_line")),
            (600_000, 4096)
        );
        let listen = flag("http=0.0.0.0:1,tls,insecure,max_fields=20").expect("read");
        assert_eq!(listen.tls.mode, TlsMode::On);
        assert!(listen.insecure && listen.options.number("max_fields") == 20);
        for (text, says) in [
            ("memcache=1,tsl", "did you mean \"tls\""),
            ("memcache=1,tls=maybe", "self-signed"),
            ("memcache=1,max_line=1", "max_line"),
            ("memcache=1,", "unknown key"),
        ] {
            let Err(error) = flag(text) else {
                panic!("accepted: {text}");
            };
            assert!(format!("{error:#}").contains(says), "{error:#}");
        }
    }

    #[test]
    fn a_port_moves_one_default_listener_and_leaves_the_others() {
        let of = |port: &str, listen: &str| {
            let all = |text: &str| text.split_whitespace().map(str::to_owned).collect();
            load(&CommandLine {
                port: all(port),
                listen: all(listen),
                ..CommandLine::default()
            })
        };
        let moved = of("beanstalk=11301 http=0", "").expect("read");
        assert_eq!(moved.listen.len(), Served::all().count());
        for listen in &moved.listen {
            let name = listen.served.name();
            let (port, is_default) = match name {
                "beanstalk" => (11_301, false),
                "http" => (0, false),
                _ => (listen.served.port(), true),
            };
            assert_eq!(listen.address, Address::local(port), "{name}");
            assert_eq!(listen.is_default, is_default, "{name}");
        }
        for (port, listen, says) in [
            ("beanstalk", "", "beanstalk=11301"),
            ("beanstalk=65536", "", "beanstalk=11301"),
            ("beanstalk=127.0.0.1:1", "", "beanstalk=11301"),
            ("beanstork=1", "", "unknown"),
            ("admin=1", "", "--server https://"),
            ("", "admin=1", "--server https://"),
            ("beanstalk=1", "http=0", "one by one"),
        ] {
            let error = of(port, listen).map(drop).expect_err(port);
            assert!(format!("{error:#}").contains(says), "{error:#}");
        }
    }

    #[test]
    fn an_error_of_toml_has_its_place_and_no_text() {
        for (text, place) in [
            (
                "queues_max = 7\n[[user]]\nname = 'ann'\npassword = hush-hush'\n",
                "line 4, column 12",
            ),
            ("password = 'hush-hush\n", "line 1, column "),
            ("'hush-hush' = 1\n'hush-hush' = 2\n", "line 2, column 1"),
            ("[[user]]\npassword = \"hush-hush\\q\"\n", "line 2, column "),
        ] {
            let message = error(text);
            assert!(
                message.contains(place) && !message.contains("hush"),
                "{text}: {message}"
            );
        }
    }

    #[test]
    fn a_queue_does_not_expire_to_itself() {
        let rule =
            |name: &str| format!("[[queue]]\nname = '{name}'\nttl = '1s'\nexpire_to = 'work'");
        assert!(error(&rule("work")).contains("expire_to is the queue itself"));
        for good in ["w*", "other"] {
            from_text(&rule(good)).expect("read");
        }
        from_text("[defaults]\nexpire_to = 'work'").expect("read");
    }

    #[test]
    fn queue_rules_reach_the_engine() {
        let config = from_text(
            "[defaults]\nttl = '1h'\n[[queue]]\nname = 'w*'\nmessages_max = 3\ndead_letter = 'dead'",
        )
        .expect("read");
        let settings = config.engine_settings();
        assert_eq!(settings.resolve(b"work").messages_max, 3);
        assert_eq!(settings.resolve(b"other").messages_max, 0);
        assert_eq!(settings.resolve(b"other").ttl_ms, 3_600_000);
    }
}
