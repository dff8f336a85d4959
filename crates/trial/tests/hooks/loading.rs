//! Hook files as editors and shells leave them.

use std::sync::Arc;

use quintet_hooks::{Limits, Program};

/// As Lua's own loader does, with the numbers of the lines as an editor shows them.
#[test]
fn a_byte_order_mark_and_a_first_line_for_the_shell_are_passed_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("hooks.lua");
    let load = |text: &str| {
        std::fs::write(&path, text).expect("written");
        Program::load(&path, &Limits::default(), Arc::default())
    };
    const HOOK: &str = "quintet.on('before_put', function(msg) end)\nerror('here')\n";
    for (begin, line) in [
        ("", 2),
        ("\u{feff}", 2),
        ("#!/usr/bin/env lua\n", 3),
        ("\u{feff}#!/usr/bin/lua\r\n", 3),
    ] {
        let Err(error) = load(&format!("{begin}{HOOK}")) else {
            panic!("{begin:?} is loaded");
        };
        assert_eq!(
            (error.line, error.text.contains("here")),
            (line, true),
            "{error:?}"
        );
        let good = HOOK.replace("error('here')", "");
        assert!(load(&format!("{begin}{good}")).is_ok(), "{begin:?}");
    }
    for whole in ["\u{feff}", "#!/usr/bin/lua", ""] {
        assert!(load(whole).is_ok(), "{whole:?}");
    }
    assert!(load("-- fine\n#!/usr/bin/lua\n").is_err());
}

/// A file that fails at this time fails before it is in force.
#[test]
fn the_time_of_a_trial_is_the_present() {
    let load =
        |text: &str| Program::from_text("hooks.lua", text, &Limits::default(), Arc::default());
    assert!(load("if quintet.time.now() < 1700000000000 then error('early') end").is_ok());
    assert!(load("if quintet.time.now() > 1700000000000 then error('late') end").is_err());
}
