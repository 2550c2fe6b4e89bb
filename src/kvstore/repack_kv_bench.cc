// What repacking a sequence costs after an eviction: 2,048 of 8,192 slots, chosen at random for
// each KV head, in one layer of Llama-3.1-8b's shape (8 KV heads of 128 channels).
#include <numeric>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "kvstore/cold_sequence.h"
#include "kvstore/repack_kv.h"

namespace quire::kvstore {
namespace {

using kernels::KvCodec;

constexpr int kKvHeads = 8;
constexpr int kSlots = 8192;
constexpr int kKept = 2048;

void BM_Repack(benchmark::State& state, KvCodec codec) {
  const int threads = static_cast<int>(std::thread::hardware_concurrency());
  const KvLayout layout =
      std::move(KvLayout::Create({kKvHeads, 128, {0}}, {codec, codec, 32})).value();
  // The target's blocks lie behind the source's. Both are whole residual groups.
  ColdSequence sequence(layout, kSlots + kKept, 1);
  std::vector<BlockTable> from(sequence.run().tables.begin(), sequence.run().tables.end());
  std::vector<BlockTable> to = from;
  from.front() = {0, from.front().frames.first(kSlots / 32)};
  to.front() = {0, to.front().frames.subspan(kSlots / 32, kKept / 32)};
  std::vector<int> kept;
  for (int head = 0; head < kKvHeads; ++head) {
    base::CounterRng rng(head, 1, 2);
    std::vector<int> slots(kSlots);
    std::iota(slots.begin(), slots.end(), 0);
    for (int i = 0; i < kKept; ++i) std::swap(slots[i], slots[i + rng.NextBelow(kSlots - i)]);
    std::sort(slots.begin(), slots.begin() + kKept);
    kept.insert(kept.end(), slots.begin(), slots.begin() + kKept);
  }
  KvRepacker repacker(layout, threads);
  base::ThreadTeam team(threads);
  for (auto _ : state) {
    repacker.Run(kernels::DefaultKernels(), sequence.store(),
                 {from, kSlots, to, {kept.data(), kKvHeads, kKept}}, team);
  }
  state.counters["tokens/s"] =
      benchmark::Counter(kKept, benchmark::Counter::kIsIterationInvariantRate);
}

const bool kRegistered = [] {
  for (KvCodec codec : kernels::kAllKvCodecs) {
    benchmark::RegisterBenchmark(fmt::format("repack/{}", kernels::Name(codec)).c_str(), BM_Repack,
                                 codec)
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond);
  }
  return true;
}();

}  // namespace
}  // namespace quire::kvstore
