//! A network of its own for one agent: a cable to this machine that can be pulled out, or lose what comes.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::process::geteuid;

/// Numbers the cables of this process.
static NEXT: AtomicU8 = AtomicU8::new(1);

/// It goes with this value.
pub struct Net {
    name: String,
    number: u8,
}

impl Net {
    /// A new one; `None` only where somebody asked for tests without root's rights.
    pub fn new() -> Option<Self> {
        if !geteuid().is_root() {
            let asked = std::env::var_os("COSID_TEST_NO_ROOT").is_some();
            assert!(
                asked,
                "a network of its own needs root; set COSID_TEST_NO_ROOT to go without these drills"
            );
            println!("  not run: a drill that needs root, because COSID_TEST_NO_ROOT is set");
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // The process's number keeps runs apart.
        let name = format!("cosid{}x{number}", std::process::id());
        let net = Self { name, number };
        run(&format!("ip netns add {}", net.name));
        net.ip("link set lo up");
        run(&format!("ip link add {} type veth peer name eth0 netns {}", net.cable(), net.name));
        run(&format!("ip address add {}/30 dev {}", net.gateway(), net.cable()));
        run(&format!("ip link set {} up", net.cable()));
        net.ip(&format!("address add {}/30 dev eth0", net.address(2)));
        net.ip("link set eth0 up");
        Some(net)
    }

    /// This machine's address on the cable.
    pub fn gateway(&self) -> IpAddr {
        self.address(1)
    }

    /// The words of a command that runs another one in it.
    pub fn by(&self) -> [String; 4] {
        // An agent's environment has no PATH.
        [which("ip"), "netns".into(), "exec".into(), self.name.clone()]
    }

    /// Runs `ip` in it.
    pub fn ip(&self, words: &str) {
        run(&format!("ip -n {} {words}", self.name));
    }

    /// Nothing that is sent to it arrives; what it sends does.
    pub fn lose_what_comes(&self) {
        self.nft("add table inet drill");
        self.nft("add chain inet drill input { type filter hook input priority 0 ; policy drop ; }");
    }

    /// The end of that.
    pub fn lose_nothing(&self) {
        self.nft("delete table inet drill");
    }

    fn nft(&self, words: &str) {
        run(&format!("ip netns exec {} nft {words}", self.name));
    }

    /// The other end's name, as long as one may be.
    fn cable(&self) -> String {
        format!("cd{}x{}", std::process::id(), self.number)
    }

    fn address(&self, end: u8) -> IpAddr {
        let [.., high, low] = std::process::id().to_be_bytes();
        // A network of four addresses out of 10.192.0.0/12.
        let block = (u32::from(high) << 8 | u32::from(low)) & 0x0fff;
        let base = 0x0ac0_0000_u32 | block << 8 | u32::from(self.number) << 2;
        IpAddr::V4(Ipv4Addr::from(base + u32::from(end)))
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        // The cable goes with its end in there.
        let _ = Command::new("ip").args(["netns", "delete", &self.name]).status();
    }
}

fn which(program: &str) -> String {
    let places = std::env::var("PATH").unwrap_or_default();
    let paths = places.split(':').map(|place| format!("{place}/{program}"));
    paths.chain([format!("/usr/sbin/{program}")]).find(|path| std::path::Path::new(path).is_file()).unwrap()
}

fn run(line: &str) {
    let mut words = line.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}
