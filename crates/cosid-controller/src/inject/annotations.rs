//! What pods may be annotated with.

use std::collections::BTreeMap;

use regex_lite::Regex;

use super::Refusal;

/// Which slot; what makes a pod ask for an agent at all.
pub const SLOT: &str = "cosid/slot";
/// Which pool.
pub const POOL: &str = "cosid/pool";
/// Which containers get IDs; without it all of them.
pub const CONTAINERS: &str = "cosid/containers";
/// The agent's image.
pub const IMAGE: &str = "cosid/agent-image";
/// The agent's CPU, request and limit.
pub const CPU: &str = "cosid/agent-cpu";
/// The agent's memory, request and limit.
pub const MEMORY: &str = "cosid/agent-memory";
/// What the agent logs.
pub const LOG: &str = "cosid/agent-log";
/// What was injected: written, never asked for.
pub const STATUS: &str = "cosid/status";
/// What all of them begin with.
pub const PREFIX: &str = "cosid/";

/// An annotation that people set.
#[derive(Clone, Copy, Debug)]
pub struct Annotation {
    /// Its name.
    pub name: &'static str,
    /// What its whole value matches: a regular expression that RE2, of the API server, reads alike.
    pub pattern: &'static str,
    /// The same for people.
    pub allowed: &'static str,
}

/// Every annotation that people set. Slots are below 2^20, the widest pool there is.
pub const ANNOTATIONS: [Annotation; 7] = [
    Annotation {
        name: SLOT,
        pattern: "auto|ordinal|prefer:ordinal|(prefer:)?(0|[1-9][0-9]{0,5}|10[0-3][0-9]{4}|104[0-7][0-9]{3}|\
                  1048[0-4][0-9]{2}|10485[0-6][0-9]|104857[0-5])",
        allowed: "auto, ordinal, prefer:ordinal, a number from 0 to 1048575, prefer:NUMBER",
    },
    Annotation {
        name: POOL,
        pattern: "([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/)?[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\
                  ([.][a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*",
        allowed: "NAME of a SlotPool in the pod's namespace, NAMESPACE/NAME",
    },
    Annotation {
        name: CONTAINERS,
        pattern: " *[a-z0-9]([a-z0-9-]*[a-z0-9])? *(, *[a-z0-9]([a-z0-9-]*[a-z0-9])? *)*",
        allowed: "names of the pod's containers and init containers, with commas between",
    },
    Annotation {
        name: IMAGE,
        // What container runtimes take: lower-case path, then a tag, a digest or both.
        pattern: "([a-zA-Z0-9]([a-zA-Z0-9.-]{0,253}[a-zA-Z0-9])?(:[0-9]{1,5})?/)?[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*\
                  (/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?",
        allowed: "an image's name, such as registry.example.com/cosid-agent:1.2.3",
    },
    Annotation {
        name: CPU,
        pattern: "[1-9][0-9]{0,5}m|[1-9][0-9]{0,2}([.][0-9]{1,3})?|0[.][0-9]{0,2}[1-9]",
        allowed: "thousandths of a CPU such as 20m, CPUs such as 1 or 0.5",
    },
    Annotation {
        name: MEMORY,
        pattern: "([89]|[1-9][0-9]{1,4})Mi|[1-9][0-9]{0,2}Gi",
        allowed: "MiB from 8Mi, such as 32Mi, GiB such as 1Gi",
    },
    Annotation {
        name: LOG,
        pattern: "([a-z0-9_:]+=)?(off|error|warn|info|debug|trace)(,([a-z0-9_:]+=)?(off|error|warn|info|debug|trace))*",
        allowed: "off, error, warn, info, debug, trace, a list such as warn,cosid_agent=debug",
    },
];

/// The names of all of them, as refusals list them.
#[must_use]
pub fn names() -> String {
    ANNOTATIONS.map(|annotation| annotation.name).join(", ")
}

/// What a pod asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wishes<'a> {
    /// As the agent's `--slot` takes it.
    pub slot: &'a str,
    /// As its `--pool` does.
    pub pool: Option<&'a str>,
    /// The containers that get IDs; `None`: all.
    pub containers: Option<Vec<&'a str>>,
    /// The agent's image.
    pub image: Option<&'a str>,
    /// Its CPU.
    pub cpu: Option<&'a str>,
    /// Its memory.
    pub memory: Option<&'a str>,
    /// What it logs.
    pub log: Option<&'a str>,
}

impl<'a> Wishes<'a> {
    /// Of a pod's annotations; `None` where it asks for nothing.
    ///
    /// # Errors
    /// [`Refusal::BadValue`], [`Refusal::Unknown`].
    pub fn read(annotations: &'a BTreeMap<String, String>) -> Result<Option<Self>, Refusal> {
        let get = |name: &str| annotations.get(name).map(String::as_str);
        let Some(slot) = get(SLOT) else { return Ok(None) };
        for annotation in &ANNOTATIONS {
            if let Some(value) = get(annotation.name)
                && !annotation.allows(value)
            {
                return Err(annotation.refusal(value));
            }
        }
        let known = |name: &str| name == STATUS || ANNOTATIONS.iter().any(|known| known.name == name);
        if let Some(unknown) = annotations.keys().find(|name| name.starts_with(PREFIX) && !known(name)) {
            return Err(Refusal::Unknown { annotation: unknown.clone() });
        }
        Ok(Some(Self {
            slot,
            pool: get(POOL),
            containers: get(CONTAINERS).map(|list| list.split(',').map(str::trim).collect()),
            image: get(IMAGE),
            cpu: get(CPU),
            memory: get(MEMORY),
            log: get(LOG),
        }))
    }

    /// Whether this container gets IDs.
    #[must_use]
    pub fn chooses(&self, container: &str) -> bool {
        self.containers.as_ref().is_none_or(|chosen| chosen.contains(&container))
    }
}

impl Annotation {
    /// Whether it may have this value.
    #[must_use]
    pub fn allows(&self, value: &str) -> bool {
        // The patterns are constants, and a test reads each.
        Regex::new(&self.anchored()).is_ok_and(|pattern| pattern.is_match(value))
    }

    /// The pattern for a whole text.
    #[must_use]
    pub fn anchored(&self) -> String {
        format!("^({})$", self.pattern)
    }

    /// What to say of another value. A message is one line, or the API server shows an expression instead of it.
    #[must_use]
    pub fn refusal(&self, value: &str) -> Refusal {
        Refusal::BadValue { annotation: self.name, value: value.replace('\n', "\\n"), allowed: self.allowed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<String, String> {
        let annotations = pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        match Wishes::read(&annotations) {
            Ok(wishes) => Ok(wishes.map(|wishes| wishes.slot.to_owned()).unwrap_or_default()),
            Err(refusal) => Err(refusal.to_string()),
        }
    }

    #[test]
    fn each_value_that_is_documented_is_taken_and_others_are_refused_with_the_list() {
        let table: [(&str, &[&str], &[&str]); 7] = [
            (
                SLOT,
                &["auto", "ordinal", "prefer:ordinal", "0", "17", "1048575", "prefer:0", "prefer:999999"],
                &[
                    "", "Auto", "-1", "+1", "007", "1048576", "prefer:", "prefer:x", "auto ", "auto\n",
                    "ordinals",
                ],
            ),
            (
                POOL,
                &["orders", "shop/orders", "shop/orders.v2", "a"],
                &["", "/", "a/", "/a", "a/b/c", "A", "a b", "../x", "-a", "a-", "a..b", "a.b/c", "ä"],
            ),
            (CONTAINERS, &["app", "app,worker", " app , worker "], &["", ",", "app,", "App", "a b"]),
            (
                IMAGE,
                &[
                    "cosid-agent",
                    "cosid-agent:0.1.0",
                    "r.example.com:5000/a/b__c:1@sha256:\
                     0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                ],
                &[
                    "",
                    " ",
                    "a b",
                    "-a",
                    "a\"b",
                    "{{x}}",
                    "a:",
                    "a::1",
                    "a//b",
                    "A",
                    "a:1:2",
                    "a@sha256:0123abc",
                ],
            ),
            (
                CPU,
                &["5m", "250m", "1", "1.5", "0.5", "0.05"],
                &["", "0", "0m", "0.0", "-1", "1e3", "5 m", "1k"],
            ),
            (MEMORY, &["8Mi", "16Mi", "1Gi"], &["", "7Mi", "0Mi", "16", "16M", "16mi", "1.5Gi"]),
            (LOG, &["info", "off", "warn,cosid_agent=debug"], &["", "verbose", "info,", "INFO", "a b=info"]),
        ];
        for (name, good, bad) in table {
            let annotation = ANNOTATIONS.iter().find(|annotation| annotation.name == name).unwrap();
            assert!(Regex::new(&annotation.anchored()).is_ok(), "{name}");
            for value in good {
                assert!(read(&[(SLOT, "auto"), (name, value)]).is_ok(), "{name}: {value}");
            }
            for value in bad {
                let value_shown = value.replace('\n', "\\n");
                let expected =
                    format!("annotation {name}: \"{value_shown}\" is not one of: {}", annotation.allowed);
                assert_eq!(read(&[(SLOT, "auto"), (name, value)]), Err(expected));
            }
        }
    }

    #[test]
    fn a_typo_is_refused_and_what_asks_for_nothing_is_nothing() {
        let why = read(&[(SLOT, "auto"), ("cosid/pol", "orders")]).unwrap_err();
        assert!(
            why.starts_with("annotation cosid/pol is not known; there are: cosid/slot, cosid/pool, "),
            "{why}"
        );
        assert_eq!(read(&[(SLOT, "3"), (STATUS, "whatever"), ("cosid.dev/x", "1")]), Ok("3".into()));
        assert_eq!(read(&[(POOL, "orders")]), Ok(String::new()));
    }
}
