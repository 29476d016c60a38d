//! `cargo xtask codegen [--check]`: one function says what the files are; it is written, or compared.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use cosid_controller::{cluster_role, own_role, referee};
use cosid_kube::pool::crd_yaml;
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde::Serialize;
use xtask::{Error, Result, paths};

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
        ("charts/cosid/files/cluster-rules.yaml", rules(cluster_role().rules)?),
        ("charts/cosid/files/own-rules.yaml", rules(own_role("").rules)?),
        ("charts/cosid/files/referee.yaml", referee_yaml()?),
    ])
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
