//! Injection by the API server itself: a `MutatingAdmissionPolicy`, and a `ValidatingAdmissionPolicy` that refuses what the
//! first leaves alone.
//!
//! They do what [`patch`](super::patch) does, from the same values and in the same words, but for the hint of a free slot:
//! a policy sees one pod and nothing else. (As JSON: the types of this API's version are younger than the oldest cluster
//! that the rest runs on.)

use serde_json::{Value, json};

use super::agent::{
    DIRECTORY, Filled, NAME, RESOURCES, SOCKET, SOCKET_VARIABLE, TOKEN_VOLUME, VOLUME, mount, socket, volumes,
};
use super::annotations::{ANNOTATIONS, CONTAINERS, CPU, IMAGE, LOG, MEMORY, POOL, PREFIX, SLOT, STATUS};
use super::cel::{hole, literal, literals, object, text};
use super::refusal::Refusal;
use super::registration::{asked, namespaces};

/// The policies' name, and their bindings'.
pub const NAME_OF_POLICY: &str = "cosid-injector";

/// What agents are, where their pod does not say otherwise: CEL literals of strings and of maps of strings.
#[derive(Clone, Copy, Debug)]
pub struct Defaults<'a> {
    /// The image.
    pub image: &'a str,
    /// What is logged.
    pub log: &'a str,
    /// Requests by resource.
    pub requests: &'a str,
    /// Limits by resource.
    pub limits: &'a str,
}

/// Both policies and what puts them in force. `namespace` is the controller's own: nothing is injected there.
#[must_use]
pub fn policies(namespace: &str, defaults: &Defaults<'_>) -> Vec<Value> {
    let constraints = json!({
        "namespaceSelector": namespaces(namespace),
        "resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
            "scope": "Namespaced",
        }],
    });
    let object = |kind: &str, spec: Value| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": { "name": NAME_OF_POLICY }, "spec": spec,
        })
    };
    let validations: Vec<Value> = rules().iter().map(Rule::validation).collect();
    vec![
        object(
            "MutatingAdmissionPolicy",
            json!({
                "failurePolicy": "Fail",
                "reinvocationPolicy": "IfNeeded",
                "matchConstraints": constraints,
                "matchConditions": [asked()],
                "variables": variables(Some(defaults)),
                "mutations": [
                    { "patchType": "JSONPatch", "jsonPatch": { "expression": agent() } },
                    { "patchType": "ApplyConfiguration", "applyConfiguration": { "expression": shares() } },
                ],
            }),
        ),
        object("MutatingAdmissionPolicyBinding", json!({ "policyName": NAME_OF_POLICY })),
        object(
            "ValidatingAdmissionPolicy",
            json!({
                "failurePolicy": "Fail",
                "matchConstraints": constraints,
                "matchConditions": [asked()],
                "variables": variables(None),
                "validations": validations,
            }),
        ),
        object(
            "ValidatingAdmissionPolicyBinding",
            json!({ "policyName": NAME_OF_POLICY, "validationActions": ["Deny"] }),
        ),
    ]
}

/// What must hold, and otherwise what to say.
struct Rule {
    holds: String,
    refusal: Refusal,
}

impl Rule {
    fn new(holds: impl Into<String>, refusal: Refusal) -> Self {
        Self { holds: holds.into(), refusal }
    }

    fn validation(&self) -> Value {
        json!({
            "expression": self.holds,
            "messageExpression": text(&self.refusal.to_string()),
            "reason": "Invalid",
        })
    }
}

fn variable(name: &str, expression: impl Into<String>) -> Value {
    let expression = expression.into();
    json!({ "name": name, "expression": expression })
}

/// The names that the expressions use. With `defaults` also those that only mutations use.
fn variables(defaults: Option<&Defaults<'_>>) -> Vec<Value> {
    // However the path is spelled: kubelets read `/run/./cosid/`, and `run/cosid` too, as this directory.
    let names = DIRECTORY.trim_start_matches('/').replace('/', "/+([.]/+)*");
    let spelled = format!("/*([.]/+)*{names}(/+[.])*/*");
    let known = literals(ANNOTATIONS.map(|annotation| annotation.name).into_iter().chain([STATUS]));
    let mut all = vec![
        variable("annotations", "object.metadata.?annotations.orValue({})"),
        variable(
            "unknown",
            format!("variables.annotations.filter(name, name.startsWith('{PREFIX}') && !(name in {known}))"),
        ),
        variable("initContainers", "object.spec.?initContainers.orValue([])"),
        variable(
            "containers",
            format!(
                "(object.spec.containers + variables.initContainers).filter(each, each.name != '{NAME}')"
            ),
        ),
        variable("found", "variables.containers.map(each, each.name)"),
        variable(
            "wanted",
            format!(
                "'{CONTAINERS}' in variables.annotations ? \
                 variables.annotations['{CONTAINERS}'].split(',').map(name, name.trim()) : variables.found"
            ),
        ),
        variable("chosen", "variables.containers.filter(each, each.name in variables.wanted)"),
        variable("strangers", "variables.wanted.filter(name, !(name in variables.found))"),
        variable(
            "otherSockets",
            format!(
                "variables.chosen.filter(each, each.?env.orValue([]).exists(variable, \
                 variable.name == '{SOCKET_VARIABLE}' && variable.?value.orValue('') != '{SOCKET}')).map(each, each.name)"
            ),
        ),
        variable(
            "otherMounts",
            format!(
                "variables.chosen.filter(each, each.?volumeMounts.orValue([]).exists(mount, \
                 mount.mountPath.matches('^{spelled}$') && mount.name != '{VOLUME}')).map(each, each.name)"
            ),
        ),
        variable("hasAgent", format!("variables.initContainers.exists(each, each.name == '{NAME}')")),
        variable("volumes", "object.spec.?volumes.orValue([]).map(each, each.name)"),
    ];
    if let Some(defaults) = defaults {
        let holds = rules().into_iter().map(|rule| format!("({})", rule.holds)).collect::<Vec<_>>();
        all.extend([
            variable("valid", holds.join(" && ")),
            variable("image", format!("variables.annotations[?'{IMAGE}'].orValue({})", defaults.image)),
            variable("log", format!("variables.annotations[?'{LOG}'].orValue({})", defaults.log)),
            variable("defaultRequests", defaults.requests),
            variable("defaultLimits", defaults.limits),
            variable("requests", quantities("variables.defaultRequests")),
            variable("limits", quantities("variables.defaultLimits")),
        ]);
    }
    all
}

/// A map of resources: those of a default map, or what the pod's annotations say.
fn quantities(default: &str) -> String {
    let entries = RESOURCES.map(|name| {
        let default = format!("{default}[?'{name}']");
        let wish = match name {
            "cpu" => Some(CPU),
            "memory" => Some(MEMORY),
            _ => None,
        };
        let value = wish.map_or_else(
            || default.clone(),
            |annotation| format!("variables.annotations[?'{annotation}'].or({default})"),
        );
        format!("?'{name}': {value}")
    });
    format!("{{{}}}", entries.join(", "))
}

/// The first that does not hold is what the caller is told.
fn rules() -> Vec<Rule> {
    let mut rules: Vec<Rule> = ANNOTATIONS.iter().map(value).collect();
    let first = |list: &str| hole(&format!("variables.{list}[0]"));
    rules.extend([
        Rule::new("variables.unknown.size() == 0", Refusal::Unknown { annotation: first("unknown") }),
        Rule::new(
            format!(
                "!(variables.annotations['{SLOT}'] in ['ordinal', 'prefer:ordinal']) || \
                 object.metadata.?name.orValue('').matches('^.*-[0-9]{{1,7}}$')"
            ),
            Refusal::NoOrdinal,
        ),
        Rule::new(
            "object.spec.?os.?name.orValue('') != 'windows' && \
             object.spec.?nodeSelector[?'kubernetes.io/os'].orValue('') != 'windows'",
            Refusal::Windows,
        ),
        Rule::new(
            "variables.strangers.size() == 0",
            Refusal::NoSuchContainer {
                container: first("strangers"),
                found: hole("variables.found.join(', ')"),
            },
        ),
        Rule::new(
            format!(
                "!object.spec.containers.exists(each, each.name == '{NAME}') && (variables.hasAgent ? \
                 ('{STATUS}' in variables.annotations && '{VOLUME}' in variables.volumes && \
                 '{TOKEN_VOLUME}' in variables.volumes) : \
                 !('{VOLUME}' in variables.volumes || '{TOKEN_VOLUME}' in variables.volumes))"
            ),
            Refusal::HandWritten,
        ),
        Rule::new(
            "variables.otherSockets.size() == 0",
            Refusal::OtherSocket { container: first("otherSockets") },
        ),
        Rule::new(
            "variables.otherMounts.size() == 0",
            Refusal::OtherMount { container: first("otherMounts") },
        ),
    ]);
    rules
}

fn value(annotation: &super::annotations::Annotation) -> Rule {
    let name = literal(annotation.name);
    let pattern = literal(&annotation.anchored());
    Rule::new(
        format!("!({name} in variables.annotations) || variables.annotations[{name}].matches({pattern})"),
        annotation.refusal(&hole(&format!("variables.annotations[{name}].replace('\\n', '\\\\n')"))),
    )
}

/// The agent with its volumes and the status, as operations: where a list is atomic to the API, as `command` is, no other
/// kind of mutation may have it.
fn agent() -> String {
    let filled = Filled {
        image: hole("variables.image"),
        slot: hole(&format!("variables.annotations['{SLOT}']")),
        log: hole("variables.log"),
        resources: Value::String(hole(
            "Object.spec.initContainers.resources{requests: variables.requests, limits: variables.limits}",
        )),
        pool: Some(Value::String(hole(&format!(
            "?variables.annotations[?'{POOL}'].optMap(pool, \
             Object.spec.initContainers.env{{name: 'COSID_POOL', value: pool}})"
        )))),
    };
    let add = |path: &str, value: &str| format!("JSONPatch{{op: 'add', path: '{path}', value: {value}}}");
    let list =
        |field: &str| format!("(has(object.spec.{field}) ? [] : [{}])", add(&format!("/spec/{field}"), "[]"));
    let container = object("Object.spec.initContainers", &filled.container());
    let mut operations = vec![list("initContainers"), list("volumes")];
    operations.push(format!("[{}]", add("/spec/initContainers/0", &container)));
    for volume in volumes() {
        operations.push(format!("[{}]", add("/spec/volumes/-", &object("Object.spec.volumes", &volume))));
    }
    let status = add("/metadata/annotations/cosid~1status", &text(&filled.status()));
    operations.push(format!("[{status}]"));
    format!("!variables.valid || variables.hasAgent ? [] : {}", operations.join(" + "))
}

/// What the pod's own containers get, merged by their names.
fn shares() -> String {
    let list = |name: &str, all: &str| {
        let type_ = format!("Object.spec.{name}");
        let (env, mount) = (object(&format!("{type_}.env"), &socket()), mount());
        let mount = object(&format!("{type_}.volumeMounts"), &mount);
        format!(
            "{name}: {all}.filter(each, each.name != '{NAME}' && each.name in variables.wanted)\
             .map(each, {type_}{{name: each.name, env: [{env}], volumeMounts: [{mount}]}})"
        )
    };
    let (containers, init) = (
        list("containers", "object.spec.containers"),
        list("initContainers", "object.spec.?initContainers.orValue([])"),
    );
    format!("!variables.valid ? Object{{}} : Object{{spec: Object.spec{{{containers}, {init}}}}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Value> {
        let defaults = Defaults { image: "'i'", log: "'info'", requests: "{}", limits: "{}" };
        policies("ids", &defaults)
    }

    #[test]
    fn both_look_at_annotated_new_pods_only_and_not_at_the_systems() {
        for policy in all().iter().filter(|object| object["spec"]["matchConstraints"].is_object()) {
            let spec = &policy["spec"];
            assert_eq!(spec["failurePolicy"], "Fail");
            let [rule] = spec["matchConstraints"]["resourceRules"].as_array().unwrap().as_slice() else {
                panic!()
            };
            assert_eq!((&rule["resources"], &rule["operations"]), (&json!(["pods"]), &json!(["CREATE"])));
            let left_out = &spec["matchConstraints"]["namespaceSelector"]["matchExpressions"][0]["values"];
            assert_eq!(left_out, &json!(["kube-node-lease", "kube-public", "kube-system", "ids"]));
            assert!(spec["matchConditions"][0]["expression"].as_str().unwrap().contains("'cosid/slot' in"));
        }
    }

    #[test]
    fn every_rule_says_why_it_refuses_and_nothing_looks_like_a_template() {
        let all = all();
        let validations = all[2]["spec"]["validations"].as_array().unwrap();
        assert_eq!(validations.len(), ANNOTATIONS.len() + 7);
        for rule in validations {
            assert!(rule["messageExpression"].as_str().unwrap().len() > 40, "{rule}");
        }
        let text = json!(all).to_string();
        assert!(!text.contains("{{") && !text.contains('\u{1}'), "{text}");
    }
}
