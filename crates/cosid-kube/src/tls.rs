//! TLS to the API server: rustls with ring, passed explicitly, so that no process-wide default matters.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::uri::Scheme;
use kube::Config;
use kube::config::AuthInfo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use secrecy::ExposeSecret as _;

use crate::Error;

/// Reads the certificates anew, as the cluster may have replaced them in their files.
pub(crate) fn client_config(config: &Config) -> Result<ClientConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| tls("protocol versions", error))?;
    let builder = if config.accept_invalid_certs {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
    } else {
        builder.with_root_certificates(roots(config)?)
    };
    match identity(&config.auth_info)? {
        Some((chain, key)) => {
            builder.with_client_auth_cert(chain, key).map_err(|error| tls("client certificate", error))
        }
        None => Ok(builder.with_no_client_auth()),
    }
}

fn roots(config: &Config) -> Result<RootCertStore, Error> {
    let from_file = config.root_cert_file.as_ref().map(|path| {
        let pem = std::fs::read(path).map_err(|source| Error::File { path: path.clone(), source })?;
        certificates("certificate authority", &pem)
    });
    let given = || config.root_cert.iter().flatten().map(|der| CertificateDer::from(der.clone())).collect();
    let certificates: Vec<_> = from_file.transpose()?.unwrap_or_else(given);
    let encrypted = config.cluster_url.scheme() == Some(&Scheme::HTTPS);
    if certificates.is_empty() && encrypted {
        return Err(Error::NoCertificateAuthority { server: config.cluster_url.to_string() });
    }
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate).map_err(|error| tls("certificate authority", error))?;
    }
    Ok(roots)
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn identity(auth: &AuthInfo) -> Result<Option<Identity>, Error> {
    let key_data = auth.client_key_data.as_ref().map(|data| data.expose_secret());
    let chain = data_or_file(
        "client-certificate",
        auth.client_certificate_data.as_deref(),
        auth.client_certificate.as_deref(),
    );
    let key = data_or_file("client-key", key_data, auth.client_key.as_deref());
    match (chain?, key?) {
        (Some(chain), Some(key)) => {
            let chain = certificates("client-certificate", &chain)?;
            let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| tls("client-key", error))?;
            Ok(Some((chain, key)))
        }
        (None, None) => Ok(None),
        _ => Err(Error::Kubeconfig("a user needs both client-certificate and client-key, or neither".into())),
    }
}

fn data_or_file(
    what: &'static str,
    data: Option<&str>,
    file: Option<&str>,
) -> Result<Option<Vec<u8>>, Error> {
    match (data, file) {
        (Some(data), _) => BASE64_STANDARD.decode(data).map(Some).map_err(|error| tls(what, error)),
        (None, Some(path)) => {
            std::fs::read(path).map(Some).map_err(|source| Error::File { path: path.into(), source })
        }
        (None, None) => Ok(None),
    }
}

fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|error| tls(what, error))
}

fn tls(what: &'static str, error: impl ToString) -> Error {
    Error::Tls { what, why: error.to_string() }
}

/// For `insecure-skip-tls-verify`: whatever certificate the server shows, as long as it has the key to it.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            cert,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            cert,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
