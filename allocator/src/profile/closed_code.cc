// Room 14, profile: see closed_code.h.

#include "profile/closed_code.h"

#include <link.h>

#include <cstring>

#include "profile/profile.h"
#include "profile/python_names.h"

namespace freestone {

namespace {

struct NotedFrame {
  usize address;  // inside the call
  usize start;    // of the function
  usize image;    // where its library is loaded
  usize name_bytes;
  usize file_bytes;  // both with the final zero
};

// Loaded objects, in the loader's order.
struct Loaded {
  static constexpr usize kMax = 1024;
  usize first = 0;  // the loader's address of the first that counts
  bool counts = false;
  usize images[kMax];
  usize count = 0;

  bool has(usize image) const {
    for (usize i = 0; i < count; ++i) {
      if (images[i] == image) return true;
    }
    return false;
  }
};

usize image_of(const dl_phdr_info& object) {
  for (unsigned i = 0; i < object.dlpi_phnum; ++i) {
    if (object.dlpi_phdr[i].p_type == PT_LOAD)
      return round_down(object.dlpi_addr + object.dlpi_phdr[i].p_vaddr, os::page_bytes());
  }
  return 0;
}

int add_loaded(dl_phdr_info* object, usize, void* data) {
  auto& loaded = *static_cast<Loaded*>(data);
  loaded.counts = loaded.counts || object->dlpi_addr == loaded.first;
  if (loaded.counts && loaded.count < Loaded::kMax) loaded.images[loaded.count++] = image_of(*object);
  return 0;
}

}  // namespace

FREESTONE_NO_ANALYSIS bool profile_has_stacks() { return profile_store.has_sites(); }

ClosingCode::ClosingCode(const void* handle) {
  Loaded loaded;
  loaded.first = static_cast<const link_map*>(handle)->l_addr;  // libc's handles are these
  dl_iterate_phdr(add_loaded, &loaded);
  ProfileLock lock;
  const usize scratch = profile_store.scratch_start_locked();
  ProfileReport report;
  if (report.gather(false)) {
    for (unsigned i = 0; i < report.place_count; ++i) {
      Place& place = report.places[i];
      if (place.module != 0 && !loaded.has(report.modules[place.module - 1].image)) place.module = 0;
    }
    report.find_symbols();
    for (unsigned i = 0; i < report.place_count; ++i) {
      const Place& place = report.places[i];
      if (place.module == 0) continue;
      const Module& module = report.modules[place.module - 1];
      const char* const file = report.names + module.name;
      char name[512];
      usize length = place_name(report, place, name, sizeof name - 1);
      name[length++] = '\0';
      const usize start = place.function != 0 ? place.function : place.address;
      const NotedFrame frame = {place.address, start, module.image, length, std::strlen(file) + 1};
      if (!frames_.append(&frame, sizeof frame) || !frames_.append(name, frame.name_bytes) ||
          !frames_.append(file, frame.file_bytes))
        break;
    }
  }
  profile_store.release_scratch_locked(scratch);
}

void ClosingCode::finish() {
  Loaded loaded;
  loaded.counts = true;
  if (frames_.length() == 0) return;
  dl_iterate_phdr(add_loaded, &loaded);
  MemoryText changes;
  const char* const end = frames_.data() + (loaded.count < Loaded::kMax ? frames_.length() : 0);
  ProfileLock lock;
  for (const char* at = frames_.data(); at != end;) {
    NotedFrame frame;
    std::memcpy(&frame, at, sizeof frame);
    const char* const name = at + sizeof frame;
    at = name + frame.name_bytes + frame.file_bytes;
    if (loaded.has(frame.image)) continue;
    const usize named = closed_frame_locked(frame.start, frame.address, name, name + frame.name_bytes);
    const FrameChange change = {frame.address + 1, named};
    if (named == 0 || !changes.append(&change, sizeof change)) break;
  }
  profile_store.replace_frames_locked(reinterpret_cast<const FrameChange*>(changes.data()),
                                      changes.length() / sizeof(FrameChange));
  changes.release();
  frames_.release();
}

}  // namespace freestone
