//! Agents with a slot by configuration, and no cluster: `--static`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy takes only #[test] functions for tests, not the cases they run"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cosid_client::{Error, FieldOrder, Layout};
use cosid_tests::agent::{Agent, Launch};
use cosid_tests::cases::{self, Case};
use cosid_tests::disk::Disk;
use cosid_tests::http::PATIENCE;
use cosid_tests::makers::{Maker, count};
use xtask::programs::{Program, until};

#[test]
fn a_slot_by_configuration() {
    let cases: &[Case<()>] = cosid_tests::cases![
        an_app_makes_ids_as_with_a_lease_and_an_orderly_restart_goes_on_at_its_last_timestamp,
        a_killed_agent_s_apps_go_on_above_the_ceiling_that_was_written,
        the_slot_is_the_number_of_the_pod_s_name,
        a_second_agent_on_the_same_file_is_told_who_has_it_and_goes_on_once_it_is_free,
        a_damaged_file_is_refused_by_name_and_the_agent_goes_on_once_it_is_whole,
        a_full_disk_makes_no_slot_ready_and_later_stops_it_at_its_ceiling,
        other_layouts_make_ids_that_decode_right,
        a_command_line_that_can_not_work_ends_with_64,
    ];
    cases::run(&(), 6, cases);
}

/// A machine: where its agents' state files and directories are.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        fs::create_dir(machine.state()).unwrap();
        machine
    }

    fn state(&self) -> PathBuf {
        self.0.path().join("state")
    }

    fn agent(&self, name: &str, args: &[&str]) -> Agent {
        launch(&self.state()).args(args).start(&self.0.path().join(name))
    }
}

fn launch(state: &Path) -> Launch {
    Launch::new(&["--pool", "shop/orders"]).path("--state-dir", state)
}

fn timestamp(layout: Layout, id: cosid_client::Id) -> u64 {
    layout.decompose(id).unwrap().timestamp()
}

fn an_app_makes_ids_as_with_a_lease_and_an_orderly_restart_goes_on_at_its_last_timestamp((): &()) {
    let machine = Machine::new();
    let mut agent = machine.agent("a", &["--static", "3"]);
    let held = agent.wait_held();
    assert_eq!((held.slot, held.fence, held.expires_at), (3, 1, held.ceiling));
    let lease = agent.lease();
    assert_eq!((lease["pool"].as_str(), lease["state"].as_str()), (Some("shop/orders"), Some("held")));
    assert_eq!(agent.ask("GET", "/readyz").body, "holds slot 3 under fence 1\n");
    let file = machine.state().join("shop@orders-3.state");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains(&format!("ceiling {}\n", held.ceiling)), "{text}");
    agent.wait_for_log(&format!("state file {} is new: IDs begin now", file.display()));
    let generator = agent.client().generator("orders").unwrap();
    generator.next_id().unwrap();
    assert_eq!(agent.ask("POST", "/v1/ids?generator=orders&count=2").status, 200);
    // Half of the ten seconds later.
    agent.wait_renewed();
    assert!(agent.wait_held().ceiling > held.ceiling);
    assert_eq!(agent.wait_held().page, held.page);
    let last = generator.next_id().unwrap();
    assert_eq!(held.layout.decompose(last).unwrap().slot(), 3);
    agent.terminate();
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains(&format!("ceiling {}\n", timestamp(held.layout, last))), "{text}");

    let agent = machine.agent("b", &["--static", "3"]);
    let again = agent.wait_held();
    assert_eq!((again.slot, again.fence, again.floor), (3, 2, timestamp(held.layout, last)));
    assert!(agent.client().generator("orders").unwrap().next_id().unwrap() > last);
    assert!(!agent.log().contains("is new"), "{}", agent.log());
}

fn a_killed_agent_s_apps_go_on_above_the_ceiling_that_was_written((): &()) {
    let machine = Machine::new();
    let mut agent = machine.agent("a", &["--static", "3"]);
    let held = agent.wait_held();
    let mut maker = Maker::start(machine.0.path(), "first", &agent.socket, 60_000);
    maker.wait_for_more();
    agent.kill_and_restart();
    let again = agent.wait_held_if(|again| again.fence == 2);
    assert!(again.floor >= held.ceiling && again.page != held.page, "{again:?}");
    maker.finish();
    let counted = count(&[&maker]);
    assert_eq!((counted.ids, counted.equal), (60_000, 0));
    let id = agent.client().generator("orders").unwrap().next_id().unwrap();
    assert!(timestamp(again.layout, id) > again.floor);
}

fn the_slot_is_the_number_of_the_pod_s_name((): &()) {
    let machine = Machine::new();
    let launch = launch(&machine.state()).env("POD_NAME", "web-7").env("COSID_STATIC", "hostname");
    let agent = launch.start(&machine.0.path().join("a"));
    assert_eq!(agent.wait_held().slot, 7);
}

fn a_second_agent_on_the_same_file_is_told_who_has_it_and_goes_on_once_it_is_free((): &()) {
    let machine = Machine::new();
    let mut first = machine.agent("a", &["--static", "3"]);
    first.wait_held();
    let mut second = machine.agent("b", &["--static", "3"]);
    let told = format!("is in use by another process ({})", first.program.pid());
    second.wait_for_state("blocked", &told);
    let ready = second.ask("GET", "/readyz");
    assert_eq!((ready.status, ready.reason().as_str()), (503, "Blocked"));
    let client = second.client().with_timeout(Duration::from_secs(1));
    let error = client.generator("orders").unwrap_err();
    assert!(matches!(&error, Error::Blocked { message } if message.contains(&told)), "{error}");
    first.terminate();
    assert_eq!(second.wait_held().fence, 2);
    client.generator("orders").unwrap().next_id().unwrap();
    second.terminate();
}

fn a_damaged_file_is_refused_by_name_and_the_agent_goes_on_once_it_is_whole((): &()) {
    let machine = Machine::new();
    machine.agent("a", &["--static", "3"]).wait_held();
    let file = machine.state().join("shop@orders-3.state");
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    let mut agent = machine.agent("b", &["--static", "3"]);
    let lease = agent.wait_for_state("refused", "is damaged");
    assert!(lease["message"].as_str().unwrap().contains(file.to_str().unwrap()), "{lease}");
    let error = agent.client().with_timeout(Duration::from_secs(1)).generator("orders").unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    assert_eq!(fs::read(&file).unwrap(), &whole[..whole.len() - 1], "it is left alone");
    fs::write(&file, &whole).unwrap();
    assert_eq!(agent.wait_held().fence, 2);
    assert_eq!(agent.log().matches("is damaged").count(), 1, "said once:\n{}", agent.log());
    agent.terminate();
}

fn a_full_disk_makes_no_slot_ready_and_later_stops_it_at_its_ceiling((): &()) {
    let machine = Machine::new();
    let Some(disk) = Disk::mount(machine.0.path().join("disk"), "64k") else { return };
    disk.fill(0);
    let mut agent = launch(disk.path()).args(&["--static", "3"]).start(&machine.0.path().join("a"));
    agent.wait_for_state("blocked", "No space left on device");
    assert_eq!(agent.ask("GET", "/readyz").status, 503);
    disk.free();
    agent.wait_held();
    let generator = agent.client().generator("orders").unwrap().with_timeout(Duration::ZERO);
    generator.next_id().unwrap();

    disk.fill(0);
    agent.wait_for_state("held", "No space left on device");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let left = u128::from(agent.wait_held().ceiling).saturating_sub(now);
    assert!(left > 1_000, "it is told while there is time: {left} ms");
    generator.next_id().unwrap();
    let not_ready = || Ok(Some(agent.ask("GET", "/readyz")).filter(|ready| ready.status == 503));
    let ready = until(|| "it is ready".into(), PATIENCE, not_ready).unwrap();
    assert_eq!(ready.reason(), "Window");
    assert!(ready.message().contains("No space left on device"), "{}", ready.message());
    assert!(matches!(generator.next_id(), Err(Error::NotYet(_))));
    disk.free();
    agent.wait_for_state("held", "holds slot 3 under fence 1");
    generator.with_timeout(Duration::from_secs(2)).next_id().unwrap();
    assert_eq!(agent.ask("GET", "/readyz").status, 200);
    agent.terminate();
}

fn other_layouts_make_ids_that_decode_right((): &()) {
    let machine = Machine::new();
    let own =
        r#"{"timestampBits":40,"slotBits":8,"sequenceBits":9,"epoch":1700000000000,"order":"sequenceSlot"}"#;
    let own_layout = Layout::builder().timestamp_bits(40).slot_bits(8).sequence_bits(9);
    let own_layout = own_layout.epoch_ms(1_700_000_000_000).order(FieldOrder::SequenceSlot).build().unwrap();
    for (slot, layout, expected) in
        [("5", "twitter", Layout::TWITTER), ("6", "sonyflake", Layout::SONYFLAKE), ("7", own, own_layout)]
    {
        let agent = machine.agent(slot, &["--static", slot, "--layout", layout]);
        let held = agent.wait_held();
        assert_eq!(held.layout, expected);
        let id = agent.client().generator("orders").unwrap().next_id().unwrap();
        let parts = expected.decompose(id).unwrap();
        assert_eq!(parts.slot().to_string(), slot);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        assert!(now.abs_diff(parts.timestamp().into()) < 5_000, "{parts:?}");
    }
    machine.agent("again", &["--static", "5"]).wait_for_state("refused", "is that of slot 5 of pool");
}

fn a_command_line_that_can_not_work_ends_with_64((): &()) {
    let machine = Machine::new();
    let socket = machine.0.path().join("x/agent.sock");
    let state = machine.state();
    let cases: [(Launch, &str); 6] = [
        (Launch::new(&["--static", "3"]), "--state-dir"),
        (launch(&state), "--static"),
        (launch(&state).args(&["--static", "auto"]), "hostname, a number"),
        (launch(&state).args(&["--static", "1024"]), "the layout has slots 0 to 1023"),
        (
            launch(&state).args(&["--static", "hostname"]).env("POD_NAME", "web-7d9f"),
            "has no slot in its name",
        ),
        (launch(&state).args(&["--static", "3", "--store", "memory"]), "cannot be used with"),
    ];
    for (launch, told) in cases {
        let command = launch.path("--socket", &socket).command();
        let mut agent = Program::start("refused", command, machine.0.path()).unwrap();
        let ended = agent.wait(PATIENCE).unwrap();
        assert_eq!(ended.code(), Some(64), "{}", agent.log());
        assert!(agent.log().contains(told), "{told}: {}", agent.log());
    }
    assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
}
