// Numbers within bounds, as an automaton that compares digit by digit.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <optional>

#include <fmt/format.h>

#include "text/grammar_json.h"

namespace quire::text {
namespace {

using Expr = GrammarBuilder::Expr;

constexpr size_t kIntegerDigits = 18;
constexpr size_t kFractionDigits = 17;
constexpr size_t kDigits = kIntegerDigits + kFractionDigits;

// A number without its sign: digits[0, 18) before the point, the rest after it.
struct Magnitude {
  std::array<uint8_t, kDigits> digits = {};
  bool exclusive = false;

  bool IsZeroFrom(size_t position) const {
    return std::all_of(digits.begin() + static_cast<std::ptrdiff_t>(position), digits.end(),
                       [](uint8_t digit) { return digit == 0; });
  }
};

struct Bound {
  bool negative = false;
  Magnitude magnitude;
};

// The decimal number that `value` is written as, exactly.
Result<Bound> ReadBound(const NumberBound& bound) {
  const Error unsupported =
      MakeError(ErrorKind::kUnsupported,
                "the bound {} is not supported: bounds have at most 18 digits before "
                "the point and 17 after it",
                boost::json::serialize(bound.value));
  std::string text;
  if (const auto* number = bound.value.if_double()) {
    text = fmt::format("{}", *number);
  } else {
    text = boost::json::serialize(bound.value);
  }
  Bound read;
  read.magnitude.exclusive = bound.exclusive;
  read.negative = text.starts_with('-');
  if (read.negative) text.erase(0, 1);
  long exponent = 0;
  if (const size_t e = text.find_first_of("eE"); e != std::string::npos) {
    exponent = std::strtol(text.c_str() + e + 1, nullptr, 10);
    text.resize(e);
  }
  const size_t point = std::min(text.find('.'), text.size());
  long position = static_cast<long>(kIntegerDigits) - static_cast<long>(point) - exponent;
  for (const char c : text) {
    if (c == '.') continue;
    if (c < '0' || c > '9') return unsupported;
    const bool fits = position >= 0 && position < static_cast<long>(kDigits);
    if (!fits && c != '0') return unsupported;
    if (fits) read.magnitude.digits[static_cast<size_t>(position)] = static_cast<uint8_t>(c - '0');
    ++position;
  }
  if (read.magnitude.IsZeroFrom(0)) read.negative = false;
  return read;
}

// Expressions for the magnitudes between two others.
class MagnitudeWriter {
 public:
  MagnitudeWriter(NumberKind kind, GrammarBuilder& builder) : kind_(kind), builder_(builder) {}

  std::optional<Expr> Between(const Magnitude& low, const Magnitude& high) {
    low_ = &low;
    high_ = &high;
    std::vector<Expr> options;
    for (size_t length = 1; length <= kIntegerDigits; ++length) {
      const size_t first = kIntegerDigits - length;
      const bool above = !IsZero(high, 0, first);  // every number of this length is smaller
      const bool below = IsZero(low, 0, first);    // some number of this length is large enough
      if (!below) continue;
      if (const auto expr = From(first, {true, !above}, first)) options.push_back(*expr);
    }
    if (options.empty()) return std::nullopt;
    return builder_.Either(std::move(options));
  }

 private:
  // Whether the digits so far equal those of the bounds, so that the next are compared.
  struct Tight {
    bool low = false;
    bool high = false;
  };

  static bool IsZero(const Magnitude& m, size_t begin, size_t end) {
    return std::all_of(m.digits.begin() + static_cast<std::ptrdiff_t>(begin),
                       m.digits.begin() + static_cast<std::ptrdiff_t>(end),
                       [](uint8_t digit) { return digit == 0; });
  }

  // The digits from `position` on; `first` is the number's first one. nullopt: there are none.
  std::optional<Expr> From(size_t position, Tight tight, size_t first) {
    std::vector<Expr> options;
    if (position >= kIntegerDigits && MayEnd(position, tight)) options.push_back(builder_.Empty());
    const size_t end = kind_ == NumberKind::kInteger ? kIntegerDigits : kDigits;
    if (position < end) AddDigits(position, tight, first, options);
    if (options.empty()) return std::nullopt;
    return builder_.Either(std::move(options));
  }

  // Whether the number with zeros from here on is within the bounds.
  bool MayEnd(size_t position, Tight tight) const {
    if (tight.low && (!low_->IsZeroFrom(position) || low_->exclusive)) return false;
    return !(tight.high && high_->IsZeroFrom(position) && high_->exclusive);
  }

  void AddDigits(size_t position, Tight tight, size_t first, std::vector<Expr>& options) {
    if (!tight.low && !tight.high) {
      const bool nonzero = position == first && first + 1 < kIntegerDigits;
      if (!nonzero) return options.push_back(Free(position));
    }
    const bool leading = position == first && first + 1 < kIntegerDigits;
    const int low = tight.low ? low_->digits[position] : 0;
    const int high = tight.high ? high_->digits[position] : 9;
    for (int digit = std::max(low, leading ? 1 : 0); digit <= high; ++digit) {
      const Tight next{tight.low && digit == low, tight.high && digit == high};
      int last = digit;
      // Digits strictly between the bounds' are alike.
      if (!next.low && !next.high) last = tight.high ? high - 1 : 9;
      const auto rest = From(position + 1, next, first);
      if (rest) {
        const auto character = [](int d) { return static_cast<char32_t>('0' + d); };
        const Expr digits = builder_.Characters({character(digit), character(last)});
        const Expr point = position == kIntegerDigits ? builder_.Literal(".") : builder_.Empty();
        options.push_back(builder_.Concatenate({point, digits, *rest}));
      }
      digit = last;
    }
  }

  // Any digits from `position` on.
  Expr Free(size_t position) {
    const Expr digit = builder_.Characters({'0', '9'});
    if (position > kIntegerDigits) {
      return builder_.Times(digit, 0, static_cast<uint32_t>(kDigits - position));
    }
    const auto integer = static_cast<uint32_t>(kIntegerDigits - position);
    const Expr whole = builder_.Times(digit, integer, integer);
    if (kind_ == NumberKind::kInteger) return whole;
    const Expr fraction = builder_.Concatenate(
        {builder_.Literal("."), builder_.Times(digit, 1, static_cast<uint32_t>(kFractionDigits))});
    return builder_.Concatenate({whole, builder_.Optional(fraction)});
  }

  NumberKind kind_;
  GrammarBuilder& builder_;
  const Magnitude* low_ = nullptr;
  const Magnitude* high_ = nullptr;
};

}  // namespace

Result<std::optional<Expr>> NumbersWithin(const NumberRange& range, NumberKind kind,
                                          GrammarBuilder& builder) {
  Bound low{.negative = true, .magnitude = {}};
  Bound high;
  low.magnitude.digits.fill(9);
  high.magnitude.digits.fill(9);
  if (range.low) {
    QUIRE_ASSIGN_OR_RETURN(low, ReadBound(*range.low));
  }
  if (range.high) {
    QUIRE_ASSIGN_OR_RETURN(high, ReadBound(*range.high));
  }
  const Magnitude zero;
  Magnitude above_zero;  // there is no -0
  above_zero.exclusive = true;
  MagnitudeWriter writer(kind, builder);
  std::vector<Expr> options;
  if (!high.negative) {
    const auto expr = writer.Between(low.negative ? zero : low.magnitude, high.magnitude);
    if (expr) options.push_back(*expr);
  }
  if (low.negative) {
    const auto expr = writer.Between(high.negative ? high.magnitude : above_zero, low.magnitude);
    if (expr) options.push_back(builder.Concatenate({builder.Literal("-"), *expr}));
  }
  if (options.empty()) return std::optional<Expr>();
  return std::optional(builder.Either(std::move(options)));
}

}  // namespace quire::text
