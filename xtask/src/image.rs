//! Container images without a container engine: one layer of files FROM scratch, as an OCI archive, the same bytes for
//! the same files.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use ring::digest;
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use crate::{Error, Result};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// What an image is besides its files.
#[derive(Debug)]
pub struct Image {
    /// Its name and tag, such as `localhost/cosid-agent:0.1.0`.
    pub name: String,
    /// The program and its first arguments.
    pub entrypoint: Vec<String>,
    /// The user (a number) that it runs as unless the pod says otherwise.
    pub user: String,
}

/// The files of an image, added one by one. `/tmp` is there from the start, and writable.
pub struct Layer(Builder<Vec<u8>>);

impl Default for Layer {
    fn default() -> Self {
        let mut builder = Builder::new(Vec::new());
        // Writing to memory does not fail, and the names are short.
        let _ = builder.append_data(&mut header(EntryType::Directory, 0, 0o1777), "tmp/", &[][..]);
        Self(builder)
    }
}

impl Layer {
    /// Adds a program, under a path without a leading slash.
    ///
    /// # Errors
    /// [`Error::Io`] where the file can't be read.
    pub fn file(mut self, from: &Path, to: &str) -> Result<Self> {
        let doing = || format!("add {} to an image", from.display());
        let bytes = fs::read(from).map_err(Error::io(doing()))?;
        let mut header = header(EntryType::Regular, bytes.len() as u64, 0o755);
        self.0.append_data(&mut header, to, &*bytes).map_err(Error::io(doing()))?;
        Ok(self)
    }
}

impl Image {
    /// Writes the archive, which `ctr images import`, `kind load image-archive`, `podman load` and `skopeo` take.
    ///
    /// # Errors
    /// [`Error::Io`] where it can't be written.
    pub fn write(&self, layer: Layer, to: &Path) -> Result<()> {
        let doing = || format!("write the image {}", to.display());
        let layer = Blob::new(LAYER, layer.0.into_inner().map_err(Error::io(doing()))?);
        let config = json!({
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
            "os": "linux",
            "config": { "Entrypoint": self.entrypoint, "User": self.user, "Env": ["PATH=/"] },
            "rootfs": { "type": "layers", "diff_ids": [layer.digest] },
        });
        let config = Blob::json(CONFIG, &config);
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor(),
            "layers": [layer.descriptor()],
        });
        let manifest = Blob::json(MANIFEST, &manifest);
        let mut named = manifest.descriptor();
        let tag = self.name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
        named["annotations"] = json!({
            "io.containerd.image.name": self.name,
            "org.opencontainers.image.ref.name": tag,
        });
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [named] });

        // Beside its place and renamed, so that nobody imports half of one.
        let draft = to.with_extension("draft");
        let file = File::create(&draft).map_err(Error::io(doing()))?;
        let mut archive = Builder::new(file);
        let mut add = |path: &str, bytes: &[u8]| {
            let mut header = header(EntryType::Regular, bytes.len() as u64, 0o644);
            archive.append_data(&mut header, path, bytes).map_err(Error::io(doing()))
        };
        add("oci-layout", json!({ "imageLayoutVersion": "1.0.0" }).to_string().as_bytes())?;
        add("index.json", index.to_string().as_bytes())?;
        for blob in [&layer, &config, &manifest] {
            add(&format!("blobs/{}", blob.digest.replace(':', "/")), &blob.bytes)?;
        }
        archive.into_inner().and_then(|mut file| file.flush()).map_err(Error::io(doing()))?;
        fs::rename(draft, to).map_err(Error::io(doing()))
    }
}

struct Blob {
    kind: &'static str,
    digest: String,
    bytes: Vec<u8>,
}

impl Blob {
    fn new(kind: &'static str, bytes: Vec<u8>) -> Self {
        let hash = digest::digest(&digest::SHA256, &bytes);
        let hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { kind, digest: format!("sha256:{hex}"), bytes }
    }

    fn json(kind: &'static str, value: &Value) -> Self {
        Self::new(kind, value.to_string().into_bytes())
    }

    fn descriptor(&self) -> Value {
        json!({ "mediaType": self.kind, "digest": self.digest, "size": self.bytes.len() })
    }
}

/// No times and no owners: they would differ from build to build.
fn header(kind: EntryType, size: u64, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(mode);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn image(dir: &Path, file: &str) -> Vec<u8> {
        let program = dir.join("program");
        fs::write(&program, "bytes").unwrap();
        let image = Image {
            name: "localhost/program:1".into(),
            entrypoint: vec!["/program".into()],
            user: "65532".into(),
        };
        let to = dir.join(file);
        image.write(Layer::default().file(&program, "program").unwrap(), &to).unwrap();
        fs::read(to).unwrap()
    }

    #[test]
    fn the_same_files_make_the_same_archive() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(image(dir.path(), "a.tar"), image(dir.path(), "b.tar"));
    }

    #[test]
    fn every_blob_is_named_by_its_digest_and_the_index_leads_to_the_program() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = image(dir.path(), "a.tar");
        let mut files = std::collections::BTreeMap::new();
        for entry in tar::Archive::new(&*bytes).entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().to_string_lossy().into_owned();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            files.insert(path, bytes);
        }
        let blob = |digest: &Value| {
            let digest = digest.as_str().unwrap();
            let bytes = &files[&format!("blobs/{}", digest.replace(':', "/"))];
            assert_eq!(Blob::new(LAYER, bytes.clone()).digest, digest);
            bytes.clone()
        };
        let index: Value = serde_json::from_slice(&files["index.json"]).unwrap();
        let named = &index["manifests"][0];
        assert_eq!(named["annotations"]["io.containerd.image.name"], "localhost/program:1");
        let manifest: Value = serde_json::from_slice(&blob(&named["digest"])).unwrap();
        let config: Value = serde_json::from_slice(&blob(&manifest["config"]["digest"])).unwrap();
        assert_eq!(config["config"]["Entrypoint"], json!(["/program"]));
        assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
        let layer = blob(&manifest["layers"][0]["digest"]);
        let mut layer = tar::Archive::new(&*layer);
        let names = layer.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().into_owned());
        assert_eq!(names.collect::<Vec<_>>(), [Path::new("tmp/"), Path::new("program")]);
    }
}
