//! Every protocol's decoder against bytes nobody would send, cut up anyhow.
//!
//! Inputs are the kept corpus (`corpus/PROTOCOL/`, raw bytes), what the
//! transcripts send, and mutations of both. Whatever comes: no panic, no hang,
//! bounded memory, and the same requests and replies whether the bytes come
//! whole or in pieces, and whether replies are written at once or later.
//! `DECODER_CASES` sets the number of mutations per protocol; an input that fails
//! is printed, and belongs into the corpus.

use crate::decoder;

use std::fs;
use std::path::Path;

use decoder::{NOW, Random, check, run};
use quintet_sim::transcript::Transcript;
use quintet_wire::{Logins, Protocol};

/// Prints the input if a check of it panics.
struct OnFailure<'a>(&'a str, &'a [u8]);

impl Drop for OnFailure<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let cut = &self.1[..self.1.len().min(4000)];
            eprintln!("protocol {}, input \"{}\"", self.0, cut.escape_ascii());
        }
    }
}

/// Files of a folder, sorted; none if there is no such folder.
fn files(folder: &Path) -> Vec<Vec<u8>> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| fs::read(path).expect("a readable file"))
        .collect()
}

/// Inputs that a protocol is known to receive.
fn seeds(protocol: &Protocol) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut seeds = files(&root.join("corpus").join(protocol.name));
    for source in files(&root.join("transcripts").join(protocol.name)) {
        let source = String::from_utf8(source).expect("transcripts are text");
        let transcript = Transcript::parse(&source).expect("transcripts can be read");
        seeds.extend(transcript.sent(NOW.0 / 1000));
    }
    seeds
}

/// A new input made of known ones.
fn mutate(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let seed = &seeds[random.below(seeds.len())];
    let mut bytes = seed[..seed.len().min(6000)].to_vec();
    for _ in 0..1 + random.below(6) {
        let at = random.below(bytes.len() + 1);
        let until = at + random.below((bytes.len() - at).min(40) + 1);
        match random.below(7) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..until)),
            2 => {
                let copy = bytes[at..until].to_vec();
                bytes.splice(at..at, copy);
            }
            3 => {
                let other = &seeds[random.below(seeds.len())];
                let from = random.below(other.len() + 1);
                let to = from + random.below((other.len() - from).min(200) + 1);
                bytes.splice(at..until, other[from..to].iter().copied());
            }
            4 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random.next() as u8;
                }
            }
            5 => {
                let numbers = [
                    "0",
                    "-1",
                    "65536",
                    "65537",
                    "70000",
                    "4294967296",
                    "99999999999",
                ];
                let number = numbers[random.below(numbers.len())];
                bytes.splice(at..at, number.bytes());
            }
            _ => {
                let breaks = [&b"\r\n"[..], b"\n", b"\r", b" ", b"/", b"\x00", b"\xff"];
                bytes.splice(at..at, breaks[random.below(breaks.len())].iter().copied());
            }
        }
    }
    bytes
}

#[test]
fn known_inputs() {
    for protocol in quintet_wire::PROTOCOLS {
        for seed in seeds(protocol) {
            let _shown = OnFailure(protocol.name, &seed);
            check(protocol, &seed, &mut Random(1));
        }
    }
}

#[test]
fn random_bytes() {
    for protocol in quintet_wire::PROTOCOLS {
        let mut random = Random(2);
        for _ in 0..300 {
            let len = random.below(300);
            let input: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
            let _shown = OnFailure(protocol.name, &input);
            check(protocol, &input, &mut random);
        }
    }
}

#[test]
fn mutated_inputs() {
    let cases = std::env::var("DECODER_CASES").map_or(5000, |text| {
        text.parse().expect("DECODER_CASES is a number")
    });
    for protocol in quintet_wire::PROTOCOLS {
        let seeds = seeds(protocol);
        for case in 0..cases {
            let mut random = Random(case);
            let input = mutate(&seeds, &mut random);
            let _shown = OnFailure(protocol.name, &input);
            check(protocol, &input, &mut random);
        }
    }
}

/// A line that never ends, in small pieces, costs no more than its length.
#[test]
fn a_line_without_end_is_refused() {
    for protocol in quintet_wire::PROTOCOLS {
        let endless = vec![b'a'; 1 << 20];
        let trace = run(protocol, &endless, Logins::Off, false, || 100);
        let answered = trace.closed || !trace.replies.is_empty();
        assert!(answered, "{} reads on without a word", protocol.name);
    }
}

/// Each decoder is fuzzed too, by the same check.
#[test]
fn every_protocol_has_a_fuzz_target() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).expect("the fuzz crate's manifest");
    for protocol in quintet_wire::PROTOCOLS {
        let path = format!("fuzz_targets/decode_{}.rs", protocol.name);
        let source = fs::read_to_string(fuzz.join(&path)).unwrap_or_default();
        let named = source.contains(&format!("protocol(\"{}\")", protocol.name));
        assert!(named && manifest.contains(&path), "no {path}");
    }
}
