//! The text that permissions make. It is kept and shown, and permits nothing.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::fault::{Fault, Shape};

/// Actions of a permission at most.
const ACTIONS_MAX: usize = 7;

/// Actions that a policy may permit to others than the owner.
const ACTIONS: &[&str] = &[
    "*",
    "ChangeMessageVisibility",
    "DeleteMessage",
    "GetQueueAttributes",
    "GetQueueUrl",
    "ListDeadLetterSourceQueues",
    "PurgeQueue",
    "ReceiveMessage",
    "SendMessage",
];

/// The part of a policy that is read; the rest of it does not outlive a change.
#[derive(Deserialize, Default)]
struct Policy {
    #[serde(rename = "Id")]
    id: Option<String>,
    #[serde(rename = "Statement", default)]
    statements: Vec<Value>,
}

fn label_wrong(label: &str, reason: &str) -> Fault {
    Fault::value(label, "Label", reason)
}

fn read(policy: Option<&str>) -> Policy {
    let policy = policy.and_then(|text| serde_json::from_str(text).ok());
    policy.unwrap_or_default()
}

/// The policy with a permission more.
///
/// # Errors
/// It cannot be added.
pub(crate) fn add(
    policy: Option<&str>,
    arn: &str,
    label: &str,
    accounts: &[String],
    actions: &[String],
) -> Result<String, Fault> {
    if actions.is_empty() {
        return Err(Fault::missing("Actions"));
    }
    if accounts.is_empty() {
        return Err(Fault::value("[]", "PrincipalId", "Unable to verify."));
    }
    if actions.len() > ACTIONS_MAX {
        let why = format!(
            "{} Actions were found, maximum allowed is {ACTIONS_MAX}.",
            actions.len()
        );
        return Err(Fault::new(Shape::OverLimit, why));
    }
    if let Some(odd) = actions
        .iter()
        .find(|action| !ACTIONS.contains(&action.as_str()))
    {
        let why = "Only the queue owner is allowed to invoke this action.";
        return Err(Fault::value(format!("SQS:{odd}"), "ActionName", why));
    }
    let mut policy = read(policy);
    if policy
        .statements
        .iter()
        .any(|statement| statement["Sid"] == label)
    {
        return Err(label_wrong(label, "Already exists."));
    }
    let of = |texts: Vec<String>| match <[String; 1]>::try_from(texts) {
        Ok([one]) => json!(one),
        Err(several) => json!(several),
    };
    let users = accounts.iter().map(|id| format!("arn:aws:iam::{id}:root"));
    let actions = actions.iter().map(|action| format!("SQS:{action}"));
    policy.statements.push(json!({
        "Sid": label,
        "Effect": "Allow",
        "Principal": {"AWS": of(users.collect())},
        "Action": of(actions.collect()),
        "Resource": arn,
    }));
    Ok(write(&policy, arn))
}

/// The policy without a permission; `None`: nothing is left of it.
///
/// # Errors
/// It has none of this label.
pub(crate) fn remove(
    policy: Option<&str>,
    arn: &str,
    label: &str,
) -> Result<Option<String>, Fault> {
    let mut policy = read(policy);
    let before = policy.statements.len();
    policy
        .statements
        .retain(|statement| statement["Sid"] != label);
    if policy.statements.len() == before {
        return Err(label_wrong(label, "can't find label."));
    }
    Ok((!policy.statements.is_empty()).then(|| write(&policy, arn)))
}

/// Members in the order that AWS has, whatever the order in memory is.
fn write(policy: &Policy, arn: &str) -> String {
    const ORDER: [&str; 5] = ["Sid", "Effect", "Principal", "Action", "Resource"];
    let statement = |statement: &Value| {
        let of = statement.as_object();
        let known = ORDER
            .iter()
            .filter_map(|name| Some((*name, of?.get(*name)?)));
        let others = of.into_iter().flatten();
        let others = others.filter(|(name, _)| !ORDER.contains(&name.as_str()));
        let members: Vec<String> = known
            .chain(others.map(|(name, value)| (name.as_str(), value)))
            .map(|(name, value)| format!("{}:{value}", json!(name)))
            .collect();
        format!("{{{}}}", members.join(","))
    };
    let statements: Vec<String> = policy.statements.iter().map(statement).collect();
    let id = policy.id.clone();
    let id = id.unwrap_or_else(|| format!("{arn}/SQSDefaultPolicy"));
    format!(
        "{{\"Version\":\"2008-10-17\",\"Id\":{},\"Statement\":[{}]}}",
        json!(id),
        statements.join(",")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARN: &str = "arn:aws:sqs:us-east-1:000000000000:q";

    fn texts(of: &[&str]) -> Vec<String> {
        of.iter().map(|text| (*text).to_owned()).collect()
    }

    /// Case 16.
    #[test]
    fn permissions_make_the_text_that_aws_makes() {
        let accounts = texts(&["111111111111"]);
        let receive = texts(&["ReceiveMessage"]);
        let first = add(None, ARN, "l", &accounts, &receive).expect("added");
        assert_eq!(
            first,
            "{\"Version\":\"2008-10-17\",\
             \"Id\":\"arn:aws:sqs:us-east-1:000000000000:q/SQSDefaultPolicy\",\
             \"Statement\":[{\"Sid\":\"l\",\"Effect\":\"Allow\",\
             \"Principal\":{\"AWS\":\"arn:aws:iam::111111111111:root\"},\
             \"Action\":\"SQS:ReceiveMessage\",\"Resource\":\"arn:aws:sqs:us-east-1:000000000000:q\"}]}"
        );
        let again = add(Some(&first), ARN, "l", &accounts, &receive).expect_err("there");
        assert_eq!(
            again.text,
            "Value l for parameter Label is invalid. Reason: Already exists."
        );
        let two = texts(&["SendMessage", "*"]);
        let second = add(Some(&first), ARN, "m", &accounts, &two).expect("added");
        assert!(
            second.contains("\"Action\":[\"SQS:SendMessage\",\"SQS:*\"]"),
            "{second}"
        );
        assert_eq!(
            remove(Some(&second), ARN, "m").expect("removed"),
            Some(first.clone())
        );
        assert_eq!(remove(Some(&first), ARN, "l").expect("removed"), None);
        let gone = remove(None, ARN, "l").expect_err("none");
        assert_eq!(
            gone.text,
            "Value l for parameter Label is invalid. Reason: can't find label."
        );
        let eight = vec!["SendMessage".to_owned(); 8];
        let fault = add(None, ARN, "l", &accounts, &eight).expect_err("many");
        assert_eq!(
            (fault.shape, fault.text.as_ref()),
            (
                Shape::OverLimit,
                "8 Actions were found, maximum allowed is 7."
            )
        );
        let create = texts(&["CreateQueue"]);
        let fault = add(None, ARN, "l", &accounts, &create).expect_err("not to be given");
        assert_eq!(
            fault.text,
            "Value SQS:CreateQueue for parameter ActionName is invalid. \
             Reason: Only the queue owner is allowed to invoke this action."
        );
        assert_eq!(
            add(None, ARN, "l", &accounts, &[]).expect_err("none").shape,
            Shape::MissingParameter
        );
        let fault = add(None, ARN, "l", &[], &receive).expect_err("nobody");
        assert_eq!(
            fault.text,
            "Value [] for parameter PrincipalId is invalid. Reason: Unable to verify."
        );
    }
}
