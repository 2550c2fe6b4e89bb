// The model that a command works on: the flag -m, or the model that comes with quire.
#pragma once

#include <string>

#include "base/flags.h"
#include "base/result.h"

namespace quire::cli {

// $QUIRE_MODEL if set; else models/target/target-q8_0.gguf, looked for beside the program's build
// or installation and in the current folder. kNotFound with what to do.
Result<std::string> DefaultModelPath();

// -m, --model; a member of a command.
class ModelFlag {
 public:
  void Declare(base::FlagSet& flags);

  bool named() const { return !named_.empty(); }

  // What was named, or the default; kNotFound in one sentence if nothing is there.
  Result<std::string> Path() const;

 private:
  std::string named_;
};

}  // namespace quire::cli
