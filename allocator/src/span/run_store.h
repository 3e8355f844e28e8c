// Room 6, span: the store, where freed runs and slabs wait for the next that needs one of their length.
//
// An entry is a stretch of units that is in no bitmap, with the guard behind it, if it has one. An entry with memory
// counts as dirty (purge.h). It waits in a row for its length: no lock, no search. It becomes free units when the row
// is full, when nobody took it for half of the decay time, and before any clean unit is taken. In the hardened build it
// is zero, and waits in random places until later ones push it out; only then may it be taken. What finds no place any
// more is closed there if it has the length of a class run: it has addresses only, which serve that length for ever.
//
// In the hardened build a larger run is closed: it has addresses only, neither live nor charged, and faults. Its
// addresses wait in a ring, bounded in number and in bytes, and come back in the order in which they came, when others
// have taken their places. All of them come back when an allocation finds no room.
//
// RUNS-1  An entry is in one place, or in a register of the thread that puts it there or takes it out: by exchange, so
//         nobody else has it. The child of a fork loses what was in a register.
#pragma once

#include "policy/policy.h"
#include "region/guarding.h"
#include "region/region.h"

namespace freestone {

// Keeps a stretch of up to kSharedRunBytesMax that was in use and has memory, which is zero in the hardened build. What
// it pushes out becomes free units. False: there is no room for it, and the caller gives it back.
bool store_run(unsigned shard, UnitIndex first, usize units);
// An entry of this length, at a multiple of `alignment` units, with its tags as they were; kNoUnit when there is none.
UnitIndex take_stored_run(unsigned shard, usize units, usize alignment = 1);
// Whether entries may go before clean units are taken: then release_stored_runs.
bool has_stored_runs();
void release_stored_runs();
// What nobody took for half of the decay time becomes free units; cheap when there is none.
void age_stored_runs();
// Empties the store, the ring too.
void flush_stored_runs();
// Gives the addresses that serve one length to the free spans: when an allocation finds no room.
void release_retired_runs();

// Gives units back that may hold anything, with their guard. In the hardened build they first lose their memory and
// fault until they are taken again (HARD-2). If they then wait, it is in the ring.
void return_used_span(UnitIndex first, usize units, usize guard);
// The same for a block that the hardened build seals: it waits there whatever its length, with its tags, so that who
// uses it is told what it was.
void return_sealed_run(UnitIndex first, usize units);

}  // namespace freestone
