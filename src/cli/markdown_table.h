// MarkdownTable: rows of text in aligned columns, readable on a terminal and ready to be pasted
// into a document. Numbers are set to the right, the first column to the left.
#pragma once

#include <string>
#include <vector>

namespace quire::cli {

class MarkdownTable {
 public:
  explicit MarkdownTable(std::vector<std::string> header) { rows_.push_back(std::move(header)); }

  // As many cells as the header has.
  void AddRow(std::vector<std::string> cells);

  std::string Text() const;

 private:
  std::vector<std::vector<std::string>> rows_;  // the header first
};

}  // namespace quire::cli
