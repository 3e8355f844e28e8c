// Room 5, region: see account.h.

#include "region/account.h"

#include "platform/child.h"

namespace freestone {

constinit Account account;
constinit Atomic<u32> attention;
// The name by which another process finds it, to ask something.
extern "C" FREESTONE_EXPORT Atomic<u32> freestone_attention __attribute__((alias("_ZN9freestone9attentionE")));
constinit Atomic<u32> pressure_epoch;
FREESTONE_THREAD_LOCAL usize bytes_ahead;

namespace {

// No order is needed: the account is a single number and publishes no other memory.
void note_raised(usize now) {
  usize peak = account.peak.load_relaxed();
  while (now > peak && !account.peak.replace_acquire(peak, now)) {
  }
  if (FREESTONE_UNLIKELY(now > account.soft.load_relaxed())) {
    account.soft_crossings.add_relaxed(1);
    attention.or_seq(kAttentionSoftLimit);
  }
}

}  // namespace

// A thread is ahead before it charges and until it has uncharged: a signal handler that forks in between leaves the
// child with too much charged rather than too little.
bool charge_ahead(usize bytes) {
  settle_child();
  note_out_of_force(bytes);
  order_stores();
  usize now = account.charged.load_relaxed();
  do {
    const usize hard = account.hard.load_relaxed();
    if (FREESTONE_UNLIKELY(bytes > hard || now > hard - bytes)) {
      account.refused_charges.add_relaxed(1);
      note_in_force(bytes);
      return false;
    }
    FREESTONE_CHECK("ACCOUNT-2", now + bytes >= now && now + bytes <= hard);
  } while (!account.charged.replace_acquire(now, now + bytes));
  return true;
}

void confirm_charge() { note_raised(account.charged.load_relaxed()); }

bool charge(usize bytes) {
  if (!charge_ahead(bytes)) return false;
  confirm_charge();
  return true;
}

void charge_anyway(usize bytes) {
  settle_child();
  note_out_of_force(bytes);
  order_stores();
  note_raised(account.charged.fetch_add_relaxed(bytes) + bytes);
}

void uncharge(usize bytes) {
  settle_child();
  FREESTONE_CHECK("ACCOUNT-1", account.charged.load_relaxed() >= bytes);
  account.charged.sub_relaxed(bytes);
  order_stores();
  note_in_force(bytes);
}

void recount_charged(usize in_force) { account.charged.store_relaxed(in_force + bytes_ahead); }

}  // namespace freestone
