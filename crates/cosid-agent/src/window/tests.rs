use cosid_lease::{Fence, Owner, Terms};

use super::*;

const POOL: &str = "ns/orders";

fn binding(fence: Fence) -> Binding {
    let holding = Holding {
        owner: Owner::new("ns/pod"),
        floor: 0,
        ceiling: u64::MAX >> 20,
        expires_at: 5,
        acquired_at: 1,
    };
    Binding { slot: 3, fence, holding, terms: Terms { ttl: 30_000, tolerance: 1_000 } }
}

fn window(dir: &Path) -> (Window, StatusBoard) {
    let board = StatusBoard::new("ns/pod");
    (Window::new(dir, board.clone()), board)
}

fn pages(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".page")).collect()
}

#[tokio::test]
async fn a_restarted_agent_goes_on_with_page_and_incarnation() {
    let dir = tempfile::tempdir().unwrap();
    let (before, _) = window(dir.path());
    let held = binding(7);
    before.hold(POOL, Ok(Layout::MILLISECOND), held.clone());
    let first = before.generator("orders", None).unwrap().unwrap().try_next().unwrap();
    before.extend(held.holding.ceiling + 9, 9);

    let (after, board) = window(dir.path());
    let resumed = after.resume("ns/pod", None).unwrap().unwrap();
    assert_eq!(resumed.pool, POOL);
    assert_eq!(resumed.binding.holding.owner, held.holding.owner);
    assert_eq!(resumed.binding.holding.ceiling, held.holding.ceiling + 9);
    assert_eq!(board.now().state, crate::status::State::Held);
    let second = after.generator("orders", None).unwrap().unwrap().try_next().unwrap();
    assert!(second > first, "the same cell goes on");
}

#[tokio::test]
async fn another_key_pool_or_boot_resumes_nothing_and_closes_the_page() {
    let edits: [fn(&mut Saved); 3] = [
        |saved| saved.owner.key = "ns/other".into(),
        |saved| saved.pool = "ns/other".into(),
        |saved| saved.boot_id = "another".into(),
    ];
    for edit in edits {
        let dir = tempfile::tempdir().unwrap();
        let (before, _) = window(dir.path());
        before.hold(POOL, Ok(Layout::MILLISECOND), binding(7));
        let generator = before.generator("orders", None).unwrap().unwrap();
        let mut saved = before.saved().unwrap();
        edit(&mut saved);
        fs::write(before.state_path(), serde_json::to_vec(&saved).unwrap()).unwrap();

        let (after, _) = window(dir.path());
        assert!(after.resume("ns/pod", Some(POOL)).unwrap().is_none());
        assert_eq!(pages(dir.path()), [""; 0]);
        assert!(!after.state_path().exists());
        assert_eq!(generator.try_next(), Err(cosid_id::NextError::SlotLost));
    }
}

#[tokio::test]
async fn a_state_that_is_nonsense_or_whose_page_is_gone_or_closed_resumes_nothing() {
    let breaks: [fn(&Window, &Path); 3] = [
        |window, _| fs::write(window.state_path(), "{").unwrap(),
        |_, dir| fs::remove_file(dir.join("slot-3-fence-7.page")).unwrap(),
        |_, dir| {
            let _ = PageOwner::open(dir.join("slot-3-fence-7.page")).unwrap().close();
        },
    ];
    for break_it in breaks {
        let dir = tempfile::tempdir().unwrap();
        let (before, _) = window(dir.path());
        before.hold(POOL, Ok(Layout::MILLISECOND), binding(7));
        break_it(&before, dir.path());
        let (after, _) = window(dir.path());
        assert!(after.resume("ns/pod", None).unwrap().is_none());
        assert_eq!(pages(dir.path()), [""; 0]);
    }
}

#[tokio::test]
async fn a_copy_of_the_directory_resumes_nothing() {
    let (original, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (before, _) = window(original.path());
    before.hold(POOL, Ok(Layout::MILLISECOND), binding(7));
    for entry in fs::read_dir(original.path()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    let (copied, _) = window(copy.path());
    assert!(copied.resume("ns/pod", Some(POOL)).unwrap().is_none(), "two pages of one window");
    assert_eq!(pages(copy.path()), [""; 0]);
    let (after, _) = window(original.path());
    assert!(after.resume("ns/pod", Some(POOL)).unwrap().is_some(), "the original goes on");
}

#[tokio::test]
async fn closing_gives_the_exact_last_timestamp_or_the_floor() {
    let dir = tempfile::tempdir().unwrap();
    let (window, _) = window(dir.path());
    let mut held = binding(7);
    held.holding.floor = 1_600_000_000_000;
    window.hold(POOL, Ok(Layout::MILLISECOND), held.clone());
    assert_eq!(window.close(), 1_600_000_000_000);
    held.fence = 8;
    window.hold(POOL, Ok(Layout::MILLISECOND), held);
    let id = window.generator("orders", None).unwrap().unwrap().try_next().unwrap();
    assert_eq!(window.close(), Layout::MILLISECOND.decompose(id).unwrap().timestamp());
    assert!(window.assign("orders", None).unwrap().is_none());
    assert_eq!(pages(dir.path()), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_can_not_be_made_is_made_once_it_can() {
    let dir = tempfile::tempdir().unwrap();
    let inside = dir.path().join("not-there");
    let (window, board) = window(&inside);
    window.hold(POOL, Ok(Layout::MILLISECOND), binding(7));
    assert_eq!(board.now().state, crate::status::State::Blocked);
    assert!(window.assign("orders", None).unwrap().is_none());
    fs::create_dir(&inside).unwrap();
    let mut changes = board.watch();
    changes.wait_for(|status| status.state == crate::status::State::Held).await.unwrap();
    assert_eq!(window.assign("orders", None).unwrap().unwrap().fence, 7);
}

#[tokio::test]
async fn a_page_that_an_attempt_left_behind_does_not_block_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let (window, board) = window(dir.path());
    fs::write(dir.path().join("slot-3-fence-7.page"), "half").unwrap();
    window.hold(POOL, Ok(Layout::MILLISECOND), binding(7));
    assert_eq!(board.now().state, crate::status::State::Held);
    window.generator("orders", None).unwrap().unwrap().try_next().unwrap();
}

#[tokio::test]
async fn what_an_app_leaves_in_the_directory_stops_no_agent() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = |name: &str| {
        let made = std::process::Command::new("mkfifo").arg(dir.path().join(name)).status().unwrap();
        assert!(made.success(), "mkfifo {name}");
    };
    fs::create_dir_all(dir.path().join("a.page/full")).unwrap();
    fs::create_dir(dir.path().join("b.draft")).unwrap();
    pipe("c.page");
    pipe("lease.json");
    std::os::unix::fs::symlink("/dev/zero", dir.path().join("d.page")).unwrap();
    fs::write(dir.path().join("e.page"), "half").unwrap();
    let (window, board) = window(dir.path());
    assert!(window.resume("ns/pod", None).unwrap().is_none());
    assert!(!dir.path().join("e.page").exists(), "what is a file goes");
    window.hold(POOL, Ok(Layout::MILLISECOND), binding(7));
    assert_eq!(board.now().state, crate::status::State::Held);
}

#[test]
fn a_state_that_is_a_directory_or_a_link_is_no_state() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("lease.json")).unwrap();
    let (first, _) = window(dir.path());
    assert!(first.resume("ns/pod", None).unwrap().is_none());
    fs::remove_dir(dir.path().join("lease.json")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", dir.path().join("lease.json")).unwrap();
    let (second, _) = window(dir.path());
    assert!(second.resume("ns/pod", None).unwrap().is_none());
}

#[tokio::test]
async fn a_name_keeps_its_layout_over_losses_and_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let (before, _) = window(dir.path());
    let asked = Some(Layout::SECOND);
    let refuses = |window: &Window| {
        for (name, other) in [("parcels", None), ("parcels", Some(Layout::MILLISECOND)), ("orders", asked)] {
            let error = window.assign(name, other).unwrap_err();
            assert!(matches!(error, cosid_id::Error::OtherLayout { .. }), "{error}");
        }
    };
    before.hold(POOL, Ok(Layout::MILLISECOND), binding(7));
    assert_eq!(before.layout_of("parcels").unwrap(), Some(None));
    assert_eq!(before.assign("parcels", asked).unwrap().unwrap().layout, Layout::SECOND);
    assert_eq!(before.assign("orders", None).unwrap().unwrap().layout, Layout::MILLISECOND);
    refuses(&before);

    let _ = before.close();
    assert_eq!(before.layout_of("parcels").unwrap(), None, "there is no page");
    before.hold(POOL, Ok(Layout::MILLISECOND), binding(8));
    refuses(&before);
    assert_eq!(before.layout_of("parcels").unwrap(), Some(asked), "also before it is asked for");
    before.assign("parcels", asked).unwrap().unwrap();

    // Killed, and started again: first with the page that it had, then with one that it may not go on with.
    let (resumed, _) = window(dir.path());
    assert!(resumed.resume("ns/pod", None).unwrap().is_some());
    assert_eq!(resumed.layout_of("parcels").unwrap(), Some(asked));
    resumed.assign("orders", None).unwrap().unwrap();
    refuses(&resumed);
    let (other, _) = window(dir.path());
    assert!(other.resume("ns/other", None).unwrap().is_none());
    other.hold(POOL, Ok(Layout::MILLISECOND), binding(9));
    refuses(&other);

    // Another pool of the same name.
    let _ = other.close();
    other.hold(POOL, Ok(Layout::JAVASCRIPT_MILLISECOND), binding(1));
    assert_eq!(other.assign("orders", None).unwrap().unwrap().layout, Layout::JAVASCRIPT_MILLISECOND);
}
