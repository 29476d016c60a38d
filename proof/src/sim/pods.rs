//! Pods: an agent with the product's keeper, driver, store and window page, and apps that issue from the page.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use cosid_agent::{StatusBoard, Window};
use cosid_id::{Clock, Generator, Layout, NextError, Page};
use cosid_kube::{ApiClock, Holder, KubeStore, drive, monotonic};
use cosid_lease::keeper::Binding;
use cosid_lease::{Keeper, KeeperConfig, Millis, Now, Owner, Report, SlotStore};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Sleep, sleep, timeout};
use uuid::Uuid;

use super::checker::Who;
use super::network::client;
use super::referee::pod_uid;
use super::world::{BASE, NAMESPACE, POOL, World, mono};

/// How many apps a pod has.
const APPS: usize = 2;
/// The generator that all apps share.
const GENERATOR: &str = "orders";

/// Where apps find the page, as the agent's socket tells them.
#[derive(Clone, Default)]
struct Current(Arc<Mutex<Option<Seat>>>);

/// A page that was told of.
#[derive(Clone)]
struct Seat {
    page: Arc<Page>,
    cell: usize,
    window: usize,
}

impl Current {
    fn get(&self) -> Option<Seat> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, seat: Option<Seat>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = seat;
    }
}

/// One pod: its agent lives, is killed, stands still, is stopped, and is started again, until the run ends.
pub(crate) struct Pod {
    world: World,
    number: usize,
    key: String,
    /// The volume that agent and apps share.
    volume: TempDir,
    current: Current,
    /// The host's clock is off by this, ms.
    host_off: Arc<AtomicU64>,
    /// Whether it holds a slot; for the end of the run.
    holds: Arc<AtomicBool>,
    frozen_until: Arc<AtomicU64>,
    apps: Vec<JoinHandle<()>>,
}

impl Pod {
    pub(crate) fn new(world: &World, number: usize, holds: Arc<AtomicBool>) -> std::io::Result<Self> {
        // Two of them have one key by mistake.
        let key = format!("{NAMESPACE}/web-{}", number.saturating_sub(1));
        Ok(Self {
            world: world.clone(),
            number,
            key,
            volume: volume()?,
            current: Current::default(),
            host_off: Arc::new(AtomicU64::new(BASE)),
            holds,
            frozen_until: Arc::default(),
            apps: Vec::new(),
        })
    }

    pub(crate) async fn live(mut self) {
        sleep(Duration::from_millis(self.world.within(0, 5_000))).await;
        self.start_apps();
        loop {
            if self.world.lock().drained {
                sleep(Duration::from_millis(500)).await;
                continue;
            }
            let (stop, stopped) = oneshot::channel();
            let agent = self.start_agent(stopped);
            self.attend(agent, stop).await;
            self.holds.store(false, Ordering::SeqCst);
            sleep(Duration::from_millis(self.world.within(100, 8_000))).await;
        }
    }

    /// Looks each second what becomes of the agent, until it ends.
    async fn attend(&mut self, agent: JoinHandle<()>, stop: oneshot::Sender<()>) {
        let weights = self.world.setting().weights;
        loop {
            sleep(Duration::from_millis(1_000)).await;
            if self.world.lock().drained {
                return self.stop(agent, stop).await;
            }
            if self.world.is_calm() {
                self.frozen_until.store(0, Ordering::SeqCst);
                continue;
            }
            if self.world.chance(weights.agent_killed) {
                self.say("the agent is killed");
                agent.abort();
                return;
            }
            if self.world.chance(weights.pod_lost) {
                self.say("the pod is lost; its apps go on for a while");
                agent.abort();
                return self.move_elsewhere();
            }
            if self.world.chance(weights.agent_stopped) {
                return self.stop(agent, stop).await;
            }
            if self.world.chance(weights.agent_paused) {
                let pause = self.world.within(500, 40_000);
                self.say(&format!("the agent stands still for {pause} ms"));
                self.frozen_until.store(mono() + pause, Ordering::SeqCst);
            }
        }
    }

    async fn stop(&self, mut agent: JoinHandle<()>, stop: oneshot::Sender<()>) {
        self.say("the agent is told to end");
        let _ = stop.send(());
        if timeout(Duration::from_secs(20), &mut agent).await.is_err() {
            agent.abort();
        }
    }

    /// Another volume. The old one's apps keep its page mapped.
    fn move_elsewhere(&mut self) {
        let Ok(volume) = volume() else { return };
        self.volume = volume;
        self.current = Current::default();
        let old = std::mem::take(&mut self.apps);
        let world = self.world.clone();
        tokio::spawn(async move {
            sleep(Duration::from_millis(world.within(0, 30_000))).await;
            old.iter().for_each(JoinHandle::abort);
        });
        self.start_apps();
    }

    fn start_apps(&mut self) {
        for _ in 0..APPS {
            let app = App {
                world: self.world.clone(),
                name: format!("pod-{}", self.number),
                current: self.current.clone(),
                host_off: Arc::clone(&self.host_off),
                seat: None,
            };
            self.apps.push(tokio::spawn(app.issue()));
        }
    }

    /// The agent as the product puts it together, see `cosid-agent`'s `run.rs`.
    fn start_agent(&self, stopped: oneshot::Receiver<()>) -> JoinHandle<()> {
        let world = self.world.clone();
        let clock = ApiClock::default();
        let client = client(&world, &Who::Pod(self.number), clock.clone());
        let store = KubeStore::new(client, clock, NAMESPACE, POOL, Some(pod_uid(self.number)));
        let window = Window::new(self.volume.path(), StatusBoard::new(&self.key));
        let pool = format!("{NAMESPACE}/{POOL}");
        let resumable = window.resume(&self.key, Some(&pool)).ok().flatten();
        let incarnation = {
            let mut inner = world.lock();
            Uuid::from_u64_pair(inner.random.next(), inner.random.next())
        };
        let config = KeeperConfig::new(Owner { key: self.key.clone(), incarnation });
        let mut holder = Agent {
            world: world.clone(),
            number: self.number,
            pool,
            layout: world.setting().layout,
            window,
            current: self.current.clone(),
            holds: Arc::clone(&self.holds),
            slot: resumable.as_ref().map(|resumable| resumable.binding.slot),
        };
        let host_off = Arc::clone(&self.host_off);
        let agent = async move {
            let now = || {
                let host = host_off.load(Ordering::SeqCst) + monotonic();
                Now { mono: monotonic(), host, store: store.now() }
            };
            let keeper = match resumable {
                Some(resumable) => {
                    holder.holds.store(true, Ordering::SeqCst);
                    Keeper::resume(config, resumable.binding, now())
                }
                None => Keeper::new(config, now()),
            };
            // Who is not told to end never ends.
            let stopped = async {
                if stopped.await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            drive(keeper, &store, now, &mut holder, stopped).await;
        };
        let frozen_until = Arc::clone(&self.frozen_until);
        tokio::spawn(Freezable { task: Box::pin(agent), frozen_until, thaw: Box::pin(sleep(Duration::ZERO)) })
    }

    fn say(&self, what: &str) {
        self.world.say(None, || format!("pod-{} ({}): {what}", self.number, self.key));
    }
}

/// In memory, if there is a place for that.
fn volume() -> std::io::Result<TempDir> {
    match TempDir::new_in("/dev/shm") {
        Ok(volume) => Ok(volume),
        Err(_) => TempDir::new(),
    }
}

/// A process that can be stopped and continued, as by SIGSTOP.
struct Freezable {
    task: Pin<Box<dyn Future<Output = ()> + Send>>,
    frozen_until: Arc<AtomicU64>,
    thaw: Pin<Box<Sleep>>,
}

impl Future for Freezable {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let left = self.frozen_until.load(Ordering::SeqCst).saturating_sub(mono());
        if left > 0 {
            self.thaw.set(sleep(Duration::from_millis(left)));
            if self.thaw.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
        self.task.as_mut().poll(context)
    }
}

/// What the agent does with a lease: the product's window page, and a word to the checker.
struct Agent {
    world: World,
    number: usize,
    pool: String,
    layout: Layout,
    window: Window,
    current: Current,
    holds: Arc<AtomicBool>,
    slot: Option<u32>,
}

impl Holder for Agent {
    async fn hold(&mut self, binding: Binding) {
        let (slot, fence) = (binding.slot, binding.fence);
        self.slot = Some(slot);
        self.window.hold(&self.pool, Ok(self.layout), binding);
        self.holds.store(true, Ordering::SeqCst);
        let seat = self.window.assign(GENERATOR, None).ok().flatten();
        let Some(seat) = seat else { return };
        let path = self.window.directory().join(&seat.page);
        let Ok(page) = Page::open(path).map(Arc::new) else { return };
        self.world.say(Some(slot), || {
            let (floor, ceiling) = (page.header().floor, page.ceiling());
            format!(
                "pod-{} holds slot {slot} under fence {fence}, window ({}, {}]",
                self.number,
                told(floor),
                told(ceiling)
            )
        });
        let held = self.world.lock().checker.held(&format!("pod-{}", self.number), Arc::clone(&page));
        match held {
            Ok(window) => self.current.set(Some(Seat { page, cell: seat.cell, window })),
            Err(violation) => self.world.check(Err(violation)),
        }
    }

    fn extend(&mut self, ceiling: Millis, expires_at: Millis) {
        self.window.extend(ceiling, expires_at);
        self.world.say(self.slot, || format!("pod-{} may issue up to {}", self.number, told(ceiling)));
        let outcome = self.slot.map_or(Ok(()), |slot| self.world.lock().checker.disjoint(slot));
        self.world.check(outcome);
    }

    async fn close(&mut self) -> Millis {
        let last_issued = self.window.close();
        self.holds.store(false, Ordering::SeqCst);
        self.world.say(self.slot, || {
            format!("pod-{} closes its page; last issued {}", self.number, told(last_issued))
        });
        let outcome = self.slot.map_or(Ok(()), |slot| self.world.lock().checker.disjoint(slot));
        self.world.check(outcome);
        last_issued
    }

    fn report(&mut self, report: Report) {
        match report {
            Report::Renewed { .. } | Report::StoreFailed { .. } => {}
            report => self.world.say(self.slot, || format!("pod-{}: {report}", self.number)),
        }
    }
}

/// Seconds from the run's beginning on.
fn told(at: Millis) -> String {
    at.checked_sub(BASE).map_or(at.to_string(), |at| format!("{}.{:03}", at / 1_000, at % 1_000))
}

/// A process that issues IDs.
struct App {
    world: World,
    name: String,
    current: Current,
    host_off: Arc<AtomicU64>,
    seat: Option<Seat>,
}

/// A clock that was read once.
struct Reading(u64);

impl Clock for Reading {
    fn unix_ms(&self) -> u64 {
        self.0
    }
    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }
    fn sleep(&self, _: Duration) {}
}

impl App {
    async fn issue(mut self) {
        let weights = self.world.setting().weights;
        loop {
            sleep(Duration::from_millis(self.world.within(1, 1_500))).await;
            let Some(seat) = self.seat.clone().or_else(|| self.current.get()) else { continue };
            let reading = self.read_clock(&seat.page, weights.host_clock);
            if !self.world.is_calm() && self.world.chance(weights.app_paused) {
                sleep(Duration::from_millis(self.world.within(1, 30_000))).await;
            }
            self.take(seat, reading);
        }
    }

    /// The host's clock, or anything else.
    fn read_clock(&self, page: &Page, wrong: u64) -> u64 {
        let mut inner = self.world.lock();
        let (calm, random) = (inner.calm, &mut inner.random);
        let off = self.host_off.load(Ordering::SeqCst);
        let right = off + mono();
        if calm || !random.chance(wrong) {
            return right;
        }
        let (floor, ceiling) = (page.header().floor, page.ceiling());
        let stepped = right.saturating_add_signed(random.either_way(90_000));
        if random.chance(20) {
            // From now on.
            self.host_off.store(off.saturating_add_signed(random.either_way(5_000)), Ordering::SeqCst);
        }
        random.pick(&[floor, floor + 1, ceiling, ceiling + 1, stepped]).unwrap_or(right)
    }

    fn take(&mut self, seat: Seat, reading: u64) {
        let Ok(generator) = Generator::with_clock(Arc::clone(&seat.page), seat.cell, Reading(reading)) else {
            return;
        };
        match generator.try_next() {
            Ok(id) => {
                let outcome = self.world.lock().checker.issued(seat.window, id);
                let slot = seat.page.header().slot;
                self.world.say(Some(slot), || format!("{} issues {id} of {}", self.name, told(reading)));
                self.world.check(outcome);
                self.seat = Some(seat);
            }
            Err(NextError::SlotLost) => self.seat = None,
            Err(_) => self.seat = Some(seat),
        }
    }
}
