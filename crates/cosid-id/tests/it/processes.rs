//! Processes that share a cell; one is killed and one stopped in the middle.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use cosid_id::{Clock, Generator, Layout, NextError, Page, SystemClock};
use rustix::process::{Pid, Signal, kill_process};

use crate::virtual_time::page;

const UNDER_WAY: usize = 20_000;
const ENOUGH: usize = 500_000;

/// A process of this same test binary that makes IDs until the page is closed, and writes them to a file.
struct Maker {
    child: Child,
    lines: BufReader<ChildStdout>,
    ids: PathBuf,
}

impl Maker {
    fn start(page: &Path, ids: PathBuf) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "processes::makes_ids_until_the_page_is_closed"])
            .env("COSID_TEST_PAGE", page)
            .env("COSID_TEST_IDS", &ids)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines, ids }
    }

    fn wait_until_it_says(&mut self, word: &str) {
        let said = (&mut self.lines).lines().any(|line| line.unwrap().contains(word));
        assert!(said, "the process ended before it said `{word}`");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// What it wrote; the last ID of a killed process may be written in part.
    fn ids(&self) -> Vec<u64> {
        let bytes = fs::read(&self.ids).unwrap();
        bytes.as_chunks::<8>().0.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect()
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn four_processes_share_a_cell_while_one_is_killed_and_one_is_stopped() {
    let floor = SystemClock.unix_ms();
    let (dir, mut owner) = page(Layout::MILLISECOND, floor);
    owner.set_ceiling(floor + 600_000);
    owner.assign("orders").unwrap();

    let start = |number: usize| Maker::start(owner.path(), dir.path().join(format!("{number}.ids")));
    let [mut first, mut second, mut killed, mut stopped] = [0, 1, 2, 3].map(start);
    for maker in [&mut first, &mut second, &mut killed, &mut stopped] {
        maker.wait_until_it_says("under way");
    }
    killed.signal(Signal::KILL);
    stopped.signal(Signal::STOP);
    // Neither of them holds the others up.
    first.wait_until_it_says("enough");
    second.wait_until_it_says("enough");

    let closed = owner.close();
    stopped.signal(Signal::CONT);
    for maker in [&mut first, &mut second, &mut stopped] {
        maker.wait_until_it_says("slot lost");
        assert!(maker.child.wait().unwrap().success());
    }

    let per_process = [&first, &second, &killed, &stopped].map(Maker::ids);
    assert!(per_process[..2].iter().all(|ids| ids.len() >= ENOUGH));
    assert!(per_process[2..].iter().all(|ids| ids.len() >= UNDER_WAY));
    let mut ids = per_process.concat();
    let timestamp = |id: u64| Layout::MILLISECOND.decompose(id.try_into().unwrap()).unwrap().timestamp();
    assert!(ids.iter().all(|&id| floor < timestamp(id) && timestamp(id) <= closed.last_issued));

    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    println!("{count} IDs, {} equal", count - ids.len());
    assert_eq!(count, ids.len());
}

#[test]
#[ignore = "a process that the test above starts"]
fn makes_ids_until_the_page_is_closed() {
    let (Some(page), Some(ids)) = (std::env::var_os("COSID_TEST_PAGE"), std::env::var_os("COSID_TEST_IDS"))
    else {
        return;
    };
    let page = Arc::new(Page::open(page).unwrap());
    let cell = page.cell("orders").unwrap();
    let generator = Generator::new(page, cell).unwrap();
    let mut file = BufWriter::new(File::create(ids).unwrap());
    let mut made = 0;
    loop {
        match generator.next(Duration::from_secs(60)) {
            Ok(id) => file.write_all(&id.get().to_le_bytes()).unwrap(),
            Err(NextError::SlotLost) => break,
            Err(error) => panic!("{error}"),
        }
        made += 1;
        if made == UNDER_WAY {
            file.flush().unwrap();
            println!("under way");
        }
        if made == ENOUGH {
            println!("enough");
        }
    }
    file.flush().unwrap();
    println!("slot lost");
}
