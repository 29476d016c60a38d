//! `cargo xtask image`.

use std::process::ExitCode;

use clap::Args;
use xtask::Result;
use xtask::images::{self, Build};

/// Flags of the images.
#[derive(Args)]
pub(crate) struct ImageArgs {
    /// Quick to build, large and slow to run, with the images that tests need
    #[arg(long)]
    quick: bool,
}

impl ImageArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let how = if self.quick { Build::Quick } else { Build::Lean };
        for built in images::build(how)? {
            println!("{:<36} {}", built.name, built.archive.display());
        }
        println!("next: `cargo xtask cluster load FILE...`, `kind load image-archive FILE`,");
        println!("      `ctr -n k8s.io images import FILE` on a node, or");
        println!("      `skopeo copy oci-archive:FILE docker://YOUR-REGISTRY/NAME:TAG`");
        Ok(ExitCode::SUCCESS)
    }
}
