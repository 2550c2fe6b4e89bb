#include "cli/markdown_table.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace quire::cli {

void MarkdownTable::AddRow(std::vector<std::string> cells) {
  QUIRE_CHECK_EQ(cells.size(), rows_[0].size());
  rows_.push_back(std::move(cells));
}

std::string MarkdownTable::Text() const {
  const size_t columns = rows_[0].size();
  std::vector<size_t> widths(columns, 3);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < columns; ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (size_t r = 0; r < rows_.size(); ++r) {
    for (size_t i = 0; i < columns; ++i) {
      text += i == 0 ? fmt::format("| {:<{}} |", rows_[r][i], widths[i])
                     : fmt::format(" {:>{}} |", rows_[r][i], widths[i]);
    }
    text += '\n';
    if (r > 0) continue;
    for (size_t i = 0; i < columns; ++i) {
      text += i == 0 ? fmt::format("|{:-<{}}|", "", widths[i] + 2)
                     : fmt::format("{:-<{}}:|", "", widths[i] + 1);
    }
    text += '\n';
  }
  return text;
}

}  // namespace quire::cli
