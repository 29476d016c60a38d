//! `cargo xtask`: one module in `commands/` for each command.

use std::process::ExitCode;

use clap::Parser;

mod commands {
    pub(crate) mod bench;
    pub(crate) mod client_check;
    pub(crate) mod cluster;
    pub(crate) mod codegen;
    pub(crate) mod demo;
    pub(crate) mod drill;
    pub(crate) mod footprint;
    pub(crate) mod fuzz;
    pub(crate) mod image;
    pub(crate) mod proof;
    pub(crate) mod slotpool;
    pub(crate) mod test;
}

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Development tasks", disable_help_subcommand = true)]
enum Command {
    /// A Kubernetes on this machine: a control plane, with `--nodes N` nodes too
    #[command(subcommand)]
    Cluster(commands::cluster::Command),
    /// The main job, printed as it goes; its last line is `N IDs, 0 equal`
    Demo(commands::demo::Demo),
    /// All tests, starting and stopping what they need
    Test(commands::test::Test),
    /// Write the files that are made from the types: the CRD, the controller's rights
    Codegen(commands::codegen::Codegen),
    /// Build the container images into target/images, as OCI archives; no container engine is needed
    Image(commands::image::ImageArgs),
    /// Faults on a real API server while programs make IDs, and a judge of every ID; docs/drills.md has what each does
    Drill(commands::drill::Drill),
    /// What an ID costs here and elsewhere, side by side in one run
    Bench(commands::bench::Bench),
    /// Whether a client of the agent's socket keeps to docs/socket.md, beside an agent that does not
    ClientCheck(commands::client_check::ClientCheck),
    /// The agent's size, its memory, and its time to the first ID, measured on a lean build
    Footprint(commands::footprint::Footprint),
    /// The fuzz tests, a minute each, with other inputs each time
    Fuzz(commands::fuzz::Fuzz),
    /// The pure code under Miri, which needs a nightly toolchain
    Miri(commands::fuzz::Miri),
    /// The model checker: every history of a few owners and controllers, up to a bound
    Model(commands::proof::Model),
    /// The simulator: random histories of whole pods and controllers on virtual time
    Sim(commands::proof::Sim),
}

fn main() -> ExitCode {
    let command = match Command::try_parse() {
        Ok(command) => command,
        Err(error) => {
            // Help that was asked for is no failure; if stdout is closed there is nobody to tell.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 64 } else { 0 });
        }
    };
    let result = match command {
        Command::Cluster(command) => command.run(),
        Command::Demo(demo) => demo.run(),
        Command::Test(test) => test.run(),
        Command::Codegen(codegen) => codegen.run(),
        Command::Image(image) => image.run(),
        Command::Drill(drill) => drill.run(),
        Command::Bench(bench) => bench.run(),
        Command::ClientCheck(check) => check.run(),
        Command::Footprint(footprint) => footprint.run(),
        Command::Fuzz(fuzz) => fuzz.run(),
        Command::Miri(miri) => miri.run(),
        Command::Model(model) => model.run(),
        Command::Sim(sim) => sim.run(),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::from(error.exit_code())
    })
}
