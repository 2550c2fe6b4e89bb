// What the standard streams are: colours and progress bars only where a person looks at them.
#pragma once

#include <string>
#include <string_view>

namespace quire::cli {

enum class Style { kBold, kDim, kRed, kGreen, kYellow, kCyan };

class Terminal {
 public:
  // Looks at the streams and at NO_COLOR (https://no-color.org), TERM=dumb.
  static Terminal Detect();
  // Neither colours nor progress: what a pipe gets.
  static Terminal Plain() { return Terminal(); }

  bool stdin_is_terminal() const { return stdin_; }
  bool stdout_is_terminal() const { return stdout_; }
  bool stderr_is_terminal() const { return stderr_; }

  // `text` in a style where stdout (stderr) shows styles, else as it is.
  std::string Out(Style style, std::string_view text) const;
  std::string Err(Style style, std::string_view text) const;

 private:
  bool stdin_ = false;
  bool stdout_ = false;
  bool stderr_ = false;
  bool colours_ = false;
};

}  // namespace quire::cli
