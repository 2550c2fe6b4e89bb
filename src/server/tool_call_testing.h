// What a client makes of the deltas of a ToolCallParser; for tests and fuzzers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "server/tool_call_parser.h"

namespace quire::server {

struct AnswerCall {
  std::string id;
  std::string name;
  std::string arguments;
  bool operator==(const AnswerCall&) const = default;
};

struct Answer {
  std::string content;
  std::vector<AnswerCall> calls;
  bool operator==(const Answer&) const = default;
};

inline void AddDeltas(const std::vector<ToolDelta>& deltas, Answer& answer) {
  for (const ToolDelta& delta : deltas) {
    if (const auto* content = std::get_if<ContentDelta>(&delta)) {
      answer.content += content->text;
    } else if (const auto* start = std::get_if<CallStartDelta>(&delta)) {
      QUIRE_CHECK(start->index == static_cast<int>(answer.calls.size()));
      answer.calls.push_back({start->id, start->name, ""});
    } else {
      const auto& arguments = std::get<ArgumentsDelta>(delta);
      QUIRE_CHECK(arguments.index + 1 == static_cast<int>(answer.calls.size()));
      answer.calls.back().arguments += arguments.text;
    }
  }
}

inline Answer ParseToolCalls(ToolCallFormat format, const std::vector<std::string_view>& pieces) {
  ToolCallParser parser(format, 1);
  Answer answer;
  for (const std::string_view piece : pieces) AddDeltas(parser.Feed(piece), answer);
  AddDeltas(parser.Finish(), answer);
  return answer;
}

}  // namespace quire::server
