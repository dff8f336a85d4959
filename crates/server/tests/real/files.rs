//! Attachments of scripts, on whichever node owns.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::node::{Cluster, quintet};
use crate::servers::until;

/// `quintet rq` in a node's folder; what it says behind `ok `, or that it failed.
fn rq(data: &Path, args: &[&str]) -> Result<String, String> {
    let output = quintet(&["rq"])
        .args(args)
        .env("RQ_ROOT", data.join("rq"))
        .output();
    let output = output.expect("the binary starts");
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match said.strip_prefix("ok ") {
        Some(rest) => Ok(rest.to_owned()),
        None => Err(format!(
            "{said} {}",
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

#[test]
#[ignore = "needs nats-server"]
fn a_script_reads_what_was_attached_before_its_node_owned() {
    let cluster = Cluster::start("files");
    let script = cluster.dir().join("sum.sh");
    let text =
        "#!/bin/sh\ncmp ../attach/data \"$RQ_PARAM2\" >&2 && echo done >&3 || echo err >&3\n";
    std::fs::write(&script, text).expect("written");
    std::fs::set_permissions(&script, Permissions::from_mode(0o755)).expect("ours");
    let queue = format!("[[queue]]\nname = \"work\"\nscript = {script:?}\n");
    let mut a = cluster.node("a", &queue);
    a.wait_for("quintet owner");
    let mut b = cluster.node("b", &queue);
    b.wait_for("quintet standby of a");

    // Several pieces of an object.
    let data: Vec<u8> = (0..1_000_000_u32)
        .map(|n| n.to_le_bytes()[n as usize % 3])
        .collect();
    let file = cluster.dir().join("data");
    std::fs::write(&file, data).expect("written");
    let file = file.to_str().expect("text");
    let folder = |node: &str| cluster.dir().join(node);
    let prepare = [
        "prepmesg", "--dest", "work", "--src", "test", "--param2", file,
    ];
    let id = rq(&folder("a"), &prepare).expect("prepared");
    let attach = ["attachmesg", "--msg_id", &id, "--pathname", file];
    rq(&folder("a"), &attach).expect("attached");
    a.kill();
    b.wait_for("quintet owner");
    let socket = folder("b").join("rq/config/queuemgr.sock");
    until("scripts run", || socket.exists().then_some(()));
    rq(&folder("b"), &["commitmesg", "--msg_id", &id]).expect("committed");
    let said = until("the script ends", || {
        let said = rq(&folder("b"), &["statusmesg", "--msg_id", &id]).expect("a status");
        let over = said.starts_with("done") || said.starts_with("err");
        over.then_some(said)
    });
    assert!(said.starts_with("done"), "{said}");
}
