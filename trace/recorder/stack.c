#include "recorder/stack.h"

#include <execinfo.h>

enum { kMostFrames = 48, kOwnFrames = 3 };

FSR_LOCAL void fsr_stack_prepare(void) {
  void* frame;
  backtrace(&frame, 1);
}

FSR_LOCAL void fsr_stack_record(struct fsr_thread* self) {
  void* frames[kMostFrames];
  const int found = backtrace(frames, kMostFrames);
  const unsigned count = found > kOwnFrames ? (unsigned)(found - kOwnFrames) : 0;
  if (count == 0 || self->cursor + (count + 1) * kEventBytes > self->end) return;
  for (unsigned i = 0; i <= count; i++) {
    const uintptr_t place = fsr_reserve(self, &self->end);
    if (!place) return;
    if (i == 0)
      fsr_store(place, kRawStack, 0, 0, count, fsr_ticks());
    else
      fsr_store(place, kRawFrame, 0, (uintptr_t)frames[kOwnFrames + i - 1] & 0xffffffffffffull, 0, fsr_ticks());
  }
}
