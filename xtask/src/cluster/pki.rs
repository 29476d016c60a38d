//! The cluster's keys and certificates, as PEM files in `pki/` of its directory.
//!
//! They are made anew for each cluster and thrown away with it, so they have no expiry to renew (rcgen's default ends
//! in 4096): a test may turn clocks as it likes.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use crate::{Error, Result};

use super::kubeconfig::{self, User};

/// The names and addresses that the API server is reached by, its own service's among them.
const SERVER_NAMES: [&str; 8] = [
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "127.0.0.1",
    "10.96.0.1",
    // The control plane's address where there are nodes.
    "10.250.0.1",
];

/// A certificate file and its key file.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

/// The files that etcd, kube-apiserver and their users are given.
#[derive(Debug)]
pub(super) struct Pki {
    pub(super) ca: PathBuf,
    pub(super) apiserver: Pair,
    pub(super) admin: Pair,
    pub(super) service_account_key: PathBuf,
    pub(super) service_account_public_key: PathBuf,
    /// Whom kubelets take the API server for.
    pub(super) kubelet_client: Pair,
}

/// The kubeconfig files of what there is besides the API server where there are nodes.
#[derive(Debug)]
pub(super) struct NodeUsers {
    pub(super) ca: PathBuf,
    pub(super) service_account_key: PathBuf,
    pub(super) controller_manager: PathBuf,
    pub(super) scheduler: PathBuf,
    pub(super) proxy: PathBuf,
    /// One a node.
    pub(super) kubelets: Vec<PathBuf>,
}

/// Where the certificate authority's certificate is.
pub(super) fn ca(cluster: &Path) -> PathBuf {
    cluster.join("pki/ca.crt")
}

/// Where the API server's certificate and its key are.
pub(super) fn server(cluster: &Path) -> (PathBuf, PathBuf) {
    (cluster.join("pki/apiserver.crt"), cluster.join("pki/apiserver.key"))
}

/// Makes everything anew in `pki/` of the cluster's directory; `nodes` gets the kubeconfigs of that many nodes, for an
/// API server at `server`.
pub(super) fn create(cluster: &Path, nodes: u8, server: &str) -> Result<(Pki, NodeUsers)> {
    let dir = cluster.join("pki");
    fs::create_dir_all(&dir).map_err(Error::io(format_args!("make {}", dir.display())))?;
    let authority = authority()?;
    let ca = ca(cluster);
    write(&ca, &authority.pem())?;

    let tokens = KeyPair::generate()?;
    let service_account_key = dir.join("service-account.key");
    let service_account_public_key = dir.join("service-account.pub");
    write(&service_account_key, &tokens.serialize_pem())?;
    write(&service_account_public_key, &tokens.public_key_pem())?;

    let names = CertificateParams::new(SERVER_NAMES.map(String::from))?;
    let apiserver =
        issue(&authority, names, "kube-apiserver", ExtendedKeyUsagePurpose::ServerAuth, &dir, "apiserver")?;
    let client = |group: Option<&str>, user: &str, file: &str| {
        let mut params = CertificateParams::default();
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        issue(&authority, params, user, ExtendedKeyUsagePurpose::ClientAuth, &dir, file)
    };
    let admin = client(Some("system:masters"), "admin", "admin")?;
    let kubelet_client = client(Some("system:masters"), "apiserver-kubelet-client", "kubelet-client")?;

    let user = |group: Option<&str>, user: &str, file: &str| {
        let path = dir.join(format!("{file}.kubeconfig"));
        kubeconfig::write(&path, server, &ca, &User::Certificate(&client(group, user, file)?)).map(|()| path)
    };
    let kubelet =
        |number| user(Some("system:nodes"), &format!("system:node:node{number}"), &format!("node{number}"));
    let users = NodeUsers {
        controller_manager: user(None, "system:kube-controller-manager", "controller-manager")?,
        scheduler: user(None, "system:kube-scheduler", "scheduler")?,
        proxy: user(None, "system:kube-proxy", "kube-proxy")?,
        kubelets: (1..=nodes).map(kubelet).collect::<Result<_>>()?,
        ca: ca.clone(),
        service_account_key: service_account_key.clone(),
    };
    let pki = Pki { ca, apiserver, admin, service_account_key, service_account_public_key, kubelet_client };
    Ok((pki, users))
}

fn authority() -> Result<CertifiedIssuer<'static, KeyPair>> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "cosid-cluster");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}

fn issue(
    authority: &CertifiedIssuer<'_, KeyPair>,
    mut params: CertificateParams,
    common_name: &str,
    usage: ExtendedKeyUsagePurpose,
    dir: &Path,
    file: &str,
) -> Result<Pair> {
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    let key = KeyPair::generate()?;
    let signed = params.signed_by(&key, authority)?;
    let pair = Pair { certificate: dir.join(format!("{file}.crt")), key: dir.join(format!("{file}.key")) };
    write(&pair.certificate, &signed.pem())?;
    write(&pair.key, &key.serialize_pem())?;
    Ok(pair)
}

/// Readable by this user only: most of these files are keys.
pub(super) fn write(path: &Path, text: &str) -> Result<()> {
    let file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(Error::io(format_args!("write {}", path.display())))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn keys_are_readable_by_their_user_only() {
        let dir = tempfile::tempdir().unwrap();
        let (pki, users) = create(dir.path(), 2, "https://10.250.0.1:20000").unwrap();
        assert_eq!(users.kubelets.len(), 2);
        for key in [&pki.admin.key, &pki.apiserver.key, &pki.service_account_key] {
            let mode = fs::metadata(key).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", key.display());
        }
        assert_eq!(pki.ca, ca(dir.path()));
    }
}
