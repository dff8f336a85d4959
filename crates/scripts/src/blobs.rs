//! Storage of attachments beside this disk: in a cluster, the next owner has to have them,
//! whichever node that is.

use std::io;
use std::path::Path;

/// Files that others keep and replicate, by name. A name has one content for ever.
///
/// Calls wait for as long as it takes, or fails to.
pub trait Blobs: Send + Sync {
    /// Keeps a file under a name that begins with `under` and a slash, and that nothing has or had.
    /// Answers what stands behind the slash: 32 hexadecimal digits. Replicated when this returns.
    ///
    /// # Errors
    /// It is not kept, or nobody knows.
    fn put(&self, under: &str, file: &Path) -> io::Result<String>;

    /// Writes what is kept under `name` to a new file; false: nothing is.
    ///
    /// # Errors
    /// It could not be read whole, or not be written.
    fn get(&self, name: &str, to: &Path) -> io::Result<bool>;

    /// Keeps it no longer. There need be nothing.
    ///
    /// # Errors
    /// It may still be kept.
    fn delete(&self, name: &str) -> io::Result<()>;

    /// All names, in no order.
    ///
    /// # Errors
    /// Nobody answers.
    fn list(&self) -> io::Result<Vec<String>>;
}
