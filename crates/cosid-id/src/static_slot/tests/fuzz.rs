//! State files that nobody made in good faith. How inputs are made, and for how long: `cosid_fuzz`.

use std::path::Path;

use cosid_fuzz::{Target, Verdict};

use super::super::state::Identity;
use crate::format::fnv1a;
use crate::layout::Layout;

#[test]
fn static_state() {
    let identity = Identity { pool: "shop/orders".into(), slot: 3, layout: Layout::MILLISECOND };
    let tokens = &[
        "\n",
        "fence 7\n",
        "ceiling 18446744073709551615\n",
        "checksum ",
        "pool \"shop/orders\"\n",
        "slot 3\n",
        "+7",
        "\\u{0}",
    ];
    Target::new("static_state", env!("CARGO_MANIFEST_DIR")).tokens(tokens).mend(mend_checksum).run(|input| {
        match identity.decode(Path::new("/state"), input) {
            Ok(state) => {
                assert_eq!(identity.encode(state).as_bytes(), input, "what is read is what would be written");
                Verdict::Accepted
            }
            Err(error) => {
                let message = error.to_string();
                assert!(message.contains("/state") && message.chars().count() < 800, "{message}");
                Verdict::Refused
            }
        }
    });
}

fn mend_checksum(text: &mut Vec<u8>) {
    if let Some(at) = text.windows(9).rposition(|window| window == b"checksum ") {
        text.truncate(at);
        let checksum = fnv1a(text);
        text.extend(format!("checksum {checksum:016x}\n").bytes());
    }
}
