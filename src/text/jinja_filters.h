// The filters behind `|`: one table, filled from two files.
#pragma once

#include <map>
#include <string_view>

#include "text/jinja_interpreter.h"

namespace quire::text::jinja {

using FilterTable = std::map<std::string_view, Builtin>;

// Of single values: text, numbers, JSON. jinja_filters.cc.
void AddValueFilters(FilterTable& table);
// Of sequences: map, select, sort, join, ... jinja_sequence_filters.cc.
void AddSequenceFilters(FilterTable& table);

}  // namespace quire::text::jinja
