// Room 10, insight: see profile.h.

#include "front/sampled.h"

namespace freestone {

namespace {
void start() {}
}  // namespace

constinit const StartObservers start_observers = start;

}  // namespace freestone
