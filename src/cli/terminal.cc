#include "cli/terminal.h"

#include <cstdlib>

#include <fmt/format.h>
#include <unistd.h>

namespace quire::cli {
namespace {

std::string Styled(Style style, std::string_view text) {
  constexpr const char* kCodes[] = {"1", "2", "31", "32", "33", "36"};
  return fmt::format("\033[{}m{}\033[0m", kCodes[static_cast<int>(style)], text);
}

}  // namespace

Terminal Terminal::Detect() {
  Terminal terminal;
  terminal.stdin_ = isatty(STDIN_FILENO) != 0;
  terminal.stdout_ = isatty(STDOUT_FILENO) != 0;
  terminal.stderr_ = isatty(STDERR_FILENO) != 0;
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  bool refused = no_color != nullptr && no_color[0] != '\0';
  bool dumb = term == nullptr || std::string_view(term) == "dumb";
  terminal.colours_ = !refused && !dumb;
  return terminal;
}

std::string Terminal::Out(Style style, std::string_view text) const {
  return stdout_ && colours_ ? Styled(style, text) : std::string(text);
}

std::string Terminal::Err(Style style, std::string_view text) const {
  return stderr_ && colours_ ? Styled(style, text) : std::string(text);
}

}  // namespace quire::cli
