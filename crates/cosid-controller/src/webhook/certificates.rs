//! The webhook's certificates. Pure but for the randomness of keys.
//!
//! A *generation* is a certificate with its key, signed by an authority of its own, whose key is thrown away at once: nothing
//! else can ever be signed with it. The Secret keeps the newest generation and the one before.

use std::collections::BTreeMap;
use std::sync::Arc;

use cosid_lease::Millis;
use k8s_openapi::ByteString;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose,
};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use time::OffsetDateTime;

use crate::Error;

/// A certificate counts this long before it was made, ms: the API servers' clocks need not agree.
const BACKDATED: Millis = 300_000;

/// A certificate, its key, and who vouches for it.
#[derive(Clone, PartialEq, Eq)]
pub struct Generation {
    /// The authority's certificate (PEM).
    pub authority: String,
    /// The certificate (PEM).
    pub certificate: String,
    /// Its key (PEM).
    key: String,
    /// The names and addresses it is for, with commas between.
    names: String,
    /// When it was made, Unix ms.
    made: Millis,
    /// When it ends, Unix ms.
    expires: Millis,
}

/// Keys are in no log.
impl std::fmt::Debug for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { names, made, expires, .. } = self;
        f.debug_struct("Generation")
            .field("names", names)
            .field("made", made)
            .field("expires", expires)
            .finish_non_exhaustive()
    }
}

impl Generation {
    /// A new one for these names and IP addresses, from `now` (Unix ms) for `lifetime` ms.
    ///
    /// # Errors
    /// [`Error::Certificate`].
    pub fn make(names: &[String], now: Millis, lifetime: Millis) -> Result<Self, Error> {
        let expires = now.saturating_add(lifetime);
        let build = || -> Result<Self, rcgen::Error> {
            let authority = CertifiedIssuer::self_signed(authority(now, expires), KeyPair::generate()?)?;
            let key = KeyPair::generate()?;
            let certificate = server(names, now, expires)?.signed_by(&key, &authority)?;
            Ok(Self {
                authority: authority.pem(),
                certificate: certificate.pem(),
                key: key.serialize_pem(),
                names: names.join(","),
                made: now,
                expires,
            })
        };
        build().map_err(|error| Error::Certificate(error.to_string()))
    }

    /// Whether it need not be followed by another at `now`.
    fn is_right(&self, names: &[String], now: Millis, lifetime: Millis) -> bool {
        let life = self.expires.saturating_sub(self.made);
        now < self.due() && self.names == names.join(",") && life <= lifetime
    }

    /// When the next one is made, Unix ms.
    #[must_use]
    pub fn due(&self) -> Millis {
        self.made.saturating_add(self.expires.saturating_sub(self.made) / 3 * 2)
    }

    /// When it was made, Unix ms.
    #[must_use]
    pub fn made(&self) -> Millis {
        self.made
    }

    /// When it ends, Unix ms.
    #[must_use]
    pub fn expires(&self) -> Millis {
        self.expires
    }

    /// As rustls takes it.
    ///
    /// # Errors
    /// [`Error::Certificate`] where it can't be read, or the key is another's.
    pub fn certified_key(&self) -> Result<Arc<CertifiedKey>, Error> {
        let wrong = |why: &dyn ToString| Error::Certificate(why.to_string());
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(self.certificate.as_bytes()).collect();
        let chain = chain.map_err(|error| wrong(&error))?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|error| wrong(&error))?;
        let key = CertifiedKey::from_der(chain, key, &default_provider()).map_err(|error| wrong(&error))?;
        Ok(Arc::new(key))
    }

    fn read(data: &BTreeMap<String, ByteString>, prefix: &str) -> Option<Self> {
        let text = |name: &str| String::from_utf8(data.get(&format!("{prefix}{name}"))?.0.clone()).ok();
        let read = Self {
            authority: text("ca.crt")?,
            certificate: text("tls.crt")?,
            key: text("tls.key")?,
            names: text("names")?,
            made: text("made")?.parse().ok()?,
            expires: text("expires")?.parse().ok()?,
        };
        CertificateDer::from_pem_slice(read.authority.as_bytes()).ok()?;
        read.certified_key().ok()?;
        Some(read)
    }

    fn write(&self, prefix: &str) -> impl Iterator<Item = (String, ByteString)> {
        let fields = [
            ("ca.crt", self.authority.clone()),
            ("tls.crt", self.certificate.clone()),
            ("tls.key", self.key.clone()),
            ("names", self.names.clone()),
            ("made", self.made.to_string()),
            ("expires", self.expires.to_string()),
        ];
        fields.map(|(name, value)| (format!("{prefix}{name}"), ByteString(value.into_bytes()))).into_iter()
    }
}

/// The newest generation and the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generations {
    /// The newest.
    pub newest: Generation,
    /// The one before, which API servers may still be shown.
    pub previous: Option<Generation>,
}

const PREVIOUS: &str = "previous-";

impl Generations {
    /// Those of a Secret; `None` where it has none that can be read.
    #[must_use]
    pub fn read(data: &BTreeMap<String, ByteString>) -> Option<Self> {
        let newest = Generation::read(data, "")?;
        Some(Self { newest, previous: Generation::read(data, PREVIOUS) })
    }

    /// As a Secret has them.
    #[must_use]
    pub fn write(&self) -> BTreeMap<String, ByteString> {
        let previous = self.previous.iter().flat_map(|previous| previous.write(PREVIOUS));
        self.newest.write("").chain(previous).collect()
    }

    /// These, with another newest one where the newest is due at `now`, is for other names, or was made for longer than
    /// `lifetime`: who shortens that does not want to wait for the end of what was made before.
    ///
    /// # Errors
    /// [`Error::Certificate`].
    pub fn renewed(
        found: Option<&Self>,
        names: &[String],
        now: Millis,
        lifetime: Millis,
    ) -> Result<Self, Error> {
        match found {
            Some(found) if found.newest.is_right(names, now, lifetime) => Ok(found.clone()),
            _ => Ok(Self {
                newest: Generation::make(names, now, lifetime)?,
                previous: found.map(|found| found.newest.clone()).filter(|previous| now < previous.expires),
            }),
        }
    }

    /// What API servers are to trust at `now`: the newest, and the one before until it ends. Some replica may have shown
    /// it a moment ago.
    #[must_use]
    pub fn bundle(&self, now: Millis) -> String {
        let previous = self.previous.iter().filter(|previous| now < previous.expires);
        std::iter::once(&self.newest)
            .chain(previous)
            .map(|generation| generation.authority.as_str())
            .collect()
    }
}

fn authority(now: Millis, expires: Millis) -> CertificateParams {
    let mut params = valid(CertificateParams::default(), now, expires);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.distinguished_name = named(&format!("cosid-webhook-ca-{now}"));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

fn server(names: &[String], now: Millis, expires: Millis) -> Result<CertificateParams, rcgen::Error> {
    let mut params = valid(CertificateParams::new(names)?, now, expires);
    params.distinguished_name = named("cosid-webhook");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn valid(mut params: CertificateParams, now: Millis, expires: Millis) -> CertificateParams {
    let time = |at: Millis| {
        let seconds = i64::try_from(at / 1_000).unwrap_or(i64::MAX);
        OffsetDateTime::from_unix_timestamp(seconds).ok()
    };
    // Beyond the year 9999 rcgen's own end of all times stands.
    params.not_before = time(now.saturating_sub(BACKDATED)).unwrap_or(params.not_before);
    params.not_after = time(expires).unwrap_or(params.not_after);
    params
}

fn named(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = 1_800_000_000_000;

    fn names() -> Vec<String> {
        vec!["cosid-webhook.ids.svc".into(), "127.0.0.1".into()]
    }

    fn renewed(found: Option<&Generations>, now: Millis) -> Generations {
        Generations::renewed(found, &names(), now, 90_000).unwrap()
    }

    #[test]
    fn a_secret_keeps_them_and_what_cannot_be_read_is_none() {
        let first = renewed(None, NOW);
        let second = renewed(Some(&first), first.newest.due());
        for generations in [&first, &second] {
            assert_eq!(Generations::read(&generations.write()).as_ref(), Some(generations));
        }
        for (field, value) in [("tls.key", "x"), ("ca.crt", ""), ("made", "-1"), ("names", "\u{ff}")] {
            let mut data = second.write();
            let value = if field == "names" { vec![0xff] } else { value.as_bytes().to_vec() };
            data.insert(field.into(), ByteString(value));
            assert_eq!(Generations::read(&data), None, "{field}");
        }
        // Another's key.
        let mut data = second.write();
        data.extend(renewed(None, NOW).newest.write("").filter(|(name, _)| name == "tls.key"));
        assert_eq!(Generations::read(&data), None);
    }

    #[test]
    fn the_next_one_is_made_at_two_thirds_and_the_one_before_is_trusted_until_it_ends() {
        let first = renewed(None, NOW);
        assert_eq!(renewed(Some(&first), NOW + 59_999), first);
        let second = renewed(Some(&first), NOW + 60_000);
        assert_eq!(second.previous.as_ref(), Some(&first.newest));
        let both = format!("{}{}", second.newest.authority, first.newest.authority);
        assert_eq!(second.bundle(NOW + 89_999), both);
        assert_eq!(second.bundle(NOW + 90_000), second.newest.authority);
        // Nobody was there to renew it in time.
        assert_eq!(renewed(Some(&first), NOW + 500_000).previous, None);
    }

    #[test]
    fn other_names_need_another_certificate() {
        let first = renewed(None, NOW);
        let other = Generations::renewed(Some(&first), &["other".into()], NOW + 1, 90_000).unwrap();
        assert_ne!(other.newest, first.newest);
        assert_eq!(other.previous, Some(first.newest));
    }

    #[test]
    fn keys_are_not_printed() {
        let text = format!("{:?}", renewed(None, NOW));
        assert!(!text.contains("BEGIN") && text.contains("cosid-webhook.ids.svc"), "{text}");
    }

    #[test]
    fn a_shorter_lifetime_is_had_at_once_and_a_longer_one_when_the_next_is_due() {
        let first = renewed(None, NOW);
        let shorter = Generations::renewed(Some(&first), &names(), NOW + 1, 60_000).unwrap();
        assert_eq!(shorter.previous.as_ref(), Some(&first.newest));
        assert_eq!(shorter.newest.expires(), NOW + 60_001);
        assert_eq!(Generations::renewed(Some(&shorter), &names(), NOW + 2, 60_000).unwrap(), shorter);
        assert_eq!(Generations::renewed(Some(&shorter), &names(), NOW + 2, 90_000).unwrap(), shorter);
    }
}
