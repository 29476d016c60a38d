//! Fuzzing on stable Rust: inputs are made from a small corpus by edits that know a little of texts, numbers and lengths, and
//! by none at all. proptest makes and shrinks them. There is no guidance by coverage, which takes a nightly compiler.
//!
//! A target is a test that calls [`Target::run`]. Its corpus is `corpus/NAME` in its crate: each file there is tried first, as
//! it is. The name says what has to come of it: `good-*` is accepted, `bad-*` is refused, `found-*` is what a run has found
//! once, and may be either.
//!
//! Without `COSID_FUZZ_SECONDS` a test tries a fixed number of inputs, the same each time; with it, others each time, for so
//! long. An input that fails is shrunk and left in `target/fuzz`.

mod edit;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fs};

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use rustix::time::{ClockId, clock_gettime};

use edit::Recipe;

/// Inputs of a test without a time box.
const INPUTS: u32 = 2_000;

/// Inputs between two looks at the clock.
const BATCH: u32 = 500;

/// Processor time that one input may take. The slowest take a hundredth of it.
const MOST_TIME: Duration = Duration::from_secs(4);

/// What became of an input. Whatever else happens to it is a panic, which the check itself raises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It was taken.
    Accepted,
    /// It was refused, with an error that says why.
    Refused,
}

impl Verdict {
    /// [`Verdict::Accepted`] if so.
    #[must_use]
    pub fn accepted(is_accepted: bool) -> Self {
        if is_accepted { Self::Accepted } else { Self::Refused }
    }
}

/// What is fuzzed.
#[derive(Debug)]
pub struct Target {
    name: &'static str,
    manifest_dir: &'static str,
    tokens: &'static [&'static str],
    mend: Option<fn(&mut Vec<u8>)>,
    inputs: u32,
}

#[derive(Default)]
struct Tally {
    inputs: u64,
    accepted: u64,
    slowest: Duration,
}

impl Target {
    /// A target with its corpus in `corpus/NAME` of the crate whose manifest is in `manifest_dir`.
    #[must_use]
    pub fn new(name: &'static str, manifest_dir: &'static str) -> Self {
        Self { name, manifest_dir, tokens: &[], mend: None, inputs: INPUTS }
    }

    /// Pieces of text that are put into inputs.
    #[must_use]
    pub fn tokens(self, tokens: &'static [&'static str]) -> Self {
        Self { tokens, ..self }
    }

    /// What makes half of the edited inputs right again that would all fail for one reason, such as a checksum.
    #[must_use]
    pub fn mend(self, mend: fn(&mut Vec<u8>)) -> Self {
        Self { mend: Some(mend), ..self }
    }

    /// How many inputs a run without a time box tries, where an input takes long.
    #[must_use]
    pub fn inputs(self, inputs: u32) -> Self {
        Self { inputs, ..self }
    }

    /// Tries inputs, and prints how many.
    ///
    /// # Panics
    /// When the check does, or takes too long, or says other than a corpus file's name; with the smallest such input.
    #[allow(clippy::panic, reason = "this is how a test fails")]
    pub fn run(&self, check: impl Fn(&[u8]) -> Verdict) {
        let start = Instant::now();
        let seeds = self.seeds();
        let tally = std::cell::RefCell::new(Tally::default());
        for (path, seed) in &seeds {
            let verdict = tally.borrow_mut().note(|| check(seed));
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let expected = match name.split('-').next() {
                Some("good") => Verdict::Accepted,
                Some("bad") => Verdict::Refused,
                _ => verdict,
            };
            assert_eq!(verdict, expected, "{}", path.display());
        }
        let seeds: Vec<_> = seeds.into_iter().map(|(_, seed)| seed).collect();
        let strategy = edit::recipe(seeds.len(), self.tokens.len());
        let test = |recipe: Recipe| {
            let input = self.input(&recipe, &seeds);
            let before = tally.borrow().slowest;
            tally.borrow_mut().note(|| check(&input));
            let slowest = tally.borrow().slowest;
            if slowest > before && slowest > MOST_TIME {
                return Err(TestCaseError::fail(format!("it took {slowest:?}")));
            }
            Ok(())
        };
        let seconds = env::var("COSID_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
        let time_box = seconds.map(Duration::from_secs);
        let mut round = 0;
        loop {
            let mut runner = runner(time_box.map_or(self.inputs, |_| BATCH), time_box.map(|_| round));
            if let Err(error) = runner.run(&strategy, test) {
                panic!("{}", self.failure(error, &seeds));
            }
            round += 1;
            if time_box.is_none_or(|time_box| start.elapsed() >= time_box) {
                break;
            }
        }
        let Tally { inputs, accepted, slowest } = tally.into_inner();
        println!(
            "fuzz {:<16} {inputs:>9} inputs {accepted:>9} accepted {:>7.1} s, slowest {slowest:?}",
            self.name,
            start.elapsed().as_secs_f64()
        );
    }

    fn input(&self, recipe: &Recipe, seeds: &[Vec<u8>]) -> Vec<u8> {
        let (mut input, mended) = recipe.cook(seeds, self.tokens);
        if let Some(mend) = self.mend.filter(|_| mended) {
            mend(&mut input);
        }
        input
    }

    #[allow(clippy::panic, reason = "this is how a test fails")]
    fn seeds(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let corpus = Path::new(self.manifest_dir).join("corpus").join(self.name);
        let files = fs::read_dir(&corpus).and_then(|entries| {
            let read = |entry: std::io::Result<fs::DirEntry>| {
                let path = entry?.path();
                fs::read(&path).map(|bytes| (path, bytes))
            };
            entries.map(read).collect::<std::io::Result<Vec<_>>>()
        });
        let mut files = files.unwrap_or_else(|error| panic!("{}: {error}", corpus.display()));
        files.sort();
        assert!(!files.is_empty(), "{} has no files", corpus.display());
        files
    }

    fn failure(&self, error: TestError<Recipe>, seeds: &[Vec<u8>]) -> String {
        let (reason, recipe) = match error {
            TestError::Fail(reason, recipe) => (reason, recipe),
            TestError::Abort(reason) => return format!("{}: {reason}", self.name),
        };
        let input = self.input(&recipe, seeds);
        let folder = Path::new(self.manifest_dir).join("../../target/fuzz");
        let path = folder.join(format!("{}-{:016x}", self.name, hash(&input)));
        let kept = fs::create_dir_all(&folder).and_then(|()| fs::write(&path, &input));
        let kept = kept.map_or_else(|error| error.to_string(), |()| format!("kept as {}", path.display()));
        let excerpt = input[..input.len().min(400)].escape_ascii();
        format!("{}: {reason}\ninput of {} bytes: {excerpt}\n{kept}", self.name, input.len())
    }
}

impl Tally {
    fn note(&mut self, check: impl FnOnce() -> Verdict) -> Verdict {
        let before = processor_time();
        let verdict = check();
        self.slowest = self.slowest.max(processor_time().saturating_sub(before));
        self.inputs += 1;
        self.accepted += u64::from(verdict == Verdict::Accepted);
        verdict
    }
}

/// `round` is `None` for the inputs that are the same each time.
fn runner(cases: u32, round: Option<u64>) -> TestRunner {
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() };
    let now = || std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
    let seed = round.map_or([7; 16], |round| (now() ^ (u128::from(round) << 64)).to_le_bytes());
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::XorShift, &seed))
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// FNV-1a, for a file's name.
fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Not larger than this do edits make an input, bytes.
const MOST_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    type Fault = &'static dyn Fn(&[u8]) -> bool;

    fn target() -> Target {
        Target::new("self", env!("CARGO_MANIFEST_DIR")).tokens(&["needle"])
    }

    fn has(input: &[u8], piece: &[u8]) -> bool {
        input.windows(piece.len()).any(|window| window == piece)
    }

    /// Whether `check` fails for some input of the fixed run, and what is then said.
    fn found(check: impl Fn(&[u8]) -> Verdict) -> Option<String> {
        let outcome = catch_unwind(AssertUnwindSafe(|| target().run(check)));
        outcome.err().map(|said| said.downcast_ref::<String>().cloned().unwrap_or_default())
    }

    #[test]
    fn a_token_an_edge_a_cut_a_great_length_and_a_piece_twice_are_found_and_shrunk() {
        let faults: [Fault; 5] = [
            &|input| has(input, b"needle"),
            &|input| has(input, b"18446744073709551616"),
            &|input| has(input, b"\"a\"") && !has(input, b"}"),
            &|input| input.len() > 100_000,
            &|input| input.windows(3).filter(|window| window == b"\"a\"").count() == 2,
        ];
        for (number, fault) in faults.iter().enumerate() {
            let said = found(|input| {
                assert!(!fault(input), "fault {number}");
                Verdict::accepted(input.starts_with(b"{"))
            });
            let said = said.unwrap_or_else(|| panic!("fault {number} was not found"));
            assert!(said.contains("kept as"), "{said}");
        }
    }

    #[test]
    fn a_corpus_file_that_does_not_come_to_what_its_name_says_fails() {
        assert!(found(|_| Verdict::Accepted).is_some(), "there is one that is bad");
        assert!(found(|_| Verdict::Refused).is_some(), "there is one that is good");
        assert_eq!(found(|input| Verdict::accepted(input.starts_with(b"{"))), None);
    }
}
