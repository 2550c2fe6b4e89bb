// Flags: an options struct declares each of its settings once (name, default, unit, help, range);
// parsing, `--help`, validation, the dump of the configuration and the documentation come from
// that.
//
//     struct SamplingOptions {
//       float temperature = 1.0f;
//       void Declare(base::FlagSet& flags) {
//         flags.Add("temperature", &temperature, "Randomness; 0 is greedy.").Range(0, 100);
//       }
//     };
//
// Defaults are the targets' values when declared. Targets must outlive the FlagSet. Known types:
// bool (--name, --no-name), int, int64_t, uint64_t, float, double, std::string, ByteSize
// ("512MiB"), std::optional of these (unset by default) and std::vector of these (the flag may be
// repeated). The command line's grammar is cli/flag_parser.h's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/result.h"

namespace quire::base {

// A number of bytes, written as 1048576, 512MiB, 4GiB or 4GB.
struct ByteSize {
  int64_t bytes = 0;
  friend auto operator<=>(const ByteSize&, const ByteSize&) = default;
};

// "3.2 GiB", "512 KiB", "17 bytes": for people.
std::string FormatBytes(int64_t bytes);

namespace flags_internal {

// nullopt or false: the text is no value of that type.
bool ParseValue(std::string_view text, bool& out);
bool ParseValue(std::string_view text, int& out);
bool ParseValue(std::string_view text, int64_t& out);
bool ParseValue(std::string_view text, uint64_t& out);
bool ParseValue(std::string_view text, float& out);
bool ParseValue(std::string_view text, double& out);
bool ParseValue(std::string_view text, std::string& out);
bool ParseValue(std::string_view text, ByteSize& out);

// As ParseValue reads it.
template <typename T>
std::string ShowValue(const T& value) {
  if constexpr (std::is_same_v<T, ByteSize>) {
    return FormatBytes(value.bytes);
  } else {
    return fmt::format("{}", value);
  }
}

// What a value of the type is called in help and errors.
inline const char* KindName(const bool&) {
  return "true or false";
}
inline const char* KindName(const int&) {
  return "a whole number";
}
inline const char* KindName(const int64_t&) {
  return "a whole number";
}
inline const char* KindName(const uint64_t&) {
  return "a whole number, not negative";
}
inline const char* KindName(const float&) {
  return "a number";
}
inline const char* KindName(const double&) {
  return "a number";
}
inline const char* KindName(const std::string&) {
  return "a text";
}
inline const char* KindName(const ByteSize&) {
  return "a size such as 512MiB or 4GiB";
}

// The value as a number, for ranges; nullopt where the type has none.
template <typename T>
std::optional<double> AsNumber(const T& value) {
  if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
    return static_cast<double>(value);
  } else {
    return std::nullopt;
  }
}
inline std::optional<double> AsNumber(const ByteSize& value) {
  return static_cast<double>(value.bytes);
}

}  // namespace flags_internal

class Flag {
 public:
  // Declaration.
  Flag& Short(char letter);
  Flag& Unit(std::string unit);          // "tokens", "seconds"
  Flag& Metavar(std::string name);       // what stands for the value in help: "FILE"
  Flag& Range(double low, double high);  // both inclusive
  Flag& AtLeast(double low);
  Flag& OneOf(std::vector<std::string> choices);
  Flag& Required();

  const std::string& name() const { return name_; }  // without dashes; of a positional: "MODEL"
  const std::string& help() const { return help_; }
  const std::string& group() const { return group_; }
  const std::string& unit() const { return unit_; }
  const std::string& default_text() const { return default_text_; }  // empty: none
  const std::string& metavar() const { return metavar_; }
  std::optional<char> short_letter() const { return short_; }
  bool is_switch() const { return is_switch_; }
  bool is_repeated() const { return is_repeated_; }
  bool is_positional() const { return is_positional_; }
  bool is_required() const { return is_required_; }
  bool was_set() const { return was_set_; }
  std::string spelling() const;    // "--temperature" or "MODEL"
  std::string constraint() const;  // "0 to 100", "at least 1", "f16, bf16 or f32"; may be empty
  std::string value_text() const { return show_(); }

  // kUsage with one sentence if the text is no value or out of range; the target then keeps its
  // value.
  Status Set(std::string_view text);

 private:
  friend class FlagSet;
  using Assign = std::function<Status(const Flag&, std::string_view)>;

  Status CheckNumber(std::optional<double> number, std::string_view text) const;
  Error Malformed(std::string_view text, std::string_view kind) const;

  std::string name_;
  std::string help_;
  std::string group_;
  std::string unit_;
  std::string metavar_;
  std::string default_text_;
  std::optional<char> short_;
  std::optional<double> low_;
  std::optional<double> high_;
  std::vector<std::string> choices_;
  bool is_switch_ = false;
  bool is_repeated_ = false;
  bool is_positional_ = false;
  bool is_required_ = false;
  bool was_set_ = false;
  Assign assign_;
  std::function<std::string()> show_;
};

struct FlagExample {
  std::string command_line;
  std::string explanation;
};

class FlagSet {
 public:
  // A flag --name; the result can be refined (Short, Range, ...).
  template <typename T>
  Flag& Add(std::string name, T* target, std::string help) {
    Flag& flag = NewFlag(std::move(name), std::move(help));
    Bind(flag, target);
    return flag;
  }
  // An argument without a name, in the order of declaration. Optional unless Required().
  template <typename T>
  Flag& Positional(std::string name, T* target, std::string help) {
    Flag& flag = Add(std::move(name), target, std::move(help));
    flag.is_positional_ = true;
    return flag;
  }
  // Flags declared from here on stand under this heading in help.
  void Group(std::string title) { group_ = std::move(title); }
  void Example(std::string command_line, std::string explanation) {
    examples_.push_back({std::move(command_line), std::move(explanation)});
  }

  std::span<const std::unique_ptr<Flag>> flags() const { return flags_; }
  std::span<const FlagExample> examples() const { return examples_; }
  Flag* Find(std::string_view name) const;

  // kUsage if a required flag was not set.
  Status CheckRequired() const;

  // Help of the command `usage` ("quire run") for a terminal, and as a section of a manual.
  std::string HelpText(std::string_view usage, std::string_view summary) const;
  std::string HelpMarkdown(std::string_view usage, std::string_view summary) const;

 private:
  Flag& NewFlag(std::string name, std::string help);
  std::string UsageLine(std::string_view usage) const;

  template <typename T>
  static Result<T> ParseChecked(const Flag& flag, std::string_view text) {
    T value{};
    if (!flags_internal::ParseValue(text, value)) {
      return flag.Malformed(text, flags_internal::KindName(value));
    }
    QUIRE_RETURN_IF_ERROR(flag.CheckNumber(flags_internal::AsNumber(value), text));
    return value;
  }
  template <typename T>
  static void Bind(Flag& flag, T* target) {
    flag.is_switch_ = std::is_same_v<T, bool>;
    flag.show_ = [target] { return flags_internal::ShowValue(*target); };
    flag.assign_ = [target](const Flag& f, std::string_view text) -> Status {
      QUIRE_ASSIGN_OR_RETURN(*target, ParseChecked<T>(f, text));
      return Ok{};
    };
    flag.default_text_ = flag.show_();
  }
  template <typename T>
  static void Bind(Flag& flag, std::optional<T>* target) {
    flag.show_ = [target] { return *target ? flags_internal::ShowValue(**target) : std::string(); };
    flag.assign_ = [target](const Flag& f, std::string_view text) -> Status {
      QUIRE_ASSIGN_OR_RETURN(*target, ParseChecked<T>(f, text));
      return Ok{};
    };
    flag.default_text_ = flag.show_();
  }
  template <typename T>
  static void Bind(Flag& flag, std::vector<T>* target) {
    flag.is_repeated_ = true;
    flag.show_ = [target] {
      std::string all;
      for (const T& value : *target)
        all += (all.empty() ? "" : ",") + flags_internal::ShowValue(value);
      return all;
    };
    flag.assign_ = [target](const Flag& f, std::string_view text) -> Status {
      QUIRE_ASSIGN_OR_RETURN(T value, ParseChecked<T>(f, text));
      target->push_back(std::move(value));
      return Ok{};
    };
    flag.default_text_ = flag.show_();
  }

  std::vector<std::unique_ptr<Flag>> flags_;
  std::vector<FlagExample> examples_;
  std::string group_;
};

// The known name closest to `wanted` by edit distance, if it is close enough to be meant.
std::optional<std::string> ClosestName(std::string_view wanted, std::span<const std::string> known);

}  // namespace quire::base
