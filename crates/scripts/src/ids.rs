//! Ids as RQ shows them: `YYYYMMDD.HHMM.SS.mmm.<number>`, the time the message
//! was made (UTC) and its number in the engine.

use chrono::{NaiveDate, Timelike};
use quintet_types::{Message, MessageId, Ms};

/// The id without its queue: `20261128.1705.56.123.42`.
pub(crate) fn short_id(message: &Message) -> String {
    format(message.created, message.id)
}

fn format(created: Ms, id: MessageId) -> String {
    let time = quintet_client::words::date(created.0).unwrap_or_default();
    format!("{}.{}", time.format("%Y%m%d.%H%M.%S.%3f"), id.0)
}

/// Reads a short id: the time when the message was made, and its number. `None` if it is none, or
/// not written as [`short_id`] writes it.
pub(crate) fn parse_short(text: &str) -> Option<(Ms, MessageId)> {
    let parts: Vec<&str> = text.splitn(6, '.').collect();
    let [day, minute, second, ms, id] = *parts.as_slice() else {
        return None;
    };
    let id = MessageId(id.parse().ok()?);
    let date = NaiveDate::parse_from_str(day, "%Y%m%d").ok()?;
    let clock = minute.parse::<u32>().ok()?;
    let time = date
        .and_hms_milli_opt(
            clock / 100,
            clock % 100,
            second.parse().ok()?,
            ms.parse().ok()?,
        )?
        .and_utc();
    // No leap seconds, signs or missing zeros: one message, one spelling.
    let created = Ms(u64::try_from(time.timestamp_millis()).ok()?);
    (time.nanosecond() < 1_000_000_000 && format(created, id) == text).then_some((created, id))
}

/// The short id in a full or a short one: all behind the last slash.
pub fn last_part(id: &str) -> &str {
    let id = id.trim_end_matches('/');
    id.rsplit('/').next().unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let at = Ms(1_257_746_337_780);
        let text = format(at, MessageId(7_509_656));
        assert_eq!(text, "20091109.0558.57.780.7509656");
        assert_eq!(parse_short(&text), Some((at, MessageId(7_509_656))));
    }

    #[test]
    fn invalid_ids_are_refused() {
        for text in [
            "",
            "1",
            "20091109.0558.57.780",
            "20091109.0558.57.780.",
            "20091109.0558.57.780.7.8",
            "20091309.0558.57.780.7",
            "20091109.2560.57.780.7",
            "20091109.558.57.780.7",
            "20091109.0558.57.780.+7",
            "20091109.0558.57.780.07",
            "../../etc/passwd.1.2.3",
        ] {
            assert_eq!(parse_short(text), None, "{text}");
        }
    }

    #[test]
    fn full_ids_end_in_short_ones() {
        assert_eq!(last_part("http://h:3333/q/test/2009.1"), "2009.1");
        assert_eq!(last_part("2009.1"), "2009.1");
    }
}
