//! Any bytes, and sound files with any bytes written over any place. `IMPORT_CASES` says how many
//! files of each kind are tried.

mod survive;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Any bytes, many of them small numbers as lengths and codes are; or these, over which some are
/// written.
fn near(sound: &'static [u8]) -> impl Strategy<Value = Vec<u8>> {
    // Not `prop_oneof!`, which would begin a generator of random numbers for half of the bytes.
    let byte = any::<[u8; 2]>().prop_map(|[kind, byte]| match kind % 2 {
        0 => byte % 12,
        _ => byte,
    });
    let strange = vec(byte, 0..300);
    let changes = vec((0..sound.len(), any::<u8>()), 0..4);
    let damaged = (changes, 0..=sound.len()).prop_map(|(changes, len)| {
        let mut all = sound.to_vec();
        for (at, byte) in changes {
            all[at] = byte;
        }
        all.truncate(len);
        all
    });
    prop_oneof![strange, damaged]
}

fn survives(sound: &'static [u8], survive: fn(&[u8])) {
    let cases = std::env::var("IMPORT_CASES").ok();
    let cases = cases.and_then(|cases| cases.parse().ok()).unwrap_or(5000);
    survive(sound);
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let run = TestRunner::new(config).run(&near(sound), |file| {
        survive(&file);
        Ok(())
    });
    run.unwrap();
}

#[test]
fn any_binlog_is_survived() {
    survives(include_bytes!("../../corpus/binlog-7"), survive::binlog);
    survives(include_bytes!("../../corpus/binlog-5"), survive::binlog);
}

#[test]
fn any_journal_is_survived() {
    survives(include_bytes!("../../corpus/journal"), survive::journal);
}

#[test]
fn any_message_of_rq_is_survived() {
    survives(include_bytes!("../../corpus/rq-msg"), survive::rq);
    survives(include_bytes!("../../corpus/rq-status"), survive::rq);
}
