//! What goes wrong, and how often: the one table.

use super::random::Random;

/// How often what goes wrong. Each seed has weights of its own around these, so that some histories have none of a fault
/// and some have much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weights {
    // Of a thousand requests.
    /// A request gets lost on its way.
    pub(crate) request_lost: u64,
    /// A request arrives so late that its sender has given it up.
    pub(crate) request_late: u64,
    /// A request is done a second time, later.
    pub(crate) request_repeated: u64,
    /// It is done, and the answer gets lost.
    pub(crate) answer_lost: u64,
    /// It is done, and the answer comes late.
    pub(crate) answer_late: u64,
    /// It is not done: 429, 500, 503.
    pub(crate) refused: u64,

    // Of a thousand seconds, for each agent.
    /// The agent's process is killed and started again in the same place.
    pub(crate) agent_killed: u64,
    /// The pod is deleted without grace: another place, and apps that go on with the old page for a while.
    pub(crate) pod_lost: u64,
    /// The agent is told to end, and does so in order.
    pub(crate) agent_stopped: u64,
    /// The agent's process stands still, for longer than a lease lasts now and then.
    pub(crate) agent_paused: u64,

    // Of a thousand IDs.
    /// The app stands still between reading the clock and issuing.
    pub(crate) app_paused: u64,
    /// The host's clock is off, by anything.
    pub(crate) host_clock: u64,

    // Of a thousand seconds.
    /// The API server's clock jumps.
    pub(crate) store_clock: u64,
    /// A controller dies, between any two of its calls, and is started again.
    pub(crate) controller_killed: u64,
    /// What a controller's watch tells it comes late from then on.
    pub(crate) watch_lags: u64,
    /// Somebody deletes a Lease.
    pub(crate) lease_deleted: u64,
    /// Somebody deletes the pool, and makes it again.
    pub(crate) pool_deleted: u64,
}

/// The table.
pub(crate) const USUAL: Weights = Weights {
    request_lost: 10,
    request_late: 8,
    request_repeated: 8,
    answer_lost: 10,
    answer_late: 8,
    refused: 15,
    agent_killed: 8,
    pod_lost: 4,
    agent_stopped: 8,
    agent_paused: 8,
    app_paused: 40,
    host_clock: 150,
    store_clock: 6,
    controller_killed: 40,
    watch_lags: 30,
    lease_deleted: 25,
    pool_deleted: 5,
};

impl Weights {
    /// A seed's own.
    pub(crate) fn around(usual: &Self, random: &mut Random) -> Self {
        let mut own = |weight: u64| weight * random.pick(&[0, 1, 1, 2, 5]).unwrap_or(1);
        Self {
            request_lost: own(usual.request_lost),
            request_late: own(usual.request_late),
            request_repeated: own(usual.request_repeated),
            answer_lost: own(usual.answer_lost),
            answer_late: own(usual.answer_late),
            refused: own(usual.refused),
            agent_killed: own(usual.agent_killed),
            pod_lost: own(usual.pod_lost),
            agent_stopped: own(usual.agent_stopped),
            agent_paused: own(usual.agent_paused),
            app_paused: own(usual.app_paused),
            host_clock: own(usual.host_clock),
            store_clock: own(usual.store_clock),
            controller_killed: own(usual.controller_killed),
            watch_lags: own(usual.watch_lags),
            lease_deleted: own(usual.lease_deleted),
            pool_deleted: own(usual.pool_deleted),
        }
    }
}
