//! Who may do what: the agents with a pool's Leases, and the controller itself. Pure.

use std::collections::BTreeMap;

use cosid_kube::codec::{POOL_LABEL, lease_name};
use cosid_kube::pool::SlotPool;
use cosid_lease::Slot;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};

use crate::Error;
use crate::inject::registration::{CONFIGURATION, SECRET};

/// How many Leases one Role names: a pool of the default size needs one Role, of at most 75 KB where its name has 63
/// characters, and a larger pool's growth writes no more than that again.
pub const NAMES_A_ROLE: Slot = 1024;

const RBAC: &str = "rbac.authorization.k8s.io";
const LEASES: (&str, &str) = ("coordination.k8s.io", "leases");
const REGISTRATIONS: (&str, &str) = ("admissionregistration.k8s.io", "mutatingwebhookconfigurations");
const INJECTOR_ROLE: &str = "cosid-injector";
const POOLS: (&str, &str) = ("cosid.dev", "slotpools");

/// The Roles by which a pool's agents use the Leases of these slots, and their bindings. Each Role names the Leases of
/// one stretch of slots, so that growth changes the last one only. `create` and `delete` are in none.
#[must_use]
pub fn for_pool(pool: &SlotPool, slots: impl IntoIterator<Item = Slot>) -> Vec<(Role, RoleBinding)> {
    let mut stretches: BTreeMap<Slot, Vec<String>> = BTreeMap::from([(0, Vec::new())]);
    for slot in slots {
        stretches.entry(slot / NAMES_A_ROLE).or_default().push(lease_name(&pool.name_any(), slot));
    }
    let build = |(number, names)| {
        let role = role(pool, number, names);
        let binding = binding(pool, &role);
        (role, binding)
    };
    stretches.into_iter().map(build).collect()
}

fn role(pool: &SlotPool, number: Slot, names: Vec<String>) -> Role {
    // An empty list of names means all: a rule without names is left out.
    let mut rules = Vec::new();
    if !names.is_empty() {
        rules.push(PolicyRule { resource_names: Some(names), ..rule(LEASES, &["get", "update"]) });
    }
    if number == 0 {
        rules.push(rule(LEASES, &["list"]));
        rules.push(rule(POOLS, &["get", "list"]));
    }
    Role { metadata: metadata(pool, number), rules: Some(rules) }
}

fn binding(pool: &SlotPool, role: &Role) -> RoleBinding {
    let namespace = pool.namespace().unwrap_or_default();
    let allowed = &pool.spec.allowed_namespaces;
    let mut groups: Vec<String> = if allowed.iter().any(|namespace| namespace == "*") {
        vec!["system:serviceaccounts".to_owned()]
    } else {
        let namespaces = std::iter::once(&namespace).chain(allowed);
        namespaces.map(|namespace| format!("system:serviceaccounts:{namespace}")).collect()
    };
    groups.sort();
    groups.dedup();
    let subject =
        |name| Subject { api_group: Some(RBAC.to_owned()), kind: "Group".to_owned(), name, namespace: None };
    RoleBinding {
        metadata: role.metadata.clone(),
        role_ref: RoleRef { api_group: RBAC.to_owned(), kind: "Role".to_owned(), name: role.name_any() },
        subjects: Some(groups.into_iter().map(subject).collect()),
    }
}

/// A number always ends the name, so that no two pools come to the same one.
fn metadata(pool: &SlotPool, number: Slot) -> ObjectMeta {
    ObjectMeta {
        name: Some(format!("cosid-pool-{}-{number}", pool.name_any())),
        namespace: pool.namespace(),
        labels: Some(BTreeMap::from([(POOL_LABEL.to_owned(), pool.name_any())])),
        owner_references: pool.controller_owner_ref(&()).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

/// What the controller needs in the whole cluster, and no more. It must hold what it grants to agents.
#[must_use]
pub fn cluster_role() -> ClusterRole {
    let rules = vec![
        rule(POOLS, &["get", "list", "watch", "update"]),
        rule(("cosid.dev", "slotpools/status"), &["update"]),
        // Where the API server asks for it before an owner reference may block the owner's deletion.
        rule(("cosid.dev", "slotpools/finalizers"), &["update"]),
        rule(LEASES, &["get", "list", "watch", "create", "update", "delete"]),
        rule((RBAC, "roles"), &["get", "create", "update"]),
        rule((RBAC, "rolebindings"), &["get", "create", "update"]),
        rule(("events.k8s.io", "events"), &["create", "patch"]),
    ];
    ClusterRole {
        metadata: ObjectMeta { name: Some("cosid-controller".to_owned()), ..ObjectMeta::default() },
        rules: Some(rules),
        aggregation_rule: None,
    }
}

/// What the controller needs in its own namespace besides: the watermarks of pools that have gone. Its leader Lease is
/// among the Leases of [`cluster_role`].
#[must_use]
pub fn own_role(namespace: &str) -> Role {
    let metadata = ObjectMeta {
        name: Some("cosid-controller".to_owned()),
        namespace: Some(namespace.to_owned()),
        ..ObjectMeta::default()
    };
    Role { metadata, rules: Some(vec![rule(("", "configmaps"), &["get", "create", "update"])]) }
}

/// What it needs besides where something injects: to see pods that slipped through, and, `with_webhook`, to have API servers
/// trust its certificates.
#[must_use]
pub fn injector_cluster_role(with_webhook: bool) -> ClusterRole {
    let mut rules = vec![rule(("", "pods"), &["list", "watch"])];
    if with_webhook {
        rules.push(PolicyRule {
            resource_names: Some(vec![CONFIGURATION.to_owned()]),
            ..rule(REGISTRATIONS, &["list", "watch", "update"])
        });
    }
    ClusterRole {
        metadata: ObjectMeta { name: Some(INJECTOR_ROLE.to_owned()), ..ObjectMeta::default() },
        rules: Some(rules),
        aggregation_rule: None,
    }
}

/// What it needs in its own namespace for the webhook: the Secret with its certificates. (A creation can't be limited by
/// name.)
#[must_use]
pub fn injector_own_role(namespace: &str) -> Role {
    let metadata = ObjectMeta {
        name: Some(INJECTOR_ROLE.to_owned()),
        namespace: Some(namespace.to_owned()),
        ..ObjectMeta::default()
    };
    let secret = PolicyRule {
        resource_names: Some(vec![SECRET.to_owned()]),
        ..rule(("", "secrets"), &["list", "watch", "update"])
    };
    Role { metadata, rules: Some(vec![rule(("", "secrets"), &["create"]), secret]) }
}

fn rule((group, resource): (&str, &str), verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        verbs: verbs.iter().map(|&verb| verb.to_owned()).collect(),
        ..PolicyRule::default()
    }
}

/// The object to write so that `found` becomes `wanted`, by `correct`; `None` where it is right.
///
/// # Errors
/// [`Error::Occupied`] where it is not this pool's: it does not bear its label.
pub fn corrected<K: ResourceExt + Clone + PartialEq>(
    wanted: &K,
    found: Option<K>,
    correct: impl FnOnce(&mut K, &K),
) -> Result<Option<K>, Error> {
    let Some(found) = found else { return Ok(Some(wanted.clone())) };
    if found.labels().get(POOL_LABEL) != wanted.labels().get(POOL_LABEL) {
        let name = format!("{}/{}", found.namespace().unwrap_or_default(), found.name_any());
        return Err(Error::Occupied { what: format!("Role or RoleBinding {name}") });
    }
    let mut right = found.clone();
    right.meta_mut().owner_references = wanted.meta().owner_references.clone();
    correct(&mut right, wanted);
    Ok((right != found).then_some(right))
}

#[cfg(test)]
mod tests {
    use cosid_kube::SlotPoolSpec;

    use super::*;

    fn pool(allowed: &[&str]) -> SlotPool {
        let allowed_namespaces = allowed.iter().map(|&namespace| namespace.to_owned()).collect();
        let mut pool =
            SlotPool::new("orders", SlotPoolSpec { allowed_namespaces, ..SlotPoolSpec::default() });
        pool.metadata.namespace = Some("shop".into());
        pool.metadata.uid = Some("3f1c".into());
        pool
    }

    #[test]
    fn a_default_pool_needs_one_role_that_names_its_leases() {
        let [(role, binding)] = for_pool(&pool(&[]), 0..1024).try_into().unwrap();
        assert_eq!(role.name_any(), "cosid-pool-orders-0");
        assert_eq!(role.owner_references()[0].uid, "3f1c");
        let rules = role.rules.unwrap();
        assert_eq!(rules[0].verbs, ["get", "update"]);
        assert_eq!(rules[0].resource_names.as_ref().unwrap().len(), 1024);
        assert_eq!(rules[0].resource_names.as_ref().unwrap()[17], "orders-17");
        assert_eq!(
            (rules[1].verbs.clone(), rules[2].verbs.clone()),
            (vec!["list".into()], vec!["get".into(), "list".into()])
        );
        assert_eq!(binding.role_ref.name, "cosid-pool-orders-0");
    }

    #[test]
    fn growth_changes_the_last_role_only_and_a_role_without_names_grants_nothing_by_name() {
        let (before, after) = (for_pool(&pool(&[]), 0..1500), for_pool(&pool(&[]), 0..1600));
        assert_eq!((before.len(), after.len()), (2, 2));
        assert_eq!(before[0], after[0]);
        assert_eq!(after[1].0.rules.as_ref().unwrap()[0].resource_names.as_ref().unwrap().len(), 576);
        // An empty list of names would mean every Lease of the namespace.
        let [(role, _)] = for_pool(&pool(&[]), []).try_into().unwrap();
        assert!(role.rules.unwrap().iter().all(|rule| !rule.verbs.contains(&"update".to_owned())));
    }

    #[test]
    fn the_pools_own_and_its_allowed_namespaces_are_bound() {
        let bound = |allowed: &[&str]| {
            let subjects = for_pool(&pool(allowed), [0]).remove(0).1.subjects.unwrap();
            subjects.into_iter().map(|subject| (subject.kind, subject.name)).collect::<Vec<_>>()
        };
        let group = |name: &str| ("Group".to_owned(), name.to_owned());
        assert_eq!(bound(&[]), [group("system:serviceaccounts:shop")]);
        let both = [group("system:serviceaccounts:guest"), group("system:serviceaccounts:shop")];
        assert_eq!(bound(&["guest", "shop"]), both);
        assert_eq!(bound(&["guest", "*"]), [group("system:serviceaccounts")]);
    }

    #[test]
    fn a_role_is_written_where_it_differs_and_another_ones_is_left_alone() {
        let (wanted, _) = for_pool(&pool(&[]), 0..4).remove(0);
        let rules = |found: &mut Role, wanted: &Role| found.rules = wanted.rules.clone();
        assert_eq!(corrected(&wanted, None, rules).unwrap(), Some(wanted.clone()));
        assert_eq!(corrected(&wanted, Some(wanted.clone()), rules).unwrap(), None);
        let mut edited = wanted.clone();
        edited.rules = None;
        edited.metadata.resource_version = Some("5".into());
        let right = corrected(&wanted, Some(edited.clone()), rules).unwrap().unwrap();
        assert_eq!((right.rules, right.metadata.resource_version), (wanted.rules.clone(), Some("5".into())));
        edited.metadata.labels = None;
        assert!(matches!(corrected(&wanted, Some(edited), rules), Err(Error::Occupied { .. })));
    }

    #[test]
    fn the_controller_holds_every_right_that_it_grants() {
        let own = cluster_role().rules.unwrap();
        let holds = |granted: &PolicyRule, verb: &String| {
            own.iter().any(|rule| {
                rule.api_groups == granted.api_groups
                    && rule.resources == granted.resources
                    && rule.resource_names.is_none()
                    && rule.verbs.contains(verb)
            })
        };
        for (role, _) in for_pool(&pool(&[]), 0..4) {
            for rule in role.rules.unwrap() {
                assert!(rule.verbs.iter().all(|verb| holds(&rule, verb)), "{rule:?}");
            }
        }
    }
}
