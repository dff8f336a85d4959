//! Any bytes are read or refused, in both protocols: as `fuzz/fuzz_targets/decode_sqs.rs`, for a
//! while and on every machine.
use proptest::prelude::*;
use quintet_sqs::{Action, Head, read};

/// Bodies that look like what they should be, for random changes.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let json = br#"{"QueueUrl":"q","Entries":[{"Id":"a","MessageBody":"x","DelaySeconds":"1","MessageAttributes":{"n":{"DataType":"Number","StringValue":"1"},"b":{"DataType":"Binary","BinaryValue":"AP8="}}}],"AttributeNames":["All"],"Attributes":{"DelaySeconds":"1"},"Tags":{"a":"b"}}"#;
    let form = b"Action=SendMessage&QueueUrl=q&SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.DataType=String&Attribute.1.Name=A&Attribute.1.Value=1&Tag.1.Key=a";
    let changed = prop_oneof![Just(json.to_vec()), Just(form.to_vec())].prop_flat_map(|body| {
        let at = proptest::collection::vec((0..body.len(), any::<u8>()), 0..8);
        at.prop_map(move |changes| {
            let mut body = body.clone();
            for (at, byte) in changes {
                body[at] = byte;
            }
            body
        })
    });
    prop_oneof![3 => changed, 1 => proptest::collection::vec(any::<u8>(), 0..512)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_request_is_read_or_refused(
        get in any::<bool>(),
        json in any::<bool>(),
        which in 0..Action::NAMES.len(),
        path in "(/[a-z.]{0,4}){0,5}",
        query in "(Action=[A-Za-z]{0,20}&?)?[a-zA-Z0-9.=&%+]{0,60}",
        body in body(),
    ) {
        let target = format!("AmazonSQS.{}", Action::NAMES[which]);
        let head = Head {
            get,
            path: &path,
            query: &query,
            content_type: if json { "application/x-amz-json-1.0" } else { "" },
            target: Some(&target),
        };
        if let Ok(parsed) = read(&head, &body)
            && let Ok(action) = parsed.action
        {
            prop_assert!(Action::NAMES.contains(&action.name()));
        }
    }
}
