//! `cargo xtask codegen [--check]`: one function says what the files are; it is written, or compared.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use cosid_controller::inject::policy::{self, Defaults};
use cosid_controller::inject::registration::{self, PATH, SERVICE};
use cosid_controller::{cluster_role, injector_cluster_role, injector_own_role, own_role, referee};
use cosid_kube::pool::crd_yaml;
use k8s_openapi::api::admissionregistration::v1::{ServiceReference, WebhookClientConfig};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde::Serialize;
use xtask::{Error, Result, paths};

use super::slotpool;

/// Flags of codegen.
#[derive(Args)]
pub(crate) struct Codegen {
    /// Write nothing; fail where a file is not what it would be
    #[arg(long)]
    check: bool,
}

const NOTE: &str = "# Written by `cargo xtask codegen` from the types. Don't edit.\n";

impl Codegen {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut stale = Vec::new();
        for (name, text) in files()? {
            let path = paths::workspace().join(name);
            if fs::read_to_string(&path).is_ok_and(|found| found == text) {
                continue;
            }
            if self.check {
                stale.push(name);
            } else {
                write(&path, &text)?;
                println!("wrote {name}");
            }
        }
        if stale.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        Err(Error::Wrong(format!("not up to date: {}; run `cargo xtask codegen`", stale.join(", "))))
    }
}

/// All generated files, by their path in the tree.
fn files() -> Result<Vec<(&'static str, String)>> {
    let crd = crd_yaml().map_err(|error| Error::Wrong(error.to_string()))?;
    Ok(vec![
        ("crds/slotpools.cosid.dev.yaml", format!("{NOTE}{crd}")),
        ("charts/cosid/files/slotpools.cosid.dev.yaml", format!("{NOTE}{crd}")),
        ("docs/slotpool.md", slotpool::page()?),
        ("charts/cosid/files/cluster-rules.yaml", rules(cluster_role().rules)?),
        ("charts/cosid/files/own-rules.yaml", rules(own_role("").rules)?),
        ("charts/cosid/files/policy-cluster-rules.yaml", rules(injector_cluster_role(false).rules)?),
        ("charts/cosid/files/webhook-cluster-rules.yaml", rules(injector_cluster_role(true).rules)?),
        ("charts/cosid/files/webhook-own-rules.yaml", rules(injector_own_role("").rules)?),
        ("charts/cosid/files/injector-policy.yaml", injector_policy()?),
        ("charts/cosid/files/injector-webhook.yaml", injector_webhook()?),
        ("charts/cosid/files/referee.yaml", referee_yaml()?),
        ("crates/libcosid/include/cosid.h", c_header()?),
    ])
}

/// The header of the C library, from the files that have something in it, in the order in which a person reads it.
fn c_header() -> Result<String> {
    let library = paths::workspace().join("crates/libcosid");
    let wrong = |why: String| Error::Wrong(format!("the header of libcosid: {why}"));
    let config = cbindgen::Config::from_file(library.join("cbindgen.toml")).map_err(wrong)?;
    let mut builder = cbindgen::Builder::new().with_config(config);
    for module in ["status", "failure", "client", "lease", "generator"] {
        builder = builder.with_src(library.join(format!("src/{module}.rs")));
    }
    let header = builder.generate().map_err(|error| wrong(error.to_string()))?;
    let mut text = Vec::new();
    header.write(&mut text);
    let text = String::from_utf8(text).map_err(|error| wrong(error.to_string()))?;
    // Rust's heading for what an unsafe function asks of its caller.
    Ok(text.replace("# Safety\n", "Pointers:\n"))
}

fn rules(rules: Option<Vec<PolicyRule>>) -> Result<String> {
    Ok(format!("{NOTE}{}", yaml(&rules.unwrap_or_default())?))
}

/// The policies as documents of one file, whose namespace the chart fills in: without spaces, so that no line breaks there.
fn referee_yaml() -> Result<String> {
    let mut text = NOTE.to_owned();
    for (policy, binding) in referee::policies("{{.Release.Namespace}}") {
        text.extend(["---\n".to_owned(), yaml(&policy)?, "---\n".to_owned(), yaml(&binding)?]);
    }
    Ok(text)
}

/// Injection by policy. The chart's values come in as JSON, which CEL reads, too.
fn injector_policy() -> Result<String> {
    let defaults = Defaults {
        image: "{{.Values.agent.image|toJson}}",
        log: "{{.Values.agent.log|toJson}}",
        // In lines of their own, so that YAML does not put quotes around them, which theirs would end.
        requests: "// The chart's values.\n{{ include \"cosid.quantities\" .Values.agent.resources.requests }}",
        limits: "// The chart's values.\n{{ include \"cosid.quantities\" .Values.agent.resources.limits }}",
    };
    let mut text = NOTE.to_owned();
    for object in policy::policies("{{.Release.Namespace}}", &defaults) {
        text.extend(["---\n".to_owned(), yaml(&object)?]);
    }
    Ok(text)
}

/// The webhook's registration.
fn injector_webhook() -> Result<String> {
    let service = ServiceReference {
        name: SERVICE.to_owned(),
        namespace: "{{.Release.Namespace}}".to_owned(),
        path: Some(PATH.to_owned()),
        port: None,
    };
    let client = WebhookClientConfig { service: Some(service), ..WebhookClientConfig::default() };
    let found =
        registration::configuration("{{.Release.Namespace}}", "{{.Values.injector.failurePolicy}}", client);
    Ok(format!("{NOTE}{}", yaml(&found)?))
}

fn yaml(value: &impl Serialize) -> Result<String> {
    // By way of JSON, as kubectl does: the API's own names and order of fields.
    serde_json::to_value(value)
        .map_err(|error| error.to_string())
        .and_then(|value| serde_saphyr::to_string(&value).map_err(|error| error.to_string()))
        .map_err(Error::Wrong)
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(Error::io(format_args!("make {}", parent.display())))?;
    }
    fs::write(path, text).map_err(Error::io(format_args!("write {}", path.display())))
}
