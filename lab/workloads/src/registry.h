// All workloads, in the order in which `list` shows them.
#pragma once

#include "params.h"

namespace workload {

extern const Workload kThroughput, kBurst, kPair, kLatency, kOverhead, kOverheadPoint, kRss, kLifetimes, kRing, kBatch,
    kMicro, kLarson, kCfracLike, kCross, kChurn, kRealloc, kAligned, kLarge, kPhases, kStartup, kNothing,
    kFragmentation, kFalseSharing, kCalls, kGrowShrink, kDrift, kIdleThreads, kServer, kReuse, kAddresses;

inline const Workload* const kWorkloads[] = {
    &kThroughput, &kBurst, &kPair,        &kLatency, &kOverhead,  &kOverheadPoint, &kRss,          &kLifetimes,
    &kRing,       &kBatch, &kMicro,       &kLarson,  &kCfracLike, &kCross,         &kChurn,        &kRealloc,
    &kAligned,    &kLarge, &kPhases,      &kStartup, &kNothing,   &kFragmentation, &kFalseSharing, &kCalls,
    &kGrowShrink, &kDrift, &kIdleThreads, &kServer,  &kReuse,     &kAddresses};

}  // namespace workload
