#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <array>

#include <pcre2.h>

#include "base/check.h"
#include "text/utf8.h"

namespace quire::text {
namespace {

// White_Space and its complement, as the insides of a class.
constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f})"
    R"(\x{205f}\x{3000})";
constexpr std::string_view kNonSpaces =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff})"
    R"(\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";

// Backtracking of one search; a search that needs more is given up.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKib = 64 * 1024;
constexpr size_t kMaxPatternBytes = 64 * 1024;

void AppendEscape(char escaped, bool in_class, std::string& out) {
  if (escaped == 's' || escaped == 'S') {
    const std::string_view set = escaped == 's' ? kSpaces : kNonSpaces;
    out.append(in_class ? "" : "[").append(set).append(in_class ? "" : "]");
  } else {
    out.append({'\\', escaped});
  }
}

std::string CompileErrorMessage(int code) {
  std::array<PCRE2_UCHAR, 256> message = {};
  pcre2_get_error_message(code, message.data(), message.size());
  return reinterpret_cast<const char*>(message.data());
}

}  // namespace

Result<std::string> TranslatePattern(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    const std::string_view rest = pattern.substr(i);
    if (c == '\\') {
      if (i + 1 == pattern.size()) {
        return MakeError(ErrorKind::kInvalid, "the pattern '{}' ends in a backslash", pattern);
      }
      AppendEscape(pattern[++i], in_class, out);
    } else if (!in_class && c == '[') {
      in_class = true;
      out.push_back(c);
      if (rest.substr(1).starts_with('^')) out.push_back(pattern[++i]);
      // A bracket in first place is an ordinary character.
      if (pattern.substr(i + 1).starts_with(']')) out.append("\\").push_back(pattern[++i]);
    } else if (in_class && (rest.starts_with("&&") || rest.starts_with("["))) {
      const size_t close = rest.find(":]");
      if (!rest.starts_with("[:") || close == std::string_view::npos) {
        return MakeError(ErrorKind::kUnsupported,
                         "the pattern '{}' combines character classes, which is not supported",
                         pattern);
      }
      out.append(rest.substr(0, close + 2));
      i += close + 1;
    } else {
      if (in_class && c == ']') in_class = false;
      out.push_back(c);
    }
  }
  return out;
}

struct Regex::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

Result<Regex> Regex::Compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return MakeError(ErrorKind::kUnsupported, "a pattern has {} bytes, more than the {} allowed",
                     pattern.size(), kMaxPatternBytes);
  }
  if (!IsValidUtf8(pattern)) {
    return MakeError(ErrorKind::kInvalid, "a pattern is not well-formed UTF-8");
  }
  QUIRE_ASSIGN_OR_RETURN(const std::string translated, TranslatePattern(pattern));
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_shared<Code>();
  code->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (code->code == nullptr) {
    return MakeError(ErrorKind::kInvalid, "the pattern '{}' is not a regular expression: {}",
                     pattern, CompileErrorMessage(error));
  }
  // Without the compiler (a system that forbids writable code) PCRE2 interprets: slower, the same.
  pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);
  return Regex(std::move(code));
}

struct Regex::Matcher::Scratch {
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  ~Scratch() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
  }
};

Regex::Matcher::Matcher(const Regex& regex) : regex_(regex), scratch_(std::make_unique<Scratch>()) {
  scratch_->data = pcre2_match_data_create(1, nullptr);
  scratch_->context = pcre2_match_context_create(nullptr);
  QUIRE_CHECK(scratch_->data != nullptr && scratch_->context != nullptr);
  pcre2_set_match_limit(scratch_->context, kMatchLimit);
  pcre2_set_heap_limit(scratch_->context, kHeapLimitKib);
}

Regex::Matcher::~Matcher() = default;

std::optional<Regex::Range> Regex::Matcher::Find(std::string_view text, size_t from) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  // Empty matches split nothing. Skipping them keeps the search moving forward.
  constexpr uint32_t kOptions = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
  const auto match = [&](uint32_t options) {
    return pcre2_match(regex_.code_->code, subject, text.size(), from, options, scratch_->data,
                       scratch_->context);
  };
  int count = match(kOptions);
  // The compiled matcher has a stack of 32 KiB; the interpreter keeps its own on the heap.
  if (count == PCRE2_ERROR_JIT_STACKLIMIT) count = match(kOptions | PCRE2_NO_JIT);
  if (count < 0) return std::nullopt;
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(scratch_->data);
  if (range[1] <= range[0] || range[0] < from) return std::nullopt;  // \K can do that
  return Range{range[0], range[1]};
}

}  // namespace quire::text
