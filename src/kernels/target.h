// Instruction-set regions. The build's baseline stays portable; code between BEGIN and END may use
// the named extensions and must only be reached through the kernel table.
//
// Include every header before BEGIN: a standard inline function compiled inside a region could be
// picked by the linker for the whole program.
#pragma once

#define QUIRE_PRAGMA_(text) _Pragma(#text)

#if defined(__x86_64__)
// g++ 12 takes the deliberately undefined registers of its own AVX-512 header for mistakes.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop
#define QUIRE_HAVE_X86 1
#if defined(__clang__)
#define QUIRE_TARGET_BEGIN_(features) \
  QUIRE_PRAGMA_(clang attribute push(__attribute__((target(features))), apply_to = function))
#define QUIRE_TARGET_END QUIRE_PRAGMA_(clang attribute pop)
#else
#define QUIRE_TARGET_BEGIN_(features) \
  QUIRE_PRAGMA_(GCC push_options)     \
  QUIRE_PRAGMA_(GCC target(features))
#define QUIRE_TARGET_END QUIRE_PRAGMA_(GCC pop_options)
#endif
#define QUIRE_TARGET_BEGIN_AVX2 QUIRE_TARGET_BEGIN_("avx2,fma,f16c")
#define QUIRE_TARGET_BEGIN_AVX512 \
  QUIRE_TARGET_BEGIN_("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")
#endif

#if defined(__aarch64__)
#include <arm_neon.h>
#define QUIRE_HAVE_NEON 1
#endif
