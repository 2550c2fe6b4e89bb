# Compiler settings for every target. Kernels choose their instruction set per function
# (target attributes), so the build itself stays at the baseline and one binary runs everywhere.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Contraction would let the compiler fuse a*b+c where it likes, and sums would depend on inlining
# (DESIGN: numbers that do not move). Where a fused operation is wanted, std::fma says so.
add_compile_options(-ffp-contract=off)

add_library(quire_warnings INTERFACE)
target_compile_options(quire_warnings INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor
                                                -Wno-psabi)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 warns of overlapping copies inside std::string's operator+ (GCC bug 105651).
  target_compile_options(quire_warnings INTERFACE -Wno-restrict)
endif()
if(QUIRE_WERROR)
  target_compile_options(quire_warnings INTERFACE -Werror)
endif()

if(QUIRE_CHECKS)
  add_compile_definitions(QUIRE_CHECKS=1)
endif()

if(QUIRE_SANITIZE)
  add_compile_definitions(QUIRE_SANITIZED=1)
  add_compile_options(-fsanitize=${QUIRE_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${QUIRE_SANITIZE})
endif()
if(QUIRE_FUZZERS)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
