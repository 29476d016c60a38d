//! One call, and what came of it. kube's own typed calls log whole bodies when they can't be read.

use bytes::Bytes;
use cosid_lease::StoreError;
use http::{Request, StatusCode};
use kube::client::Body;
use kube::core::Status;
use kube::{Client, core};

use crate::Error;

/// An answer that is no success, or none.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The API server said no.
    Refused {
        code: StatusCode,
        /// What it said; not every 404 says anything.
        status: Option<Box<Status>>,
    },
    /// There was no answer, or the request could not be made.
    Broken(Error),
}

/// Calls, and gives the body of a success.
pub(crate) async fn call(
    client: &Client,
    request: Result<Request<Vec<u8>>, core::request::Error>,
) -> Result<Bytes, Failure> {
    let request = request.map_err(|error| Failure::Broken(Error::Unreachable(error.to_string())))?;
    let answer = client.send(request.map(Body::from)).await.map_err(broken)?;
    let code = answer.status();
    let body = answer.into_body().collect_bytes().await.map_err(broken)?;
    if code.is_success() {
        return Ok(body);
    }
    Err(Failure::Refused { code, status: serde_json::from_slice(&body).ok() })
}

fn broken(error: kube::Error) -> Failure {
    let error = match error {
        kube::Error::Service(error) => match error.downcast::<Error>() {
            Ok(ours) => *ours,
            Err(other) => Error::Unreachable(other.to_string()),
        },
        other => Error::Unreachable(other.to_string()),
    };
    Failure::Broken(error)
}

impl Failure {
    /// Whether the named object is not there; a 404 that names none is of a path that the server does not have.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { code: StatusCode::NOT_FOUND, status: Some(status) }
            if status.details.as_ref().is_some_and(|details| !details.name.is_empty()))
    }

    /// What it is to who wants to read a pool. `whose` is the SlotPool, for people. Rights come with a pool: where none is
    /// there they are missing too, so that the pool is what to look for first.
    pub(crate) fn to_pool_error(&self, whose: &str, namespace: &str, needs: &str) -> StoreError {
        let error = self.to_store_error(needs);
        match (self, error) {
            (Self::Refused { code: StatusCode::FORBIDDEN, .. }, StoreError::Denied(why)) => {
                StoreError::Denied(format!(
                    "no {whose} can be read in namespace {namespace}: make it (`kubectl apply -n {namespace} -f \
                     slotpool.yaml`), or name another in the annotation cosid/pool. The API server says: {why}"
                ))
            }
            (_, error) => error,
        }
    }

    /// Whether an admission policy refused it, which gives its reason as a cause; the authorizer gives none.
    fn is_by_policy(&self) -> bool {
        matches!(self, Self::Refused { status: Some(status), .. }
            if status.details.as_ref().is_some_and(|details| !details.causes.is_empty()))
    }

    /// What it is to the keeper. `needs` is what the caller must be allowed, for people.
    pub(crate) fn to_store_error(&self, needs: &str) -> StoreError {
        let (code, status) = match self {
            Self::Broken(error) => return without_answer(error),
            Self::Refused { code, status } => (*code, status),
        };
        let said = status.as_ref().map_or_else(|| code.to_string(), |status| status.message.clone());
        match code {
            StatusCode::UNAUTHORIZED => StoreError::Denied(format!(
                "{said}: the API server does not know this caller; is its token or certificate still valid?"
            )),
            // Not by a role: it says itself what is needed.
            StatusCode::FORBIDDEN if self.is_by_policy() => StoreError::Denied(said),
            StatusCode::FORBIDDEN => StoreError::Denied(format!("{said}; this needs {needs}")),
            StatusCode::NOT_FOUND if self.is_not_found() => StoreError::Gone,
            StatusCode::NOT_FOUND => StoreError::Refused(format!(
                "{said}: the API server has no SlotPools; install the CRD (crds/ in the release, or the chart)"
            )),
            StatusCode::CONFLICT => StoreError::Conflict,
            code if code.is_client_error() && code != StatusCode::TOO_MANY_REQUESTS => {
                StoreError::Refused(said)
            }
            code => StoreError::Unknown(format!("{code}: {said}")),
        }
    }
}

fn without_answer(error: &Error) -> StoreError {
    match error {
        // Nothing was sent.
        Error::Credentials(_) | Error::File { .. } => StoreError::Denied(error.to_string()),
        Error::TooLong { .. } => StoreError::Refused(error.to_string()),
        other => StoreError::Unknown(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, status: Option<serde_json::Value>) -> StoreError {
        let status = status.map(|status| serde_json::from_value(status).unwrap());
        Failure::Refused { code: StatusCode::from_u16(code).unwrap(), status }
            .to_store_error("`get` on leases")
    }

    fn said(code: u16) -> StoreError {
        let details = serde_json::json!({ "name": "p-1", "kind": "leases" });
        refused(code, Some(serde_json::json!({ "message": "it said so", "code": code, "details": details })))
    }

    #[test]
    fn each_answer_is_what_the_keeper_has_to_know() {
        assert_eq!(said(409), StoreError::Conflict);
        assert_eq!(said(404), StoreError::Gone);
        assert_eq!(said(403), StoreError::Denied("it said so; this needs `get` on leases".into()));
        assert!(
            matches!(said(401), StoreError::Denied(why) if why.contains("is its token or certificate still valid"))
        );
        for code in [400, 405, 413, 415, 422] {
            assert_eq!(said(code), StoreError::Refused("it said so".into()), "{code}");
        }
        for code in [429, 500, 502, 503, 504] {
            assert!(matches!(said(code), StoreError::Unknown(why) if why.ends_with("it said so")), "{code}");
        }
    }

    #[test]
    fn who_may_not_read_a_pool_is_told_of_the_pool_first_and_of_rights_then() {
        let denied = |code: u16| {
            let status = serde_json::json!({ "message": "may not", "code": code });
            Failure::Refused {
                code: StatusCode::from_u16(code).unwrap(),
                status: Some(serde_json::from_value(status).unwrap()),
            }
            .to_pool_error("SlotPool orders", "shop", "`get` on slotpools")
            .to_string()
        };
        let told = denied(403);
        assert!(
            told.starts_with("no SlotPool orders can be read in namespace shop: make it (`kubectl apply"),
            "{told}"
        );
        assert!(
            told.contains("cosid/pool") && told.ends_with("may not; this needs `get` on slotpools"),
            "{told}"
        );
        assert!(!denied(401).contains("SlotPool"));
    }

    #[test]
    fn a_policys_refusal_says_itself_what_is_needed() {
        let details = serde_json::json!({ "name": "p-1", "causes": [{ "message": "use a bound token" }] });
        let status = serde_json::json!({ "message": "use a bound token", "code": 403, "details": details });
        assert_eq!(refused(403, Some(status)), StoreError::Denied("use a bound token".into()));
    }

    #[test]
    fn a_path_that_the_server_does_not_have_is_a_missing_crd_and_no_missing_object() {
        assert!(matches!(refused(404, None), StoreError::Refused(why) if why.contains("install the CRD")));
    }

    #[test]
    fn a_request_that_was_not_sent_was_not_done() {
        let broken = |error| Failure::Broken(error).to_store_error("");
        assert!(matches!(broken(Error::Credentials("none".into())), StoreError::Denied(_)));
        assert!(matches!(broken(Error::Unreachable("reset".into())), StoreError::Unknown(_)));
        assert!(matches!(broken(Error::Deadline(std::time::Duration::ZERO)), StoreError::Unknown(_)));
    }
}
