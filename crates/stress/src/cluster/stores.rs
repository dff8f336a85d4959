//! The servers' stores: damage to them, and file systems of their own whose power can be cut.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use quintet_sim::Random;
use rustix::fs::FallocateFlags;

use super::COUNT;

/// By server: what makes its file system, and the options it is mounted with.
const KINDS: [(&str, &str); COUNT] = [
    ("mkfs.ext4", "loop,discard"),
    ("mkfs.ext4", "loop,discard,noauto_da_alloc"),
    ("mkfs.xfs", "loop,discard"),
];
/// Size of each, of which only what was written takes room.
const BYTES: u64 = 1 << 30;

/// A file system in a file, mounted where a server keeps what it has.
pub(super) struct Disk {
    image: PathBuf,
    at: PathBuf,
    options: &'static str,
}

impl Disk {
    /// One for each of these folders.
    pub(super) fn all(folders: &[PathBuf]) -> Result<Vec<Self>> {
        let all = folders.iter().zip(KINDS);
        let all = all.map(|(at, (mkfs, options))| {
            fs::create_dir_all(at)?;
            let image = at.with_extension("img");
            fs::File::create(&image)?.set_len(BYTES)?;
            run(Command::new(mkfs).arg("-q").arg(&image))?;
            let at = at.clone();
            let disk = Self { image, at, options };
            disk.mount()?;
            Ok(disk)
        });
        all.collect()
    }

    fn mount(&self) -> Result<()> {
        let mut command = Command::new("mount");
        run(command
            .args(["-o", self.options])
            .args([&self.image, &self.at]))
    }

    fn unmount(&self) -> Result<()> {
        run(Command::new("umount").arg(&self.at))
    }

    /// Copies the file as the file system has written it so far, which is all that is there once
    /// the power is gone. Its server stands still.
    pub(super) fn copy(&self) -> Result<()> {
        copy(&self.image, &self.copied())
    }

    /// Goes on with the copy. Its server has ended.
    pub(super) fn back(&self) -> Result<()> {
        self.unmount()?;
        fs::rename(self.copied(), &self.image)?;
        self.mount()
    }

    fn copied(&self) -> PathBuf {
        self.image.with_extension("cut")
    }
}

impl Drop for Disk {
    /// Errors: the caller that deletes the folder gets them.
    fn drop(&mut self) {
        self.unmount().ok();
    }
}

/// Copies a file or a folder with all in it.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    run(Command::new("cp")
        .args(["-a", "--sparse=always"])
        .args([from, to]))
}

/// Takes all room of the file system of this folder; the file that has it.
pub(super) fn fill(folder: &Path) -> Result<PathBuf> {
    let room = rustix::fs::statvfs(folder)?;
    let filled = folder.join("filled");
    let file = fs::File::create(&filled)?;
    let (mut at, mut step) = (0, room.f_bfree * room.f_frsize);
    // Some of what is free is needed to note who has the rest.
    while step >= room.f_frsize {
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), at, step) {
            Ok(()) => at += step,
            Err(_) => step /= 2,
        }
    }
    Ok(filled)
}

/// Removes all in a folder, which may be a file system.
pub(super) fn empty(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            // Of a file system of its own, not of the server.
            true if path.ends_with("lost+found") => {}
            true => fs::remove_dir_all(path)?,
            false => fs::remove_file(path)?,
        }
    }
    Ok(())
}

/// Damages the file of a block of this stream, as chance has it; what was done, in words.
pub(super) fn damage(store: &Path, stream: &str, random: &mut Random) -> Result<String> {
    let folder = store.join("jetstream/$G/streams").join(stream).join("msgs");
    let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut blocks: Vec<(u64, PathBuf)> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let number = path.file_name()?.to_str()?.strip_suffix(".blk")?;
            Some((number.parse().ok()?, path))
        })
        .collect();
    blocks.sort_unstable();
    ensure!(!blocks.is_empty(), "{} has no block", folder.display());
    let (first, last) = (0, blocks.len() - 1);
    let at = [first, last / 2, last][random.index(3)];
    let (number, path) = &blocks[at];
    let len = fs::metadata(path)?.len();
    let block = format!("block {number}, of {} of {len} bytes", blocks.len());
    Ok(match random.index(3) {
        0 => {
            fs::remove_file(path)?;
            format!("{block}, removed")
        }
        1 => {
            let left = random.below(len.max(1));
            fs::OpenOptions::new()
                .write(true)
                .open(path)?
                .set_len(left)?;
            format!("{block}, cut to {left} bytes")
        }
        _ => {
            let mut bytes = fs::read(path)?;
            let byte = random.index(bytes.len().max(1));
            let bit = random.index(8);
            if let Some(byte) = bytes.get_mut(byte) {
                *byte ^= 1 << bit;
            }
            fs::write(path, bytes)?;
            format!("{block}, bit {bit} of byte {byte} flipped")
        }
    })
}

fn run(command: &mut Command) -> Result<()> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    let printed = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", printed.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use quintet_sim::Random;

    use super::{copy, damage, empty};

    #[test]
    fn each_damage_changes_one_block_and_a_copy_is_as_it_was() {
        let folder = std::env::temp_dir().join(format!("quintet-stores-{}", std::process::id()));
        let (store, kept) = (folder.join("store"), folder.join("kept"));
        let blocks = store.join("jetstream/$G/streams/S/msgs");
        fs::create_dir_all(&blocks).expect("a folder");
        for number in [2, 3, 10] {
            fs::write(blocks.join(format!("{number}.blk")), [7; 100]).expect("a block");
        }
        fs::write(blocks.join("index.db"), [7; 100]).expect("a file");
        let changed = |kept: &std::path::Path| {
            let there = |name: &str| fs::read(blocks.join(name)).ok();
            let names = ["2.blk", "3.blk", "10.blk", "index.db"];
            let kept = kept.join("jetstream/$G/streams/S/msgs");
            let differ = names
                .iter()
                .filter(|name| there(name) != fs::read(kept.join(name)).ok());
            differ.count()
        };
        let (mut random, mut seen) = (Random::new(1), [false; 3]);
        for _ in 0..40 {
            fs::remove_dir_all(&kept).ok();
            copy(&store, &kept).expect("copied");
            assert_eq!(changed(&kept), 0);
            let did = damage(&store, "S", &mut random).expect("damaged");
            assert_eq!(changed(&kept), 1, "{did}");
            for (seen, word) in seen.iter_mut().zip(["removed", "cut to", "flipped"]) {
                *seen |= did.contains(word);
            }
            empty(&store).expect("emptied");
            assert_eq!(fs::read_dir(&store).expect("there").count(), 0);
            fs::remove_dir(&store).expect("empty");
            fs::rename(&kept, &store).expect("back");
        }
        assert_eq!(seen, [true; 3]);
        fs::remove_dir_all(&folder).expect("removed");
    }
}
