//! Settings of queues in facts.

use super::*;

pub(super) fn overrides() -> impl Strategy<Value = Overrides> {
    let n = || prop::option::of(number());
    let b = || prop::option::of(any::<bool>());
    let s = || prop::option::of(small());
    (
        (s(), n(), n(), n(), n(), s()),
        // No queue has the empty name; the record uses it for "bury".
        (
            prop::option::of(prop::option::of(
                "[a-z]{1,3}".prop_map(|to| Name::from(to.as_str())),
            )),
            n(),
            n(),
            prop::option::of(name()),
        ),
        (b(), n(), n(), n(), b(), b(), b(), n(), rate(), s()),
        (n(), s(), n(), s(), s(), retry_on()),
        (
            prop::option::of(any::<bool>()),
            n(),
            prop::option::of(one_of(Scope::ALL)),
            prop::option::of(one_of(OnRepeat::ALL)),
            n(),
            prop::option::of(tags()),
        ),
        (
            prop::option::of(one_of(Groups::ALL)),
            n(),
            rate(),
            s(),
            n(),
            rate(),
        ),
    )
        .prop_map(
            |(a, (dead_letter, ttl_ms, ttl_max_ms, expire_to), c, retry, unique, keys)| Overrides {
                default_priority: a.0,
                default_ttr_ms: a.1,
                messages_max: a.2,
                bytes_max: a.3,
                message_bytes_max: a.4,
                attempts_max: a.5,
                dead_letter: dead_letter.map(|to| to.map_or(DeadLetter::Bury, DeadLetter::To)),
                ttl_ms,
                ttl_max_ms,
                expire_to,
                when_full: c.0.map(|drop| {
                    if drop {
                        WhenFull::DropOldest
                    } else {
                        WhenFull::Refuse
                    }
                }),
                dedupe_by_key_ms: c.1,
                retention_ms: c.2,
                idle_ms: c.3,
                paused: c.4,
                down: c.5,
                memory: None,
                locked: 0,
                fanout_only: c.6,
                in_flight_max: c.7,
                take_rate: c.8,
                take_burst: c.9,
                retry_delay_ms: retry.0,
                retry_factor: retry.1,
                retry_delay_max_ms: retry.2,
                retry_jitter: retry.3,
                retry_max: retry.4,
                retry_on: retry.5,
                unique_by_body: unique.0,
                unique_for_ms: unique.1,
                unique_until: unique.2,
                unique_repeat: unique.3,
                default_delay_ms: unique.4,
                tags: unique.5,
                groups: keys.0,
                key_in_flight_max: keys.1,
                key_take_rate: keys.2,
                key_take_burst: keys.3,
                buried_ttl_ms: keys.4,
                aging: keys.5,
            },
        )
}

fn tags() -> impl Strategy<Value = Tags> {
    let tags = prop::collection::btree_map("[a-z]{0,3}", "[a-z]{0,3}", 0..3);
    tags.prop_map(|tags| {
        let tags = tags.iter();
        tags.map(|(name, value)| (name.as_bytes(), value.as_bytes()))
            .collect()
    })
}

fn retry_on() -> impl Strategy<Value = Option<RetryOn>> {
    let one = prop::sample::select(vec![
        RetryOn::NONE,
        RetryOn::RELEASE,
        RetryOn::TIMEOUT.and(RetryOn::LOST),
        RetryOn::ALL,
    ]);
    prop::option::of(one)
}

fn rate() -> impl Strategy<Value = Option<Rate>> {
    let rate = (any::<u32>(), any::<u64>());
    prop::option::of(rate.prop_map(|(count, per_ms)| Rate { count, per_ms }))
}
