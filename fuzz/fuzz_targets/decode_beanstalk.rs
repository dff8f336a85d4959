//! The beanstalk decoder: any bytes, whole and cut up.

#![no_main]

#[path = "../../crates/wire/tests/wire/decoder/mod.rs"]
mod decoder;

libfuzzer_sys::fuzz_target!(|input: &[u8]| decoder::check_protocol(
    quintet_wire::protocol("beanstalk"),
    input
));
