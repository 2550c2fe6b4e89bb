#include "base/flags.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/check.h"

namespace quire::base {
namespace flags_internal {
namespace {

template <typename T>
bool ParseNumber(std::string_view text, T& out) {
  if (text.starts_with('+')) text.remove_prefix(1);
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

template <typename T>
bool ParseFinite(std::string_view text, T& out) {
  return ParseNumber(text, out) && std::isfinite(out);
}

}  // namespace

bool ParseValue(std::string_view text, bool& out) {
  if (text == "true" || text == "1" || text == "yes" || text == "on") {
    out = true;
  } else if (text == "false" || text == "0" || text == "no" || text == "off") {
    out = false;
  } else {
    return false;
  }
  return true;
}
bool ParseValue(std::string_view text, int& out) {
  return ParseNumber(text, out);
}
bool ParseValue(std::string_view text, int64_t& out) {
  return ParseNumber(text, out);
}
bool ParseValue(std::string_view text, uint64_t& out) {
  return ParseNumber(text, out);
}
bool ParseValue(std::string_view text, float& out) {
  return ParseFinite(text, out);
}
bool ParseValue(std::string_view text, double& out) {
  return ParseFinite(text, out);
}
bool ParseValue(std::string_view text, std::string& out) {
  out = text;
  return true;
}

bool ParseValue(std::string_view text, ByteSize& out) {
  struct Suffix {
    std::string_view name;
    double factor;
  };
  constexpr double kKi = 1024.0;
  constexpr std::array<Suffix, 14> kSuffixes = {{{"KiB", kKi},
                                                 {"MiB", kKi * kKi},
                                                 {"GiB", kKi * kKi * kKi},
                                                 {"TiB", kKi * kKi * kKi * kKi},
                                                 {"KB", 1e3},
                                                 {"MB", 1e6},
                                                 {"GB", 1e9},
                                                 {"TB", 1e12},
                                                 {"K", kKi},
                                                 {"M", kKi * kKi},
                                                 {"G", kKi * kKi * kKi},
                                                 {"T", kKi * kKi * kKi * kKi},
                                                 {"B", 1.0},
                                                 {"", 1.0}}};
  for (const Suffix& suffix : kSuffixes) {
    if (!text.ends_with(suffix.name)) continue;
    text.remove_suffix(suffix.name.size());
    while (text.ends_with(' ')) text.remove_suffix(1);
    double number = 0.0;
    if (!ParseFinite(text, number) || number < 0 || number * suffix.factor > 0x1.0p62) return false;
    out.bytes = static_cast<int64_t>(number * suffix.factor);
    return true;
  }
  return false;
}

}  // namespace flags_internal

std::string FormatBytes(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::fabs(value) >= 1024.0 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  if (unit == 0) return bytes == 1 ? "1 byte" : fmt::format("{} bytes", bytes);
  return value == std::floor(value) ? fmt::format("{:.0f} {}", value, kUnits[unit])
                                    : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

Flag& Flag::Short(char letter) {
  short_ = letter;
  return *this;
}

Flag& Flag::Unit(std::string unit) {
  unit_ = std::move(unit);
  return *this;
}

Flag& Flag::Metavar(std::string name) {
  metavar_ = std::move(name);
  return *this;
}

Flag& Flag::Range(double low, double high) {
  low_ = low;
  high_ = high;
  return *this;
}

Flag& Flag::AtLeast(double low) {
  low_ = low;
  return *this;
}

Flag& Flag::OneOf(std::vector<std::string> choices) {
  choices_ = std::move(choices);
  return *this;
}

Flag& Flag::Required() {
  is_required_ = true;
  return *this;
}

std::string Flag::spelling() const {
  return is_positional_ ? name_ : "--" + name_;
}

std::string Flag::constraint() const {
  if (!choices_.empty()) {
    std::string text;
    for (size_t i = 0; i < choices_.size(); ++i) {
      if (i > 0) text += i + 1 == choices_.size() ? " or " : ", ";
      text += choices_[i];
    }
    return text;
  }
  if (low_ && high_) return fmt::format("{} to {}", *low_, *high_);
  if (low_) return fmt::format("at least {}", *low_);
  return "";
}

Error Flag::Malformed(std::string_view text, std::string_view kind) const {
  std::string limits = constraint();
  return MakeError(ErrorKind::kUsage, "{} is '{}', which is not {}{}.", spelling(), text, kind,
                   limits.empty() ? "" : " (" + limits + ")");
}

Status Flag::CheckNumber(std::optional<double> number, std::string_view text) const {
  if (!number) return Ok{};
  if ((low_ && *number < *low_) || (high_ && *number > *high_)) {
    return MakeError(ErrorKind::kUsage, "{} is {}; it must be {}.", spelling(), text,
                     high_ ? "from " + constraint() : constraint());
  }
  return Ok{};
}

Status Flag::Set(std::string_view text) {
  if (!choices_.empty() && std::find(choices_.begin(), choices_.end(), text) == choices_.end()) {
    std::optional<std::string> meant = ClosestName(text, choices_);
    return MakeError(ErrorKind::kUsage, "{} is '{}'; it must be {}{}.", spelling(), text,
                     constraint(), meant ? fmt::format(" (did you mean {}?)", *meant) : "");
  }
  QUIRE_RETURN_IF_ERROR(assign_(*this, text));
  was_set_ = true;
  return Ok{};
}

Flag& FlagSet::NewFlag(std::string name, std::string help) {
  QUIRE_CHECK(Find(name) == nullptr);
  auto flag = std::make_unique<Flag>();
  flag->name_ = std::move(name);
  flag->help_ = std::move(help);
  flag->group_ = group_;
  flags_.push_back(std::move(flag));
  return *flags_.back();
}

Flag* FlagSet::Find(std::string_view name) const {
  for (const auto& flag : flags_) {
    if (flag->name() == name) return flag.get();
  }
  return nullptr;
}

Status FlagSet::CheckRequired() const {
  for (const auto& flag : flags_) {
    if (flag->is_required() && !flag->was_set()) {
      return MakeError(ErrorKind::kUsage, "{} is missing: {}", flag->spelling(), flag->help());
    }
  }
  return Ok{};
}

std::optional<std::string> ClosestName(std::string_view wanted,
                                       std::span<const std::string> known) {
  std::optional<std::string> best;
  size_t best_distance = std::max<size_t>(2, wanted.size() / 3) + 1;
  for (const std::string& name : known) {
    // Edit distance with transpositions of neighbours (restricted Damerau-Levenshtein).
    std::vector<std::vector<size_t>> d(wanted.size() + 1, std::vector<size_t>(name.size() + 1));
    for (size_t i = 0; i <= wanted.size(); ++i) d[i][0] = i;
    for (size_t j = 0; j <= name.size(); ++j) d[0][j] = j;
    for (size_t i = 1; i <= wanted.size(); ++i) {
      for (size_t j = 1; j <= name.size(); ++j) {
        size_t substitution = d[i - 1][j - 1] + (wanted[i - 1] == name[j - 1] ? 0 : 1);
        d[i][j] = std::min({substitution, d[i - 1][j] + 1, d[i][j - 1] + 1});
        bool swapped =
            i > 1 && j > 1 && wanted[i - 1] == name[j - 2] && wanted[i - 2] == name[j - 1];
        if (swapped) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
    size_t distance = d[wanted.size()][name.size()];
    if (distance < best_distance && distance < wanted.size()) {
      best_distance = distance;
      best = name;
    }
  }
  return best;
}

}  // namespace quire::base
