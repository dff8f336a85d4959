//! How a queue is set up: what holds, who said so, and where copies go.

use askama::Template;
use quintet_client::{SetBy, Setting, Source};
use quintet_types::{Name, QueueSetup, Tags, Verb};

use super::frame::Frame;
use super::names::{self, Named};
use super::{Answer, PageRequest, Posted, Two, queue_of, render, words};
use quintet_api::{Path, version_of_setup};

/// A setting in force.
pub(super) struct Value {
    pub(super) value: String,
    pub(super) from: String,
    /// Somebody said so.
    pub(super) said: bool,
    /// Somebody said so for this queue while the server ran.
    pub(super) own: bool,
    pub(super) setting: Setting,
}

/// A queue's.
pub(super) struct Setup {
    /// Values that somebody set come first, each part in the documentation's order.
    pub(super) values: Vec<Value>,
    pub(super) said: usize,
    /// It gets copies of this one's puts.
    pub(super) parent: Option<Named>,
    /// They get copies of its puts; those that may be seen.
    pub(super) children: Vec<Named>,
}

impl Value {
    /// The value as a form has it: text without quotes.
    fn typed(&self) -> String {
        serde_json::from_str(&self.value).unwrap_or_else(|_| self.value.clone())
    }
}

pub(crate) fn of(context: &PageRequest, setup: &QueueSetup) -> Setup {
    let settings = context.client_api().queue_settings(setup);
    let now = context.client_api().wall().0;
    let values = settings.into_iter().map(|setting| Value {
        value: names::seen(&setting.value),
        from: match &setting.set_by {
            Some(by) => format!("set {}", who(by, now)),
            None => setting.source.name().to_owned(),
        },
        said: setting.source != Source::Default,
        own: setting.source == Source::Queue && setting.key != "tags",
        setting,
    });
    let mut values: Vec<Value> = values.collect();
    values.sort_by_key(|value| !value.said);
    let seen = |name: &&Name| context.requester.may_to(Verb::Stats, name);
    Setup {
        said: values.iter().filter(|value| value.said).count(),
        values,
        parent: setup.parent.as_ref().filter(seen).map(Named::new),
        children: setup.children.iter().filter(seen).map(Named::new).collect(),
    }
}

/// `by anna, 12:01:05 UTC`: who paused the queue by command, if that is known.
pub(super) fn paused_by(context: &PageRequest, setup: &QueueSetup) -> Option<String> {
    let by = SetBy::of(setup, Tags::PAUSED_BY)?;
    Some(who(&by, context.client_api().wall().0))
}

/// The same of any change, with the day where that is another one.
fn who(by: &SetBy, now: u64) -> String {
    const DAY: u64 = 24 * 3600 * 1000;
    let moment = match by.at_ms / DAY == now / DAY {
        true => words::time_of_day(by.at_ms),
        false => words::moment(by.at_ms),
    };
    match by.name.as_str() {
        "" => moment,
        name => format!("by {}, {moment}", names::seen(name)),
    }
}

#[derive(Template)]
#[template(path = "queue_settings.html")]
struct Changed {
    frame: Frame,
    name: Named,
    setup: Setup,
    has: String,
    /// The requester may change them.
    may: bool,
    /// The subject of the forms.
    seen: String,
}

/// `/queues/NAME/settings`.
pub(super) async fn page(context: PageRequest, Path(part): Path<String>) -> Answer {
    let queue = queue_of(&part)?;
    let query = context.query()?;
    let has = query.get("has").unwrap_or_default().to_lowercase();
    let queue_setup = context.setup(&queue).await?;
    let mut setup = of(&context, &queue_setup);
    let says = |text: &String| text.to_lowercase().contains(&has);
    setup.values.retain(|value| {
        let (key, help) = (&value.setting.key, &value.setting.help);
        [key, &value.value, &value.from, help].into_iter().any(says)
    });
    let name = Named::new(&queue);
    let title = format!("Settings of {}", name.plain);
    render(&Changed {
        frame: context.frame.of(title, "queues"),
        may: context.requester.may_to(Verb::Configure, &queue),
        seen: version_of_setup(&queue_setup),
        name,
        setup,
        has,
    })
}

/// `POST /queues/NAME/settings/KEY`: sets it, or undoes that.
pub(crate) async fn change(Path((part, key)): Two, Posted(context, submitted): Posted) -> Answer {
    let queue = queue_of(&part)?;
    let (app, api) = (&context.console.app, &context.console.api);
    let before = api.setup(&context.requester, &queue).await?;
    let undoes = submitted.form.says("undo");
    let typed = submitted.form.get("value").unwrap_or_default().trim();
    let value = match of_key(&context, &before, &key) {
        _ if undoes => None,
        // Text needs no quotes here.
        Some(now) if now.value.starts_with('"') => Some(serde_json::Value::from(typed).to_string()),
        _ => Some(in_json(typed)),
    };
    let changes = [(key.clone(), value)];
    // An undo is about one setting, whatever became of others.
    let seen = submitted.form.get("seen").filter(|_| !undoes);
    let changed = api.change(&context.requester, &queue, &changes, seen).await;
    let says = |setup: &QueueSetup, by: bool| {
        let now = of_key(&context, setup, &key);
        now.map(|now| {
            let set_by = now.set_by.filter(|_| by);
            let by = set_by.map(|set_by| who(&set_by, context.client_api().wall().0));
            let by = by.map(|by| format!(", set {by}")).unwrap_or_default();
            format!("{key} is {}{by}", names::seen(&now.value))
        })
        .unwrap_or_default()
    };
    let note = match changed {
        Ok(setup) if undoes => format!("Undone: {} again.", says(&setup, false)),
        Ok(setup) => format!("Changed: {} now.", says(&setup, false)),
        Err(problem) if problem.status == 412 => format!(
            "Not changed: another user changed the settings meanwhile. {}.",
            says(&before, true)
        ),
        Err(problem) if problem.field.is_some() => {
            format!("Not changed: {}.", names::seen(&problem.detail))
        }
        Err(problem) => return Err(problem),
    };
    Ok(app.back(&submitted.form, &format!("queues/{part}/settings"), note))
}

/// A value as it was typed; what is no value is a text, of which the setting says what it takes
/// instead.
fn in_json(typed: &str) -> String {
    let value = serde_json::from_str::<serde_json::Value>(typed).ok();
    let value = value.filter(|value| {
        value.is_i64() || value.is_boolean() || value.is_array() || value.is_string()
    });
    value.unwrap_or_else(|| typed.into()).to_string()
}

fn of_key(context: &PageRequest, setup: &QueueSetup, key: &str) -> Option<Setting> {
    let settings = context.client_api().queue_settings(setup);
    settings.into_iter().find(|setting| setting.key == key)
}
