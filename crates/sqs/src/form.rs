//! The Query protocol's parameters, brought into the form of the JSON
//! protocol's members.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::fault::Fault;

/// Parameters of a request at most.
const FIELDS_MAX: usize = 50_000;

/// A parameter: its name, or what is left of it, and its value.
type Field<'a> = (&'a str, &'a str);

/// Meaning of a numbered parameter.
#[derive(Clone, Copy)]
enum Kind {
    /// `P.N`: the Nth of a list.
    Texts,
    /// `P.N.Name`, `P.N.Value`: strings by name; the two words.
    Map(&'static str, &'static str),
    /// `P.N.Name`, `P.N.Value.DataType` ...: values by name.
    Values,
    /// `P.N.Id` ...: the Nth of a list of such objects.
    Entries,
}

/// Parameter, member.
const LISTS: &[(&str, &str, Kind)] = &[
    ("Attribute", "Attributes", Kind::Map("Name", "Value")),
    ("AttributeName", "AttributeNames", Kind::Texts),
    (
        "MessageSystemAttributeName",
        "MessageSystemAttributeNames",
        Kind::Texts,
    ),
    ("MessageAttributeName", "MessageAttributeNames", Kind::Texts),
    ("MessageAttribute", "MessageAttributes", Kind::Values),
    (
        "MessageSystemAttribute",
        "MessageSystemAttributes",
        Kind::Values,
    ),
    ("Tag", "Tags", Kind::Map("Key", "Value")),
    ("TagKey", "TagKeys", Kind::Texts),
    ("SendMessageBatchRequestEntry", "Entries", Kind::Entries),
    ("DeleteMessageBatchRequestEntry", "Entries", Kind::Entries),
    (
        "ChangeMessageVisibilityBatchRequestEntry",
        "Entries",
        Kind::Entries,
    ),
    ("AWSAccountId", "AWSAccountIds", Kind::Texts),
    ("ActionName", "Actions", Kind::Texts),
];

/// The parameters of query strings and bodies, the last of a name counting.
#[derive(Default)]
pub(crate) struct Form {
    fields: Vec<(String, String)>,
}

impl Form {
    /// Adds what is form-encoded.
    ///
    /// # Errors
    /// There are too many.
    pub(crate) fn add(&mut self, encoded: &[u8]) -> Result<(), Fault> {
        for (name, value) in form_urlencoded::parse(encoded) {
            if self.fields.len() == FIELDS_MAX {
                return Err(Fault::parameter(format!(
                    "A request has {FIELDS_MAX} parameters at most."
                )));
            }
            self.fields.push((name.into_owned(), value.into_owned()));
        }
        Ok(())
    }

    /// The value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter().rev();
        let (_, value) = fields.find(|(known, _)| known == name)?;
        Some(value)
    }

    /// As JSON has it.
    pub(crate) fn members(&self) -> Value {
        let fields: Vec<Field<'_>> = self
            .fields
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        Value::Object(members(&fields, true))
    }
}

/// `whole`: of the request, and not of an entry, which has no entries.
fn members(fields: &[Field<'_>], whole: bool) -> Map<String, Value> {
    let mut plain = Map::new();
    // By the place in LISTS, then by number.
    let mut lists: BTreeMap<usize, BTreeMap<u64, Vec<Field<'_>>>> = BTreeMap::new();
    for (name, value) in fields {
        let split = name.split_once('.');
        let list = split.and_then(|(head, rest)| {
            let known = |(known, _, kind): &(&str, &str, Kind)| {
                *known == head && (whole || !matches!(kind, Kind::Entries))
            };
            let place = LISTS.iter().position(known)?;
            Some((place, rest))
        });
        match (list, split) {
            (Some((place, rest)), _) => {
                let (number, rest) = numbered(rest);
                let list = lists.entry(place).or_default();
                list.entry(number).or_default().push((rest, value));
            }
            // So botocore writes a list of nothing.
            (None, None)
                if LISTS
                    .iter()
                    .any(|(name_of, member, _)| name == name_of || name == member) => {}
            (None, None) => {
                plain.insert((*name).to_owned(), Value::from(*value));
            }
            // Nothing of ours.
            (None, Some(_)) => {}
        }
    }
    for (place, list) in lists {
        let (_, member, kind) = LISTS[place];
        let list = list.into_values();
        let value = match kind {
            Kind::Texts => list
                .filter_map(|of| Some(Value::from(of.last()?.1)))
                .collect(),
            Kind::Map(name, value) => Value::Object(
                list.filter_map(|of| {
                    let text = find(&of, value).unwrap_or_default();
                    Some((find(&of, name)?.to_owned(), Value::from(text)))
                })
                .collect(),
            ),
            Kind::Values => Value::Object(
                list.filter_map(|of| {
                    let value = of.iter().filter_map(|(name, value)| {
                        let name = name.strip_prefix("Value.")?;
                        listed(name, value)
                    });
                    Some((
                        find(&of, "Name")?.to_owned(),
                        Value::Object(value.collect()),
                    ))
                })
                .collect(),
            ),
            Kind::Entries => list.map(|of| Value::Object(members(&of, false))).collect(),
        };
        plain.insert(member.to_owned(), value);
    }
    plain
}

/// A member of an attribute's value; lists of values are refused later.
fn listed(name: &str, value: &str) -> Option<(String, Value)> {
    for (list, member) in [
        ("StringListValue.", "StringListValues"),
        ("BinaryListValue.", "BinaryListValues"),
    ] {
        if name.starts_with(list) {
            return Some((member.to_owned(), vec![value].into()));
        }
    }
    Some((name.to_owned(), Value::from(value)))
}

/// `3.Name` is the 3rd one's `Name`; without a number it is that of the only one.
fn numbered(rest: &str) -> (u64, &str) {
    let (number, after) = rest.split_once('.').unwrap_or((rest, ""));
    match number.parse() {
        Ok(number) => (number, after),
        Err(_) => (0, rest),
    }
}

fn find<'a>(fields: &[Field<'a>], name: &str) -> Option<&'a str> {
    let mut fields = fields.iter().rev();
    Some(fields.find(|(known, _)| *known == name)?.1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Value {
        let mut form = Form::default();
        form.add(text.as_bytes()).expect("few");
        form.members()
    }

    #[test]
    fn numbered_parameters_are_lists_in_the_order_of_their_numbers() {
        assert_eq!(
            read("AttributeName.10=b&AttributeName.2=a&TagKey.1=x&Version=2012-11-05"),
            json!({"AttributeNames": ["a", "b"], "TagKeys": ["x"], "Version": "2012-11-05"})
        );
    }

    #[test]
    fn maps_are_read_also_without_a_number() {
        assert_eq!(
            read("Attribute.Name=A&Attribute.Value=1&Tag.1.Key=k&Tag.1.Value=v&Tag.2.Key=only"),
            json!({"Attributes": {"A": "1"}, "Tags": {"k": "v", "only": ""}})
        );
    }

    #[test]
    fn a_list_of_nothing_is_a_name_without_a_number() {
        assert_eq!(
            read("Entries=&AttributeName=&QueueName=q"),
            json!({"QueueName": "q"})
        );
    }

    #[test]
    fn entries_have_attributes_of_their_own() {
        let body = "SendMessageBatchRequestEntry.2.Id=b&SendMessageBatchRequestEntry.1.Id=a&\
             SendMessageBatchRequestEntry.1.MessageAttribute.1.Name=n&\
             SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.DataType=String&\
             SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.StringValue=x%26";
        assert_eq!(
            read(body),
            json!({"Entries": [
                {"Id": "a", "MessageAttributes": {"n": {"DataType": "String", "StringValue": "x&"}}},
                {"Id": "b"},
            ]})
        );
    }

    #[test]
    fn parameters_are_bounded() {
        let mut form = Form::default();
        assert!(form.add("a=&".repeat(FIELDS_MAX).as_bytes()).is_ok());
        assert!(form.add(b"a").is_err());
    }

    #[test]
    fn odd_names_harm_nothing() {
        for odd in [
            "Attribute",
            "Attribute.",
            ".",
            "..",
            "Attribute.1",
            "Attribute.1.",
            "=x",
            "SendMessageBatchRequestEntry.1.SendMessageBatchRequestEntry.1.Id=x",
            "MessageAttribute.99999999999999999999.Name=x",
        ] {
            read(odd);
        }
        // Entries of entries of entries.
        read(&"SendMessageBatchRequestEntry.1.".repeat(100_000));
    }
}
