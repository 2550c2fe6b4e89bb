// SuffixDrafter: what most often followed the longest ending of the text that came before, in the
// request's own text or in earlier outputs (after SuffixDecoding, 2411.04975).
//
// Owns a suffix automaton per running sequence, of its prompt and output, and, where outputs may be
// shared, automata of finished outputs per (salt, adapter): as with cached prefixes, who brings no
// salt shares with all others that bring none, and nobody else. Of each salt the newest outputs are
// kept, at most 2 * kTokensPerGeneration tokens, and of the salts the kSaltsMax used last. An
// automaton takes at most some 200 bytes per token.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "engine/drafter.h"
#include "engine/engine_options.h"
#include "engine/suffix_automaton.h"

namespace quire::engine {

class SuffixDrafter : public Drafter {
 public:
  static constexpr int kTokensPerGeneration = 1 << 15;
  static constexpr size_t kSaltsMax = 8;
  // Of a text it has not seen yet, read at a time: a long prompt must not hold up the others.
  static constexpr int kTokensPerStep = 2048;
  static constexpr int kMatchMax = 32;       // tokens of an ending looked for in earlier outputs
  static constexpr int kDraftsPerMatch = 4;  // tokens drafted per token of the ending
  // A draft ends where fewer than this share of the earlier texts went on as it does.
  static constexpr double kShareLeast = 0.1;

  explicit SuffixDrafter(OutputSharing sharing) : sharing_(sharing) {}

  std::string_view name() const override { return "suffix"; }
  void Propose(std::span<DraftJob* const> jobs) override;
  void Forget(const sched::Sequence& sequence, const sched::Request& request) override;

  size_t bytes() const;

 private:
  using Salt = std::pair<std::string, int>;  // cache_salt, adapter
  // Finished outputs of one salt: when the newer automaton is full the older one is forgotten.
  struct History {
    Salt salt;
    std::unique_ptr<SuffixAutomaton> newer;
    std::unique_ptr<SuffixAutomaton> older;
  };
  struct Own {
    SuffixAutomaton automaton;
    int tokens = 0;  // of the sequence, in the automaton
  };

  void ProposeOne(DraftJob& job);
  History* Find(const sched::Request& request);

  OutputSharing sharing_;
  std::unordered_map<int, Own> own_;  // by SequenceId
  std::list<History> histories_;      // used last first
};

}  // namespace quire::engine
