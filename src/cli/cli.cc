#include "cli/cli.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <vector>

#include <boost/json/object.hpp>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "base/flags.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flag_parser.h"
#include "cli/terminal.h"

namespace quire::cli {
namespace {

using Commands = std::vector<std::unique_ptr<Command>>;

// What every command has besides its own flags.
struct CommonFlags {
  bool json = false;
  bool dump_config = false;
  std::string log_level = "warning";

  void Declare(base::FlagSet& flags) {
    flags.Group("Output");
    flags.Add("json", &json, "Print the result as JSON.");
    flags.Add("dump-config", &dump_config, "Print the value of every flag as JSON and stop.");
    flags.Add("log-level", &log_level, "What is logged, to standard error.")
        .OneOf({"debug", "info", "warning", "error", "off"});
  }
};

// Messages come from many places; printed, each is a sentence.
std::string EndSentence(std::string message) {
  if (message.empty() || std::string_view(".?!\n").find(message.back()) == std::string_view::npos) {
    message += '.';
  }
  return message;
}

std::string Usage(const Command& command) {
  return "quire " + std::string(command.name());
}

void DeclareAll(Command& command, CommonFlags& common, base::FlagSet& flags) {
  command.Declare(flags);
  common.Declare(flags);
}

// A line for each command whose name begins with `prefix`.
std::string CommandList(const Commands& commands, std::string_view prefix,
                        const Terminal& terminal) {
  size_t width = 0;
  for (const auto& command : commands) width = std::max(width, command->name().size());
  std::string text;
  for (const auto& command : commands) {
    if (!command->name().starts_with(prefix)) continue;
    std::string name(command->name());
    name.resize(width, ' ');
    text += fmt::format("  {}  {}\n", terminal.Out(Style::kBold, name), command->summary());
  }
  return text;
}

std::string Overview(const Commands& commands, const Terminal& terminal) {
  std::string text = "quire runs large language models on CPUs, built around the KV cache.\n\n";
  text += "Usage: quire COMMAND [options]\n\n" + CommandList(commands, "", terminal);
  return text + "\nquire COMMAND --help explains a command; quire --version prints the version.\n";
}

// The manual of all commands, as Markdown.
std::string Manual(const Commands& commands) {
  std::string text =
      "# Commands\n\nMade from the flags' declarations by `quire help --markdown`.\n";
  for (const auto& command : commands) {
    base::FlagSet flags;
    CommonFlags common;
    DeclareAll(*command, common, flags);
    text += "\n" + flags.HelpMarkdown(Usage(*command), command->summary());
  }
  return text;
}

// A command and how many arguments its name takes: "run", or "eval perplexity".
struct Found {
  Command* command = nullptr;
  size_t words = 0;
};

std::optional<Found> FindCommand(const Commands& commands, std::span<const std::string> args) {
  for (const auto& command : commands) {
    if (command->name() == args[0]) return Found{command.get(), 1};
    if (args.size() > 1 && command->name() == args[0] + " " + args[1]) {
      return Found{command.get(), 2};
    }
  }
  return std::nullopt;
}

bool IsGroup(const Commands& commands, std::string_view word) {
  return std::ranges::any_of(commands, [&](const auto& command) {
    return command->name().starts_with(std::string(word) + " ");
  });
}

Error UnknownCommand(const Commands& commands, std::span<const std::string> args) {
  std::string name = args[0];
  if (IsGroup(commands, name)) {
    if (args.size() == 1) {
      return MakeError(ErrorKind::kUsage,
                       "quire {} needs one more word; quire {} --help lists them", name, name);
    }
    name += " " + args[1];
  }
  std::vector<std::string> known = {"help"};
  for (const auto& command : commands) known.emplace_back(command->name());
  std::optional<std::string> meant = base::ClosestName(name, known);
  return MakeError(ErrorKind::kUsage, "there is no command '{}'; {}", name,
                   meant ? fmt::format("did you mean {}?", *meant)
                         : std::string("quire --help lists the commands."));
}

boost::json::object ConfigAsJson(const base::FlagSet& flags) {
  boost::json::object config;
  for (const auto& flag : flags.flags()) {
    if (flag->name() != "dump-config") config[flag->name()] = flag->value_text();
  }
  return config;
}

Status RunCommand(Command& command, std::span<const std::string> args, const Terminal& terminal) {
  base::FlagSet flags;
  CommonFlags common;
  DeclareAll(command, common, flags);
  QUIRE_ASSIGN_OR_RETURN(ParsedAs parsed, ParseFlags(flags, args));
  if (parsed == ParsedAs::kHelp) return WriteOut(flags.HelpText(Usage(command), command.summary()));
  if (common.dump_config) return WriteJson(ConfigAsJson(flags));
  spdlog::set_level(spdlog::level::from_str(common.log_level));
  return command.Run({terminal, common.json});
}

Status RunHelp(const Commands& commands, std::span<const std::string> args,
               const Terminal& terminal) {
  if (args.empty()) return WriteOut(Overview(commands, terminal));
  if (args[0] == "--markdown") return WriteOut(Manual(commands));
  if (args.size() == 1 && IsGroup(commands, args[0])) {
    return WriteOut(CommandList(commands, args[0] + " ", terminal));
  }
  const std::optional<Found> found = FindCommand(commands, args);
  if (!found) return UnknownCommand(commands, args);
  std::vector<std::string> help = {"--help"};
  return RunCommand(*found->command, help, terminal);
}

Status Dispatch(const Commands& commands, std::span<const std::string> args,
                const Terminal& terminal) {
  if (args.empty()) {
    std::fputs(Overview(commands, terminal).c_str(), stderr);
    return MakeError(ErrorKind::kUsage, "a command is missing.");
  }
  const std::string& name = args[0];
  if (name == "--version" || name == "-V") return WriteOut("quire " QUIRE_VERSION "\n");
  if (name == "--help" || name == "-h" || name == "help") {
    return RunHelp(commands, args.subspan(1), terminal);
  }
  const std::optional<Found> found = FindCommand(commands, args);
  if (!found && IsGroup(commands, name) && args.size() > 1 && args[1] == "--help") {
    return RunHelp(commands, args.first(1), terminal);
  }
  if (!found) return UnknownCommand(commands, args);
  Status status = RunCommand(*found->command, args.subspan(found->words), terminal);
  if (!status.ok() && status.error().kind == ErrorKind::kUsage) {
    return MakeError(ErrorKind::kUsage, "{} Try `{} --help`.", EndSentence(status.error().message),
                     Usage(*found->command));
  }
  return status;
}

}  // namespace

int ExitCode(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
      return 2;
    case ErrorKind::kNotFound:
      return 3;
    case ErrorKind::kInvalid:
      return 4;
    case ErrorKind::kUnsupported:
      return 5;
    case ErrorKind::kExhausted:
      return 6;
    case ErrorKind::kIo:
      return 7;
    case ErrorKind::kContradiction:
      return 8;
  }
  return 1;
}

int RunCli(std::span<const std::string> args) {
  Terminal terminal = Terminal::Detect();
  spdlog::set_default_logger(spdlog::stderr_color_mt("quire"));
  Status status = Dispatch(AllCommands(), args, terminal);
  if (status.ok()) return 0;
  std::string line = fmt::format("{} {}\n", terminal.Err(Style::kRed, "quire:"),
                                 EndSentence(status.error().message));
  std::fputs(line.c_str(), stderr);
  return ExitCode(status.error().kind);
}

}  // namespace quire::cli
