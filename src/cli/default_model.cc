#include "cli/default_model.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

namespace quire::cli {

Result<std::string> DefaultModelPath() {
  namespace fs = std::filesystem;
  const char* named = std::getenv("QUIRE_MODEL");
  if (named != nullptr && named[0] != '\0') return std::string(named);
  const fs::path model = fs::path("models") / "target" / "target-q8_0.gguf";
  std::error_code error;
  fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  std::vector<fs::path> places;
  if (!error) {
    places.push_back(program.parent_path().parent_path() / model);        // build/PRESET/quire
    places.push_back(program.parent_path() / "share" / "quire" / model);  // PREFIX/bin/quire
  }
  places.push_back(model);
  for (const fs::path& place : places) {
    if (fs::exists(place, error)) return place.string();
  }
  return MakeError(ErrorKind::kNotFound,
                   "the bundled model {} is not here; name a model with -m or QUIRE_MODEL.",
                   model.string());
}

void ModelFlag::Declare(base::FlagSet& flags) {
  flags
      .Add("model", &named_,
           "GGUF file, first file of a split GGUF, or Hugging Face folder; without it the bundled "
           "model.")
      .Short('m')
      .Metavar("PATH");
}

Result<std::string> ModelFlag::Path() const {
  if (named_.empty()) return DefaultModelPath();
  std::error_code error;
  if (std::filesystem::exists(named_, error)) return named_;
  return MakeError(ErrorKind::kNotFound, "there is no model '{}': no such file or folder.", named_);
}

}  // namespace quire::cli
