//! An API server, as far as the product relies on one: objects with a `uid` and a `resourceVersion`, compare-and-set,
//! finalizers, the status as a subresource. What it is sent and what it answers are the bytes of the real protocol; what
//! a network makes of them is the caller's matter, and so is the time.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};

/// What somebody asks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) place: Place,
    /// `key=value`, of a list.
    pub(crate) selector: Option<String>,
    pub(crate) body: Value,
}

/// An object that does not change any more. It is hashed once: a model checker compares states all the time.
#[derive(Clone, Debug)]
pub(crate) struct Json(Arc<(u64, Value)>);

impl Json {
    pub(crate) fn new(value: Value) -> Self {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(&value);
        Self(Arc::new((hash, value)))
    }
}

impl Deref for Json {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0.1
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Eq for Json {}

impl Hash for Json {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.0);
    }
}

/// Where an object is, or a list of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) namespace: String,
    pub(crate) kind: String,
    /// Empty: all of the kind.
    pub(crate) name: String,
    pub(crate) status: bool,
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) body: Json,
}

/// What a call changed.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) place: Place,
    pub(crate) before: Option<Json>,
    pub(crate) after: Option<Json>,
}

/// See the [module's text](self).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ApiServer {
    objects: BTreeMap<Place, Json>,
    /// The newest version of each name: an object that is made again gets no old one.
    versions: BTreeMap<Place, u64>,
}

impl Call {
    /// Reads a request as kube's client sends it.
    pub(crate) async fn read(request: Request<Body>) -> Self {
        let (parts, body) = request.into_parts();
        let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        let query = parts.uri.query().unwrap_or_default();
        let selector = query.split('&').find_map(|pair| pair.strip_prefix("labelSelector="));
        let selector = selector.map(|text| text.replace("%2F", "/").replace("%3D", "="));
        Self { method: parts.method, place: Place::of(parts.uri.path()), selector, body }
    }

    pub(crate) fn is_write(&self) -> bool {
        self.method != Method::GET
    }

    /// For a trace: `PUT leases/orders-0`.
    pub(crate) fn text(&self) -> String {
        let Place { kind, name, status, .. } = &self.place;
        let name = match self.method {
            Method::POST => text_at(&self.body, &["metadata", "name"]),
            _ => name,
        };
        format!("{} {kind}/{name}{}", self.method, if *status { "/status" } else { "" })
    }
}

impl Place {
    fn of(path: &str) -> Self {
        let mut parts = path.split('/').skip_while(|part| *part != "namespaces").skip(1);
        let mut next = || parts.next().unwrap_or_default().to_owned();
        Self { namespace: next(), kind: next(), name: next(), status: next() == "status" }
    }

    pub(crate) fn named(namespace: &str, kind: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), kind: kind.into(), name: name.into(), status: false }
    }
}

impl ApiServer {
    pub(crate) fn get(&self, place: &Place) -> Option<&Json> {
        self.objects.get(place)
    }

    /// All objects, in the order of their places.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Place, &Json)> {
        self.objects.iter()
    }

    /// Does a call at once.
    pub(crate) fn execute(&mut self, call: &Call) -> (Reply, Option<Change>) {
        match (call.method.as_str(), call.place.name.is_empty()) {
            ("GET", true) => (self.list(call), None),
            ("GET", false) => match self.objects.get(&call.place) {
                Some(found) => (Reply { code: 200, body: found.clone() }, None),
                None => (refuse(404, &call.place), None),
            },
            ("POST", _) => self.create(call),
            ("PUT", _) => self.replace(call),
            ("DELETE", _) => self.delete(call),
            _ => (refuse(405, &call.place), None),
        }
    }

    fn list(&self, call: &Call) -> Reply {
        let wanted = call.selector.as_deref().and_then(|selector| selector.split_once('='));
        let items = self.objects.iter().filter(|(place, object)| {
            (&place.namespace, &place.kind) == (&call.place.namespace, &call.place.kind)
                && wanted.is_none_or(|(label, value)| object["metadata"]["labels"][label] == value)
        });
        let items: Vec<&Value> = items.map(|(_, object)| &**object).collect();
        let body = json!({ "kind": "List", "apiVersion": "v1", "metadata": { "resourceVersion": "1" }, "items": items });
        Reply { code: 200, body: Json::new(body) }
    }

    fn create(&mut self, call: &Call) -> (Reply, Option<Change>) {
        let name = text_at(&call.body, &["metadata", "name"]).to_owned();
        let place = Place { name, ..call.place.clone() };
        if self.objects.contains_key(&place) {
            return (refuse(409, &place), None);
        }
        let mut object = call.body.clone();
        if place.kind == "slotpools"
            && let Some(fields) = object.as_object_mut()
        {
            fields.remove("status");
        }
        let version = self.next_version(&place);
        object["metadata"]["uid"] = format!("{}-{}-{version}", place.kind, place.name).into();
        self.store(place, object, version, 201)
    }

    fn replace(&mut self, call: &Call) -> (Reply, Option<Change>) {
        let place = Place { status: false, ..call.place.clone() };
        let Some(stored) = self.objects.get(&place).cloned() else { return (refuse(404, &place), None) };
        if differs(&call.body["metadata"], &stored["metadata"], &["uid", "resourceVersion"]) {
            return (refuse(409, &place), None);
        }
        let mut object = call.body.clone();
        if call.place.status {
            object = (*stored).clone();
            object["status"] = call.body["status"].clone();
        } else if place.kind == "slotpools" && !stored["status"].is_null() {
            object["status"] = stored["status"].clone();
        }
        for field in ["uid", "deletionTimestamp", "resourceVersion"] {
            let value = stored["metadata"][field].clone();
            if value.is_null() {
                object["metadata"].as_object_mut().map(|metadata| metadata.remove(field));
            } else {
                object["metadata"][field] = value;
            }
        }
        if object == *stored {
            return (Reply { code: 200, body: stored }, None);
        }
        let version = self.next_version(&place);
        self.store(place, object, version, 200)
    }

    fn delete(&mut self, call: &Call) -> (Reply, Option<Change>) {
        let place = call.place.clone();
        let Some(stored) = self.objects.get(&place).cloned() else { return (refuse(404, &place), None) };
        if differs(&call.body["preconditions"], &stored["metadata"], &["uid", "resourceVersion"]) {
            return (refuse(409, &place), None);
        }
        if !stored["metadata"]["deletionTimestamp"].is_null() {
            return (Reply { code: 200, body: stored }, None);
        }
        let mut object = (*stored).clone();
        object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        let version = self.next_version(&place);
        self.store(place, object, version, 200)
    }

    /// Stores an object, or lets it go where it is being deleted and nothing holds it.
    fn store(&mut self, place: Place, mut object: Value, version: u64, code: u16) -> (Reply, Option<Change>) {
        object["metadata"]["resourceVersion"] = version.to_string().into();
        let metadata = &object["metadata"];
        let held = metadata["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
        let goes = !metadata["deletionTimestamp"].is_null() && !held;
        let object = Json::new(object);
        let before = if goes {
            self.objects.remove(&place)
        } else {
            self.objects.insert(place.clone(), object.clone())
        };
        let after = (!goes).then(|| object.clone());
        (Reply { code, body: object }, Some(Change { place, before, after }))
    }

    fn next_version(&mut self, place: &Place) -> u64 {
        let version = self.versions.entry(place.clone()).or_default();
        *version += 1;
        *version
    }
}

/// Whether a value that is asked for is another than the one that is there.
fn differs(asked: &Value, stored: &Value, fields: &[&str]) -> bool {
    fields.iter().any(|&field| !asked[field].is_null() && asked[field] != stored[field])
}

/// The text in a field, or none.
pub(crate) fn text_at<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    path.iter().fold(value, |value, field| &value[*field]).as_str().unwrap_or_default()
}

/// A refusal as the API server words it.
pub(crate) fn refuse(code: u16, place: &Place) -> Reply {
    let Place { kind, name, .. } = place;
    let details = json!({ "name": name, "kind": kind });
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        _ => "MethodNotAllowed",
    };
    let message = format!("{kind} {name:?}: {reason}");
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code, "details": details,
    });
    Reply { code, body: Json::new(body) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(version: Option<&str>, text: &str) -> Value {
        json!({ "metadata": { "name": "p-0", "resourceVersion": version, "finalizers": ["f"] }, "spec": text })
    }

    fn call(method: Method, name: &str, body: Value) -> Call {
        Call { method, place: Place::named("ns", "leases", name), selector: None, body }
    }

    #[test]
    fn a_put_is_a_compare_and_set_and_a_finalizer_holds_what_is_deleted() {
        let mut server = ApiServer::default();
        let mut code = |call: &Call| server.execute(call).0.code;
        assert_eq!(code(&call(Method::POST, "", lease(None, "a"))), 201);
        assert_eq!(code(&call(Method::POST, "", lease(None, "a"))), 409);
        assert_eq!(code(&call(Method::PUT, "p-0", lease(Some("1"), "b"))), 200);
        assert_eq!(code(&call(Method::PUT, "p-0", lease(Some("1"), "c"))), 409);
        assert_eq!(
            code(&call(Method::DELETE, "p-0", json!({ "preconditions": { "resourceVersion": "1" } }))),
            409
        );
        assert_eq!(code(&call(Method::DELETE, "p-0", Value::Null)), 200);
        assert_eq!(code(&call(Method::GET, "p-0", Value::Null)), 200, "its finalizer holds it");
        let free = json!({ "metadata": { "name": "p-0", "resourceVersion": "3" }, "spec": "b" });
        assert_eq!(code(&call(Method::PUT, "p-0", free)), 200);
        assert_eq!(code(&call(Method::GET, "p-0", Value::Null)), 404);
        assert_eq!(code(&call(Method::POST, "", lease(None, "a"))), 201);
        assert_eq!(
            code(&call(Method::PUT, "p-0", lease(Some("3"), "b"))),
            409,
            "an old version never comes again"
        );
    }
}
