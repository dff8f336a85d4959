//! Timers in YAML: the same fields as in JSON.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fault::Fault;

/// Text of a scalar as it stands in the file: `007` and `yes` are parameters
/// like any other, not the number 7 and a truth value.
type Text = Option<String>;

#[derive(Deserialize, Serialize)]
struct Timer {
    period: Text,
    msg: Option<Message>,
}

#[derive(Deserialize, Serialize)]
struct Message {
    dest: Text,
    src: Text,
    orig_msg_id: Text,
    count: Text,
    max_count: Text,
    param1: Text,
    param2: Text,
    param3: Text,
    param4: Text,
    due: Text,
    force_remote: Text,
    post_run_webhook: Option<Vec<String>>,
}

/// Reads a timer's file into what the same file in JSON says. Fields nobody
/// knows are ignored, as there.
///
/// # Errors
/// [`Fault::Failed`] with the line: no YAML, several documents, a field twice,
/// or one that holds what it cannot.
pub(crate) fn timer(bytes: &[u8]) -> Result<Value, Fault> {
    let text =
        std::str::from_utf8(bytes).map_err(|error| Fault::Failed(format!("not UTF-8: {error}")))?;
    // A snippet of the file is many lines; the log wants one. The budget
    // bounds what aliases may grow to.
    let options = serde_saphyr::options! { with_snippet: false };
    let timer: Timer = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| Fault::Failed(error.to_string().replace('\n', " ")))?;
    let mut timer =
        serde_json::to_value(timer).map_err(|error| Fault::Failed(error.to_string()))?;
    leave_out_nulls(&mut timer);
    Ok(timer)
}

fn leave_out_nulls(value: &mut Value) {
    if let Value::Object(all) = value {
        all.retain(|_, value| !value.is_null());
        all.values_mut().for_each(leave_out_nulls);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Result<Value, String> {
        timer(text.as_bytes()).map_err(|fault| fault.to_string())
    }

    #[test]
    fn fields_of_a_timer() {
        let text = "# every hour\nperiod: 3600\nmsg:\n  dest: test\n  param1: 007\n  param2: yes\n  \
                    param3: \"a: b\"\n  param4: |\n    two\n    lines\n  max_count: 3\n  \
                    force_remote: true\n  src: ~\n  post_run_webhook: [\"http://a/\"]\n  unknown: [1]\nmore: {}\n";
        assert_eq!(
            read(text).expect("good"),
            json!({"period": "3600", "msg": {
                "dest": "test", "param1": "007", "param2": "yes", "param3": "a: b",
                "param4": "two\nlines\n", "max_count": "3", "force_remote": "true",
                "post_run_webhook": ["http://a/"],
            }})
        );
        let json = r#"{"period": 60, "msg": {"dest": "test"}}"#;
        assert_eq!(
            read(json).expect("JSON is YAML"),
            json!({"period": "60", "msg": {"dest": "test"}})
        );
    }

    #[test]
    fn the_example_of_the_documentation_is_good() {
        let page = include_str!("../../../docs/protocols/rq.md");
        let (_, example) = page.split_once("```yaml\n").expect("an example");
        let (example, _) = example.split_once("```").expect("its end");
        assert_eq!(
            read(example).expect("good"),
            json!({"period": "3600", "msg": {"dest": "reports", "param1": "hourly"}})
        );
    }

    #[test]
    fn invalid_text_is_refused() {
        for bad in [
            "period: [60]\nmsg: {dest: a}\n",
            "period: 60\nmsg: here\n",
            "period: 60\nmsg: {dest: a\n",
            "period: 60\nperiod: 61\nmsg: {dest: a}\n",
            "period: 60\nmsg: {dest: a}\n---\nperiod: 60\nmsg: {dest: b}\n",
            "a: &a [x, x]\nb: &b [*a, *a]\nperiod: *b\n",
        ] {
            let why = read(bad).expect_err(bad);
            assert!(!why.contains('\n'), "{why}");
        }
        assert!(timer(b"period: \xff").is_err());
    }

    /// Nested aliases double at each level: 2^60 scalars in some hundred bytes.
    #[test]
    fn aliases_do_not_grow_without_bound() {
        let mut text = "l0: &l0 [x, x]\n".to_owned();
        for n in 1..60 {
            text += &format!("l{n}: &l{n} [*l{0}, *l{0}]\n", n - 1);
        }
        text += "period: 60\nmsg: {dest: a, post_run_webhook: *l59}\n";
        read(&text).expect_err("over the budget");
    }

    #[test]
    fn depth_is_bounded() {
        let text = format!("period: 60\nx: {}\n", "[".repeat(100_000));
        read(&text).expect_err("too deep");
    }
}
