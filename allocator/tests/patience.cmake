# The time limits of tests are those of a quiet machine. They only end what hangs, so a busy or slow machine gets twenty
# times as long. Included by each folder that adds tests; works when the folder's own file has ended.
function(be_patient)
  get_property(tests DIRECTORY PROPERTY TESTS)
  foreach(test IN LISTS tests)
    get_test_property(${test} TIMEOUT limit)
    if(limit)
      math(EXPR limit "20 * ${limit}")
      set_tests_properties(${test} PROPERTIES TIMEOUT ${limit})
    endif()
  endforeach()
endfunction()
cmake_language(DEFER CALL be_patient)
