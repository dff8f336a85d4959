//! A few requests in turn over one connection: what a load has no word for.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use quintet_bench::Target;

/// A reply may take this long.
const SILENCE: Duration = Duration::from_secs(60);

/// A connection whose replies are lines.
pub(crate) struct Talk(BufReader<TcpStream>);

impl Talk {
    /// # Errors
    /// Nothing accepts there, or it is no TCP address.
    pub(crate) fn connect(target: &Target) -> Result<Self> {
        let Target::Tcp(address) = target else {
            bail!("{target} is no TCP address");
        };
        let stream = TcpStream::connect(address);
        let stream = stream.with_context(|| format!("cannot connect to {target}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a request and reads lines up to one that begins with `last`;
    /// answers them all, without their ends.
    ///
    /// # Errors
    /// The connection ends or is silent for a minute.
    pub(crate) fn ask(&mut self, request: &str, last: &str) -> Result<Vec<String>> {
        let context = || format!("after {:?}", request.lines().next().unwrap_or_default());
        self.send(request).with_context(context)?;
        self.read(last).with_context(context)
    }

    /// Sends what may be many requests.
    ///
    /// # Errors
    /// The connection has ended, or takes nothing for a minute.
    pub(crate) fn send(&mut self, request: &str) -> Result<()> {
        Ok(self.0.get_mut().write_all(request.as_bytes())?)
    }

    /// Reads lines up to one that begins with `last`; answers them all, without
    /// their ends.
    ///
    /// # Errors
    /// The connection ends or is silent for a minute.
    pub(crate) fn read(&mut self, last: &str) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let read = self.0.read_line(&mut line)?;
            ensure!(read > 0, "the server closed a connection");
            let line = line.trim_end();
            lines.push(line.to_owned());
            if line.starts_with(last) {
                return Ok(lines);
            }
            let error = line.starts_with("ERROR") || line.starts_with("SERVER_ERROR");
            ensure!(!error, "{line}");
        }
    }

    /// Looks at a queue's next message over memcache without taking it;
    /// whether there is one.
    ///
    /// # Errors
    /// As [`Talk::ask`].
    pub(crate) fn peek(&mut self, queue: &str) -> Result<bool> {
        let reply = self.ask(&format!("get {queue}/peek\r\n"), "END")?;
        Ok(reply.len() > 1)
    }

    /// A number of memcache's `stats`.
    ///
    /// # Errors
    /// There is none of this name; as [`Talk::ask`].
    pub(crate) fn stat(&mut self, name: &str) -> Result<u64> {
        let reply = self.ask("stats\r\n", "END")?;
        let value = stat(&reply, name);
        value.with_context(|| format!("the statistics have no {name}"))
    }
}

fn stat(lines: &[String], name: &str) -> Option<u64> {
    lines.iter().find_map(|line| {
        let rest = line.strip_prefix("STAT ")?.strip_prefix(name)?;
        rest.strip_prefix(' ')?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::stat;

    #[test]
    fn a_statistic_by_its_whole_name() {
        let lines = ["STAT queue_a_items_old 1", "STAT queue_a_items 2", "END"];
        let lines = lines.map(str::to_owned);
        assert_eq!(stat(&lines, "queue_a_items"), Some(2));
        assert_eq!(stat(&lines, "queue_a"), None);
    }
}
