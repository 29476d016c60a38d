//! What the agent does to a client, and what the client has to make of it.

use std::time::Duration;

/// One case.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) rule: &'static str,
    pub(super) workers: u32,
    pub(super) count: u32,
    /// What the first requests for IDs or a generator get; those after them are served.
    pub(super) first: Vec<Reply>,
    /// What every request gets.
    pub(super) always: Option<Reply>,
    pub(super) window: Window,
    pub(super) manner: Manner,
    /// Whether there is an agent.
    pub(super) is_there: bool,
    pub(super) ending: Ending,
}

/// What a request gets instead of an answer.
#[derive(Clone)]
pub(super) enum Reply {
    /// A refusal.
    Refuse(u16, &'static str),
    /// These bytes, and the end of the connection.
    Say(Vec<u8>),
    /// The first half of the right answer, and the end of the connection.
    Half,
    /// The end of the connection.
    HangUp,
    /// Nothing, on a connection that stays open.
    Silence,
    /// A body without an end.
    Endless,
}

/// How answers are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    Plain,
    /// With fields of a later version.
    LaterFields,
    /// A few bytes at a time.
    InPieces,
    /// The connection ends after each answer, which does not say so.
    OneAConnection,
}

/// What becomes of the window, from the first request for IDs or a generator on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Window {
    /// It is an hour long.
    Long,
    /// It is too short for all IDs, stands still, and is then an hour long.
    StandsStill,
    /// It is too short for all IDs, then the slot is lost, and after a while there is another one.
    IsLost,
    /// The same, and nobody listens in between.
    IsLostWithTheAgent,
}

/// How long a short window is: no client makes as many IDs as the case wants in it.
pub(super) const SHORT: u64 = 4;
/// How long a short window stands still, and how long there is none.
pub(super) const STANDSTILL: Duration = Duration::from_millis(150);

/// How the client has to end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// With all its IDs.
    Ids,
    /// Without any, by itself, with a reason on standard error that has this text in it.
    Failure(&'static str),
}

fn case(name: &'static str, rule: &'static str) -> Case {
    Case {
        name,
        rule,
        workers: 2,
        count: 1_000,
        first: Vec::new(),
        always: None,
        window: Window::Long,
        manner: Manner::Plain,
        is_there: true,
        ending: Ending::Ids,
    }
}

fn failing(name: &'static str, rule: &'static str, always: Reply) -> Case {
    Case { always: Some(always), ending: Ending::Failure(""), count: 10, ..case(name, rule) }
}

fn said(text: &str) -> Reply {
    Reply::Say(text.as_bytes().to_vec())
}

fn told(body: &str) -> Reply {
    let length = body.len();
    said(&format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    ))
}

pub(super) fn all() -> Vec<Case> {
    let losing = |name, rule, window| Case { window, count: 20_000, ..case(name, rule) };
    vec![
        case("ids", "makes IDs: all that were asked for, none twice, none that is not its own"),
        Case {
            manner: Manner::LaterFields,
            ..case("later-fields", "leaves out fields that it does not know")
        },
        Case { manner: Manner::InPieces, ..case("pieces", "reads an answer that comes in pieces") },
        Case {
            manner: Manner::OneAConnection,
            ..case("connections", "asks on a new connection where the last one ended")
        },
        Case {
            first: vec![Reply::Refuse(503, "NoSlot"); 3],
            ..case("refused", "waits where it is refused with 503")
        },
        Case {
            always: Some(Reply::Refuse(409, "TooManyGenerators")),
            ending: Ending::Failure(super::agent::WORDS),
            ..case("refused-for-good", "gives up where it is refused with 4xx, with the agent's words")
        },
        Case {
            first: vec![Reply::Half, Reply::Half],
            ..case("half-an-answer", "asks again where an answer breaks off")
        },
        Case {
            first: vec![Reply::HangUp, Reply::HangUp],
            ..case("no-answer", "asks again where the connection ends without an answer")
        },
        losing("window", "makes no ID past the ceiling, and waits for it to move", Window::StandsStill),
        losing("loss", "leaves a slot that is lost, and goes on with the next", Window::IsLost),
        losing("restart", "does so too where the agent is away meanwhile", Window::IsLostWithTheAgent),
        failing(
            "no-http",
            "makes no ID of what is no HTTP, and does not crash",
            said("SSH-2.0-OpenSSH_9.6\r\n"),
        ),
        failing("no-json", "makes no ID of what is no JSON, and does not crash", told("{\"ids\":[1,")),
        failing("no-ids", "makes no ID of an answer without any", told("{\"ids\":[],\"strings\":[]}")),
        failing(
            "other-types",
            "makes no ID of what is no number",
            told("{\"ids\":[{}],\"strings\":[7],\"generator\":7,\"cell\":\"x\",\"state\":[]}"),
        ),
        failing(
            "too-large",
            "makes no ID of a number that is none",
            told("{\"ids\":[99999999999999999999],\"strings\":[\"99999999999999999999\"]}"),
        ),
        failing("endless", "does not read an answer without an end to the end of its memory", Reply::Endless),
        failing("silence", "gives up where nobody answers", Reply::Silence),
        Case { is_there: false, ..failing("no-agent", "makes no ID where there is no agent", Reply::HangUp) },
    ]
}
