//! The API server as referee: what it lets be done to a pool's Leases, whoever asks. Pure.
//!
//! Roles say who may write a Lease, not what. These `ValidatingAdmissionPolicy` objects say what: an update is one of the
//! three changes of the algebra, made by the pod that it is made for, or it is refused. So a broken or hostile agent can
//! harm no slot but its own. They run inside the API server, on Leases with the pool's label only.
//!
//! They know no time, so they can't tell whether a lease that is taken over has really expired. They make the taker say
//! that it has, and begin at or above all that the old holder could have issued: a lie costs the holder its slot, and no
//! ID its uniqueness.

mod callers;
mod lives;
mod updates;

use cosid_kube::codec::POOL_LABEL;
use k8s_openapi::api::admissionregistration::v1::{
    MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec, Validation, Variable,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta};

/// The controller's service account, in its own namespace.
pub const CONTROLLER: &str = "cosid-controller";

/// The verb on a `SlotPool` that callers without a pod need to acquire, renew and release: an agent on a laptop, somebody
/// with kubectl. Only these policies ask for it.
pub const HOLD: &str = "hold";

/// Who empties a namespace that is being deleted.
const NAMESPACE_CONTROLLER: &str = "system:serviceaccount:kube-system:namespace-controller";

/// A name for a CEL expression, which others use as `variables.NAME`. It is evaluated when it is first used.
struct Named {
    name: &'static str,
    expression: String,
}

/// What must hold, and otherwise what to say: a CEL expression of a text.
struct Rule {
    expression: String,
    says: String,
    reason: Reason,
}

/// As what a refusal is told.
#[derive(Clone, Copy)]
enum Reason {
    /// Nobody may do this (422).
    Invalid,
    /// This caller may not do this (403).
    Forbidden,
}

/// The policies, each with what puts it in force. `namespace` is the controller's own.
#[must_use]
pub fn policies(namespace: &str) -> Vec<(ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding)> {
    vec![
        policy("cosid-slot-updates", &["UPDATE"], updates::variables(namespace), updates::rules()),
        policy("cosid-slot-lives", &["CREATE", "DELETE"], lives::variables(namespace), lives::rules()),
    ]
}

fn policy(
    name: &str,
    operations: &[&str],
    variables: Vec<Named>,
    rules: Vec<Rule>,
) -> (ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding) {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let variables = variables
        .into_iter()
        .map(|Named { name, expression }| Variable { name: name.to_owned(), expression });
    let spec = ValidatingAdmissionPolicySpec {
        // A rule that can't be evaluated refuses.
        failure_policy: Some("Fail".to_owned()),
        match_constraints: Some(slots(operations)),
        variables: Some(variables.collect()),
        validations: Some(rules.into_iter().map(validation).collect()),
        ..ValidatingAdmissionPolicySpec::default()
    };
    let binding = ValidatingAdmissionPolicyBindingSpec {
        policy_name: Some(name.to_owned()),
        validation_actions: Some(vec!["Deny".to_owned()]),
        ..ValidatingAdmissionPolicyBindingSpec::default()
    };
    (
        ValidatingAdmissionPolicy { metadata: metadata.clone(), spec: Some(spec), status: None },
        ValidatingAdmissionPolicyBinding { metadata, spec: Some(binding) },
    )
}

/// A pool's Leases, and no other: nobody's leader election waits for these rules. A Lease whose label is being taken off,
/// or put on, is one of them too.
fn slots(operations: &[&str]) -> MatchResources {
    let one = |text: &str| Some(vec![text.to_owned()]);
    let labelled =
        LabelSelectorRequirement { key: POOL_LABEL.to_owned(), operator: "Exists".to_owned(), values: None };
    MatchResources {
        object_selector: Some(LabelSelector { match_expressions: Some(vec![labelled]), match_labels: None }),
        resource_rules: Some(vec![NamedRuleWithOperations {
            api_groups: one("coordination.k8s.io"),
            api_versions: one("v1"),
            resources: one("leases"),
            operations: Some(operations.iter().map(|&operation| operation.to_owned()).collect()),
            ..NamedRuleWithOperations::default()
        }]),
        ..MatchResources::default()
    }
}

fn validation(rule: Rule) -> Validation {
    let reason = match rule.reason {
        Reason::Invalid => "Invalid",
        Reason::Forbidden => "Forbidden",
    };
    Validation {
        expression: rule.expression,
        message_expression: Some(rule.says),
        reason: Some(reason.to_owned()),
        message: None,
    }
}

/// Whether the controller asks, as `variables.controller`.
fn controller(namespace: &str) -> Named {
    let user = format!("request.userInfo.username == 'system:serviceaccount:{namespace}:{CONTROLLER}'");
    Named { name: "controller", expression: user }
}

fn named(name: &'static str, expression: impl Into<String>) -> Named {
    Named { name, expression: expression.into() }
}

/// Nobody may break this.
fn invalid(expression: impl Into<String>, says: impl Into<String>) -> Rule {
    Rule { expression: expression.into(), says: says.into(), reason: Reason::Invalid }
}

/// Not for this caller.
fn forbidden(expression: impl Into<String>, says: impl Into<String>) -> Rule {
    Rule { expression: expression.into(), says: says.into(), reason: Reason::Forbidden }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_leases_with_a_pools_label_are_looked_at_and_no_answer_is_a_refusal() {
        for (policy, binding) in policies("cosid-system") {
            let spec = policy.spec.unwrap();
            assert_eq!(spec.failure_policy.as_deref(), Some("Fail"));
            let matched = spec.match_constraints.unwrap();
            let selector = matched.object_selector.unwrap().match_expressions.unwrap();
            assert_eq!((selector[0].key.as_str(), selector[0].operator.as_str()), (POOL_LABEL, "Exists"));
            assert_eq!(matched.resource_rules.unwrap()[0].resources, Some(vec!["leases".into()]));
            let binding = binding.spec.unwrap();
            assert_eq!(binding.policy_name, policy.metadata.name);
            assert_eq!(binding.validation_actions, Some(vec!["Deny".into()]));
        }
    }

    #[test]
    fn every_rule_says_why_it_refuses() {
        for (policy, _) in policies("cosid-system") {
            for rule in policy.spec.unwrap().validations.unwrap() {
                assert!(rule.message_expression.is_some_and(|says| says.len() > 40), "{}", rule.expression);
            }
        }
    }

    #[test]
    fn the_controller_is_the_one_of_this_namespace() {
        let (policy, _) = policies("ids").remove(0);
        let variables = policy.spec.unwrap().variables.unwrap();
        assert!(variables[0].expression.ends_with("== 'system:serviceaccount:ids:cosid-controller'"));
    }
}
