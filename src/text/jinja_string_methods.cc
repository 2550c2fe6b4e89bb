#include "text/jinja_string_methods.h"

#include <algorithm>
#include <map>

#include "text/jinja_format.h"
#include "text/jinja_parameters.h"
#include "text/jinja_search.h"
#include "text/jinja_text.h"

namespace quire::text::jinja {
namespace {

constexpr size_t kNotFound = std::string_view::npos;

template <LetterCase kCase>
Value Cased(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Parameters("case method", arguments, {});
  interpreter.budget().StepBytes(8 * static_cast<int64_t>(self.text().size()));
  interpreter.budget().CheckRoom(8 * static_cast<int64_t>(self.text().size()));
  return interpreter.MakeString(ToCase(self.text(), kCase));
}

template <TextClass kClass>
Value Classed(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Parameters("class method", arguments, {});
  interpreter.budget().StepBytes(4 * static_cast<int64_t>(self.text().size()));
  return Value::Bool(IsOfClass(self.text(), kClass));
}

template <Sides kSides>
Value Stripped(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("strip", arguments, {"chars"});
  return StripText(interpreter, self.text(), parameters.Or(0, Value::None()), kSides);
}

// Text[start:end] as the optional bounds of find, count, startswith, ... mean it; nullopt where
// start lies behind the end.
struct Part {
  std::string_view text;
  int64_t first = 0;  // code point
};
std::optional<Part> PartOf(Interpreter& interpreter, const Value& self,
                           const Parameters& parameters) {
  const int64_t length = self.code_points();
  auto bound = [&](size_t i, int64_t missing) {
    if (!parameters.IsSet(i)) return missing;
    const int64_t value = parameters.Int(i);
    return value < 0 ? std::max<int64_t>(value + length, 0) : value;
  };
  const int64_t start = bound(1, 0);
  const int64_t end = std::min(bound(2, length), length);
  interpreter.budget().StepBytes(static_cast<int64_t>(self.text().size()));
  if (start > end) return std::nullopt;
  const size_t from = ByteOffset(self.text(), start);
  const size_t to = ByteOffset(self.text(), end);
  return Part{std::string_view(self.text()).substr(from, to - from), start};
}

enum class From { kStart, kEnd };

// Searching from the end compares at every place: its cost is bounded by the product.
size_t Search(Budget& budget, std::string_view text, std::string_view pattern, From from) {
  budget.StepBytes(static_cast<int64_t>(text.size()));
  if (from == From::kStart) return Find(text, pattern);
  budget.StepBytes(static_cast<int64_t>(text.size() / 16 * std::min(text.size(), pattern.size())));
  return text.rfind(pattern);
}

template <From kFrom, bool kMustBe>
Value FindIn(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("find", arguments, {"sub", "start", "end"});
  const std::string& pattern = parameters.Text(0);
  const std::optional<Part> part = PartOf(interpreter, self, parameters);
  const size_t at = part ? Search(interpreter.budget(), part->text, pattern, kFrom) : kNotFound;
  if (at == kNotFound) {
    if (kMustBe) Fail("substring not found");
    return Value::Int(-1);
  }
  return Value::Int(part->first + CountCodePoints(part->text.substr(0, at)));
}

Value Count(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("count", arguments, {"sub", "start", "end"});
  const std::string& pattern = parameters.Text(0);
  const std::optional<Part> part = PartOf(interpreter, self, parameters);
  if (!part) return Value::Int(0);
  if (pattern.empty()) return Value::Int(CountCodePoints(part->text) + 1);
  int64_t count = 0;
  for (size_t at = Find(part->text, pattern); at != kNotFound;
       at = Find(part->text, pattern, at + pattern.size())) {
    ++count;
  }
  return Value::Int(count);
}

template <Sides kSide>
Value HasAffix(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("startswith", arguments, {"prefix", "start", "end"});
  const Value& affix = parameters.Required(0);
  const std::optional<Part> part = PartOf(interpreter, self, parameters);
  auto matches = [&](const Value& one) {
    if (one.is(Kind::kUndefined)) Fail("{}", one.undefined_hint());
    if (!one.is(Kind::kString))
      Fail("startswith() and endswith() need a string or a tuple of them");
    interpreter.budget().Step();
    if (!part) return false;
    return kSide == Sides::kLeft ? part->text.starts_with(one.text())
                                 : part->text.ends_with(one.text());
  };
  if (!affix.is(Kind::kTuple)) return Value::Bool(matches(affix));
  return Value::Bool(std::any_of(affix.items().begin(), affix.items().end(), matches));
}

template <Sides kSide>
Value WithoutAffix(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("removeprefix", arguments, {"affix"});
  const std::string& affix = parameters.Text(0);
  std::string_view text = self.text();
  if (kSide == Sides::kLeft && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (kSide == Sides::kRight && text.ends_with(affix)) text.remove_suffix(affix.size());
  interpreter.budget().StepBytes(static_cast<int64_t>(text.size()));
  return interpreter.MakeString(std::string(text));
}

Value Replace(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("replace", arguments, {"old", "new", "count"});
  return ReplaceText(interpreter, self.text(),
                     {parameters.Text(0), parameters.Text(1), parameters.IntOr(2, -1)});
}

// Pieces of `text` in reverse order where `from` is the end.
std::vector<std::string_view> SplitAtSpace(std::string_view text, int64_t max_splits, From from) {
  std::vector<std::string_view> pieces;
  const Sides here = from == From::kStart ? Sides::kLeft : Sides::kRight;
  text = Strip(text, std::nullopt, here);
  while (!text.empty()) {
    if (max_splits >= 0 && static_cast<int64_t>(pieces.size()) >= max_splits) {
      pieces.push_back(text);  // white space at its far side stays
      break;
    }
    size_t begin = 0;
    size_t end = text.size();
    if (from == From::kStart) {
      for (size_t next = 0; next < text.size(); begin = next) {
        if (IsSpace(NextCodePoint(text, next))) break;
      }
      pieces.push_back(text.substr(0, begin));
      text = Strip(text.substr(begin), std::nullopt, here);
    } else {
      for (size_t next = end; next > 0; end = next) {
        if (IsSpace(PreviousCodePoint(text, next))) break;
      }
      pieces.push_back(text.substr(end));
      text = Strip(text.substr(0, end), std::nullopt, here);
    }
  }
  return pieces;
}

std::vector<std::string_view> SplitAt(Budget& budget, std::string_view text,
                                      std::string_view separator, int64_t max_splits) {
  std::vector<std::string_view> pieces;
  size_t at = 0;
  for (size_t next = Find(text, separator); next != kNotFound; next = Find(text, separator, at)) {
    if (max_splits >= 0 && static_cast<int64_t>(pieces.size()) >= max_splits) break;
    budget.Step();
    pieces.push_back(text.substr(at, next - at));
    at = next + separator.size();
  }
  pieces.push_back(text.substr(at));
  return pieces;
}

std::vector<std::string_view> SplitAtFromEnd(Budget& budget, std::string_view text,
                                             std::string_view separator, int64_t max_splits) {
  std::vector<std::string_view> pieces;
  while (max_splits < 0 || static_cast<int64_t>(pieces.size()) < max_splits) {
    const size_t at = text.rfind(separator);
    budget.StepBytes(32 + static_cast<int64_t>((text.size() - (at == kNotFound ? 0 : at)) / 16 *
                                               separator.size()));
    if (at == kNotFound) break;
    pieces.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  pieces.push_back(text);
  return pieces;
}

Value ToStrings(Interpreter& interpreter, const std::vector<std::string_view>& pieces) {
  Budget& budget = interpreter.budget();
  budget.StepBytes(static_cast<int64_t>(pieces.size()) * 64);
  budget.CheckRoom(static_cast<int64_t>(pieces.size()) * 128);
  std::vector<Value> items;
  items.reserve(pieces.size());
  for (std::string_view piece : pieces) items.push_back(interpreter.MakeString(std::string(piece)));
  return interpreter.MakeList(std::move(items));
}

template <From kFrom>
Value Split(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("split", arguments, {"sep", "maxsplit"});
  const int64_t max_splits = parameters.IntOr(1, -1);
  Budget& budget = interpreter.budget();
  budget.StepBytes(static_cast<int64_t>(self.text().size()));
  budget.CheckRoom(16 * static_cast<int64_t>(self.text().size()));
  std::vector<std::string_view> pieces;
  if (!parameters.IsSet(0)) {
    pieces = SplitAtSpace(self.text(), max_splits, kFrom);
  } else {
    const std::string& separator = parameters.Text(0);
    if (separator.empty()) Fail("empty separator");
    const bool from_start = kFrom == From::kStart || max_splits < 0;
    pieces = from_start ? SplitAt(budget, self.text(), separator, max_splits)
                        : SplitAtFromEnd(budget, self.text(), separator, max_splits);
    if (from_start) return ToStrings(interpreter, pieces);
  }
  if (kFrom == From::kEnd) std::reverse(pieces.begin(), pieces.end());
  return ToStrings(interpreter, pieces);
}

template <From kFrom>
Value Partition(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("partition", arguments, {"sep"});
  const std::string& separator = parameters.Text(0);
  if (separator.empty()) Fail("empty separator");
  const std::string_view text = self.text();
  const size_t at = Search(interpreter.budget(), text, separator, kFrom);
  std::vector<Value> parts(3, interpreter.MakeString(""));
  if (at == kNotFound) {
    parts[kFrom == From::kStart ? 0 : 2] = self;
  } else {
    parts[0] = interpreter.MakeString(std::string(text.substr(0, at)));
    parts[1] = parameters.Required(0);
    parts[2] = interpreter.MakeString(std::string(text.substr(at + separator.size())));
  }
  return interpreter.MakeTuple(std::move(parts));
}

Value Lines(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("splitlines", arguments, {"keepends"});
  interpreter.budget().StepBytes(static_cast<int64_t>(self.text().size()));
  interpreter.budget().CheckRoom(16 * static_cast<int64_t>(self.text().size()));
  const LineEnds ends = parameters.IsTrue(0) ? LineEnds::kKeep : LineEnds::kDrop;
  return ToStrings(interpreter, SplitLines(self.text(), ends));
}

Value JoinItems(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("join", arguments, {"iterable"});
  Writer out(interpreter.budget());
  Cursor cursor(interpreter.budget(), parameters.Required(0));
  bool first = true;
  while (std::optional<Value> item = cursor.Next()) {
    if (!item->is(Kind::kString)) Fail("join() needs strings, found {}", item->TypeName());
    if (!std::exchange(first, false)) out.Append(self.text());
    out.Append(item->text());
  }
  return out.ToValue();
}

enum class Align { kLeft, kCenter, kRight };

template <Align kAlign>
Value Justify(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("justify", arguments, {"width", "fillchar"});
  const std::string fill = parameters.Has(1) ? parameters.Text(1) : " ";
  if (CountCodePoints(fill) != 1) Fail("the fill character must be one character");
  const int64_t width = parameters.Int(0);
  const int64_t missing = std::max<int64_t>(width - self.code_points(), 0);
  int64_t left = kAlign == Align::kLeft ? 0 : missing;
  if (kAlign == Align::kCenter) left = missing / 2 + (missing & width & 1);
  interpreter.budget().CheckRoom(missing);
  Writer out(interpreter.budget());
  for (int64_t i = 0; i < left; ++i) out.Append(fill);
  out.Append(self.text());
  for (int64_t i = left; i < missing; ++i) out.Append(fill);
  return out.ToValue();
}

Value ZeroFill(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("zfill", arguments, {"width"});
  const int64_t missing = std::max<int64_t>(parameters.Int(0) - self.code_points(), 0);
  interpreter.budget().CheckRoom(missing);
  std::string_view text = self.text();
  Writer out(interpreter.budget());
  if (text.starts_with('-') || text.starts_with('+')) {
    out.Append(text.substr(0, 1));
    text.remove_prefix(1);
  }
  out.Append(std::string(static_cast<size_t>(missing), '0'));
  out.Append(text);
  return out.ToValue();
}

Value ExpandTabs(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("expandtabs", arguments, {"tabsize"});
  const int64_t tab = std::clamp<int64_t>(parameters.IntOr(0, 8), 0, 1000);
  Writer out(interpreter.budget());
  int64_t column = 0;
  const std::string_view text = self.text();
  for (size_t offset = 0; offset < text.size();) {
    const size_t start = offset;
    const char32_t c = NextCodePoint(text, offset);
    if (c == '\t') {
      const int64_t blanks = tab == 0 ? 0 : tab - column % tab;
      out.Append(std::string(static_cast<size_t>(blanks), ' '));
      column += blanks;
    } else {
      out.Append(text.substr(start, offset - start));
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
    interpreter.budget().Step();
  }
  return out.ToValue();
}

Value Format(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return FormatBraces(interpreter, self.text(), arguments);
}

Value FormatMap(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters parameters("format_map", arguments, {"mapping"});
  const Value& mapping = parameters.Required(0);
  if (!mapping.is(Kind::kDict)) Fail("format_map() needs a mapping, not {}", mapping.TypeName());
  Arguments named;
  for (const auto& [key, value] : mapping.dict().entries()) {
    if (key.is(Kind::kString)) named.named.emplace_back(key.text(), value);
  }
  return FormatBraces(interpreter, self.text(), named);
}

const std::map<std::string_view, Builtin>& Methods() {
  static const std::map<std::string_view, Builtin> methods = {
      {"upper", Cased<LetterCase::kUpper>},
      {"lower", Cased<LetterCase::kLower>},
      {"casefold", Cased<LetterCase::kFolded>},
      {"swapcase", Cased<LetterCase::kSwapped>},
      {"title", Cased<LetterCase::kTitle>},
      {"capitalize", Cased<LetterCase::kCapitalized>},
      {"isalnum", Classed<TextClass::kAlnum>},
      {"isalpha", Classed<TextClass::kAlpha>},
      {"isascii", Classed<TextClass::kAscii>},
      {"isdecimal", Classed<TextClass::kDecimal>},
      {"isdigit", Classed<TextClass::kDigit>},
      {"isidentifier", Classed<TextClass::kIdentifier>},
      {"islower", Classed<TextClass::kLower>},
      {"isnumeric", Classed<TextClass::kNumeric>},
      {"isprintable", Classed<TextClass::kPrintable>},
      {"isspace", Classed<TextClass::kSpace>},
      {"istitle", Classed<TextClass::kTitle>},
      {"isupper", Classed<TextClass::kUpper>},
      {"strip", Stripped<Sides::kBoth>},
      {"lstrip", Stripped<Sides::kLeft>},
      {"rstrip", Stripped<Sides::kRight>},
      {"find", FindIn<From::kStart, false>},
      {"rfind", FindIn<From::kEnd, false>},
      {"index", FindIn<From::kStart, true>},
      {"rindex", FindIn<From::kEnd, true>},
      {"count", Count},
      {"startswith", HasAffix<Sides::kLeft>},
      {"endswith", HasAffix<Sides::kRight>},
      {"removeprefix", WithoutAffix<Sides::kLeft>},
      {"removesuffix", WithoutAffix<Sides::kRight>},
      {"replace", Replace},
      {"split", Split<From::kStart>},
      {"rsplit", Split<From::kEnd>},
      {"partition", Partition<From::kStart>},
      {"rpartition", Partition<From::kEnd>},
      {"splitlines", Lines},
      {"join", JoinItems},
      {"ljust", Justify<Align::kLeft>},
      {"rjust", Justify<Align::kRight>},
      {"center", Justify<Align::kCenter>},
      {"zfill", ZeroFill},
      {"expandtabs", ExpandTabs},
      {"format", Format},
      {"format_map", FormatMap},
  };
  return methods;
}

}  // namespace

Builtin FindStringMethod(std::string_view name) {
  const auto found = Methods().find(name);
  return found == Methods().end() ? nullptr : found->second;
}

Value ReplaceText(Interpreter& interpreter, std::string_view text, const Replacement& replacement) {
  Writer out(interpreter.budget());
  int64_t left = replacement.count;
  size_t at = 0;
  if (replacement.from.empty()) {  // before every character and at the end
    for (; left != 0; --left) {
      interpreter.budget().Step();
      out.Append(replacement.to);
      if (at >= text.size()) break;
      const size_t start = at;
      NextCodePoint(text, at);
      out.Append(text.substr(start, at - start));
    }
    out.Append(text.substr(at));
    return out.ToValue();
  }
  for (; left != 0; --left) {
    const size_t next = Find(text, replacement.from, at);
    if (next == kNotFound) break;
    interpreter.budget().Step();
    out.Append(text.substr(at, next - at));
    out.Append(replacement.to);
    at = next + replacement.from.size();
  }
  out.Append(text.substr(at));
  return out.ToValue();
}

Value StripText(Interpreter& interpreter, std::string_view text, const Value& chars, Sides sides) {
  std::optional<std::string_view> set;
  if (!chars.is(Kind::kNone)) {
    if (!chars.is(Kind::kString)) Fail("the characters to strip must be a string");
    set = chars.text();
  }
  const auto cost = static_cast<int64_t>(set ? set->size() / 8 + 1 : 1);
  interpreter.budget().StepBytes(static_cast<int64_t>(text.size()) * cost);
  return interpreter.MakeString(std::string(Strip(text, set, sides)));
}

}  // namespace quire::text::jinja
