//! The Go Job Queue protocol: jobs by binary requests whose words end in a zero
//! byte. What it maps to and where it differs from the original is in
//! `docs/protocols/jobqueue.md`.

mod frame;
mod reply;
mod session;

use crate::protocol::{Listener, OptionSpec, Options, Protocol, Value, sharing};

/// The protocol's registration.
pub(crate) const PROTOCOL: Protocol = Protocol {
    name: "jobqueue",
    port: 11223,
    about: "Go Job Queue: ADD, RESERVE and DELETE in binary",
    options: OPTIONS,
    tally_names: TALLY_NAMES,
    listener,
};

const OPTIONS: &[OptionSpec] = crate::options! {
    "max_name" Number(1024)
        "longest queue name, 1 to 65535 bytes; a longer one is answered with an error and closes \
         the connection";
    "max_job_size" Bytes(64 << 20)
        "longest data of a job, 1 byte to 4294967295 bytes; longer data are not read: an error, \
         and the connection closes";
};

crate::tally::counters! {
    Connect "cmd_connect",
    Add "cmd_add",
    Reserve "cmd_reserve",
    Hit "reserve_hits",
    Timeout "reserve_timeouts",
    Delete "cmd_delete",
    Fault "protocol_errors",
}

/// State that one listener's sessions share.
#[derive(Debug)]
pub(crate) struct Shared {
    name_max: usize,
    job_max: u64,
}

fn listener(options: &Options) -> Result<Box<dyn Listener>, String> {
    let shared = Shared {
        name_max: options.within("max_name", 1, 65_535)?,
        job_max: options.within("max_job_size", 1, u32::MAX.into())?,
    };
    Ok(sharing(shared, session::JobqueueSession::new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked() {
        let made = |name, value| {
            let mut options = Options::new(OPTIONS);
            options.set(name, value).expect("an option");
            listener(&options).map(drop)
        };
        for (name, value) in [
            ("max_name", Value::Number(0)),
            ("max_name", Value::Number(65_536)),
            ("max_job_size", Value::Bytes(0)),
            ("max_job_size", Value::Bytes(1 << 32)),
        ] {
            let error = made(name, value).expect_err("out of range");
            assert!(error.starts_with(name), "{error}");
        }
        assert_eq!(made("max_name", Value::Number(65_535)), Ok(()));
        assert_eq!(made("max_job_size", Value::Bytes(u32::MAX.into())), Ok(()));
    }
}
