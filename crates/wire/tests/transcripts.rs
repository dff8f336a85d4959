//! Replays every transcript against its voice: whole, and byte by byte; with an
//! exact clock, and with one as coarse as the server's.
//! `UPDATE=1` rewrites the received lines instead.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::Host;
use quintet_sim::transcript::{Chunking, Transcript};

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

#[test]
fn every_voice_has_transcripts() {
    let paths = transcripts();
    for voice in quintet_wire::VOICES {
        assert!(
            paths.iter().any(|path| voice_name(path) == voice.name),
            "no transcripts of {}",
            voice.name
        );
    }
}

fn transcripts() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("transcripts");
    let mut paths: Vec<PathBuf> = children(&root)
        .iter()
        .flat_map(|voice| children(voice))
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

fn voice_name(path: &Path) -> &str {
    let folder = path.parent().and_then(Path::file_name);
    folder.and_then(|name| name.to_str()).unwrap_or_default()
}

fn open(path: &Path, grain_ms: u64) -> Result<(Transcript, Host), String> {
    let source = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let transcript = Transcript::parse(&source)?;
    let voice = quintet_wire::voice(voice_name(path)).ok_or("no such voice")?;
    let host = Host::new(voice, transcript.setup(), grain_ms)?;
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
