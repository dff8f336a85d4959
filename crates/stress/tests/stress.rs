//! The command line of the campaign. An integration test also has cargo build its program for the
//! other tests.

use std::process::Command;

#[test]
fn the_campaign_explains_its_options_and_refuses_others() {
    let campaign = |option| {
        let mut campaign = Command::new(env!("CARGO_BIN_EXE_quintet-stress"));
        campaign.arg(option).output().expect("it starts")
    };
    let help = campaign("--help");
    assert!(help.status.success());
    assert!(String::from_utf8_lossy(&help.stdout).contains("--at-least"));
    assert_eq!(campaign("--no-such-option").status.code(), Some(2));
}
