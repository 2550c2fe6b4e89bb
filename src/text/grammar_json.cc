#include "text/grammar_json.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "text/utf8.h"

namespace quire::text {
namespace {

using Expr = GrammarBuilder::Expr;

constexpr uint32_t kUnbounded = Grammar::kUnbounded;
constexpr uint32_t kIntegerDigitsMax = 18;
constexpr uint32_t kFractionDigitsMax = 17;
constexpr size_t kNameBytesMax = 128;  // of names that additional properties must not have
constexpr size_t kNamesBytesMax = 8192;

// Characters that may stand for themselves in a string.
CharacterSet PlainCharacters() {
  CharacterSet set = CharacterSet(0x20, 0x10ffff);
  CharacterSet special('"', '"');
  special.Add('\\');
  return set.Without(special);
}

CharacterSet HexDigits() {
  CharacterSet set('0', '9');
  set.Add('a', 'f');
  set.Add('A', 'F');
  return set;
}

constexpr std::pair<char32_t, std::string_view> kShortEscapes[] = {
    {'"', "\\\""}, {'\\', "\\\\"}, {'\b', "\\b"}, {'\f', "\\f"},
    {'\n', "\\n"}, {'\r', "\\r"},  {'\t', "\\t"}};

void AppendCompact(const boost::json::value& value, std::string& out) {
  if (const auto* object = value.if_object()) {
    std::string_view separator = "{";
    for (const auto& [name, member] : *object) {
      out.append(separator).append(boost::json::serialize(name)).append(": ");
      AppendCompact(member, out);
      separator = ", ";
    }
    out.append(object->empty() ? "{}" : "}");
  } else if (const auto* array = value.if_array()) {
    std::string_view separator = "[";
    for (const boost::json::value& item : *array) {
      out.append(separator);
      AppendCompact(item, out);
      separator = ", ";
    }
    out.append(array->empty() ? "[]" : "]");
  } else if (const auto* number = value.if_double()) {
    out.append(fmt::format("{}", *number));
  } else {
    out.append(boost::json::serialize(value));
  }
}

}  // namespace

std::string CompactJson(const boost::json::value& value) {
  std::string out;
  AppendCompact(value, out);
  return out;
}

// What is used in many places is a rule, made at its first use.
Expr JsonExpressions::Once(std::optional<GrammarBuilder::RuleId>& rule, Maker make) {
  if (!rule) {
    rule = builder_.AddRule();
    builder_.Define(*rule, (this->*make)());
  }
  return builder_.CallTo(*rule);
}

Expr JsonExpressions::Punctuation(std::string_view with_space) {
  return builder_.OneOf(
      {std::string(with_space), std::string(with_space.substr(0, with_space.size() - 1))});
}

Expr JsonExpressions::Spelled(const CharacterSet& set) {
  static const CharacterSet plain = PlainCharacters();
  const bool is_plain = std::ranges::all_of(set.ranges(), [](const CharacterSet::Range& range) {
    return range.low == range.high && plain.Contains(range.low);
  });
  if (is_plain) return builder_.Characters(set);
  std::vector<std::string> escapes;
  CharacterSet rest = set;
  for (const auto& [character, escape] : kShortEscapes) {
    if (set.Contains(character)) escapes.emplace_back(escape);
    rest = rest.Without({character, character});
  }
  for (char32_t control = 0; control < 0x20; ++control) {
    if (rest.Contains(control)) escapes.push_back(fmt::format("\\u{:04x}", uint32_t{control}));
  }
  rest = rest.Without({0, 0x1f});
  std::vector<Expr> options;
  if (!rest.empty() || escapes.empty()) options.push_back(builder_.Characters(rest));
  if (!escapes.empty()) options.push_back(builder_.OneOf(std::move(escapes)));
  return builder_.Either(std::move(options));
}

// Escapes in \u for surrogates come in pairs, so that every string is one of characters.
Expr JsonExpressions::AnyCharacter() {
  const auto one_of = [&](std::string_view characters) {
    CharacterSet set;
    for (const char c : characters) set.Add(static_cast<uint8_t>(c));
    return builder_.Characters(set);
  };
  const auto sequence = [&](std::vector<Expr> parts) {
    return builder_.Concatenate(std::move(parts));
  };
  const Expr hex = builder_.Characters(HexDigits());
  const Expr u = builder_.Literal("\\u");
  const Expr d = one_of("dD");
  const Expr plain_escape = sequence({u, one_of("0123456789abcefABCEF"), hex, hex, hex});
  const Expr low_escape = sequence({u, d, one_of("01234567"), hex, hex});
  const Expr pair =
      sequence({u, d, one_of("89abAB"), hex, hex, u, d, one_of("cdefCDEF"), hex, hex});
  const Expr short_escape = sequence({builder_.Literal("\\"), one_of("\"\\/bfnrt")});
  return builder_.Either(
      {builder_.Characters(PlainCharacters()), short_escape, plain_escape, low_escape, pair});
}

Expr JsonExpressions::Quoted(Expr content) {
  const Expr quote = builder_.Literal("\"");
  return builder_.Concatenate({quote, content, quote});
}

Expr JsonExpressions::MakeString() {
  return Quoted(builder_.Times(AnyCharacter(), 0, kUnbounded));
}

// One place for every beginning of a name. From there either a character follows that leads away
// from all names, then anything; or, where the beginning is no name itself, the string ends.
Result<Expr> JsonExpressions::StringOtherThan(std::vector<std::string> names) {
  size_t bytes = 0;
  std::map<std::string, CharacterSet> beginnings;  // and how names go on from there
  for (const std::string& name : names) {
    bytes += name.size();
    if (name.size() > kNameBytesMax || bytes > kNamesBytesMax) {
      return MakeError(ErrorKind::kUnsupported,
                       "properties with long names cannot be combined with additional ones");
    }
    for (size_t at = 0; at < name.size();) {
      CharacterSet& next = beginnings[name.substr(0, at)];
      next.Add(NextCharacter(name, at));
    }
    beginnings[name];
  }
  const Expr quote = builder_.Literal("\"");
  const Expr anything = builder_.Concatenate(
      {builder_.Times(builder_.Characters(PlainCharacters()), 0, kUnbounded), quote});
  std::map<std::string, GrammarBuilder::RuleId> rules;
  for (const auto& [beginning, next] : beginnings) rules[beginning] = builder_.AddRule();
  for (const auto& [beginning, next] : beginnings) {
    std::vector<Expr> options;
    if (std::ranges::find(names, beginning) == names.end()) options.push_back(quote);
    options.push_back(
        builder_.Concatenate({builder_.Characters(PlainCharacters().Without(next)), anything}));
    for (const CharacterSet::Range& range : next.ranges()) {
      for (char32_t c = range.low; c <= range.high; ++c) {
        if (!PlainCharacters().Contains(c)) continue;
        std::string text;
        AppendCharacter(c, text);
        const Expr call = builder_.CallTo(rules.at(beginning + text));
        options.push_back(builder_.Concatenate({builder_.Literal(text), call}));
      }
    }
    builder_.Define(rules.at(beginning), builder_.Either(std::move(options)));
  }
  return builder_.Concatenate({quote, builder_.CallTo(rules.at(""))});
}

Expr JsonExpressions::DigitsUpTo(uint32_t max) {
  return builder_.Times(builder_.Characters({'0', '9'}), 0, max);
}

Expr JsonExpressions::MakeInteger() {
  const Expr positive =
      builder_.Concatenate({builder_.Characters({'1', '9'}), DigitsUpTo(kIntegerDigitsMax - 1)});
  return builder_.Either(
      {builder_.Literal("0"),
       builder_.Concatenate({builder_.Optional(builder_.Literal("-")), positive})});
}

Expr JsonExpressions::MakeNumber() {
  const Expr digit = builder_.Characters({'0', '9'});
  const Expr integer = builder_.Either(
      {builder_.Literal("0"),
       builder_.Concatenate({builder_.Characters({'1', '9'}), DigitsUpTo(kIntegerDigitsMax - 1)})});
  const Expr fraction =
      builder_.Concatenate({builder_.Literal("."), builder_.Times(digit, 1, kFractionDigitsMax)});
  const Expr exponent = builder_.Concatenate(
      {builder_.OneOf({"e", "E", "e+", "E+", "e-", "E-"}), builder_.Times(digit, 1, 2)});
  return builder_.Concatenate({builder_.Optional(builder_.Literal("-")), integer,
                               builder_.Optional(fraction), builder_.Optional(exponent)});
}

Expr JsonExpressions::MakeValue() {
  return builder_.Either({Object(), Array(), String(), Number(), Boolean(), Null()});
}

Expr JsonExpressions::MakeArray() {
  return Enclosed("[]", builder_.Optional(List(Value(), 1, kUnbounded)));
}

Expr JsonExpressions::MakeObject() {
  const Expr member = builder_.Concatenate({String(), Colon(), Value()});
  return Enclosed("{}", builder_.Optional(List(member, 1, kUnbounded)));
}

Expr JsonExpressions::List(Expr item, uint32_t min, uint32_t max) {
  const Expr next = builder_.Concatenate({Comma(), item});
  const Expr rest = builder_.Times(next, min > 0 ? min - 1 : 0, max == kUnbounded ? max : max - 1);
  const Expr list = builder_.Concatenate({item, rest});
  return min == 0 ? builder_.Optional(list) : list;
}

Expr JsonExpressions::Enclosed(std::string_view brackets, Expr items) {
  return builder_.Concatenate(
      {builder_.Literal(brackets.substr(0, 1)), items, builder_.Literal(brackets.substr(1, 1))});
}

}  // namespace quire::text
