//! Changes to the settings of one queue while the server runs, and who made them.

use quintet_client::{Change, NoChange, SetBy};
use quintet_types::{Overrides, QueueSettings, QueueSetup, RetryOn, Tags};

use super::queues::{QUEUE_SETTINGS, QueueSpec, SCRIPT_KEYS, SET_BY};
use super::together::{WHY, clash};
use super::wrong::unknown;

/// Settings that have other ways to be changed, or none.
pub(crate) const FIXED: [&str; 3] = ["memory", "tags", "locked"];

/// They are one policy: a client that changes one of them keeps the others as they are in force,
/// and a client that clears one clears all.
const RETRY: [&str; 3] = ["retry_delay", "retry_max", "retry_on"];

/// The queue's own settings after `changes`, with the mark of who made them.
///
/// # Errors
/// One of them is not possible.
pub fn changed(setup: &QueueSetup, changes: &[Change], by: &SetBy) -> Result<Overrides, NoChange> {
    let mut own = setup.own.clone();
    for (key, value) in changes {
        let no = |why: String| NoChange {
            key: key.clone(),
            why,
            locked: false,
        };
        let spec = spec_of(key).map_err(no)?;
        match value {
            None if RETRY.contains(&spec.key) => {
                for spec in RETRY.iter().filter_map(|key| spec_of(key).ok()) {
                    clear(&mut own, spec);
                }
            }
            None => clear(&mut own, spec),
            Some(_) if spec.is_in(setup.settings.locked) => {
                return Err(NoChange::locked(key));
            }
            Some(text) => {
                let value = value_of(text).map_err(no)?;
                (spec.set)(&mut own, &value).map_err(no)?;
                if !(spec.among)(&own) {
                    return Err(no("an empty name cannot win over the file".to_owned()));
                }
                if own.expire_to.as_ref() == Some(&setup.name) {
                    let why = "is the queue itself: its expired messages would be lost";
                    return Err(no(why.to_owned()));
                }
                sign(&mut own, spec, by);
                if RETRY.contains(&spec.key) {
                    keep_policy(&mut own, setup, spec, by).map_err(no)?;
                }
            }
        }
    }
    may_go_together(setup, &own)?;
    Ok(own)
}

/// # Errors
/// A change gives the queue `aging` with `drop_oldest`.
fn may_go_together(setup: &QueueSetup, own: &Overrides) -> Result<(), NoChange> {
    let mut after = setup.settings.clone();
    own.lay_own_over(&mut after);
    // Of one that is cleared only the file says what it is; then a full queue refuses.
    let is_cleared = |bit| setup.own.set_bits() & bit != 0 && own.set_bits() & bit == 0;
    let (aging, full) = (Overrides::bit("aging"), Overrides::bit("when_full"));
    if !clash(&after) || is_cleared(aging) || is_cleared(full) {
        return Ok(());
    }
    let key = match own.aging == setup.own.aging {
        true if own.when_full == setup.own.when_full => return Ok(()),
        true => "when_full",
        false => "aging",
    };
    Err(NoChange {
        key: key.to_owned(),
        why: WHY.to_owned(),
        locked: false,
    })
}

/// The user that set the setting of this key of a queue's own.
pub(crate) fn set_by(setup: &QueueSetup, key: &str) -> Option<SetBy> {
    SetBy::of(setup, &tag(key))
}

fn spec_of(key: &str) -> Result<&'static QueueSpec, String> {
    let mut specs = QUEUE_SETTINGS.iter();
    if FIXED.contains(&key) || SCRIPT_KEYS.contains(&key) {
        return Err("can be changed only in the configuration file".to_owned());
    }
    match specs.find(|spec| spec.key == key) {
        Some(spec) => Ok(spec),
        None => Err(unknown(
            "setting",
            key,
            QUEUE_SETTINGS.iter().map(|spec| spec.key),
        )),
    }
}

/// A value in JSON as the file would have it; JSON of one value is TOML, but for objects and null.
fn value_of(json: &str) -> Result<toml::Value, String> {
    let table = format!("v = {json}").parse::<toml::Table>().ok();
    let value = table.and_then(|mut table| table.remove("v"));
    value.ok_or_else(|| match json.parse::<f64>() {
        Ok(_) => format!("takes numbers up to {}; not {json}", i64::MAX),
        Err(_) => "takes a number, true, false, a text or a list".to_owned(),
    })
}

/// Makes those of the retry policy that are in force the queue's own. If nobody has chosen a policy
/// before, a delay or a number of tries counts for all failures, as in the file.
fn keep_policy(
    own: &mut Overrides,
    setup: &QueueSetup,
    changed: &QueueSpec,
    by: &SetBy,
) -> Result<(), String> {
    let mut kept = setup.settings.clone();
    // One that the file has chosen alone stays.
    if kept.retry_by_default && kept.retry_on == RetryOn::NONE {
        kept.retry_on = QueueSettings::default().retry_on;
    }
    for spec in RETRY.iter().filter_map(|key| spec_of(key).ok()) {
        if !(spec.among)(own) && !spec.is_in(setup.settings.locked) && spec.key != changed.key {
            (spec.set)(own, &value_of(&(spec.show)(&kept))?)?;
            sign(own, spec, by);
        }
    }
    Ok(())
}

fn clear(own: &mut Overrides, spec: &QueueSpec) {
    own.clear(Overrides::bit(spec.field));
    set_tag(own, spec.key, None);
}

fn sign(own: &mut Overrides, spec: &QueueSpec, by: &SetBy) {
    let stamp = format!("{} {}", by.at_ms, by.name);
    set_tag(own, spec.key, Some(stamp.as_bytes()));
}

fn set_tag(own: &mut Overrides, key: &str, value: Option<&[u8]>) {
    let mut change = Tags::default();
    change.set(&tag(key), value);
    let tags = change.over(&own.tags.take().unwrap_or_default());
    own.tags = (!tags.is_empty()).then_some(tags);
}

fn tag(key: &str) -> Vec<u8> {
    [SET_BY, key.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::value_of;

    #[test]
    fn an_error_about_a_number_beyond_64_bits_has_the_range() {
        let wrong = value_of("18446744073709551615").expect_err("too large");
        let says = "takes numbers up to 9223372036854775807; not 18446744073709551615";
        assert_eq!(wrong, says);
        assert!(value_of("null").expect_err("nothing").ends_with("a list"));
    }
}
