//! How the servers of the experiments are set up.

/// What a server is told, apart from its addresses and its directory.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    /// `memory`.
    pub(crate) memory: &'static str,
    /// `sync`.
    pub(crate) sync: &'static str,
}

impl Settings {
    /// As most experiments have it; the rest is the defaults.
    pub(crate) const SMALL: Self = Self {
        memory: "64MiB",
        sync: "50ms",
    };
    /// The default budget.
    pub(crate) const DEFAULT: Self = Self {
        memory: "256MiB",
        sync: "50ms",
    };

    /// As the server reads it.
    pub(crate) fn toml(self) -> String {
        let Self { memory, sync } = self;
        format!("memory = \"{memory}\"\nsync = \"{sync}\"\n")
    }
}

#[cfg(test)]
mod tests {
    use super::Settings;

    #[test]
    fn settings_are_toml() {
        let text = Settings::SMALL.toml();
        assert_eq!(text, "memory = \"64MiB\"\nsync = \"50ms\"\n");
    }
}
