// The rules of style that a machine can check, one function each. Every rule returns its findings
// as "path:line: what was found; what to do".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "testing/source_scan.h"

namespace quire::testing {

inline constexpr int kFileLinesMax = 600;
inline constexpr int kFunctionLinesMax = 70;
inline constexpr int kParametersMax = 5;
inline constexpr int kColumnsMax = 100;

using Findings = std::vector<std::string>;

struct SourceRule {
  std::string_view name;
  Findings (*find)(const SourceFile& file);
};

// All rules over C++ sources.
const std::vector<SourceRule>& SourceRules();

// The findings of the rule called `name`; for tests of the rules themselves.
Findings FindingsOf(std::string_view name, const SourceFile& file);

// Paths of somebody's machine in any text file of the repository.
Findings MachinePaths(const SourceFile& file);

}  // namespace quire::testing
