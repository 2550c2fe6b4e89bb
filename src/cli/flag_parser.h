// The grammar of the command line: --name value, --name=value, -n value, --switch, --no-switch,
// positional arguments, and -- before what must not be read as a flag.
#pragma once

#include <span>
#include <string>

#include "base/flags.h"

namespace quire::cli {

enum class ParsedAs { kFlags, kHelp };

// Sets the flags' targets from `args` (without the program's and the command's name). kUsage with
// one sentence for whatever does not fit; an unknown flag is told what was probably meant.
Result<ParsedAs> ParseFlags(base::FlagSet& flags, std::span<const std::string> args);

}  // namespace quire::cli
