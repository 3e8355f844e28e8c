# The time limits of tests are those of a quiet machine. They only end what hangs, so a busy or slow machine gets twenty
# times as long. And what is set for the library, for GoogleTest or for a language, where ctest is started, reaches no
# test. Included by each folder that adds tests; works when the folder's own file has ended.
#
# What only `freestone test --all` runs has the label `all`: what takes seconds of processor time or waits for them, of
# each kind all but the cases that find most for their time.
set(only_all
  "^musl|^packaging[.]packages|^packaging[.]blank|^torture[.](pages[.]refused|draw|found)|^explore[.]ground|^preload[.](programs[.](redis|gcc|git|nginx|sshd|perl|node)|surface|interposed)"
  "^fault[.](refused_purge|filters|states|used_up|addresses_largeruns|enumerated_older_kernel)|_kernel_4_18"
  "^fault[.](resource_limits|syscalls)[.]hardened|^stress[.](fork_held|stack_end|fork_handlers[.](freestone|hardened))"
  "^footprint[.](mappings|regrowth)|^structure[.]mitigations_"
  "^sampling[.](estimates|sampling_cost|unchanged)")
list(JOIN only_all "|" only_all)
function(be_patient)
  get_property(tests DIRECTORY PROPERTY TESTS)
  foreach(test IN LISTS tests)
    get_test_property(${test} TIMEOUT limit)
    if(limit)
      math(EXPR limit "20 * ${limit}")
      set_tests_properties(${test} PROPERTIES TIMEOUT ${limit})
    endif()
    if(test MATCHES "${only_all}")
      set_property(TEST ${test} APPEND PROPERTY LABELS all)
    endif()
    get_test_property(${test} ENVIRONMENT own)
    set(changes LC_ALL=set:C.UTF-8)
    foreach(name FREESTONE_CONF FREESTONE_DISABLE FREESTONE_RECORD GTEST_FILTER LANGUAGE MALLOC_PERTURB_ TZ)
      if(NOT own MATCHES "(^|;)${name}=")
        list(APPEND changes ${name}=unset:)
      endif()
    endforeach()
    set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT_MODIFICATION ${changes})
  endforeach()
endfunction()
cmake_language(DEFER CALL be_patient)
