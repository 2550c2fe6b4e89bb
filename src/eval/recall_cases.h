// Recall cases: contexts with facts hidden in them, and the questions that ask for them.
//
// A fact is two tokens that stand together once in the context, a key and its answer; asked with
// the key at the end of the context, a model that remembers says the answer. As JSON lines:
//
//   {"context": [1, 749, ...], "questions": [[622, 2534, 54], ...]}
//
// `questions` has [key id, answer id, position of the key in the context]. The context is used as
// it is, BOS included.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/tokenizer.h"

namespace quire::eval {

struct RecallQuestion {
  TokenId key = 0;
  TokenId answer = 0;
  int position = 0;  // of the key in the context
  friend bool operator==(const RecallQuestion&, const RecallQuestion&) = default;
};

struct RecallCase {
  std::vector<TokenId> context;
  std::vector<RecallQuestion> questions;
  friend bool operator==(const RecallCase&, const RecallCase&) = default;
};

// kInvalid names the line at fault (`path` is for the message): no JSON, a member that is missing
// or of another kind, an id outside the vocabulary, a question whose fact is not where it says.
Result<std::vector<RecallCase>> ParseRecallCases(std::string_view text, std::string_view path,
                                                 int vocab_size);
std::string FormatRecallCases(std::span<const RecallCase> cases);

struct RecallMaker {
  std::vector<int> lengths = {250, 500, 1000};  // of contexts, in tokens
  int cases = 8;                                // of each length
  int facts = 10;                               // in a context, spread over all depths
  uint64_t seed = 1;
  // Keys and answers come from these; without any, from all words of four letters or more.
  std::vector<RecallCase> like = {};
};

// Contexts of passages of `filler` with facts ". key answer." in equal distances. Keys and answers
// are words that are one token, all different and none in the passage. kUsage if the filler is
// shorter than a context or there are too few such words.
Result<std::vector<RecallCase>> MakeRecallCases(const text::Tokenizer& tokenizer,
                                                std::string_view filler, const RecallMaker& maker);

}  // namespace quire::eval
