//! What to change in a pod, as a JSON Patch.

use std::collections::BTreeMap;

use cosid_lease::Slot;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use serde_json::{Value, json};

use super::agent::{
    Agent, DIRECTORY, Filled, NAME, SOCKET, SOCKET_VARIABLE, TOKEN_VOLUME, VOLUME, mount, socket, volumes,
};
use super::annotations::{STATUS, Wishes};
use super::refusal::Refusal;

/// The operations (RFC 6902) that give a pod what it asks for; none where it asks for nothing or has it already.
///
/// It is called again when others have changed the pod: then the agent stays as it is, and containers that came since get
/// their share. `hint` names a slot that is likely free, and is asked only for a pod that takes any and is new.
///
/// # Errors
/// [`Refusal`].
pub fn patch(
    pod: &Pod,
    agent: &Agent,
    hint: impl FnOnce(&Wishes<'_>) -> Option<Slot>,
) -> Result<Vec<Value>, Refusal> {
    let none = BTreeMap::new();
    let annotations = pod.metadata.annotations.as_ref().unwrap_or(&none);
    let (Some(wishes), Some(spec)) = (Wishes::read(annotations)?, &pod.spec) else { return Ok(Vec::new()) };
    check_ordinal(pod, &wishes)?;
    check_system(spec)?;
    check_containers(spec, &wishes)?;
    let has_agent = has_agent(spec, annotations.contains_key(STATUS))?;

    let mut operations = Vec::new();
    let init = spec.init_containers.as_deref().unwrap_or_default();
    for (list, containers) in [("containers", &*spec.containers), ("initContainers", init)] {
        for (index, container) in containers.iter().enumerate() {
            if container.name != NAME && wishes.chooses(&container.name) {
                share(container, &format!("/spec/{list}/{index}"), &mut operations)?;
            }
        }
    }
    if !has_agent {
        // A pod that has its name before it is made has had it before, maybe: its old slot is a better choice.
        let any = wishes.slot == "auto" && pod.metadata.name.as_deref().unwrap_or_default().is_empty();
        let filled = Filled::of(agent, &wishes, if any { hint(&wishes) } else { None });
        list(spec.init_containers.is_some(), "/spec/initContainers", &mut operations);
        // First, so that other init containers have IDs.
        operations.push(add("/spec/initContainers/0", filled.container()));
        list(spec.volumes.is_some(), "/spec/volumes", &mut operations);
        operations.extend(volumes().map(|volume| add("/spec/volumes/-", volume)));
        operations.push(add("/metadata/annotations/cosid~1status", json!(filled.status())));
    }
    Ok(operations)
}

fn add(path: &str, value: Value) -> Value {
    json!({ "op": "add", "path": path, "value": value })
}

fn list(is_there: bool, path: &str, operations: &mut Vec<Value>) {
    if !is_there {
        operations.push(add(path, json!([])));
    }
}

fn check_system(spec: &PodSpec) -> Result<(), Refusal> {
    let named = spec.os.as_ref().map(|os| os.name.as_str());
    let selected =
        spec.node_selector.as_ref().and_then(|labels| labels.get("kubernetes.io/os")).map(String::as_str);
    if [named, selected].contains(&Some("windows")) { Err(Refusal::Windows) } else { Ok(()) }
}

/// Whether a mount's path is the agent's directory, however it is spelled. One with `..` is refused by Kubernetes.
fn is_directory(path: &str) -> bool {
    let names = path.split('/').filter(|name| !matches!(*name, "" | "."));
    names.eq(DIRECTORY.split('/').filter(|name| !name.is_empty()))
}

/// What one of the pod's containers gets.
fn share(container: &Container, path: &str, operations: &mut Vec<Value>) -> Result<(), Refusal> {
    let name = || container.name.clone();
    let env = container.env.as_deref().unwrap_or_default();
    // There may be several: of variables with one name the last counts.
    let sockets = || env.iter().filter(|variable| variable.name == SOCKET_VARIABLE);
    if sockets().any(|variable| variable.value.as_deref() != Some(SOCKET)) {
        return Err(Refusal::OtherSocket { container: name() });
    }
    if sockets().next().is_none() {
        list(container.env.is_some(), &format!("{path}/env"), operations);
        operations.push(add(&format!("{path}/env/-"), socket()));
    }
    let mounts = container.volume_mounts.as_deref().unwrap_or_default();
    let there = || mounts.iter().filter(|mount| is_directory(&mount.mount_path));
    if there().any(|mount| mount.name != VOLUME) {
        return Err(Refusal::OtherMount { container: name() });
    }
    if there().next().is_none() {
        list(container.volume_mounts.is_some(), &format!("{path}/volumeMounts"), operations);
        operations.push(add(&format!("{path}/volumeMounts/-"), mount()));
    }
    Ok(())
}

fn check_ordinal(pod: &Pod, wishes: &Wishes<'_>) -> Result<(), Refusal> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let ordinal = name.rsplit_once('-').map(|(_, ordinal)| ordinal);
    let is_number =
        |text: &str| (1..=7).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    match wishes.slot {
        "ordinal" | "prefer:ordinal" if !ordinal.is_some_and(is_number) => Err(Refusal::NoOrdinal),
        _ => Ok(()),
    }
}

fn check_containers(spec: &PodSpec, wishes: &Wishes<'_>) -> Result<(), Refusal> {
    let init = spec.init_containers.iter().flatten();
    let all = spec.containers.iter().chain(init).map(|container| container.name.as_str());
    let found: Vec<&str> = all.filter(|&name| name != NAME).collect();
    let mut wanted = wishes.containers.iter().flatten();
    match wanted.find(|name| !found.contains(name)) {
        Some(&name) => Err(Refusal::NoSuchContainer { container: name.to_owned(), found: found.join(", ") }),
        None => Ok(()),
    }
}

/// Whether the agent is there; as a whole or not at all.
fn has_agent(spec: &PodSpec, has_status: bool) -> Result<bool, Refusal> {
    let is_agent = |container: &Container| container.name == NAME;
    let has_agent = spec.init_containers.iter().flatten().any(is_agent);
    let has = |name: &str| spec.volumes.iter().flatten().any(|volume| volume.name == name);
    let volumes = (has(VOLUME), has(TOKEN_VOLUME));
    match (has_agent, volumes) {
        _ if spec.containers.iter().any(is_agent) => Err(Refusal::HandWritten),
        (true, (true, true)) if has_status => Ok(true),
        (false, (false, false)) => Ok(false),
        _ => Err(Refusal::HandWritten),
    }
}

#[cfg(test)]
mod tests;
