//! Replays every transcript against its protocol: whole, and byte by byte; with an
//! exact clock, and with one as coarse as the server's.
//!
//! `UPDATE=1` rewrites the received lines instead.

use crate::common;

use std::fs;
use std::path::{Path, PathBuf};

use common::Host;
use quintet_sim::transcript::{Chunking, Link, Transcript};

#[test]
fn every_transcript_is_answered_as_written() {
    let update = std::env::var_os("UPDATE").is_some();
    let mut failures = Vec::new();
    for path in transcripts() {
        let result = if update { record(&path) } else { replay(&path) };
        if let Err(error) = result {
            failures.push(format!("{}: {error}", path.display()));
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n\n"));
}

/// More than one step of the engine is about.
#[test]
fn a_kick_moves_as_many_as_requested() {
    let protocol = quintet_wire::protocol("beanstalk").expect("a protocol");
    let mut host = Host::new(protocol, &[], 0).expect("a server");
    let mut ask = |request: String| {
        let mut reply = Vec::new();
        host.send(1, request.as_bytes());
        host.receive(1, &mut reply);
        String::from_utf8(reply).expect("text")
    };
    for _ in 0..10_001 {
        ask("put 5 0 60 0\r\n\r\n".to_owned());
        ask("put 5 600 60 0\r\n\r\n".to_owned());
        let reserved = ask("reserve\r\n".to_owned());
        let id = reserved.split(' ').nth(1).expect("a job");
        assert_eq!(ask(format!("bury {id} 5\r\n")), "BURIED\r\n");
    }
    // Buried ones as long as there are some, however many are asked for; a
    // kick that kicked one kicks no delayed ones.
    for (kick, kicked) in [
        ("kick 0", 0),
        ("kick 10000", 10_000),
        ("kick 10", 1),
        ("kick 4096", 4096),
        ("kick 18446744073709551615", 5905),
        ("kick 1", 0),
    ] {
        let expected = format!("KICKED {kicked}\r\nUSING default\r\n");
        assert_eq!(
            ask(format!("{kick}\r\nlist-tube-used\r\n")),
            expected,
            "{kick}"
        );
    }
}

#[test]
fn every_protocol_has_transcripts() {
    let paths = transcripts();
    for protocol in quintet_wire::PROTOCOLS {
        assert!(
            paths
                .iter()
                .any(|path| protocol_name(path) == protocol.name),
            "no transcripts of {}",
            protocol.name
        );
    }
}

pub(crate) fn transcripts() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("transcripts");
    let mut paths: Vec<PathBuf> = children(&root)
        .iter()
        .flat_map(|protocol| children(protocol))
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    paths.sort();
    paths
}

fn children(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder of transcripts can be read");
    entries
        .map(|entry| entry.expect("its entries too").path())
        .collect()
}

pub(crate) fn protocol_name(path: &Path) -> &str {
    let folder = path.parent().and_then(Path::file_name);
    folder.and_then(|name| name.to_str()).unwrap_or_default()
}

pub(crate) fn open(path: &Path, grain_ms: u64) -> Result<(Transcript, Host), String> {
    let source = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let transcript = Transcript::parse(&source)?;
    let protocol = quintet_wire::protocol(protocol_name(path)).ok_or("no such protocol")?;
    let host = Host::new(protocol, transcript.setup(), grain_ms)?;
    Ok((transcript, host))
}

fn replay(path: &Path) -> Result<(), String> {
    for chunking in [Chunking::Whole, Chunking::Bytes] {
        for grain_ms in [0, 1] {
            let (transcript, mut host) = open(path, grain_ms)?;
            // Those that count the milliseconds count exact ones.
            if grain_ms > 0 && transcript.needs_instant() {
                continue;
            }
            transcript
                .run(&mut host, chunking)
                .map_err(|error| format!("{chunking:?}, grain {grain_ms}: {error}"))?;
        }
    }
    Ok(())
}

fn record(path: &Path) -> Result<(), String> {
    let (transcript, mut host) = open(path, 0)?;
    fs::write(path, transcript.record(&mut host)).map_err(|error| error.to_string())
}
