//! Which pool is meant.

use cosid_lease::StoreError;
use kube::api::ListParams;
use kube::core::Request;
use kube::{Client, Resource};
use serde::Deserialize;

use crate::Error;
use crate::pool::SlotPool;
use crate::rest::call;

/// The pool that is taken where there are several and none is named.
pub const DEFAULT_POOL: &str = "default";

/// A pool by its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolName {
    /// Its namespace.
    pub namespace: String,
    /// Its name there.
    pub name: String,
}

impl std::fmt::Display for PoolName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The pool that `reference` means: `NAME` in one's own namespace, or `NAMESPACE/NAME`; without one, the only pool of
/// one's own namespace, else the one named `default`. A named pool is not asked for; the first load tells whether there
/// is one. Without a name this is one call.
///
/// # Errors
/// [`Error::PoolReference`], [`Error::WhichPool`], or [`Error::Store`] where the API server can't be asked.
pub async fn find_pool(
    client: &Client,
    own_namespace: &str,
    reference: Option<&str>,
) -> Result<PoolName, Error> {
    if let Some(reference) = reference {
        return named(own_namespace, reference);
    }
    let pools = Request::new(SlotPool::url_path(&(), Some(own_namespace)));
    let body = call(client, pools.list(&ListParams::default())).await.map_err(|failure| {
        let needs = format!("`list` on slotpools.cosid.dev in namespace {own_namespace}");
        failure.to_pool_error("SlotPool", own_namespace, &needs)
    })?;
    let list: Pools = serde_json::from_slice(&body)
        .map_err(|error| StoreError::Unknown(format!("the pools of namespace {own_namespace}: {error}")))?;
    let found = list.items.into_iter().map(|pool| pool.metadata.name).collect();
    only_or_default(own_namespace, found)
}

fn named(own_namespace: &str, reference: &str) -> Result<PoolName, Error> {
    let (namespace, name) = reference.split_once('/').unwrap_or((own_namespace, reference));
    if !is_label(namespace) || !name.split('.').all(is_label) {
        return Err(Error::PoolReference { reference: reference.to_owned() });
    }
    Ok(PoolName { namespace: namespace.to_owned(), name: name.to_owned() })
}

fn only_or_default(namespace: &str, mut found: Vec<String>) -> Result<PoolName, Error> {
    let name = match found.as_slice() {
        [only] => only.clone(),
        several if several.iter().any(|name| name == DEFAULT_POOL) => DEFAULT_POOL.to_owned(),
        _ => {
            found.sort();
            return Err(Error::WhichPool { namespace: namespace.to_owned(), found });
        }
    };
    Ok(PoolName { namespace: namespace.to_owned(), name })
}

/// A DNS-1123 label, as Kubernetes has them.
fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[derive(Deserialize)]
struct Pools {
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Name,
}

#[derive(Deserialize)]
struct Name {
    name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(names: &[&str]) -> Result<String, String> {
        let names = names.iter().map(ToString::to_string).collect();
        only_or_default("ns", names).map(|pool| pool.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_name_is_in_ones_own_namespace_unless_it_says_so() {
        assert_eq!(named("own", "orders").unwrap().to_string(), "own/orders");
        assert_eq!(named("own", "other/orders.v2").unwrap().to_string(), "other/orders.v2");
    }

    #[test]
    fn what_is_no_name_is_refused_before_it_is_part_of_a_path() {
        for reference in ["", "/", "a/", "/a", "a/b/c", "A", "a b", "../x", "-a", "a-", "a..b", "ä"] {
            let error = named("own", reference).unwrap_err().to_string();
            assert!(error.contains("NAMESPACE/NAME"), "{reference}: {error}");
        }
    }

    #[test]
    fn without_a_name_it_is_the_only_pool_else_the_default_one() {
        assert_eq!(found(&["orders"]).unwrap(), "ns/orders");
        assert_eq!(found(&["orders", "default"]).unwrap(), "ns/default");
    }

    #[test]
    fn without_a_name_nothing_is_guessed() {
        assert!(found(&[]).unwrap_err().contains("no pool in namespace ns"));
        assert!(found(&["b", "a"]).unwrap_err().ends_with("name one of a, b"));
    }
}
