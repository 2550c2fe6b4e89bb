# quire_module(NAME DEPS ...): the folder src/NAME as the static library quire_NAME, with its tests
# (x_test.cc) in one binary NAME_test, its benchmarks (x_bench.cc) in NAME_bench and its libFuzzer
# targets (x_fuzz.cc) one binary each. main.cc becomes the executable `quire`.
#
# DEPS: other folders by their name, external targets with their namespace (fmt::fmt).
include(GoogleTest)

if(QUIRE_FUZZERS)
  add_custom_target(fuzzers)  # every libFuzzer target and nothing else
endif()

function(quire_module name)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  set(dir ${CMAKE_SOURCE_DIR}/src/${name})
  file(GLOB sources CONFIGURE_DEPENDS ${dir}/*.cc)
  set(tests ${sources})
  set(benches ${sources})
  set(fuzzers ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER benches INCLUDE REGEX "_bench\\.cc$")
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cc$")
  list(FILTER sources EXCLUDE REGEX "(_test|_bench|_fuzz|/main)\\.cc$")

  set(deps)
  foreach(dep IN LISTS ARG_DEPS)
    if(dep MATCHES "::")
      list(APPEND deps ${dep})
    else()
      list(APPEND deps quire_${dep})
    endif()
  endforeach()

  if(sources)
    add_library(quire_${name} STATIC ${sources})
    target_link_libraries(quire_${name} PUBLIC ${deps} PRIVATE quire_warnings)
    target_include_directories(quire_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  else()
    add_library(quire_${name} INTERFACE)
    target_link_libraries(quire_${name} INTERFACE ${deps})
    target_include_directories(quire_${name} INTERFACE ${CMAKE_SOURCE_DIR}/src)
  endif()

  if(EXISTS ${dir}/main.cc)
    add_executable(quire ${dir}/main.cc)
    target_link_libraries(quire PRIVATE quire_${name} quire_warnings)
  endif()
  if(tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE quire_${name} quire_warnings GTest::gmock
                                               GTest::gtest_main)
    gtest_discover_tests(${name}_test TEST_PREFIX ${name}. DISCOVERY_MODE PRE_TEST
                         WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
                         PROPERTIES TIMEOUT 600)
  endif()
  if(benches AND NOT QUIRE_SANITIZE)  # a sanitizer's figures say nothing
    add_executable(${name}_bench ${benches})
    target_link_libraries(${name}_bench PRIVATE quire_${name} quire_warnings
                                                benchmark::benchmark_main)
  endif()
  if(QUIRE_FUZZERS)
    foreach(fuzzer IN LISTS fuzzers)
      get_filename_component(target ${fuzzer} NAME_WE)
      add_executable(${target} ${fuzzer})
      target_link_libraries(${target} PRIVATE quire_${name} quire_warnings)
      target_link_options(${target} PRIVATE -fsanitize=fuzzer)
      add_dependencies(fuzzers ${target})
    endforeach()
  endif()
endfunction()
