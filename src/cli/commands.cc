#include "cli/commands.h"

namespace quire::cli {

std::vector<std::unique_ptr<Command>> AllCommands() {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(MakeRunCommand());
  commands.push_back(MakeServeCommand());
  commands.push_back(MakeBatchCommand());
  commands.push_back(MakeLogitsCommand());
  commands.push_back(MakeTokenizeCommand());
  commands.push_back(MakeDetokenizeCommand());
  commands.push_back(MakeTemplateCommand());
  commands.push_back(MakeInspectCommand());
  commands.push_back(MakeMakeModelCommand());
  commands.push_back(MakeEvalPerplexityCommand());
  commands.push_back(MakeEvalRecallCommand());
  commands.push_back(MakeEvalLonggenCommand());
  commands.push_back(MakeEvalStreamingCommand());
  commands.push_back(MakeSimCommand());
  commands.push_back(MakeInfoCommand());
  return commands;
}

}  // namespace quire::cli
