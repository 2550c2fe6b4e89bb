// The only file that includes CLI11: it takes long to compile.
#include "cli/flag_parser.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <CLI/CLI.hpp>

namespace quire::cli {
namespace {

using base::Flag;
using base::FlagSet;

// Binds the declarations to CLI11 for one parse.
class Binding {
 public:
  explicit Binding(FlagSet& flags) : flags_(flags) {
    app_.set_help_flag();
    app_.allow_extras();
    app_.add_flag("-h,--help", help_);
    for (const auto& flag : flags.flags()) {
      if (flag->is_switch()) {
        BindSwitch(*flag);
      } else {
        BindValue(*flag);
      }
    }
  }

  Result<ParsedAs> Parse(std::span<const std::string> args) {
    std::vector<std::string> reversed(args.rbegin(), args.rend());
    try {
      app_.parse(reversed);
    } catch (const CLI::ArgumentMismatch& mismatch) {
      if (help_) return ParsedAs::kHelp;
      std::string what = mismatch.what();
      return MakeError(ErrorKind::kUsage, "{} needs a value.", what.substr(0, what.find(':')));
    } catch (const CLI::Error& error) {
      return MakeError(ErrorKind::kUsage, "{}.", error.what());
    } catch (const std::exception&) {  // CLI11 reads a switch's value as a number
      return MakeError(ErrorKind::kUsage, "{}", SwitchWithValue(args));
    }
    if (help_) return ParsedAs::kHelp;
    QUIRE_RETURN_IF_ERROR(CheckNothingRemains());
    if (error_) return *error_;
    QUIRE_RETURN_IF_ERROR(flags_.CheckRequired());
    return ParsedAs::kFlags;
  }

 private:
  std::string SwitchWithValue(std::span<const std::string> args) const {
    for (const std::string& arg : args) {
      const size_t equals = arg.find('=');
      if (!arg.starts_with("--") || equals == std::string::npos) continue;
      const std::string name = arg.substr(2, equals - 2);
      const Flag* flag = flags_.Find(name);
      if (flag == nullptr || !flag->is_switch()) continue;
      return fmt::format("{} is no way to set a switch; write --{} or --no-{}.", arg, name, name);
    }
    return "a switch takes no value; write --name or --no-name.";
  }

  void Set(Flag& flag, std::string_view text) {
    if (error_) return;
    Status status = flag.Set(text);
    if (!status.ok()) error_ = status.error();
  }

  static std::string Names(const Flag& flag) {
    if (flag.is_positional()) return flag.name();
    std::string names = "--" + flag.name();
    if (flag.short_letter()) names += fmt::format(",-{}", *flag.short_letter());
    return names;
  }

  void BindSwitch(Flag& flag) {
    app_.add_flag_function(Names(flag), [this, &flag](std::int64_t count) {
      Set(flag, count > 0 ? "true" : "false");
    });
    app_.add_flag_function("--no-" + flag.name(), [this, &flag](std::int64_t count) {
      Set(flag, count > 0 ? "false" : "true");
    });
  }

  void BindValue(Flag& flag) {
    CLI::Option* option =
        app_.add_option(Names(flag), CLI::callback_t([this, &flag](const CLI::results_t& values) {
                          for (const std::string& value : values) Set(flag, value);
                          return true;
                        }));
    option->type_size(1);
    if (!flag.is_repeated()) {
      option->expected(1)->take_last();
    } else if (flag.is_positional()) {
      option->expected(0, CLI::detail::expected_max_vector_size)->take_all()->allow_extra_args();
    } else {
      option->expected(1)->take_all()->allow_extra_args(false);
    }
  }

  Status CheckNothingRemains() const {
    for (const std::string& extra : app_.remaining()) {
      if (extra == "--") continue;
      if (extra.size() < 2 || extra[0] != '-') {
        return MakeError(ErrorKind::kUsage,
                         "'{}' is one argument too many; put text of several words in quotes.",
                         extra);
      }
      std::string name = extra.substr(0, extra.find('='));
      std::vector<std::string> known = {"--help", "--json"};
      for (const auto& flag : flags_.flags()) {
        if (!flag->is_positional()) known.push_back("--" + flag->name());
      }
      std::optional<std::string> meant = base::ClosestName(name, known);
      return MakeError(
          ErrorKind::kUsage, "there is no flag {}; {}", name,
          meant ? fmt::format("did you mean {}?", *meant) : std::string("--help lists the flags."));
    }
    return Ok{};
  }

  FlagSet& flags_;
  CLI::App app_;
  bool help_ = false;
  std::optional<Error> error_;
};

}  // namespace

Result<ParsedAs> ParseFlags(FlagSet& flags, std::span<const std::string> args) {
  return Binding(flags).Parse(args);
}

}  // namespace quire::cli
