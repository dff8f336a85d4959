//! The YAML that beanstalkd answers: a list, or a map of plain values.

/// Its lines.
#[derive(Debug, Default)]
pub(super) struct Yaml(Vec<(String, String)>);

impl Yaml {
    /// Reads what it knows; other lines are left out.
    pub(super) fn of(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| {
            if let Some(item) = line.strip_prefix("- ") {
                return Some((String::new(), plain(item)));
            }
            let (name, value) = line.split_once(": ")?;
            Some((name.to_owned(), plain(value)))
        });
        Self(lines.collect())
    }

    /// The items of a list.
    pub(super) fn items(&self) -> Vec<String> {
        let items = self.0.iter().filter(|(name, _)| name.is_empty());
        items.map(|(_, item)| item.clone()).collect()
    }

    /// A value of a map; empty if it is not there.
    pub(super) fn text(&self, name: &str) -> &str {
        let mut pairs = self.0.iter();
        pairs
            .find(|(key, _)| key == name)
            .map_or("", |(_, value)| value)
    }

    /// A number of a map; 0 if it is not there.
    pub(super) fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }
}

fn plain(value: &str) -> String {
    let value = value.trim();
    let quoted = value
        .strip_prefix('"')
        .and_then(|value| value.strip_suffix('"'));
    quoted.unwrap_or(value).to_owned()
}

#[cfg(test)]
mod tests {
    use super::Yaml;

    #[test]
    fn lists_and_maps_of_either_version_are_read() {
        let list = Yaml::of("---\n- default\n- a-b/c\n- \"new\"\n");
        assert_eq!(list.items(), ["default", "a-b/c", "new"]);
        let map = Yaml::of("---\nid: 7\ntube: \"a\"\nstate: buried\npri: 4294967295\n");
        assert_eq!(map.number("id"), 7);
        assert_eq!((map.text("tube"), map.text("state")), ("a", "buried"));
        assert_eq!((map.number("pri"), map.number("ttr")), (4_294_967_295, 0));
    }
}
