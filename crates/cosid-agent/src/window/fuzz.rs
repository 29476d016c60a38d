//! State files that no agent wrote. How inputs are made, and for how long: `cosid_fuzz`.

use std::os::unix::fs::MetadataExt;

use cosid_fuzz::{Target, Verdict};
use cosid_id::Page;

use super::*;

const PAGE: &str = "slot-3-fence-7.page";
const FLOOR: Millis = 1_795_000_000_000;

/// What the corpus has in place of this machine's boot and directory.
const PLACES: [&str; 3] = ["@BOOT@", "@DEVICE@", "@INODE@"];

#[test]
fn agent_state() {
    let dir = tempfile::tempdir().unwrap();
    let at = fs::metadata(dir.path()).unwrap();
    let here = [boot_id().unwrap(), at.dev().to_string(), at.ino().to_string()];
    let tokens = &[
        "\"page\":\"../x\"",
        "\"slot\":3,",
        "\"fence\":7,",
        "./",
        "/",
        "null",
        "{}",
        "\\u0000",
        "4294967296",
        "\"ns/other\"",
    ];
    Target::new("agent_state", env!("CARGO_MANIFEST_DIR"))
        .tokens(tokens)
        .inputs(600)
        .run(|input| state_of(dir.path(), &fill_in(input, &here)));
}

fn fill_in(input: &[u8], here: &[String; 3]) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(input) else { return input.to_vec() };
    let fill = |text: String, (place, with): (&&str, &String)| text.replace(*place, with);
    PLACES.iter().zip(here).fold(text.to_owned(), fill).into_bytes()
}

fn state_of(dir: &Path, state: &[u8]) -> Verdict {
    for entry in fs::read_dir(dir).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let header =
        Header { pool: "ns/orders".into(), slot: 3, fence: 7, floor: FLOOR, layout: Layout::MILLISECOND };
    PageOwner::create(dir.join(PAGE), &header).unwrap().set_ceiling(FLOOR + 30_000);
    let page = Page::open(dir.join(PAGE)).unwrap();
    let board = StatusBoard::new("ns/pod");
    let window = Window::new(dir, board.clone());
    fs::write(window.state_path(), state).unwrap();

    let resumed = window.resume("ns/pod", None).unwrap();
    match &resumed {
        Some(Resumable { pool, binding }) => {
            assert_eq!((pool.as_str(), binding.slot, binding.fence), ("ns/orders", 3, 7));
            let holding = &binding.holding;
            assert_eq!((holding.owner.key.as_str(), holding.floor), ("ns/pod", FLOOR));
            assert_eq!(holding.ceiling, FLOOR + 30_000, "the page's");
            assert!(holding.expires_at <= holding.ceiling);
            assert!(!page.is_closed() && dir.join(PAGE).exists());
            // What it tells its clients is the name of a file beside the socket.
            assert_eq!(board.now().lease.map(|lease| lease.page).as_deref(), Some(PAGE));
        }
        None => {
            assert!(page.is_closed(), "nobody waits at the ceiling of a page that nobody moves");
            assert!(!dir.join(PAGE).exists());
            assert_eq!(board.now().lease, None);
        }
    }
    Verdict::accepted(resumed.is_some())
}
