/* recorder/control.h: the file that tells a dormant process which recording to join. */
#ifndef FREESTONE_RECORDER_CONTROL_H
#define FREESTONE_RECORDER_CONTROL_H

#include <stdint.h>

#define FSR_CONTROL_PREFIX "/dev/shm/freestone-record."

struct fsr_control {
  uint64_t magic;
  uint32_t pid;
  uint32_t request; /* rises after `path` is written */
  char path[4080];
};

#endif
