/* recorder/stack.h: sampled call stacks, with --stacks only. */
#ifndef FREESTONE_RECORDER_STACK_H
#define FREESTONE_RECORDER_STACK_H

#include "recorder/thread.h"

/* Loads everything that unwinding needs, so that later calls load nothing. */
FSR_LOCAL void fsr_stack_prepare(void);

/* Stores the caller's stack behind the last event. */
FSR_LOCAL void fsr_stack_record(struct fsr_thread* self);

#endif
