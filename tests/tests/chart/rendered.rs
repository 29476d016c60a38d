//! What the chart renders.

use cosid_controller::inject::Agent;
use cosid_controller::inject::policy::{Defaults, policies};
use cosid_controller::{cluster_role, injector_cluster_role, injector_own_role, own_role, referee};
use serde_json::{Value, json};
use xtask::paths;

use crate::helm::{EVERYTHING, MODES, SYSTEM, called, find, ha, read, render, set};
use crate::pods;

/// What there is in each way of use.
fn all_ways() -> Vec<Vec<Value>> {
    let mut ways: Vec<_> =
        MODES.iter().map(|mode| render(&set(&[&EVERYTHING[..], &[*mode]].concat()))).collect();
    ways.push(render(&[]));
    ways.push(render(&["--values", &ha()]));
    ways
}

#[test]
fn every_object_and_pod_bears_the_standard_labels_and_those_that_were_asked_for() {
    let asked = ["labels.team=ids", "injector.mode=webhook"];
    for object in render(&set(&[&EVERYTHING[..], &asked].concat())) {
        let pod = pods::template(&object).map(|pod| &pod["metadata"]["labels"]);
        for labels in [Some(&object["metadata"]["labels"]), pod].into_iter().flatten() {
            for (name, value) in [
                ("app.kubernetes.io/instance", "cosid"),
                ("app.kubernetes.io/managed-by", "Helm"),
                ("app.kubernetes.io/part-of", "cosid"),
                ("app.kubernetes.io/version", env!("CARGO_PKG_VERSION")),
                ("helm.sh/chart", concat!("cosid-", env!("CARGO_PKG_VERSION"))),
                ("team", "ids"),
            ] {
                assert_eq!(labels[name], value, "{name} of {}", called(&object));
            }
            assert!(labels["app.kubernetes.io/name"].is_string(), "{}", called(&object));
        }
    }
}

#[test]
fn no_template_has_a_lease_and_every_container_is_restricted() {
    for objects in all_ways() {
        assert!(objects.len() >= 13, "{objects:#?}");
        for object in &objects {
            assert_ne!(object["kind"], "Lease");
            pods::check_restricted(object);
        }
    }
}

#[test]
fn the_generated_files_are_rendered_as_they_are() {
    let objects = render(&[]);
    let stripped = |object: &Value| {
        let mut object = object.clone();
        object["metadata"] = json!({ "name": object["metadata"]["name"] });
        object
    };
    // 20.0 in one is 20 in the other.
    let whole = |object: Value| -> Value {
        serde_json::from_str(&object.to_string().replace(".0,", ",").replace(".0}", "}")).unwrap()
    };
    let crd = read(&paths::workspace().join("crds/slotpools.cosid.dev.yaml")).remove(0);
    let rendered = find(&objects, "CustomResourceDefinition", "slotpools.cosid.dev");
    assert_eq!(whole(stripped(rendered)), whole(stripped(&crd)));
    for (policy, binding) in referee::policies(SYSTEM) {
        for made in [json!(policy), json!(binding)] {
            let name = made["metadata"]["name"].as_str().unwrap();
            assert_eq!(
                stripped(find(&objects, made["kind"].as_str().unwrap(), name)),
                stripped(&made),
                "{name}"
            );
        }
    }
    assert_eq!(find(&objects, "ClusterRole", "cosid-controller")["rules"], json!(cluster_role().rules));
    assert_eq!(find(&objects, "Role", "cosid-controller")["rules"], json!(own_role(SYSTEM).rules));
}

#[test]
fn each_way_of_injection_has_its_objects_and_rights_and_the_chart_says_what_agents_are() {
    let render = |mode: &str| render(&set(&[mode, "agent.resources.limits.cpu=2", "agent.log=warn"]));
    let agent = r#"{"requests":{"cpu":"5m","memory":"8Mi"},"limits":{"cpu":"2","memory":"32Mi"}}"#;
    let by_webhook = render("injector.mode=webhook");
    let args = &find(&by_webhook, "Deployment", "cosid-controller")["spec"]["template"]["spec"]["containers"]
        [0]["args"];
    for arg in ["--injector=webhook", "--agent-log=warn", &format!("--agent-resources={agent}")] {
        assert!(args.as_array().unwrap().contains(&json!(arg)), "{args}");
    }
    let webhook = &find(&by_webhook, "MutatingWebhookConfiguration", "cosid-injector")["webhooks"][0];
    assert_eq!(
        (&webhook["failurePolicy"], &webhook["clientConfig"]["caBundle"]),
        (&json!("Fail"), &Value::Null)
    );
    let service = &webhook["clientConfig"]["service"];
    assert_eq!((&service["name"], &service["namespace"]), (&json!("cosid-webhook"), &json!(SYSTEM)));
    assert_eq!(find(&by_webhook, "Service", "cosid-webhook")["spec"]["ports"][0]["targetPort"], "webhook");
    assert_eq!(find(&by_webhook, "Role", "cosid-injector")["rules"], json!(injector_own_role(SYSTEM).rules));

    let by_policy = render("injector.mode=policy");
    let image = json!(Agent::default().image).to_string();
    let text = "// The chart's values.\n";
    let defaults = Defaults {
        image: &image,
        log: "\"warn\"",
        requests: &format!("{text}{}", r#"{"cpu":"5m","memory":"8Mi"}"#),
        limits: &format!("{text}{}", r#"{"cpu":"2","memory":"32Mi"}"#),
    };
    for made in policies(SYSTEM, &defaults) {
        let found = find(&by_policy, made["kind"].as_str().unwrap(), "cosid-injector");
        assert_eq!(found["spec"], made["spec"], "{}", called(&made));
    }
    for (objects, with_webhook) in [(&by_webhook, true), (&by_policy, false)] {
        let rules = &find(objects, "ClusterRole", "cosid-injector")["rules"];
        assert_eq!(rules, &json!(injector_cluster_role(with_webhook).rules));
    }
    for objects in [by_policy, render("injector.mode=none")] {
        let is_left =
            |object: &Value| object["kind"] == "Service" || object["kind"] == "MutatingWebhookConfiguration";
        assert!(!objects.iter().any(is_left));
    }
}

#[test]
fn the_resource_is_kept_when_the_chart_goes_and_left_out_on_request() {
    let objects = render(&[]);
    let crd = find(&objects, "CustomResourceDefinition", "slotpools.cosid.dev");
    assert_eq!(crd["metadata"]["annotations"], json!({ "helm.sh/resource-policy": "keep" }));
    let without = render(&set(&["crds.install=false"]));
    assert_eq!(without.len(), objects.len() - 1);
    assert!(without.iter().all(|object| object["kind"] != "CustomResourceDefinition"));
}

#[test]
fn an_upgrade_never_has_fewer_replicas_and_finds_a_node_for_the_new_one() {
    for (args, replicas, how) in [
        (vec![], 2, "preferredDuringSchedulingIgnoredDuringExecution"),
        (vec!["--values".to_owned(), ha()], 3, "requiredDuringSchedulingIgnoredDuringExecution"),
    ] {
        let objects = render(&args.iter().map(String::as_str).collect::<Vec<_>>());
        let spec = &find(&objects, "Deployment", "cosid-controller")["spec"];
        assert_eq!(spec["replicas"], replicas);
        assert_eq!(spec["strategy"]["rollingUpdate"], json!({ "maxSurge": 1, "maxUnavailable": 0 }));
        let terms = spec["template"]["spec"]["affinity"]["podAntiAffinity"][how].as_array().unwrap();
        let term = terms[0].get("podAffinityTerm").unwrap_or(&terms[0]);
        assert_eq!(term["topologyKey"], "kubernetes.io/hostname");
        // Else, with as many nodes as replicas, the new one would wait for ever.
        assert_eq!(term["matchLabelKeys"], json!(["pod-template-hash"]));
    }
}

#[test]
fn everything_that_selects_pods_selects_the_controllers_and_no_others() {
    let objects = render(&set(&EVERYTHING));
    let deployment = find(&objects, "Deployment", "cosid-controller");
    let labels = deployment["spec"]["template"]["metadata"]["labels"].as_object().unwrap();
    let selected =
        json!({ "app.kubernetes.io/name": "cosid-controller", "app.kubernetes.io/instance": "cosid" });
    assert!(selected.as_object().unwrap().iter().all(|(key, value)| labels.get(key) == Some(value)));
    let selectors = [
        ("Deployment", "selector"),
        ("PodDisruptionBudget", "selector"),
        ("PodMonitor", "selector"),
        ("NetworkPolicy", "podSelector"),
    ];
    for (kind, field) in selectors {
        let object = find(&objects, kind, "cosid-controller");
        assert_eq!(object["spec"][field]["matchLabels"], selected, "{kind}");
    }
}

#[test]
fn names_are_the_same_whatever_the_release_is_called_and_follow_its_namespace() {
    let chart = crate::helm::chart();
    let text = crate::helm::helm(&["template", "other", chart.to_str().unwrap(), "--namespace", "elsewhere"])
        .unwrap();
    let objects = crate::helm::parse(&text);
    let account = find(&objects, "ServiceAccount", referee::CONTROLLER);
    assert_eq!(account["metadata"]["namespace"], "elsewhere");
    assert_eq!(account["automountServiceAccountToken"], false);
    let policy = find(&objects, "ValidatingAdmissionPolicy", "cosid-slot-lives").to_string();
    assert!(policy.contains("system:serviceaccount:elsewhere:cosid-controller"), "{policy}");
    for binding in ["ClusterRoleBinding", "RoleBinding"] {
        let subject = &find(&objects, binding, "cosid-controller")["subjects"][0];
        assert_eq!(subject["namespace"], "elsewhere");
    }
}

#[test]
fn the_network_policy_lets_in_metrics_and_webhook_and_out_to_the_api_server_only() {
    assert!(render(&[]).iter().all(|object| object["kind"] != "NetworkPolicy"));
    let objects = render(&set(&["networkPolicy.enabled=true", "networkPolicy.apiServerPorts={8443}"]));
    let spec = &find(&objects, "NetworkPolicy", "cosid-controller")["spec"];
    assert_eq!(spec["policyTypes"], json!(["Ingress", "Egress"]));
    let ports = |rule: &Value| -> Vec<i64> {
        let ports = rule["ports"].as_array().unwrap().iter();
        ports.map(|port| port["port"].as_i64().unwrap()).collect()
    };
    assert_eq!(ports(&spec["ingress"][0]), [8080, 9443]);
    assert_eq!(ports(&spec["egress"][0]), [8443]);
}

#[test]
fn agents_requests_are_queued_by_user() {
    let objects = render(&[]);
    let spec = &find(&objects, "FlowSchema", "cosid-slots")["spec"];
    assert_eq!(spec["distinguisherMethod"], json!({ "type": "ByUser" }));
    let rule = &spec["rules"][0]["resourceRules"][0];
    assert_eq!((&rule["resources"], &rule["verbs"]), (&json!(["leases"]), &json!(["get", "list", "update"])));
    find(&objects, "PriorityLevelConfiguration", "cosid-slots");
    let without = render(&set(&["flowControl.enabled=false"]));
    assert_eq!(without.len(), objects.len() - 2);
}

#[test]
fn images_are_those_that_were_asked_for() {
    let image = |values: &[&str]| {
        let objects = render(&set(values));
        let pod = find(&objects, "Deployment", "cosid-controller")["spec"]["template"]["spec"].clone();
        (pod["containers"][0]["image"].as_str().unwrap().to_owned(), pod["imagePullSecrets"].clone())
    };
    assert_eq!(image(&[]), (concat!("cosid-controller:", env!("CARGO_PKG_VERSION")).into(), Value::Null));
    let values = [
        "controller.image.repository=registry.example:5000/ids/controller",
        "controller.image.tag=9.9.9",
        "imagePullSecrets[0].name=registry",
    ];
    let wanted = "registry.example:5000/ids/controller:9.9.9";
    assert_eq!(image(&values), (wanted.into(), json!([{ "name": "registry" }])));
}
