//! kubectl plugin.
fn main() {}
