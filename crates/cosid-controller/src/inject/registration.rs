//! How the API server is told of the webhook, and which pods it asks about.

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta};

use super::LEFT_OUT;
use super::annotations::SLOT;

/// The configuration's name.
pub const CONFIGURATION: &str = "cosid-injector";
/// The Service that leads to the webhook.
pub const SERVICE: &str = "cosid-webhook";
/// The Secret with its certificates.
pub const SECRET: &str = "cosid-webhook-tls";
/// Where it is served.
pub const PATH: &str = "/inject";

/// How long the API server waits for an answer, seconds: many times what one takes.
const TIMEOUT: i32 = 5;

/// The webhook's registration, without certificates: the controller puts them in. `namespace` is the controller's own,
/// and left out.
#[must_use]
pub fn configuration(
    namespace: &str,
    failure_policy: &str,
    client_config: WebhookClientConfig,
) -> MutatingWebhookConfiguration {
    let one = |text: &str| Some(vec![text.to_owned()]);
    let webhook = MutatingWebhook {
        name: "inject.cosid.dev".to_owned(),
        admission_review_versions: vec!["v1".to_owned()],
        client_config,
        failure_policy: Some(failure_policy.to_owned()),
        match_conditions: Some(vec![asked()]),
        namespace_selector: Some(namespaces(namespace)),
        // Other injectors may add containers after this one.
        reinvocation_policy: Some("IfNeeded".to_owned()),
        rules: Some(vec![RuleWithOperations {
            api_groups: one(""),
            api_versions: one("v1"),
            operations: one("CREATE"),
            resources: one("pods"),
            scope: Some("Namespaced".to_owned()),
        }]),
        side_effects: "None".to_owned(),
        timeout_seconds: Some(TIMEOUT),
        ..MutatingWebhook::default()
    };
    MutatingWebhookConfiguration {
        metadata: ObjectMeta { name: Some(CONFIGURATION.to_owned()), ..ObjectMeta::default() },
        webhooks: Some(vec![webhook]),
    }
}

/// Pods that ask for it, and no other.
pub(super) fn asked() -> MatchCondition {
    let expression = format!("'{SLOT}' in object.metadata.?annotations.orValue({{}})");
    MatchCondition { name: "asked".to_owned(), expression }
}

/// All namespaces but the cluster's and the controller's own.
pub(super) fn namespaces(own: &str) -> LabelSelector {
    let values = LEFT_OUT.into_iter().chain([own]).map(str::to_owned).collect();
    let others = LabelSelectorRequirement {
        key: "kubernetes.io/metadata.name".to_owned(),
        operator: "NotIn".to_owned(),
        values: Some(values),
    };
    LabelSelector { match_expressions: Some(vec![others]), match_labels: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_annotated_pods_outside_the_systems_namespaces_are_asked_about() {
        let configuration = configuration("ids", "Ignore", WebhookClientConfig::default());
        let [webhook] = configuration.webhooks.unwrap().try_into().unwrap();
        assert_eq!(webhook.match_conditions.unwrap()[0].expression, asked().expression);
        let selector = webhook.namespace_selector.unwrap().match_expressions.unwrap().remove(0);
        assert_eq!(selector.values.unwrap(), ["kube-node-lease", "kube-public", "kube-system", "ids"]);
        let [rule] = webhook.rules.unwrap().try_into().unwrap();
        assert_eq!(
            (rule.resources, rule.operations),
            (Some(vec!["pods".into()]), Some(vec!["CREATE".into()]))
        );
        assert_eq!(webhook.client_config.ca_bundle, None);
    }
}
