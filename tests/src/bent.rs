//! A wall clock that a test bends for some programs only: a library that is preloaded into them.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use xtask::paths;

/// A clock that some programs have. It is right until it is set.
pub struct BentClock {
    library: PathBuf,
    path: PathBuf,
    file: File,
}

impl BentClock {
    /// One of its own, kept in this directory. Compiles the library; blocks for that.
    ///
    /// # Panics
    /// Without a C compiler.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        let (library, path) = (dir.join("libbend.so"), dir.join("bent-clock"));
        let source = paths::workspace().join("tests/clock/bend.c");
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o"]).arg(&library).arg(source);
        assert!(gcc.status().unwrap().success(), "gcc compiles no library");
        let file = File::create(&path).unwrap();
        file.write_all_at(&0_i64.to_ne_bytes(), 0).unwrap();
        Self { library, path, file }
    }

    /// The variables that give a program this clock.
    #[must_use]
    pub fn variables(&self) -> [(String, String); 2] {
        let text = |path: &Path| path.display().to_string();
        [("LD_PRELOAD".into(), text(&self.library)), ("BENT_CLOCK".into(), text(&self.path))]
    }

    /// Sets it so many seconds ahead; behind where that is negative. In force at once.
    ///
    /// # Panics
    /// Where the file can't be written.
    pub fn set_ahead(&self, seconds: i64) {
        self.file.write_all_at(&(seconds * 1_000_000_000).to_ne_bytes(), 0).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_sees_the_bent_time() {
        let dir = tempfile::tempdir().unwrap();
        let clock = BentClock::new(dir.path());
        let seconds = |bent: bool| {
            let mut date = Command::new("date");
            date.arg("+%s").envs(clock.variables().into_iter().filter(|_| bent));
            String::from_utf8(date.output().unwrap().stdout).unwrap().trim().parse::<i64>().unwrap()
        };
        for ahead in [0, 86_400, -3_600] {
            clock.set_ahead(ahead);
            let difference = seconds(true) - seconds(false) - ahead;
            assert!((-5..=5).contains(&difference), "{difference}");
        }
    }
}
