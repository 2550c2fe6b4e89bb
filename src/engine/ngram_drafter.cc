#include "engine/ngram_drafter.h"

#include <algorithm>

namespace quire::engine {

std::vector<TokenId> NgramDrafter::Continue(std::span<const TokenId> tokens, int count) {
  const auto size = static_cast<ptrdiff_t>(tokens.size());
  ptrdiff_t best_end = 0;  // of the occurrence: its continuation begins here
  ptrdiff_t best_length = 0;
  for (ptrdiff_t end = size - 1; end > 0 && best_length < kLongest; --end) {
    const ptrdiff_t longest = std::min<ptrdiff_t>(kLongest, end);
    ptrdiff_t length = 0;
    while (length < longest && tokens[end - 1 - length] == tokens[size - 1 - length]) ++length;
    if (length <= best_length) continue;
    best_length = length;
    best_end = end;
  }
  if (best_length == 0) return {};
  std::vector<TokenId> continuation;
  for (ptrdiff_t i = best_end; i < best_end + count; ++i) {
    continuation.push_back(i < size ? tokens[i] : continuation[i - size]);
  }
  return continuation;
}

void NgramDrafter::Propose(std::span<DraftJob* const> jobs) {
  for (DraftJob* job : jobs) {
    job->drafts = Continue(job->sequence->tokens, job->drafts_max);
  }
}

}  // namespace quire::engine
