//! The project's container images: its programs linked statically, FROM scratch, as OCI archives in `target/images`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::image::{Image, Layer};
use crate::{Error, Result, paths, programs, progress};

/// How images are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// To be used: small in memory and on disk. Minutes.
    Lean,
    /// To be tested: quick to build. With the images that only tests need.
    Quick,
}

/// An image and what is in it.
struct Recipe {
    name: &'static str,
    package: &'static str,
    /// The first is what it runs.
    programs: &'static [&'static str],
    /// Whether the package's own features are left out: a program in a pod reads no kubeconfig.
    bare: bool,
    /// Whether only tests and examples have it.
    test: bool,
}

const RECIPES: [Recipe; 5] = [
    Recipe {
        name: "cosid-agent",
        package: "cosid-agent",
        programs: &["cosid-agent"],
        bare: true,
        test: false,
    },
    Recipe {
        name: "cosid-controller",
        package: "cosid-controller",
        programs: &["cosid-controller"],
        bare: false,
        test: false,
    },
    Recipe {
        name: "cosid-ids",
        package: "cosid-tests",
        programs: &["cosid-ids", "cosid-count"],
        bare: false,
        test: true,
    },
    Recipe { name: "id-service", package: "id-service", programs: &["id-service"], bare: false, test: true },
    Recipe {
        name: "forked-workers",
        package: "forked-workers",
        programs: &["forked-workers"],
        bare: false,
        test: true,
    },
];

/// A built image.
#[derive(Debug)]
pub struct Built {
    /// Its name and tag, such as `localhost/cosid-agent:0.1.0`.
    pub name: String,
    /// The OCI archive.
    pub archive: PathBuf,
}

/// The name and tag of one of the project's images. `localhost` is no registry: a node has it, or the pod does not start.
#[must_use]
pub fn name(image: &str) -> String {
    format!("localhost/{image}:{}", env!("CARGO_PKG_VERSION"))
}

/// Builds them. Blocks; shows its progress.
///
/// # Errors
/// [`Error::Command`] where cargo fails.
pub fn build(how: Build) -> Result<Vec<Built>> {
    let target = Target::choose();
    let wanted = || RECIPES.iter().filter(|recipe| how == Build::Quick || !recipe.test);
    progress::step("build the programs of the images", |_| {
        // Each set of features is a build of its own; those without any wish share one.
        let rest: Vec<&Recipe> = wanted().filter(|recipe| !recipe.bare).collect();
        wanted().filter(|recipe| recipe.bare).try_for_each(|recipe| compile(how, &target, &[recipe]))?;
        compile(how, &target, &rest)
    })?;
    let dir = paths::workspace().join("target/images");
    fs::create_dir_all(&dir).map_err(Error::io(format_args!("make {}", dir.display())))?;
    let bin = target.directory(how);
    wanted().map(|recipe| recipe.write(&bin, &dir)).collect()
}

/// Builds the agent alone, as its image has it, and gives its path. Blocks.
///
/// # Errors
/// [`Error::Command`] where cargo fails.
pub fn agent(how: Build) -> Result<PathBuf> {
    let target = Target::choose();
    compile(how, &target, &[&RECIPES[0]])?;
    Ok(target.directory(how).join(RECIPES[0].programs[0]))
}

impl Recipe {
    fn write(&self, bin: &Path, dir: &Path) -> Result<Built> {
        let add = |layer: Layer, program: &&str| layer.file(&bin.join(program), program);
        let layer = self.programs.iter().try_fold(Layer::default(), add)?;
        let image = Image {
            name: name(self.name),
            entrypoint: self.programs.iter().take(1).map(|program| format!("/{program}")).collect(),
            // Nobody in particular, and not root.
            user: "65532".into(),
        };
        let archive = dir.join(format!("{}.tar", self.name));
        image.write(layer, &archive)?;
        Ok(Built { name: image.name, archive })
    }
}

/// What programs are compiled for, so that they need no file but themselves.
struct Target {
    triple: String,
    flags: &'static str,
}

impl Target {
    /// musl, as the images have it; where the toolchain lacks it, the machine's own libc, linked statically too.
    fn choose() -> Self {
        let arch = std::env::consts::ARCH;
        let musl = format!("{arch}-unknown-linux-musl");
        let tree = paths::workspace();
        let added = Command::new("rustup").args(["target", "add", &musl]).current_dir(tree).output();
        let added = added.is_ok_and(|output| output.status.success());
        let root = Command::new("rustc").args(["--print", "sysroot"]).current_dir(tree).output();
        let root = root.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        let there = root.is_ok_and(|root| Path::new(&root).join("lib/rustlib").join(&musl).exists());
        if added || there {
            return Self { triple: musl, flags: "" };
        }
        eprintln!(
            "the toolchain has no target {musl} (`rustup target add {musl}` adds it): linking glibc statically"
        );
        Self { triple: format!("{arch}-unknown-linux-gnu"), flags: "-C target-feature=+crt-static" }
    }

    fn directory(&self, how: Build) -> PathBuf {
        paths::workspace().join("target").join(&self.triple).join(how.profile())
    }
}

impl Build {
    fn profile(self) -> &'static str {
        match self {
            Self::Lean => "lean",
            Self::Quick => "image",
        }
    }

    /// Where a panic ends the program nothing unwinds; and relative relocations take a word each, not three.
    fn flags(self) -> &'static str {
        match self {
            Self::Lean => "-C force-unwind-tables=no -C link-arg=-Wl,-z,pack-relative-relocs",
            Self::Quick => "",
        }
    }
}

fn compile(how: Build, target: &Target, recipes: &[&Recipe]) -> Result<()> {
    let mut args =
        vec!["build", "--quiet", "--locked", "--profile", how.profile(), "--target", &target.triple];
    if recipes.iter().any(|recipe| recipe.bare) {
        args.push("--no-default-features");
    }
    for recipe in recipes {
        args.extend(["--package", recipe.package]);
        args.extend(recipe.programs.iter().flat_map(|program| ["--bin", program]));
    }
    let flags = [target.flags, how.flags()].join(" ");
    let mut command = programs::cargo();
    // ring has a little C; it needs no libc, so that the host's compiler will do.
    let compiler = format!("CC_{}", target.triple.replace('-', "_"));
    command.args(&args).env("RUSTFLAGS", flags.trim()).env(compiler, "gcc");
    let status = command.status().map_err(Error::io("start cargo"))?;
    if status.success() {
        return Ok(());
    }
    let command = format!("cargo {}", args.join(" "));
    Err(Error::Command { command, status: status.to_string(), output: "see above".into() })
}
