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

std::string Overview(const Commands& commands, const Terminal& terminal) {
  std::string text = "quire runs large language models on CPUs, built around the KV cache.\n\n";
  text += "Usage: quire COMMAND [options]\n\n";
  for (const auto& command : commands) {
    std::string name(command->name());
    name.resize(std::max<size_t>(name.size(), 12), ' ');
    text += fmt::format("  {} {}\n", terminal.Out(Style::kBold, name), command->summary());
  }
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

Command* FindCommand(const Commands& commands, std::string_view name) {
  for (const auto& command : commands) {
    if (command->name() == name) return command.get();
  }
  return nullptr;
}

Error UnknownCommand(const Commands& commands, std::string_view name) {
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
  Command* command = FindCommand(commands, args[0]);
  if (command == nullptr) return UnknownCommand(commands, args[0]);
  std::vector<std::string> help = {"--help"};
  return RunCommand(*command, help, terminal);
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
  Command* command = FindCommand(commands, name);
  if (command == nullptr) return UnknownCommand(commands, name);
  Status status = RunCommand(*command, args.subspan(1), terminal);
  if (!status.ok() && status.error().kind == ErrorKind::kUsage) {
    return MakeError(ErrorKind::kUsage, "{} Try `{} --help`.", EndSentence(status.error().message),
                     Usage(*command));
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
