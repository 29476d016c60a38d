//! Kubeconfig files.

use std::path::Path;

use crate::Result;

use super::pki::{self, Pair};

/// Whose requests they are.
pub(super) enum User<'a> {
    Certificate(&'a Pair),
    Token(&'a str),
}

/// Writes a kubeconfig with one context, `cosid`, for this server and user.
pub(super) fn write(path: &Path, server: &str, ca: &Path, user: &User<'_>) -> Result<()> {
    pki::write(path, &text(server, ca, user))
}

fn text(server: &str, ca: &Path, user: &User<'_>) -> String {
    // Paths and tokens are quoted: in YAML a JSON string is a string, whatever it holds.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let path = |path: &Path| quoted(&path.to_string_lossy());
    let user = match user {
        User::Certificate(pair) => {
            format!("client-certificate: {}\n    client-key: {}", path(&pair.certificate), path(&pair.key))
        }
        User::Token(token) => format!("token: {}", quoted(token)),
    };
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: cosid
  cluster:
    server: {server}
    certificate-authority: {ca}
users:
- name: cosid
  user:
    {user}
contexts:
- name: cosid
  context:
    cluster: cosid
    user: cosid
current-context: cosid
",
        ca = path(ca)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_so_that_no_path_or_token_changes_the_structure() {
        let text = text("https://127.0.0.1:20000", Path::new("/a b: c\"/ca.crt"), &User::Token("t: #x"));
        assert!(text.contains("certificate-authority: \"/a b: c\\\"/ca.crt\"\n"));
        assert!(text.contains("  user:\n    token: \"t: #x\"\n"));
        assert!(text.contains("server: https://127.0.0.1:20000\n"));
    }
}
