#include "testing/source_scan.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

namespace quire::testing {
namespace {

bool IsIdentifierStart(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) || c == '_';
}
bool IsIdentifierPart(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

// Blanks comments and the insides of literals, one character class at a time.
class Blanker {
 public:
  explicit Blanker(std::string_view text) : text_(text), code_(text) {}

  std::string Run() {
    while (at_ < text_.size()) {
      if (StartsWith("//")) {
        BlankUntil(LineCommentEnd());
      } else if (StartsWith("/*")) {
        const size_t end = text_.find("*/", at_ + 2);
        BlankUntil(end == std::string_view::npos ? text_.size() : end + 2);
      } else if (IsIdentifierStart(text_[at_])) {
        Identifier();
      } else if (std::isdigit(static_cast<unsigned char>(text_[at_]))) {
        Number();
      } else if (text_[at_] == '"' || text_[at_] == '\'') {
        Literal(text_[at_]);
      } else {
        ++at_;
      }
    }
    return std::move(code_);
  }

 private:
  bool StartsWith(std::string_view prefix) const { return text_.substr(at_).starts_with(prefix); }

  // A backslash before the line's end carries a comment on.
  size_t LineCommentEnd() const {
    size_t end = text_.find('\n', at_);
    while (end != std::string_view::npos && text_[end - 1] == '\\') end = text_.find('\n', end + 1);
    return end == std::string_view::npos ? text_.size() : end;
  }

  void BlankUntil(size_t end) {
    for (; at_ < end; ++at_) {
      if (text_[at_] != '\n') code_[at_] = ' ';
    }
  }

  void Identifier() {
    const size_t begin = at_;
    while (at_ < text_.size() && IsIdentifierPart(text_[at_])) ++at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (at_ < text_.size() && text_[at_] == '"' && word.ends_with('R') && word.size() <= 3) {
      std::fill(code_.begin() + static_cast<long>(begin), code_.begin() + static_cast<long>(at_),
                ' ');
      RawString();
    }
  }

  // 1'000 has no character literal in it.
  void Number() {
    while (at_ < text_.size() &&
           (IsIdentifierPart(text_[at_]) || text_[at_] == '.' ||
            (text_[at_] == '\'' && at_ + 1 < text_.size() && IsIdentifierPart(text_[at_ + 1])))) {
      ++at_;
    }
  }

  void Literal(char quote) {
    ++at_;
    size_t end = at_;
    while (end < text_.size() && text_[end] != quote && text_[end] != '\n') {
      end += text_[end] == '\\' ? 2 : 1;
    }
    BlankUntil(std::min(end, text_.size()));
    if (at_ < text_.size()) ++at_;
  }

  void RawString() {
    const size_t open = text_.find('(', at_);
    if (open == std::string_view::npos) return;
    const std::string close = ")" + std::string(text_.substr(at_ + 1, open - at_ - 1)) + "\"";
    const size_t end = text_.find(close, open);
    ++at_;
    BlankUntil(end == std::string_view::npos ? text_.size() : end + close.size() - 1);
    if (at_ < text_.size()) ++at_;
  }

  std::string_view text_;
  std::string code_;
  size_t at_ = 0;
};

std::string_view Trimmed(std::string_view line) {
  const size_t begin = line.find_first_not_of(" \t");
  return begin == std::string_view::npos ? std::string_view() : line.substr(begin);
}

// The token that starts at `at`, which is no blank. `>>` is two tokens: it closes templates.
std::string_view NextToken(std::string_view code, size_t at) {
  static constexpr std::array<std::string_view, 19> kOperators = {
      "<=>", "...", "::", "->", "<=", ">=", "==", "!=", "&&", "||",
      "<<",  "++",  "--", "+=", "-=", "*=", "/=", "|=", "&="};
  if (IsIdentifierPart(code[at])) {
    size_t end = at;
    const bool number = std::isdigit(static_cast<unsigned char>(code[at])) != 0;
    while (end < code.size() &&
           (IsIdentifierPart(code[end]) || (number && (code[end] == '\'' || code[end] == '.')))) {
      ++end;
    }
    return code.substr(at, end - at);
  }
  if (code[at] == '"' || code[at] == '\'') {
    const size_t end = code.find(code[at], at + 1);
    return code.substr(at, end == std::string_view::npos ? 1 : end - at + 1);
  }
  for (std::string_view op : kOperators) {
    if (code.substr(at).starts_with(op)) return code.substr(at, op.size());
  }
  return code.substr(at, 1);
}

}  // namespace

std::string SourceFile::folder() const {
  if (!path.starts_with("src/")) return "";
  const size_t end = path.find('/', 4);
  return end == std::string::npos ? "" : path.substr(4, end - 4);
}

SourceFile ParseSource(std::string path, std::string text) {
  std::string code = Blanker(text).Run();
  return {std::move(path), std::move(text), std::move(code)};
}

std::vector<SourceFile> SourcesUnder(const std::string& root) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root + "/src")) {
    const std::string extension = entry.path().extension().string();
    if (extension == ".h" || extension == ".cc") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<SourceFile> files;
  for (const std::filesystem::path& path : paths) {
    std::ifstream in(path, std::ios::binary);
    std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    files.push_back(
        ParseSource(std::filesystem::relative(path, root).generic_string(), std::move(text)));
  }
  return files;
}

std::vector<Include> Includes(const SourceFile& file) {
  std::vector<Include> includes;
  int line_number = 0;
  for (size_t begin = 0; begin < file.text.size();) {
    const size_t end = std::min(file.text.find('\n', begin), file.text.size());
    ++line_number;
    const std::string_view code = Trimmed(std::string_view(file.code).substr(begin, end - begin));
    const std::string_view line = std::string_view(file.text).substr(begin, end - begin);
    begin = end + 1;
    if (!code.starts_with('#') || !Trimmed(code.substr(1)).starts_with("include")) continue;
    const size_t open = line.find_first_of("<\"");
    if (open == std::string_view::npos) continue;
    const size_t close = line.find_first_of(">\"", open + 1);
    if (close == std::string_view::npos) continue;
    includes.push_back({std::string(line.substr(open + 1, close - open - 1)), line_number});
  }
  return includes;
}

std::vector<Token> Tokenize(const SourceFile& file) {
  const std::string_view code = file.code;
  std::vector<Token> tokens;
  int line = 1;
  bool line_is_blank = true;
  for (size_t at = 0; at < code.size();) {
    if (code[at] == '\n') {
      ++line;
      line_is_blank = true;
      ++at;
    } else if (std::isspace(static_cast<unsigned char>(code[at]))) {
      ++at;
    } else if (code[at] == '#' && line_is_blank) {
      while (at < code.size() && (code[at] != '\n' || code[at - 1] == '\\')) {
        if (code[at++] == '\n') ++line;
      }
    } else {
      const std::string_view token = NextToken(code, at);
      tokens.push_back({token, line});
      line += static_cast<int>(std::count(token.begin(), token.end(), '\n'));
      line_is_blank = false;
      at += token.size();
    }
  }
  return tokens;
}

}  // namespace quire::testing
