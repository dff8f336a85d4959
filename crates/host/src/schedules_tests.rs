//! The waits between threads under Shuttle, which runs random orders of the threads' steps. A wake
//! that is missing leaves a thread asleep for ever, which Shuttle reports: in it a wait with a time
//! never ends by the time.

#![allow(clippy::duplicate_mod, reason = "the same code with other primitives")]

#[allow(dead_code, reason = "others use the rest")]
#[path = "deadline.rs"]
mod deadline;
#[allow(unreachable_pub, reason = "it is public in the crate itself")]
#[path = "signal.rs"]
mod signal;

mod primitives {
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::sync::PoisonError;
}

use quintet_types::Ms;
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;

/// Orders that are tried.
const ORDERS: usize = 2000;

#[test]
fn a_signal_wakes_the_sleeper_for_all_that_was_left() {
    for timed in [false, true] {
        let order = move || {
            let left = Arc::new((Mutex::new(0), signal::Signal::default()));
            for _ in 0..2 {
                let left = Arc::clone(&left);
                thread::spawn(move || {
                    for _ in 0..2 {
                        *left.0.lock().unwrap() += 1;
                        left.1.raise();
                    }
                });
            }
            let mut taken = 0;
            while taken < 4 {
                match timed {
                    true => drop(left.1.wait_for(std::time::Duration::from_secs(3600))),
                    false => left.1.wait(),
                }
                taken += std::mem::take(&mut *left.0.lock().unwrap());
            }
        };
        shuttle::check_random(order, ORDERS);
    }
}

/// A shard with a deadline: the timer thread does what is due and sleeps, as `Core::run_timer`, and
/// others bring deadlines nearer, as those who unlock a shard.
#[test]
fn the_timer_thread_sleeps_past_no_deadline_and_no_stop() {
    const NOW: Ms = Ms(10);
    let order = || {
        let timer = Arc::new((deadline::Timer::new(), Mutex::new((Ms::NEVER, 0))));
        let own = Arc::clone(&timer);
        let thread = thread::spawn(move || {
            let (timer, shard) = &*own;
            loop {
                timer.begin_turn();
                let next = {
                    let mut shard = shard.lock().unwrap();
                    if shard.0 <= NOW {
                        *shard = (Ms::NEVER, shard.1 + 1);
                    }
                    shard.0
                };
                timer.notify(next);
                if !timer.sleep(|| NOW) {
                    return;
                }
            }
        });
        let (bell, shard) = &*timer;
        for (turn, deadline) in [Ms(20), Ms(5), Ms(10)].into_iter().enumerate() {
            shard.lock().unwrap().0 = deadline;
            bell.notify(deadline);
            // What is not due yet stays.
            while turn > 0 && shard.lock().unwrap().1 < turn {
                thread::yield_now();
            }
        }
        bell.stop();
        thread.join().unwrap();
    };
    shuttle::check_random(order, ORDERS);
}
