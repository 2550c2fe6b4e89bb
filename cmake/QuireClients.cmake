# Tests of `quire serve` with the clients that people use (clients/NAME.test.mjs), each a test
# clients.NAME. The first one, clients.setup, installs the clients into the build folder; where it
# cannot, it says why, and all are skipped.
set(clients_source ${CMAKE_SOURCE_DIR}/clients)
set(clients_folder ${CMAKE_BINARY_DIR}/clients)

add_test(NAME clients.setup COMMAND ${clients_source}/setup.sh ${clients_folder})
set_tests_properties(clients.setup PROPERTIES FIXTURES_SETUP clients SKIP_RETURN_CODE 77
                                              TIMEOUT 600)

file(GLOB client_tests CONFIGURE_DEPENDS ${clients_source}/*.test.mjs)
foreach(path IN LISTS client_tests)
  get_filename_component(name ${path} NAME)
  string(REPLACE ".test.mjs" "" name ${name})
  add_test(NAME clients.${name} COMMAND ${clients_source}/run.sh ${clients_folder} ${name})
  set_tests_properties(clients.${name} PROPERTIES
    FIXTURES_REQUIRED clients
    SKIP_RETURN_CODE 77
    TIMEOUT 600
    ENVIRONMENT "QUIRE_BINARY=$<TARGET_FILE:quire>")
endforeach()
