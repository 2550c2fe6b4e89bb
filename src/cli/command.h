// Command: one subcommand of `quire`. How to write one:
//
//     class ShoutCommand : public Command {
//      public:
//       std::string_view name() const override { return "shout"; }
//       std::string_view summary() const override { return "Prints a text in capitals."; }
//       void Declare(base::FlagSet& flags) override {
//         flags.Positional("TEXT", &text_, "What to print.").Required();
//         flags.Add("times", &times_, "How often.").Short('t').Range(1, 100);
//         flags.Example("quire shout -t 2 hello", "Prints HELLO twice");
//       }
//       Status Run(const CommandContext& context) override {
//         if (context.json) return WriteJson({{"text", Upper(text_)}});
//         return WriteOut(Upper(text_) + "\n");
//       }
//      private:
//       std::string text_;
//       int times_ = 1;
//     };
//     std::unique_ptr<Command> MakeShoutCommand() { return std::make_unique<ShoutCommand>(); }
//
// Declare the maker in commands.h and list it in commands.cc. A command returns its errors; the
// frame (cli.h) prints them as one sentence on stderr and turns them into the exit code. Results go
// to stdout, everything else to stderr. `--json`, `--help` and `--dump-config` exist for every
// command.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <boost/json/value.hpp>

#include "base/flags.h"
#include "base/result.h"
#include "cli/terminal.h"

namespace quire::cli {

struct CommandContext {
  Terminal terminal;
  bool json = false;  // --json: the result as one JSON value on stdout
};

class Command {
 public:
  virtual ~Command() = default;
  virtual std::string_view name() const = 0;
  virtual std::string_view summary() const = 0;  // one sentence
  virtual void Declare(base::FlagSet& flags) = 0;
  virtual Status Run(const CommandContext& context) = 0;
};

// Writes to stdout and flushes. kIo where that fails (a full disk, a closed pipe).
Status WriteOut(std::string_view text);

// The value as indented JSON, with a newline at its end.
std::string PrettyJson(const boost::json::value& value);
Status WriteJson(const boost::json::value& value);

// The whole file, or stdin for "-". kNotFound or kIo.
Result<std::string> ReadText(const std::string& path);

}  // namespace quire::cli
