// How a FlagSet describes itself.
#include <algorithm>

#include "base/flags.h"

namespace quire::base {
namespace {

constexpr size_t kWidth = 96;
constexpr size_t kHelpColumn = 30;

// `text` in lines that fit, continued at kHelpColumn.
std::string Wrap(const std::string& text) {
  std::string out;
  size_t column = kHelpColumn;
  size_t at = 0;
  while (at < text.size()) {
    size_t space = std::min(text.find(' ', at), text.size());
    size_t length = space - at;
    if (column > kHelpColumn && column + 1 + length > kWidth) {
      out += "\n" + std::string(kHelpColumn, ' ');
      column = kHelpColumn;
    } else if (column > kHelpColumn) {
      out += ' ';
      ++column;
    }
    out += text.substr(at, length);
    column += length;
    at = space + 1;
  }
  return out;
}

std::string ValueName(const Flag& flag) {
  if (!flag.metavar().empty()) return flag.metavar();
  return flag.unit().empty() ? "VALUE" : flag.unit();
}

// "-m, --model FILE"
std::string Label(const Flag& flag) {
  if (flag.is_positional()) return flag.name();
  std::string label = flag.short_letter() ? fmt::format("-{}, ", *flag.short_letter()) : "";
  if (flag.is_switch()) {
    return label + (flag.default_text() == "true" ? "--[no-]" : "--") + flag.name();
  }
  return label + "--" + flag.name() + " " + ValueName(flag);
}

// Help and what follows from the declaration: range and default.
std::string Description(const Flag& flag) {
  std::string text = flag.help();
  std::vector<std::string> facts;
  if (flag.is_repeated()) facts.emplace_back("may be repeated");
  if (!flag.constraint().empty()) facts.push_back(flag.constraint());
  bool plain_switch = flag.is_switch() && flag.default_text() == "false";
  if (!flag.default_text().empty() && !plain_switch) {
    facts.push_back("default: " + flag.default_text());
  }
  if (flag.is_required()) facts.emplace_back("required");
  if (facts.empty()) return text;
  text += " (";
  for (size_t i = 0; i < facts.size(); ++i) text += (i > 0 ? "; " : "") + facts[i];
  return text + ")";
}

std::string Heading(const Flag& flag) {
  if (flag.is_positional()) return "Arguments";
  return flag.group().empty() ? "Options" : flag.group();
}

std::vector<std::string> Headings(std::span<const std::unique_ptr<Flag>> flags) {
  std::vector<std::string> headings;
  for (const auto& flag : flags) {
    std::string heading = Heading(*flag);
    if (std::find(headings.begin(), headings.end(), heading) == headings.end()) {
      headings.push_back(heading);
    }
  }
  return headings;
}

}  // namespace

std::string FlagSet::UsageLine(std::string_view usage) const {
  std::string line(usage);
  bool options = std::any_of(flags_.begin(), flags_.end(),
                             [](const auto& flag) { return !flag->is_positional(); });
  if (options) line += " [options]";
  for (const auto& flag : flags_) {
    if (!flag->is_positional()) continue;
    std::string name = flag->name() + (flag->is_repeated() ? "..." : "");
    line += flag->is_required() ? " " + name : " [" + name + "]";
  }
  return line;
}

std::string FlagSet::HelpText(std::string_view usage, std::string_view summary) const {
  std::string text = fmt::format("{}\n\nUsage: {}\n", summary, UsageLine(usage));
  for (const std::string& heading : Headings(flags_)) {
    text += "\n" + heading + ":\n";
    for (const auto& flag : flags_) {
      if (Heading(*flag) != heading) continue;
      std::string label = "  " + Label(*flag);
      if (label.size() + 2 > kHelpColumn) {
        text += label + "\n" + std::string(kHelpColumn, ' ');
      } else {
        text += label + std::string(kHelpColumn - label.size(), ' ');
      }
      text += Wrap(Description(*flag)) + "\n";
    }
  }
  if (!examples_.empty()) text += "\nExamples:\n";
  for (const FlagExample& example : examples_) {
    text += fmt::format("  # {}\n  {}\n", example.explanation, example.command_line);
  }
  return text;
}

std::string FlagSet::HelpMarkdown(std::string_view usage, std::string_view summary) const {
  std::string text = fmt::format("## {}\n\n{}\n\n    {}\n", usage, summary, UsageLine(usage));
  for (const std::string& heading : Headings(flags_)) {
    text += fmt::format("\n| {} | |\n|---|---|\n", heading);
    for (const auto& flag : flags_) {
      if (Heading(*flag) != heading) continue;
      text += fmt::format("| `{}` | {} |\n", Label(*flag), Description(*flag));
    }
  }
  for (const FlagExample& example : examples_) {
    text += fmt::format("\n{}:\n\n    {}\n", example.explanation, example.command_line);
  }
  return text;
}

}  // namespace quire::base
