#include "testing/source_rules.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace quire::testing {
namespace {

std::string At(const SourceFile& file, int line, std::string_view what) {
  return fmt::format("{}:{}: {}", file.path, line, what);
}

// Calls visit(line, number) for every line of `text`.
template <typename Visit>
void ForEachLine(std::string_view text, Visit visit) {
  int number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    visit(text.substr(begin, end - begin), ++number);
    begin = end + 1;
  }
}

Findings FileLines(const SourceFile& file) {
  const auto lines = std::count(file.text.begin(), file.text.end(), '\n');
  if (lines <= kFileLinesMax) return {};
  return {At(file, static_cast<int>(lines),
             fmt::format("{} lines, {} allowed; split the file", lines, kFileLinesMax))};
}

Findings FunctionLines(const SourceFile& file) {
  Findings findings;
  for (const Function& function : OutlineOf(file).functions) {
    if (function.lines() <= kFunctionLinesMax) continue;
    findings.push_back(At(file, function.first_line,
                          fmt::format("{} has {} lines, {} allowed; give its parts names",
                                      function.name, function.lines(), kFunctionLinesMax)));
  }
  return findings;
}

Findings ParameterCount(const SourceFile& file) {
  Findings findings;
  for (const Function& function : OutlineOf(file).functions) {
    if (function.parameters.size() <= static_cast<size_t>(kParametersMax)) continue;
    findings.push_back(At(file, function.first_line,
                          fmt::format("{} takes {} parameters, {} allowed; pass a struct",
                                      function.name, function.parameters.size(), kParametersMax)));
  }
  return findings;
}

// A truth value that is the function's very subject (Show(bool value)) is data, not a mode.
bool IsBooleanMode(const Parameter& parameter) {
  size_t i = 0;
  while (i < parameter.tokens.size() && parameter.tokens[i] == "const") ++i;
  if (i == parameter.tokens.size() || parameter.tokens[i] != "bool") return false;
  if (i + 1 == parameter.tokens.size()) return true;
  static constexpr std::array<std::string_view, 4> kData = {"value", "fallback", "*", "&"};
  return std::find(kData.begin(), kData.end(), parameter.tokens[i + 1]) == kData.end();
}

// `Run(true)` says nothing at the call: an enum does.
Findings BooleanModes(const SourceFile& file) {
  Findings findings;
  if (!file.is_header()) return findings;
  for (const Function& function : OutlineOf(file).functions) {
    for (const Parameter& parameter : function.parameters) {
      if (!IsBooleanMode(parameter)) continue;
      findings.push_back(At(
          file, function.first_line,
          fmt::format("{} takes a bool; an enum says what is meant at the call", function.name)));
    }
  }
  return findings;
}

// tensor/buffer is where memory comes from, tensor/mapped_file where files are mapped.
Findings ManualMemory(const SourceFile& file) {
  static constexpr std::array<std::string_view, 12> kCalls = {
      "malloc",   "calloc", "realloc", "free",   "aligned_alloc", "posix_memalign",
      "memalign", "mmap",   "munmap",  "mremap", "strdup",        "alloca"};
  if (file.path.starts_with("src/tensor/buffer.")) return {};
  if (file.path.starts_with("src/tensor/mapped_file.")) return {};
  Findings findings;
  const std::vector<Token> tokens = Tokenize(file);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string_view before = i > 0 ? tokens[i - 1].text : "";
    const bool is_call = i + 1 < tokens.size() && tokens[i + 1].text == "(" && before != "." &&
                         before != "->" &&
                         std::find(kCalls.begin(), kCalls.end(), tokens[i].text) != kCalls.end();
    const bool is_new = tokens[i].text == "new";
    const bool is_delete = tokens[i].text == "delete" && before != "=";
    if (!is_call && !is_new && !is_delete) continue;
    findings.push_back(
        At(file, tokens[i].line,
           fmt::format("`{}`; memory comes from Buffer or a container", tokens[i].text)));
  }
  return findings;
}

Findings Exceptions(const SourceFile& file) {
  Findings findings;
  for (const Token& token : Tokenize(file)) {
    if (token.text != "throw") continue;
    findings.push_back(At(file, token.line, "`throw`; what can go wrong is a Result"));
  }
  return findings;
}

Findings SentinelReturns(const SourceFile& file) {
  Findings findings;
  const std::vector<Token> tokens = Tokenize(file);
  for (size_t i = 0; i + 3 < tokens.size(); ++i) {
    if (tokens[i].text != "return" || tokens[i + 1].text != "-") continue;
    if (tokens[i + 2].text != "1" || tokens[i + 3].text != ";") continue;
    findings.push_back(At(file, tokens[i].line, "returns -1; std::optional says `nothing`"));
  }
  return findings;
}

Findings LineWidth(const SourceFile& file) {
  Findings findings;
  ForEachLine(file.text, [&](std::string_view line, int number) {
    // Bytes that continue a UTF-8 character have no width.
    const auto width = std::count_if(line.begin(), line.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
    });
    if (width > kColumnsMax) {
      findings.push_back(
          At(file, number, fmt::format("{} columns, {} allowed", width, kColumnsMax)));
    }
  });
  return findings;
}

Findings HeaderOpening(const SourceFile& file) {
  if (!file.is_header()) return {};
  Findings findings;
  if (!file.text.starts_with("//")) {
    findings.push_back(At(file, 1, "opens without a comment; say what it owns and who calls it"));
  }
  if (file.code.find("#pragma once") == std::string::npos) {
    findings.push_back(At(file, 1, "has no #pragma once"));
  }
  return findings;
}

Findings UsingNamespaceInHeader(const SourceFile& file) {
  Findings findings;
  if (!file.is_header()) return findings;
  const std::vector<Token> tokens = Tokenize(file);
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    if (tokens[i].text != "using" || tokens[i + 1].text != "namespace") continue;
    findings.push_back(
        At(file, tokens[i].line, "`using namespace` in a header leaks to includers"));
  }
  return findings;
}

// Marks of work left undone. Spelled in halves, or this file would be its own finding.
Findings UnfinishedWork(const SourceFile& file) {
  static const std::array<std::string, 4> kMarks = {
      std::string("TO") + "DO", std::string("FIX") + "ME",
      std::string("XX") + "X:", std::string("HA") + "CK"};
  Findings findings;
  ForEachLine(file.text, [&](std::string_view line, int number) {
    for (const std::string& mark : kMarks) {
      if (line.find(mark) == std::string_view::npos) continue;
      findings.push_back(At(file, number, mark + "; finish it or file an issue"));
    }
  });
  return findings;
}

Findings Followable(const SourceFile& file) {
  if (OutlineOf(file).balanced) return {};
  return {At(file, 1, "brackets do not match outside the preprocessor; the rules cannot see it")};
}

}  // namespace

const std::vector<SourceRule>& SourceRules() {
  static const std::vector<SourceRule> kRules = {
      {"Followable", Followable},
      {"FileLines", FileLines},
      {"FunctionLines", FunctionLines},
      {"ParameterCount", ParameterCount},
      {"BooleanModes", BooleanModes},
      {"ManualMemory", ManualMemory},
      {"Exceptions", Exceptions},
      {"SentinelReturns", SentinelReturns},
      {"LineWidth", LineWidth},
      {"HeaderOpening", HeaderOpening},
      {"UsingNamespaceInHeader", UsingNamespaceInHeader},
      {"UnfinishedWork", UnfinishedWork},
      {"MachinePaths", MachinePaths},
  };
  return kRules;
}

Findings FindingsOf(std::string_view name, const SourceFile& file) {
  for (const SourceRule& rule : SourceRules()) {
    if (rule.name == name) return rule.find(file);
  }
  base::CheckFailed(__FILE__, __LINE__, fmt::format("no rule is called {}", name));
}

Findings MachinePaths(const SourceFile& file) {
  static const std::array<std::string, 4> kPaths = {
      std::string("/wo") + "rk/", std::string("/ho") + "me/", std::string("/ro") + "ot/",
      std::string("/Us") + "ers/"};
  Findings findings;
  ForEachLine(file.text, [&](std::string_view line, int number) {
    for (const std::string& path : kPaths) {
      if (line.find(path) == std::string_view::npos) continue;
      findings.push_back(At(file, number, path + "... exists on one machine only"));
    }
  });
  return findings;
}

}  // namespace quire::testing
