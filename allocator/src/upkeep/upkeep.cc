// Room 19, upkeep: see upkeep.h.

#include "upkeep/upkeep.h"

#include <signal.h>

#include <cerrno>

#include "config/heuristics.h"
#include "config/options.h"
#include "front/fork.h"
#include "front/heap.h"
#include "limits/limits.h"
#include "platform/file.h"
#include "platform/message.h"
#include "platform/mutex.h"
#include "platform/os.h"
#include "platform/own_stack.h"
#include "region/account.h"
#include "report/live_page.h"
#include "report/statistics_report.h"
#include "upkeep/background.h"
#include "upkeep/request.h"

namespace freestone {

namespace {

// One thread at a time acts; the others go on.
u64 next_report_ms FREESTONE_GUARDED_BY(attention_lock) = 0;
u64 next_page_ms FREESTONE_GUARDED_BY(attention_lock) = 0;
u64 next_pressure_ms FREESTONE_GUARDED_BY(attention_lock) = 0;
int installed_signal = 0;

// Whether something that happens every `period` is due; the next one counts from now, so that a pause is not made up
// for.
bool is_due(u64& next, u64 now, u64 period) {
  if (now < next) return false;
  const bool first = next == 0;
  next = now + period;
  return !first;
}

void act_locked(u32 why) FREESTONE_REQUIRES(attention_lock) {
  if ((why & kAttentionSoftLimit) != 0) {
    attention.and_seq(~kAttentionSoftLimit);
    react_to_soft_limit();
  }
  if ((why & kAttentionDump) != 0) {
    attention.and_seq(~kAttentionDump);
    write_report();
  }
  if ((why & (kAttentionTimer | kAttentionLook)) != 0) {
    const u64 now = os::coarse_milliseconds();
    if (options.stats_interval_ms > 0 && is_due(next_report_ms, now, options.stats_interval_ms)) write_report();
    if (options.pressure && is_due(next_pressure_ms, now, kPressurePeriodMs)) look_at_pressure();
    if ((why & kAttentionLook) != 0) end_forgotten_look(now);
    if (options.live_page && (next_page_ms == 0 || now >= next_page_ms)) {
      next_page_ms = now + kLivePagePeriodMs;
      refresh_live_page();
    }
  }
}

void act() {
  const u32 why = attention.load_relaxed();
  if (!attention_lock.try_lock()) return;
  act_locked(why);
  attention_lock.unlock();
  if ((why & kAttentionAsked) != 0) answer_request();
  // Starting a thread may allocate, so not under the lock.
  if ((why & kAttentionBackground) != 0) {
    attention.and_seq(~kAttentionBackground);
    start_background();
  }
}

// In the handler of a signal: at once if no lock stands in the way, else at the next slow path.
void report_in_signal() {
  if (!may_collect_here() || write_report() == EBUSY) attention.or_seq(kAttentionDump);
}
void on_signal(int) {
  if (!os::run_on_own_stack(report_in_signal)) attention.or_seq(kAttentionDump);
}

FREESTONE_AT_START void before_fork() {
  attention_lock.hold_for_fork();
  report_before_fork();
}
FREESTONE_AT_START void after_fork_in_parent() {
  report_after_fork_in_parent();
  attention_lock.release_after_fork();
}
void after_fork_in_child() {
  report_after_fork_in_child();
  attention_lock.reset_in_child();
  if (attention_lock.try_lock()) {  // else this thread forked while it had it
    next_page_ms = 0;
    attention_lock.unlock();
  }
  forget_request_in_child();
  forget_background();
  if (options.background_purge) attention.or_seq(kAttentionBackground);
}

FREESTONE_AT_START void install_signal() {
  const int wanted = static_cast<int>(options.stats_signal);
  if (wanted == installed_signal) return;
  const struct sigaction nothing = {};
  if (installed_signal != 0) sigaction(installed_signal, &nothing, nullptr);
  installed_signal = os::catch_signal("stats_signal", options.stats_signal, on_signal) ? wanted : 0;
}

__attribute__((constructor(102))) void on_load() {
  if (mode() != Mode::active) return;
  if (options.stats_print || options.prof || options.leak != 0 || options.stats_file[0] != '\0') os::keep_stderr();
  if (!cgroup_option_is_good())
    (Message() << "option cgroup: " << options.cgroup << " has no memory.max, memory.high or memory.pressure; "
               << "expected the folder of a control group")
        .write();
  if (options.limit_soft != 0 || options.limit_hard != 0) {
    if (!apply_limit_options())
      (Message() << "FREESTONE_CONF: limit_soft is above limit_hard; neither is in force").write();
  }
  apply_upkeep_options();
}

FREESTONE_AT_START __attribute__((destructor)) void on_exit() {
  if (mode() != Mode::active) return;
  stop_background();  // a search for leaks, which comes later, cannot stop it
  write_final_report();
}

}  // namespace

constinit const AttentionHook attention_hook = act;
constinit const ForkHooks upkeep_fork_hooks = {before_fork, after_fork_in_parent, after_fork_in_child};

FREESTONE_AT_START void apply_upkeep_options() {
  install_signal();
  const bool timer = options.stats_interval_ms > 0 || options.live_page || options.pressure;
  if (timer) {
    attention.or_seq(kAttentionTimer);
  } else {
    attention.and_seq(~kAttentionTimer);
  }
  // At once: a program that is idle takes no slow path.
  if (options.live_page) {
    refresh_live_page();
  } else {
    remove_live_page();
  }
  if (options.background_purge) {
    start_background();
  } else {
    stop_background();
  }
}

}  // namespace freestone
