#include "server/tool_call_scanner.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

#include <boost/json.hpp>
#include <boost/json/basic_parser_impl.hpp>

#include "server/tool_call_format.h"

namespace quire::server {
namespace json = boost::json;
namespace {

// Deeper arguments are malformed: a resumed parser pays for each level at every byte.
constexpr size_t kJsonDepthMax = 64;

constexpr std::array<std::string_view, 5> kBareCallKeys = {"name", "parameters", "arguments", "id",
                                                           "type"};

bool IsJsonObject(std::string_view text) {
  json::error_code error;
  const json::value value = json::parse(text, error);
  return !error && value.is_object();
}

// Receives the parser's events. Depth 1 is where the members of a call lie.
class Events {
 public:
  static constexpr size_t max_array_size = std::numeric_limits<size_t>::max();
  static constexpr size_t max_object_size = max_array_size;
  static constexpr size_t max_string_size = max_array_size;
  static constexpr size_t max_key_size = max_array_size;

  using Error = json::error_code;
  using Arguments = ToolCallScanner::Arguments;
  using Shape = ToolCallScanner::Shape;

  explicit Events(Shape shape)
      : shape_(shape), member_(shape == Shape::kArguments ? Member::kArguments : Member::kOther) {}

  bool on_document_begin(Error&) { return true; }
  bool on_document_end(Error&) { return true; }

  bool on_object_begin(Error&) {
    if (depth_ == arguments_depth() && member_ == Member::kArguments) {
      arguments = Arguments::kOpen;
    } else if (IsMember() && member_ == Member::kName) {
      broken = true;
    }
    ++depth_;
    return true;
  }
  bool on_object_end(size_t, Error&) {
    --depth_;
    if (arguments == Arguments::kOpen && depth_ == arguments_depth()) {
      arguments = Arguments::kClosed;
    }
    done = depth_ == 0;
    return true;
  }
  bool on_array_begin(Error& error) {
    Scalar(error);
    ++depth_;
    return true;
  }
  bool on_array_end(size_t, Error&) {
    --depth_;
    return true;
  }

  bool on_key_part(json::string_view part, size_t, Error&) {
    if (!IsMember()) return true;
    text.append(part.data(), part.size());
    if (shape_ == Shape::kBareCall) {
      broken = std::none_of(kBareCallKeys.begin(), kBareCallKeys.end(),
                            [&](std::string_view key) { return key.starts_with(text); });
    }
    return true;
  }
  bool on_key(json::string_view part, size_t size, Error& error) {
    if (!IsMember()) return true;
    on_key_part(part, size, error);
    const bool is_bare_key = std::count(kBareCallKeys.begin(), kBareCallKeys.end(), text) != 0;
    if (shape_ == Shape::kBareCall && !is_bare_key) broken = true;
    // A name or arguments said twice: the first ones are out already.
    const bool is_arguments = text == "arguments" || text == "parameters";
    member_ = Member::kOther;
    if (text == "name" && name.empty()) member_ = Member::kName;
    if (is_arguments && arguments == Arguments::kNone) member_ = Member::kArguments;
    text.clear();
    return true;
  }

  bool on_string_part(json::string_view part, size_t, Error&) {
    if (!IsMember() || member_ == Member::kOther) return true;
    text.append(part.data(), part.size());
    if (member_ == Member::kName && !text.empty() && !IsToolName(text)) broken = true;
    return true;
  }
  bool on_string(json::string_view part, size_t size, Error& error) {
    if (!IsMember() || member_ == Member::kOther) return true;
    on_string_part(part, size, error);
    if (member_ == Member::kName) {
      name = std::move(text);
      broken = broken || name.empty();
    } else if (IsJsonObject(text)) {
      text_arguments = std::move(text);
      arguments = Arguments::kText;
    } else {
      broken = true;
    }
    text.clear();
    return true;
  }

  bool on_number_part(json::string_view, Error&) { return true; }
  bool on_int64(int64_t, json::string_view, Error& error) { return Scalar(error); }
  bool on_uint64(uint64_t, json::string_view, Error& error) { return Scalar(error); }
  bool on_double(double, json::string_view, Error& error) { return Scalar(error); }
  bool on_bool(bool, Error& error) { return Scalar(error); }
  bool on_null(Error& error) {
    if (!IsMember() || member_ != Member::kArguments) return Scalar(error);
    arguments = Arguments::kNull;
    return true;
  }
  bool on_comment_part(json::string_view, Error&) { return true; }
  bool on_comment(json::string_view, Error&) { return true; }

  bool broken = false;
  bool done = false;
  std::string name;
  std::string text;  // the key, the name or the text of arguments under way
  std::string text_arguments;
  Arguments arguments = Arguments::kNone;

 private:
  enum class Member { kName, kArguments, kOther };

  // A value that neither a name nor arguments can be.
  bool Scalar(Error&) {
    if (IsMember() && member_ != Member::kOther) broken = true;
    return true;
  }
  bool IsMember() const { return shape_ != Shape::kArguments && depth_ == 1; }
  int arguments_depth() const { return shape_ == Shape::kArguments ? 0 : 1; }

  Shape shape_;
  Member member_;
  int depth_ = 0;
};

json::parse_options ParseOptions() {
  json::parse_options options;
  options.max_depth = kJsonDepthMax;
  return options;
}

}  // namespace

struct ToolCallScanner::State {
  explicit State(Shape shape) : parser(ParseOptions(), shape) {}
  json::basic_parser<Events> parser;
};

ToolCallScanner::ToolCallScanner(Shape shape) : state_(std::make_unique<State>(shape)) {}
ToolCallScanner::~ToolCallScanner() = default;
ToolCallScanner::ToolCallScanner(ToolCallScanner&&) noexcept = default;
ToolCallScanner& ToolCallScanner::operator=(ToolCallScanner&&) noexcept = default;

bool ToolCallScanner::Write(char byte) {
  json::error_code error;
  const size_t used = state_->parser.write_some(true, &byte, 1, error);
  return !error && used == 1 && !state_->parser.handler().broken;
}

bool ToolCallScanner::done() const {
  return state_->parser.handler().done;
}
const std::string& ToolCallScanner::name() const {
  return state_->parser.handler().name;
}
ToolCallScanner::Arguments ToolCallScanner::arguments() const {
  return state_->parser.handler().arguments;
}
const std::string& ToolCallScanner::text_arguments() const {
  return state_->parser.handler().text_arguments;
}

NamedCallHead::Step NamedCallHead::Write(char byte) {
  const bool in_gap = part_ == Part::kName || part_ == Part::kGap;
  if (in_gap && !name_.empty() && byte == '{') return Step::kArguments;
  switch (part_) {
    case Part::kName:
      if (IsToolNameByte(byte) && name_.size() < kToolNameBytesMax) {
        name_ += byte;
        return Step::kMore;
      }
      if (name_.empty()) return Step::kBroken;
      [[fallthrough]];
    case Part::kGap:
      if (byte == ' ' || byte == '\n') {
        part_ = Part::kGap;
        return Step::kMore;
      }
      return byte == '[' ? WriteTag(byte) : Step::kBroken;
    case Part::kTag:
      return WriteTag(byte);
    case Part::kId:
      if (byte == '[') return WriteTag(byte);
      return IsToolNameByte(byte) ? Step::kMore : Step::kBroken;
  }
  return Step::kBroken;
}

NamedCallHead::Step NamedCallHead::WriteTag(char byte) {
  part_ = Part::kTag;
  tag_ += byte;
  if (!kMistralCallId.starts_with(tag_) && !kMistralArguments.starts_with(tag_))
    return Step::kBroken;
  if (tag_ == kMistralCallId || tag_ == kMistralArguments) {
    part_ = tag_ == kMistralCallId ? Part::kId : Part::kGap;
    tag_.clear();
  }
  return Step::kMore;
}

}  // namespace quire::server
