//! Answers that no agent gave. How inputs are made, and for how long: `cosid_fuzz`.

use cosid_fuzz::{Target, Verdict};

use super::*;
use crate::answer::{Placement, refusal};
use crate::lease::{Lease, LeaseState};

#[test]
fn client_answer() {
    let tokens = &[
        "Content-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "\r\n",
        "0\r\n\r\n",
        "ffffffffffffffff\r\n",
        "\"state\":\"held\",",
        "\"reason\":\"Exhausted\",",
        "\"unitMillis\":0,",
        "null",
        "{}",
        "HTTP/1.1 100 Continue\r\n\r\n",
    ];
    Target::new("client_answer", env!("CARGO_MANIFEST_DIR")).tokens(tokens).run(answer_of);
}

fn answer_of(input: &[u8]) -> Verdict {
    let parsed = parse(input, true);
    // As it comes in, piece by piece: what was once complete stays what it was.
    for len in [input.len() / 3, input.len() / 2, input.len().saturating_sub(1)] {
        match parse(&input[..len], false) {
            Ok(Some(answer)) => assert_eq!(parsed.as_ref(), Ok(&Some(answer))),
            Ok(None) => {}
            Err(_) => assert!(parsed.is_err(), "wrong is not made right by more: {parsed:?}"),
        }
    }
    let answer = match parsed {
        Ok(Some(answer)) => answer,
        Ok(None) => return Verdict::Refused,
        Err(why) => {
            assert!(!why.is_empty() && why.len() < 300, "{} bytes: {why:.400}", why.len());
            return Verdict::Refused;
        }
    };
    assert!(answer.body.len() <= input.len(), "nothing is made up");
    let message = refusal(answer.status, &answer.body, "orders").to_string();
    assert!(!message.is_empty() && message.len() <= 1_000 + answer.body.len());

    let lease = Lease::read(&answer.body);
    if let Ok(Lease { state: LeaseState::Held(held), .. }) = &lease {
        // A layout that can't be has no `Layout`.
        assert!(held.layout.bits() <= 63 && held.layout.unit_ms() > 0);
    }
    let placement = serde_json::from_slice::<Placement>(&answer.body);
    Verdict::accepted(lease.is_ok() || placement.is_ok())
}
