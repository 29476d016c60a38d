//! This project's generators, on pages as an agent makes them.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cosid_id::{Clock, Generator, Header, Layout, Page, PageOwner, SystemClock};
use tempfile::TempDir;

pub const LONG: Duration = Duration::from_secs(10);
const NAME: &str = "bench";

/// A page in a window of an hour.
pub struct Ours {
    _directory: TempDir,
    owner: PageOwner,
    pub generator: Generator,
}

/// As many sequences as nobody uses up in a millisecond, so that it is the cost and not a cap.
pub fn wide() -> Result<Layout, cosid_id::Error> {
    Layout::builder().slot_bits(2).sequence_bits(20).build()
}

impl Ours {
    pub fn new(layout: Layout) -> Result<Self, Box<dyn Error>> {
        let directory = tempfile::tempdir()?;
        let now = SystemClock.unix_ms();
        let header = Header { pool: "bench/bench".into(), slot: 1, fence: 1, floor: now - 1, layout };
        let mut owner = PageOwner::create(directory.path().join("bench.page"), &header)?;
        owner.set_ceiling(now + 3_600_000);
        let cell = owner.assign(NAME)?;
        let generator = Generator::new(owner.page().clone(), cell)?;
        Ok(Self { _directory: directory, owner, generator })
    }

    /// Processes that make IDs of this page at once, when told to.
    pub fn workers(&self, processes: usize, count_each: u64) -> Result<Workers, Box<dyn Error>> {
        let start = || -> Result<Worker, Box<dyn Error>> {
            let mut child = Command::new(std::env::current_exe()?)
                .args(["worker".as_ref(), self.owner.path().as_os_str(), count_each.to_string().as_ref()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let orders = child.stdin.take().ok_or("no pipe")?;
            let answers = BufReader::new(child.stdout.take().ok_or("no pipe")?);
            Ok(Worker { child, orders, answers })
        };
        Ok(Workers((0..processes).map(|_| start()).collect::<Result<_, _>>()?))
    }
}

pub struct Workers(Vec<Worker>);

struct Worker {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Workers {
    /// How long all of them took for one turn.
    pub fn turn(&mut self) -> Result<Duration, Box<dyn Error>> {
        let start = Instant::now();
        for worker in &mut self.0 {
            worker.orders.write_all(b"go\n")?;
        }
        for worker in &mut self.0 {
            worker.answers.read_line(&mut String::new())?;
        }
        Ok(start.elapsed())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &mut self.0 {
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }
}

/// What a worker does: a turn for each line that it reads.
pub fn work(page: &Path, count: u64) -> Result<(), Box<dyn Error>> {
    let page = Arc::new(Page::open(page)?);
    let cell = page.cell(NAME).ok_or("no such generator")?;
    let generator = Generator::new(page, cell)?;
    for line in std::io::stdin().lines() {
        line?;
        for _ in 0..count {
            std::hint::black_box(generator.next(LONG)?);
        }
        println!("done");
    }
    Ok(())
}
