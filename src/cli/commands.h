// The makers of all subcommands, and the list of them.
#pragma once

#include <memory>
#include <vector>

#include "cli/command.h"

namespace quire::cli {

std::unique_ptr<Command> MakeRunCommand();
std::unique_ptr<Command> MakeServeCommand();
std::unique_ptr<Command> MakeBatchCommand();
std::unique_ptr<Command> MakeLogitsCommand();
std::unique_ptr<Command> MakeTokenizeCommand();
std::unique_ptr<Command> MakeDetokenizeCommand();
std::unique_ptr<Command> MakeTemplateCommand();
std::unique_ptr<Command> MakeInspectCommand();
std::unique_ptr<Command> MakeMakeModelCommand();
std::unique_ptr<Command> MakeEvalPerplexityCommand();
std::unique_ptr<Command> MakeEvalRecallCommand();
std::unique_ptr<Command> MakeEvalLonggenCommand();
std::unique_ptr<Command> MakeEvalStreamingCommand();
std::unique_ptr<Command> MakeSimCommand();
std::unique_ptr<Command> MakeInfoCommand();

// In the order in which help shows them.
std::vector<std::unique_ptr<Command>> AllCommands();

}  // namespace quire::cli
