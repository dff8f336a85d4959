//! Attachments of scripts, on whichever node owns.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::node::{Cluster, alone, quintet, run};
use crate::servers::until;
use crate::ways::stop;

/// `quintet rq` in a node's folder; what it says behind `ok `, or that it failed.
fn rq(data: &Path, args: &[&str]) -> Result<String, String> {
    let output = quintet(&["rq"])
        .args(args)
        .env("RQ_ROOT", data.join("rq"))
        .output();
    let output = output.expect("the binary starts");
    let printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match printed.strip_prefix("ok ") {
        Some(rest) => Ok(rest.to_owned()),
        None => Err(format!(
            "{printed} {}",
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

/// A queue whose script says whether the attachment `data` is what its parameter names.
fn comparing(cluster: &Cluster) -> String {
    let script = cluster.dir().join("sum.sh");
    let text =
        "#!/bin/sh\ncmp ../attach/data \"$RQ_PARAM2\" >&2 && echo done >&3 || echo err >&3\n";
    std::fs::write(&script, text).expect("written");
    std::fs::set_permissions(&script, Permissions::from_mode(0o755)).expect("ours");
    format!("[[queue]]\nname = \"work\"\nscript = {script:?}\n")
}

/// A prepared message with an attachment of several pieces of an object; its id.
fn attached(cluster: &Cluster, server: &Path) -> String {
    let data: Vec<u8> = (0..1_000_000_u32)
        .map(|n| n.to_le_bytes()[n as usize % 3])
        .collect();
    let file = cluster.dir().join("data");
    std::fs::write(&file, data).expect("written");
    let file = file.to_str().expect("text");
    let prepare = [
        "prepmesg", "--dest", "work", "--src", "test", "--param2", file,
    ];
    let id = rq(server, &prepare).expect("prepared");
    let attach = ["attachmesg", "--msg_id", &id, "--pathname", file];
    rq(server, &attach).expect("attached");
    id
}

/// Has the message's script run there, and be satisfied.
fn runs_well(server: &Path, id: &str) {
    let socket = server.join("rq/config/queuemgr.sock");
    until("scripts run", || socket.exists().then_some(()));
    rq(server, &["commitmesg", "--msg_id", id]).expect("committed");
    let printed = until("the script ends", || {
        let printed = rq(server, &["statusmesg", "--msg_id", id]).expect("a status");
        let over = printed.starts_with("done") || printed.starts_with("err");
        over.then_some(printed)
    });
    assert!(printed.starts_with("done"), "{printed}");
}

#[test]
#[ignore = "needs nats-server"]
fn a_script_reads_attachments_from_before_its_node_owned() {
    let cluster = Cluster::start("files");
    let queue = comparing(&cluster);
    let mut a = cluster.node("a", &queue);
    a.wait_for("quintet owner");
    let mut b = cluster.node("b", &queue);
    b.wait_for("quintet standby of a");

    let id = attached(&cluster, &cluster.dir().join("a"));
    a.kill();
    b.wait_for("quintet owner");
    runs_well(&cluster.dir().join("b"), &id);
}

#[test]
#[ignore = "needs nats-server"]
fn a_script_reads_attachments_from_before_the_cluster() {
    let cluster = Cluster::start("brought");
    let queue = comparing(&cluster);
    let old = cluster.dir().join("old");
    let mut server = alone(&old, &queue);
    let socket = old.join("rq/config/queuemgr.sock");
    until("scripts run", || socket.exists().then_some(()));
    let id = attached(&cluster, &old);
    stop(&mut server);
    let config = cluster.config("a", &queue);
    let mut adopt = quintet(&["cluster", "adopt", "--config"]);
    let (code, text) = run(adopt.arg(config).arg("--data").arg(&old));
    assert!(code == 0 && text.contains("1 attachments"), "{text}");

    let mut a = cluster.node("a", &queue);
    a.wait_for("quintet owner");
    runs_well(&cluster.dir().join("a"), &id);
}
