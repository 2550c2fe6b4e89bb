// StopMatcher: ends a text at the first stop string in it, wherever tokens cut it.
//
// Text goes in as it is decoded; what comes out is safe to send: the longest end of the text that
// could still become a stop string is held back, no more, and nothing from a stop string on comes
// out. Of several stop strings the one that is complete first ends the text; of those complete at
// the same byte, the longest. Time is linear in the text. A copy is a snapshot, and small: the text
// held back is shorter than the longest stop string.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quire::text {

// Stop strings, compiled (Aho and Corasick, 1975). Immutable; copies share them.
class StopStrings {
 public:
  // At most 64 KiB together, none empty. No strings: nothing ever matches.
  static Result<StopStrings> Create(const std::vector<std::string>& strings);

 private:
  friend class StopMatcher;
  struct Automaton;
  explicit StopStrings(std::shared_ptr<const Automaton> automaton)
      : automaton_(std::move(automaton)) {}

  std::shared_ptr<const Automaton> automaton_;
};

enum class StopText { kExclude, kInclude };  // whether the stop string itself comes out

class StopMatcher {
 public:
  explicit StopMatcher(StopStrings strings, StopText stop_text = StopText::kExclude)
      : strings_(std::move(strings)), stop_text_(stop_text) {}

  // Appends to `out` what of the text so far is certain to be sent. False once a stop string has
  // been met: from then on nothing comes out.
  bool Append(std::string_view text, std::string& out);

  // Text in which stop strings do not count (as before a minimum number of tokens): comes out at
  // once, after what was held back, and is no part of a later stop string.
  void Pass(std::string_view text, std::string& out);

  // No text follows: what is held back comes out.
  void Finish(std::string& out);

  bool stopped() const { return stopped_at_.has_value(); }
  // Which of the strings given to Create ended the text.
  std::optional<int> stopped_at() const { return stopped_at_; }

 private:
  StopStrings strings_;
  StopText stop_text_;
  int state_ = 0;     // of the automaton: the longest end of the text that starts a stop string
  std::string held_;  // that end
  std::optional<int> stopped_at_;
};

}  // namespace quire::text
