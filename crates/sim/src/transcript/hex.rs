//! The bytes of a line in a transcript of a binary protocol (`@ hex`).

/// Shortest run of one byte that is written as a repeat.
const RUN_MIN: usize = 40;
/// Bytes in a line that is written.
const LINE_BYTES: usize = 32;

/// Reads words: hex digits, two for a byte; `'text'`, bytes as they are; and
/// `{repeat N words}`.
pub(super) fn parse(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let after = if let Some(quoted) = rest.strip_prefix('\'') {
            let (inside, after) = quoted.split_once('\'').ok_or("a quote has no end")?;
            bytes.extend_from_slice(inside.as_bytes());
            after
        } else if let Some(inner) = rest.strip_prefix("{repeat ") {
            let end = closing(inner).ok_or("a brace has no end")?;
            let (count, what) = inner[..end].split_once(' ').ok_or("{repeat COUNT WORDS}")?;
            let count: usize = count.parse().map_err(|_| format!("bad count {count}"))?;
            bytes.extend(parse(what)?.repeat(count));
            &inner[end + 1..]
        } else {
            let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
            digits(word, &mut bytes)?;
            after
        };
        rest = after.trim_start();
    }
    Ok(bytes)
}

/// Where the brace that is open before `text` closes.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 1;
    let mut quoted = false;
    text.bytes().position(|byte| {
        match byte {
            b'\'' => quoted = !quoted,
            b'{' if !quoted => depth += 1,
            b'}' if !quoted => depth -= 1,
            _ => {}
        }
        depth == 0
    })
}

fn digits(word: &str, bytes: &mut Vec<u8>) -> Result<(), String> {
    if !word.is_ascii() || !word.len().is_multiple_of(2) {
        return Err(format!("not hex digits, two for a byte: {word}"));
    }
    for at in (0..word.len()).step_by(2) {
        let byte = u8::from_str_radix(&word[at..at + 2], 16);
        bytes.push(byte.map_err(|_| format!("not hex digits: {word}"))?);
    }
    Ok(())
}

/// Writes bytes as lines that [`parse`] reads back.
pub(super) fn lines(bytes: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = Vec::new();
    for run in bytes.chunk_by(|a, b| a == b) {
        if run.len() >= RUN_MIN {
            lines.extend(words(&std::mem::take(&mut line)));
            lines.push(format!("{{repeat {} {:02x}}}", run.len(), run[0]));
        } else {
            line.extend_from_slice(run);
        }
    }
    lines.extend(words(&line));
    lines
}

fn words(bytes: &[u8]) -> Vec<String> {
    let word = |pair: &[u8]| pair.iter().map(|byte| format!("{byte:02x}")).collect();
    let line = |line: &[u8]| line.chunks(2).map(word).collect::<Vec<String>>().join(" ");
    bytes.chunks(LINE_BYTES).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_bytes() {
        assert_eq!(
            parse("70 0001 03E8 'k }' ''").unwrap(),
            b"p\0\x01\x03\xe8k }"
        );
        assert_eq!(
            parse("{repeat 2 {repeat 2 61} 'b'} 63").unwrap(),
            b"aabaabc"
        );
        assert_eq!(parse("").unwrap(), b"");
        for bad in ["7", "zz", "'x", "{repeat 2 61", "{repeat x 61}", "é"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn written_text_reads_back() {
        let mut bytes: Vec<u8> = (0..=u8::MAX).collect();
        bytes.extend([7; 100]);
        bytes.push(1);
        let read: Vec<u8> = lines(&bytes)
            .iter()
            .flat_map(|line| parse(line).unwrap())
            .collect();
        assert_eq!(read, bytes);
        assert!(lines(b"").is_empty());
    }
}
