//! How punctual the kernel's timers are for this thread.

use std::num::NonZeroU64;

/// An hour, in nanoseconds.
const LAZY: NonZeroU64 = NonZeroU64::MIN.saturating_add(3_600_000_000_000 - 1);

/// Runs a call whose new threads, and this thread while it runs, are woken up to an hour late by waits with a time limit.
/// What they wait for still wakes them at once.
///
/// For libraries whose threads look every second whether there is something to do: on an idle node the processor need
/// not wake for them.
pub fn with_lazy_timers<T>(call: impl FnOnce() -> T) -> T {
    let before = rustix::thread::current_timer_slack().ok().and_then(NonZeroU64::new);
    // Without it all works the same, with some wake-ups more.
    let _ = rustix::thread::set_current_timer_slack(Some(LAZY));
    let value = call();
    let _ = rustix::thread::set_current_timer_slack(before);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_threads_of_the_call_are_lazy() {
        // The call that asks for it cannot return more than two seconds.
        let slack = || {
            let thread = rustix::thread::gettid().as_raw_pid();
            std::fs::read_to_string(format!("/proc/{thread}/timerslack_ns")).unwrap().trim().parse::<u64>().unwrap()
        };
        let before = slack();
        let inside = with_lazy_timers(|| std::thread::spawn(slack).join().unwrap());
        assert_eq!((inside, slack()), (LAZY.get(), before));
        assert_eq!(std::thread::spawn(slack).join().unwrap(), before);
    }
}
