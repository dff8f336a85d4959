//! The record decoder: any bytes.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| quintet_sim::facts::survive(input));
