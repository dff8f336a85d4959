//! Writing XML. None is ever read.

/// A document being written.
pub(crate) struct Xml(String);

impl Xml {
    /// Begins with the declaration.
    pub(crate) fn new() -> Self {
        Self::with_capacity(0)
    }

    /// The same, with memory for so many bytes.
    pub(crate) fn with_capacity(len: usize) -> Self {
        let mut text = String::with_capacity(len);
        text.push_str("<?xml version=\"1.0\"?>");
        Self(text)
    }

    /// Begins an element.
    pub(crate) fn open(&mut self, name: &str) -> &mut Self {
        self.put(&["<", name, ">"])
    }

    /// Begins the outermost element.
    pub(crate) fn root(&mut self, name: &str) -> &mut Self {
        self.put(&[
            "<",
            name,
            " xmlns=\"http://queue.amazonaws.com/doc/2012-11-05/\">",
        ])
    }

    /// Ends an element.
    pub(crate) fn close(&mut self, name: &str) -> &mut Self {
        self.put(&["</", name, ">"])
    }

    /// An element that holds a text.
    pub(crate) fn text(&mut self, name: &str, text: &str) -> &mut Self {
        self.open(name);
        self.escape(text);
        self.close(name)
    }

    /// The element of errors that AWS always leaves empty.
    pub(crate) fn put_detail(&mut self) -> &mut Self {
        self.put(&["<Detail/>"])
    }

    /// The whole document.
    pub(crate) fn finish(self) -> String {
        self.0
    }

    fn put(&mut self, parts: &[&str]) -> &mut Self {
        for part in parts {
            self.0.push_str(part);
        }
        self
    }

    fn escape(&mut self, text: &str) {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                // A reader would make a line feed of it.
                '\r' => self.0.push_str("&#13;"),
                // What XML has no way to write: of names and texts of other protocols.
                c if c < ' ' && c != '\t' && c != '\n' => self.0.push('\u{fffd}'),
                '\u{fffe}' | '\u{ffff}' => self.0.push('\u{fffd}'),
                c => self.0.push(c),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        let mut xml = Xml::new();
        xml.text("a", "<&>\"\r\n\t\0\u{fffe}é");
        assert_eq!(
            xml.finish(),
            "<?xml version=\"1.0\"?><a>&lt;&amp;&gt;&quot;&#13;\n\t\u{fffd}\u{fffd}é</a>"
        );
    }
}
