#include "server/tool_call_parser.h"

#include <utility>

#include "base/rng.h"

namespace quire::server {
namespace {

using Arguments = ToolCallScanner::Arguments;
using Shape = ToolCallScanner::Shape;

constexpr size_t kHeldBytesMax = 1 << 20;
constexpr std::string_view kSpaces = " \t\r\n";

bool IsSpace(char byte) {
  return kSpaces.find(byte) != kSpaces.npos;
}

std::vector<std::string> Markers(ToolCallFormat format) {
  std::vector<std::string_view> markers;
  switch (format) {
    case ToolCallFormat::kHermes:
      markers = {kHermesOpen, kHermesClose};
      break;
    case ToolCallFormat::kLlama3:
      markers = {kLlama3Open, "{"};
      break;
    case ToolCallFormat::kMistral:
      markers = {kMistralOpen};
      break;
    case ToolCallFormat::kGranite:
      markers = {kGraniteOpen, kHermesOpen, kHermesClose};
      break;
  }
  return {markers.begin(), markers.end()};
}

}  // namespace

std::string ToolCallId(uint64_t seed, int index) {
  base::CounterRng rng(seed, 0, static_cast<uint64_t>(index));
  const uint64_t high = rng.NextU64() >> 32;
  const uint64_t low = rng.NextU64();
  return fmt::format("call_{:08x}{:016x}", high, low);
}

ToolCallParser::ToolCallParser(ToolCallFormat format, uint64_t id_seed)
    : format_(format),
      id_seed_(id_seed),
      markers_(Markers(format)),
      marker_strings_(text::StopStrings::Create(markers_).value()),
      matcher_(marker_strings_) {}

std::vector<ToolDelta> ToolCallParser::Feed(std::string_view text) {
  for (const char byte : text) {
    while (!Take(byte)) {
    }
  }
  return std::exchange(deltas_, {});
}

std::vector<ToolDelta> ToolCallParser::Finish() {
  if (state_ == State::kContent) {
    std::string rest;
    matcher_.Finish(rest);
    const bool is_close = awaits_close_ && kHermesClose.starts_with(rest);
    if (!is_close) EmitContent(rest);
  } else if (state_ != State::kAfterCall && !announced_) {
    EmitContent(held_);
  }
  if (calls_ == 0) EmitSpace();
  return std::exchange(deltas_, {});
}

bool ToolCallParser::Take(char byte) {
  switch (state_) {
    case State::kContent:
      return TakeContent(byte);
    case State::kOpened:
    case State::kList:
      return TakeOpened(byte);
    case State::kHead:
      return TakeHead(byte);
    case State::kCall:
      return TakeCall(byte);
    case State::kAfterCall:
      return TakeAfterCall(byte);
  }
  return true;
}

bool ToolCallParser::TakeContent(char byte) {
  std::string content;
  const bool met_marker = !matcher_.Append({&byte, 1}, content);
  EmitContent(content);
  if (!met_marker) return true;
  const std::string& marker = markers_[static_cast<size_t>(*matcher_.stopped_at())];
  matcher_ = text::StopMatcher(marker_strings_);
  if (marker == kHermesClose) {
    if (!awaits_close_) EmitContent(marker);
    awaits_close_ = false;
    return true;
  }
  if (marker == "{") {
    BeginCall(Shape::kBareCall);
    return false;
  }
  held_ = marker;
  state_ = State::kOpened;
  return true;
}

bool ToolCallParser::TakeOpened(char byte) {
  const bool is_llama = format_ == ToolCallFormat::kLlama3;
  if (byte == '{') {
    BeginCall(is_llama ? Shape::kBareCall : Shape::kCall);
    return false;
  }
  if (IsSpace(byte) && held_.size() < kHeldBytesMax) {
    held_ += byte;
    return true;
  }
  if (state_ == State::kList || is_llama) return GiveUp();
  if (byte == '[') {
    held_ += byte;
    in_list_ = true;
    state_ = State::kList;
    return true;
  }
  if (format_ == ToolCallFormat::kMistral && IsToolNameByte(byte)) {
    head_ = NamedCallHead();
    state_ = State::kHead;
    return false;
  }
  return GiveUp();
}

bool ToolCallParser::TakeHead(char byte) {
  if (held_.size() == kHeldBytesMax) return GiveUp();
  switch (head_.Write(byte)) {
    case NamedCallHead::Step::kMore:
      held_ += byte;
      return true;
    case NamedCallHead::Step::kBroken:
      return GiveUp();
    case NamedCallHead::Step::kArguments:
      BeginCall(Shape::kArguments);
      Announce(head_.name());
      return false;
  }
  return true;
}

void ToolCallParser::BeginCall(Shape shape) {
  scanner_.emplace(shape);
  announced_ = false;
  arguments_.clear();
  state_ = State::kCall;
}

bool ToolCallParser::TakeCall(char byte) {
  const Arguments before = scanner_->arguments();
  if (!scanner_->Write(byte)) {
    if (!announced_) return GiveUp();
    state_ = State::kAfterCall;
    return false;
  }
  const Arguments now = scanner_->arguments();
  const bool in_arguments = before == Arguments::kOpen || now == Arguments::kOpen;
  if (in_arguments) arguments_ += byte;
  if (now == Arguments::kText && before != now) arguments_ = scanner_->text_arguments();
  if (!announced_ || !in_arguments) held_ += byte;
  if (!announced_ && !scanner_->name().empty() && !arguments_.empty()) Announce(scanner_->name());
  if (announced_) EmitArguments(std::exchange(arguments_, {}));
  if (scanner_->done()) {
    EndCall();
  } else if (held_.size() > kHeldBytesMax) {
    GiveUp();
  }
  return true;
}

// At a call's closing brace.
void ToolCallParser::EndCall() {
  if (!announced_) {
    const bool may_lack_arguments =
        format_ != ToolCallFormat::kLlama3 || scanner_->arguments() == Arguments::kNull;
    if (scanner_->name().empty() || !may_lack_arguments) {
      GiveUp();
      return;
    }
    Announce(scanner_->name());
    EmitArguments("{}");
  }
  held_.clear();
  state_ = State::kAfterCall;
}

bool ToolCallParser::TakeAfterCall(char byte) {
  if (byte == '{') {
    BeginCall(format_ == ToolCallFormat::kLlama3 ? Shape::kBareCall : Shape::kCall);
    return false;
  }
  if (IsSpace(byte) && held_.size() < kHeldBytesMax) {
    held_ += byte;
    return true;
  }
  const bool separates = in_list_ ? byte == ',' : format_ == ToolCallFormat::kLlama3 && byte == ';';
  const bool ends_list = in_list_ && byte == ']';
  if (!separates && !ends_list) return GiveUp();
  if (ends_list) in_list_ = false;
  held_.clear();
  return true;
}

void ToolCallParser::Announce(const std::string& name) {
  announced_ = true;
  awaits_close_ = format_ == ToolCallFormat::kHermes || format_ == ToolCallFormat::kGranite;
  held_.clear();
  space_.clear();
  deltas_.emplace_back(CallStartDelta{calls_, ToolCallId(id_seed_, calls_), name});
  ++calls_;
}

bool ToolCallParser::GiveUp() {
  state_ = State::kContent;
  in_list_ = false;
  EmitContent(std::exchange(held_, {}));
  return false;
}

// White space waits for what follows it.
void ToolCallParser::EmitContent(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == text.npos) {
    space_ += text;
    if (space_.size() > kHeldBytesMax) EmitSpace();
    return;
  }
  const size_t end = text.find_last_not_of(kSpaces) + 1;
  space_ += text.substr(0, begin);
  EmitSpace();
  AppendContent(text.substr(begin, end - begin));
  space_ = text.substr(end);
}

// Behind a call it separates two contents or nothing.
void ToolCallParser::EmitSpace() {
  if (has_content_ || calls_ == 0) AppendContent(space_);
  space_.clear();
}

void ToolCallParser::AppendContent(std::string_view text) {
  if (text.empty()) return;
  has_content_ = true;
  if (!deltas_.empty()) {
    if (auto* last = std::get_if<ContentDelta>(&deltas_.back())) {
      last->text += text;
      return;
    }
  }
  deltas_.emplace_back(ContentDelta{std::string(text)});
}

void ToolCallParser::EmitArguments(std::string_view text) {
  if (text.empty()) return;
  if (auto* last = deltas_.empty() ? nullptr : std::get_if<ArgumentsDelta>(&deltas_.back())) {
    last->text += text;
    return;
  }
  deltas_.emplace_back(ArgumentsDelta{calls_ - 1, std::string(text)});
}

}  // namespace quire::server
