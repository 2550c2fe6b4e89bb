// The frame of the program: finds the subcommand, parses its flags, prints help, errors and
// version.
//
// Exit codes: 0 success; 2 usage; 3 not found; 4 malformed content; 5 unsupported; 6 out of memory
// or another resource; 7 the system refused.
#pragma once

#include <span>
#include <string>

#include "base/result.h"

namespace quire::cli {

int ExitCode(ErrorKind kind);

// `args` without the program's name; returns the exit code.
int RunCli(std::span<const std::string> args);

}  // namespace quire::cli
