//! Attachments and logs: in, out, in parts, and what is refused.

use crate::common;

use std::io::Write as _;

use common::{Reply, World, eventually, multipart};
use serde_json::json;

fn prepared(world: &World) -> String {
    world.message("test", json!({"_method": "prep"}))
}

#[test]
fn case_22_attached_before_commit() {
    let world = World::new();
    world.queue("test", "cat ../attach/data.bin | wc -c; echo done ok >&3");
    let id = prepared(&world);
    let data: Vec<u8> = (0..300_000u32).map(|n| (n * 7 % 251) as u8).collect();
    let path = format!("/q/test/{id}/attach/new");
    // The file comes first, as RQ's own tests send it.
    let reply = world.post_parts(
        &path,
        &[
            ("@filedata=data.bin", &data),
            ("pathname", b"data.bin"),
            ("msg_id", id.as_bytes()),
            ("x_format", b"json"),
        ],
    );
    let value = reply.json();
    assert_eq!(value[0], "ok");
    let text = value[1].as_str().expect("text");
    let md5 = text
        .strip_suffix("-Attached successfully")
        .expect("RQ's text");
    let about = &world.json("test", &id)["_attachments"]["data.bin"];
    assert_eq!(about["size"], 300_000);
    assert_eq!(about["md5"], md5);
    let commit = world.post(&format!("/q/test/{id}"), "_method=commit&x_format=json");
    assert_eq!(commit.json(), json!(["ok", "msg commited"]));
    assert_eq!(world.end("test", &id), "done - ok");
    let late = world.post_parts(&path, &[("@filedata=late", b"x"), ("x_format", b"json")]);
    assert_eq!(late.json(), json!(["fail", "cannot find message"]));
    let out = world.get(&format!("/q/test/{id}/attach/data.bin"));
    assert_eq!(out.status, 200);
    assert!(out.body == data, "the same bytes");
    assert_eq!(out.header("content-length"), Some("300000"));
    let log = world.get(&format!("/q/test/{id}/log/stdio.log")).text();
    assert!(log.contains("300000"), "{log}");
}

#[test]
fn an_attachment_is_replaced_and_deleted() {
    let world = World::new();
    world.queue("test", "echo done >&3");
    let id = prepared(&world);
    let path = format!("/q/test/{id}/attach/new");
    for text in ["first", "second"] {
        world.post_parts(
            &path,
            &[("x_format", b"json"), ("@filedata=a.txt", text.as_bytes())],
        );
    }
    let file = format!("/q/test/{id}/attach/a.txt");
    assert_eq!(world.get(&file).text(), "second");
    let html = world.post_parts(&path, &[("@filedata=b.txt", b"b")]);
    let page = world.get(html.leads_to()).text();
    assert!(page.contains("Attached message successfully"), "{page}");
    assert_eq!(world.post(&file, "_method=explode").status, 400);
    let gone = world.post(&file, "_method=delete&x_format=json");
    assert_eq!(
        gone.json(),
        json!(["ok", "Attachment deleted successfully"])
    );
    let reply = world.get(&file);
    assert_eq!(reply.status, 404);
    assert_eq!(
        reply.text(),
        "404 - Message ID attachment 'a.txt' not found"
    );
    assert_eq!(
        world.post(&file, "_method=delete&x_format=json").json()[0],
        "fail"
    );
}

#[test]
fn names_with_tricks() {
    let world = World::new();
    world.queue("test", "echo done >&3");
    let id = prepared(&world);
    let path = format!("/q/test/{id}/attach/new");
    for name in [
        "../../evil",
        ".hidden",
        "a/b",
        "a*",
        "$x",
        "",
        "..",
        "a|b",
        "a?b",
    ] {
        let part = format!("@filedata={name}");
        let reply = world.post_parts(&path, &[(&part, b"x"), ("x_format", b"json")]);
        let refused = reply.status == 404 || reply.json()[0] == "fail";
        assert!(refused, "{name}: {}", reply.text());
    }
    for kind in ["attach", "log"] {
        for name in [
            "..%2F..%2Fconfig.json",
            "%2e%2e%2f%2e%2e%2fmsg",
            "%2Fetc%2Fpasswd",
            "..",
            "%00",
            "job",
        ] {
            let reply = world.get(&format!("/q/test/{id}/{kind}/{name}"));
            assert_eq!(reply.status, 404, "{kind} {name}: {}", reply.text());
        }
    }
    assert_eq!(world.get("/q/..%2F..%2Fetc/config").status, 404);
}

#[test]
fn links_of_scripts_lead_nowhere() {
    let world = World::new();
    world.queue("test", "ln -s /etc/passwd leak; echo done >&3");
    let id = world.message("test", json!({}));
    world.end("test", &id);
    assert_eq!(world.get(&format!("/q/test/{id}/log/leak")).status, 404);
}

#[test]
fn forms_without_a_file() {
    let world = World::new();
    world.queue("test", "echo done >&3");
    let id = prepared(&world);
    let path = format!("/q/test/{id}/attach/new");
    assert_eq!(
        world.post_parts(&path, &[("x_format", b"json")]).status,
        404
    );
    assert_eq!(
        world.post_parts(&path, &[("filedata", b"no name")]).status,
        404
    );
    assert_eq!(world.post(&path, "filedata=x").status, 404);
    let nope = world.post_parts(
        "/q/test/20091109.0558.57.780.7509656/attach/new",
        &[("@filedata=a", b"x"), ("x_format", b"json")],
    );
    assert_eq!(nope.json(), json!(["fail", "cannot find message"]));
    assert_eq!(
        world
            .post_parts("/q/nope/1/attach/new", &[("@filedata=a", b"x")])
            .status,
        404
    );
}

#[test]
fn an_upload_that_breaks_off_leaves_nothing() {
    let world = World::new();
    world.queue("test", "echo done >&3");
    let id = prepared(&world);
    let body = multipart(&[("@filedata=half.bin", &[7; 200_000])]);
    let head = format!(
        "POST /q/test/{id}/attach/new HTTP/1.1\r\nhost: localhost\r\n\
         content-type: multipart/form-data; boundary=---x\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = world.connect();
    stream.write_all(head.as_bytes()).expect("sent");
    stream.write_all(&body[..body.len() / 2]).expect("sent");
    stream.shutdown(std::net::Shutdown::Write).expect("shut");
    let reply = Reply::read(&mut stream);
    assert_eq!(reply.status, 400, "{}", reply.text());
    assert_eq!(
        world.json("test", &id)["_attachments"].get("half.bin"),
        None
    );
    let folder = world.root().join("queue/test/msg");
    eventually("the rest is gone", || {
        let left = find(&folder)
            .into_iter()
            .filter(|path| path.is_file())
            .count();
        (left == 0).then_some(())
    });
}

fn find(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        all.push(entry.path());
        all.extend(find(&entry.path()));
    }
    all
}

#[test]
fn case_26_ranges_of_a_log() {
    let world = World::new();
    world.queue("test", "printf 0123456789; echo done >&3");
    let id = world.message("test", json!({}));
    world.end("test", &id);
    let path = format!("/q/test/{id}/log/stdio.log");
    let whole = world.get(&path);
    assert_eq!(whole.status, 200);
    assert_eq!(whole.header("accept-ranges"), Some("bytes"));
    let len = whole.body.len();
    let range = |range: &str| world.ask("GET", &path, &[("range", range)], b"");
    let part = range("bytes=5-");
    assert_eq!(part.status, 206);
    assert_eq!(part.body, whole.body[5..]);
    let says = format!("bytes 5-{}/{len}", len - 1);
    assert_eq!(part.header("content-range"), Some(says.as_str()));
    assert_eq!(range("bytes=-3").body, whole.body[len - 3..]);
    assert_eq!(range("bytes=1-2").body, whole.body[1..3]);
    let beyond = range(&format!("bytes={len}-"));
    assert_eq!(beyond.status, 416);
    let says = format!("bytes */{len}");
    assert_eq!(beyond.header("content-range"), Some(says.as_str()));
    assert_eq!(range("bytes=1-2,4-5").status, 200);
    let head = world.ask("HEAD", &path, &[], b"");
    assert_eq!((head.status, head.body.len()), (200, 0));
    let page = world.get(&format!("/q/test/{id}/tailviewlog/stdio.log"));
    assert!(
        page.text().contains("data-file=\"/q/test/"),
        "{}",
        page.text()
    );
    assert_eq!(
        world.get(&format!("/q/test/{id}/tailview/nope")).status,
        404
    );
}

#[test]
fn an_attachment_is_no_page_of_this_site() {
    let world = World::new();
    world.queue("test", "echo done >&3");
    let id = prepared(&world);
    let path = format!("/q/test/{id}/attach/new");
    world.post_parts(&path, &[("@filedata=x.html", b"<script>alert(1)</script>")]);
    let reply = world.get(&format!("/q/test/{id}/attach/x.html"));
    assert_eq!(
        reply.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
    assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
    assert!(
        reply
            .header("content-security-policy")
            .is_some_and(|p| p.contains("sandbox"))
    );
}

#[test]
fn attachments_have_a_limit() {
    let world = World::with(|settings| settings.limits.attachment_bytes_max = 100_000);
    world.queue("test", "echo done >&3");
    let id = prepared(&world);
    let path = format!("/q/test/{id}/attach/new");
    let fits = world.post_parts(
        &path,
        &[("@filedata=a", &[1; 100_000]), ("x_format", b"json")],
    );
    assert_eq!(fits.json()[0], "ok");
    let over = world.post_parts(
        &path,
        &[("@filedata=b", &[1; 100_001]), ("x_format", b"json")],
    );
    assert_eq!(over.status, 413, "{}", over.text());
    assert!(over.text().contains("max_attachment"), "{}", over.text());
    assert_eq!(world.json("test", &id)["_attachments"].get("b"), None);
}
