//! Requests of the protocol `sqs` in both of its protocols: any path, query, target and body.

#![no_main]

use quintet_sqs::{Action, Head, read};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((&[kind, which], rest)) = input.split_first_chunk::<2>().map(|(a, b)| (a, b)) else {
        return;
    };
    let cut = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
    let (line, body) = rest.split_at(cut);
    let line = String::from_utf8_lossy(line);
    let (path, query) = line.split_once('?').unwrap_or((&line, ""));
    let target = format!("AmazonSQS.{}", Action::NAMES[usize::from(which) % Action::NAMES.len()]);
    let head = Head {
        get: kind & 1 == 1,
        path,
        query,
        content_type: match kind & 2 {
            0 => "application/x-amz-json-1.0",
            _ => "application/x-www-form-urlencoded",
        },
        target: (kind & 4 == 0).then_some(target.as_str()),
    };
    // Whatever comes is read or refused.
    let _read = read(&head, body);
});
