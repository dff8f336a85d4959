//! The log's reader: a sound segment with any bytes written over any place.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| quintet_sim::damage::survive(input));
