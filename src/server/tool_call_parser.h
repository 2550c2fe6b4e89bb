// ToolCallParser: finds the calls of tools in a model's text while it is being written.
//
// Text goes in as it is decoded; content, starts of calls and pieces of arguments come out. Used by
// whoever answers one choice of one request; one thread at a time. What always holds:
// - Any division of a text into pieces gives the same content, calls and arguments.
// - The pieces of a call's arguments together are the JSON that the model wrote, byte for byte.
//   (Arguments written as a string that holds an object are unescaped; absent ones become {}.)
// - A text without calls comes out unchanged. Of a text with calls everything comes out but the
//   calls' own syntax and the white space beside them; what turns out to be no call is content, and
//   so is what follows the first malformed byte of arguments under way.
// - Held back is only what may still become a call, and white space: at most 1 MiB of each. Time is
//   linear.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/tool_call_format.h"
#include "server/tool_call_scanner.h"
#include "text/stop_matcher.h"

namespace quire::server {

struct ContentDelta {
  std::string text;
  bool operator==(const ContentDelta&) const = default;
};

// A call begins. Calls are numbered from 0 and never overlap.
struct CallStartDelta {
  int index = 0;
  std::string id;
  std::string name;
  bool operator==(const CallStartDelta&) const = default;
};

// More of the arguments of call `index`, the latest one.
struct ArgumentsDelta {
  int index = 0;
  std::string text;
  bool operator==(const ArgumentsDelta&) const = default;
};

using ToolDelta = std::variant<ContentDelta, CallStartDelta, ArgumentsDelta>;

// The id of the call `index` in the answer that `seed` stands for: "call_" and 24 hex digits.
std::string ToolCallId(uint64_t seed, int index);

class ToolCallParser {
 public:
  // `id_seed`: whence the calls' ids come; one per choice of a request.
  ToolCallParser(ToolCallFormat format, uint64_t id_seed);

  std::vector<ToolDelta> Feed(std::string_view text);

  // The text is over, whether the model ended it or a limit did. Nothing may be fed after it.
  std::vector<ToolDelta> Finish();

  int calls() const { return calls_; }

 private:
  enum class State {
    kContent,    // no marker met
    kOpened,     // after a marker
    kList,       // after a marker and "["
    kHead,       // Mistral: in the name before the arguments
    kCall,       // in a call's object, or in the arguments after a head
    kAfterCall,  // between calls, or behind the last one
  };

  // Each takes one byte, or returns false after a change of state: the byte is then for that state.
  bool Take(char byte);
  bool TakeContent(char byte);
  bool TakeOpened(char byte);
  bool TakeHead(char byte);
  bool TakeCall(char byte);
  bool TakeAfterCall(char byte);

  void BeginCall(ToolCallScanner::Shape shape);
  void EndCall();
  void Announce(const std::string& name);
  bool GiveUp();  // what is held back was no call

  void EmitContent(std::string_view text);
  void EmitSpace();
  void AppendContent(std::string_view text);
  void EmitArguments(std::string_view text);

  ToolCallFormat format_;
  uint64_t id_seed_;
  std::vector<std::string> markers_;
  text::StopStrings marker_strings_;
  text::StopMatcher matcher_;

  State state_ = State::kContent;
  std::string held_;       // what is content if this is no call; after arguments, what follows them
  std::string space_;      // white space behind the content, dropped if a call follows
  std::string arguments_;  // of the call under way, until its name is known
  NamedCallHead head_;
  std::optional<ToolCallScanner> scanner_;
  bool announced_ = false;  // the call under way has started for the client
  bool in_list_ = false;
  bool awaits_close_ = false;  // a call came and its closing marker did not
  bool has_content_ = false;
  int calls_ = 0;
  std::vector<ToolDelta> deltas_;
};

}  // namespace quire::server
