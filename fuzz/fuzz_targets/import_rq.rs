//! A message of RQ's folder: any bytes.

#![no_main]

#[expect(dead_code, reason = "each target looks at one kind of file")]
#[path = "../../crates/import/tests/random/survive.rs"]
mod survive;

libfuzzer_sys::fuzz_target!(|input: &[u8]| survive::rq(input));
