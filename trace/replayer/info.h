// replayer/info.h: prints what is in a trace as one line of JSON, for `freestone trace info`.
#pragma once

#include "format/file_reader.h"

namespace freestone::trace {

void print_info(const TraceFile& trace);

}  // namespace freestone::trace
