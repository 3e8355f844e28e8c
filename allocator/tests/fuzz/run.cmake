# cmake -DPROGRAM=.. -DSEEDS=.. -DFOUND=.. -P run.cmake: one run of a fuzz target. New inputs and what breaks go to
# FOUND.
set(length -runs=0)
if(DEFINED ENV{FREESTONE_FUZZ_SECONDS})
  set(length -max_total_time=$ENV{FREESTONE_FUZZ_SECONDS})
endif()
file(MAKE_DIRECTORY ${FOUND}/corpus ${FOUND}/crashes)
execute_process(COMMAND ${PROGRAM} ${length} -timeout=600 -rss_limit_mb=6000 -max_len=4096
  -print_final_stats=1 -artifact_prefix=${FOUND}/crashes/ ${FOUND}/corpus ${SEEDS} RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} ended with ${status}; the input is in ${FOUND}/crashes")
endif()
