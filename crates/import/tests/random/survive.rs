//! Properties for any bytes; fuzz targets check the same with this very code.

use quintet_import::{binlog, journal, rq};

/// A file of a binlog: its records end, and what they say is in the file.
pub(crate) fn binlog(file: &[u8]) {
    let version = binlog::version(file);
    for version in [binlog::Version::Five, binlog::Version::Seven] {
        let (mut ended, mut before) = (false, 4);
        for found in binlog::records(file, version) {
            assert!(!ended, "nothing comes behind damage");
            match found {
                Ok(found) => {
                    if let Some(full) = found.full {
                        let end = full.at + found.fields.bytes as u64 + 2;
                        assert!(full.at > before && end <= file.len() as u64);
                        before = end;
                    }
                }
                Err((at, _)) => {
                    ended = true;
                    assert!(at >= before && (at as usize) <= file.len().max(4));
                }
            }
        }
    }
    assert_eq!(
        version.is_err(),
        file.len() >= 4 && ![0, 5, 7].contains(&number(file))
    );
}

fn number(file: &[u8]) -> u32 {
    u32::from_le_bytes([file[0], file[1], file[2], file[3]])
}

/// A journal: as above.
pub(crate) fn journal(file: &[u8]) {
    let (mut ended, mut before) = (false, 0);
    for record in journal::records(file) {
        assert!(!ended, "nothing comes behind damage");
        match record {
            Ok(journal::Record::Add(item) | journal::Record::Continue(_, item)) => {
                let end = item.at + item.bytes as u64;
                assert!(item.at > before && end <= file.len() as u64);
                before = end;
            }
            Ok(_) => {}
            Err((at, _)) => {
                ended = true;
                assert!(at >= before && (at as usize) < file.len());
            }
        }
    }
}

/// A `msg` or a `status` of RQ: the part that is understood is shown as text.
pub(crate) fn rq(text: &[u8]) {
    for state in ["que", "err"] {
        let status = rq::status(text, state);
        assert!(status.len() <= text.len() * 3);
    }
    let Ok(fields) = rq::fields(text) else {
        return;
    };
    assert!(fields.is_object());
    if let Ok(message) = rq::message(&fields) {
        assert_eq!(rq::message(&fields), Ok(message));
    }
}
