//! Where things are: the source tree, and the cache outside it.

use std::env;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// The top of the source tree that this binary was built from.
#[must_use]
pub fn workspace() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

/// The directory for what is built once and kept: `$COSID_CACHE`, else `$XDG_CACHE_HOME/cosid`, else `~/.cache/cosid`.
///
/// # Errors
/// [`Error::Setup`] when none of the three is set to an absolute path.
pub fn cache() -> Result<PathBuf> {
    cache_from(|name| env::var_os(name).map(PathBuf::from))
}

fn cache_from(var: impl Fn(&str) -> Option<PathBuf>) -> Result<PathBuf> {
    let absolute = |name| var(name).filter(|path| path.is_absolute());
    absolute("COSID_CACHE")
        .or_else(|| absolute("XDG_CACHE_HOME").map(|path| path.join("cosid")))
        .or_else(|| absolute("HOME").map(|path| path.join(".cache/cosid")))
        .ok_or_else(|| Error::Setup("no place for a cache: set COSID_CACHE to an absolute path".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(vars: &[(&str, &str)]) -> Result<PathBuf> {
        cache_from(|name| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn the_most_specific_variable_decides_where_the_cache_is() {
        let all = [("COSID_CACHE", "/c"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(with(&all).unwrap(), Path::new("/c"));
        assert_eq!(with(&all[1..]).unwrap(), Path::new("/x/cosid"));
        assert_eq!(with(&all[2..]).unwrap(), Path::new("/h/.cache/cosid"));
    }

    #[test]
    fn a_relative_or_missing_cache_is_bad_configuration() {
        assert_eq!(with(&[("COSID_CACHE", "here")]).unwrap_err().exit_code(), 64);
        assert_eq!(with(&[]).unwrap_err().exit_code(), 64);
    }
}
