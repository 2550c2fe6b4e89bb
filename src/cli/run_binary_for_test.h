// Runs the real program for the tests of commands: exit code, stdout and stderr.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

namespace quire::cli {

struct BinaryResult {
  int exit_code = -1;
  std::string out;
  std::string err;
};

// A folder of this object alone, removed at its end.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "quire_cli_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string File(const std::string& name) const { return (path_ / name).string(); }
  std::string Write(const std::string& name, const std::string& content) const {
    std::ofstream(File(name), std::ios::binary) << content;
    return File(name);
  }
  static std::string Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }

 private:
  std::filesystem::path path_;
};

// Runs `quire ARGUMENTS` through the shell in the current folder.
inline BinaryResult RunBinary(const std::string& arguments) {
  static const ScratchFolder scratch;
  const std::string out = scratch.File("stdout");
  const std::string err = scratch.File("stderr");
  std::string command =
      std::string("'") + QUIRE_BINARY + "' " + arguments + " >" + out + " 2>" + err;
  int status = std::system(command.c_str());
  BinaryResult result;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  result.out = ScratchFolder::Read(out);
  result.err = ScratchFolder::Read(err);
  return result;
}

}  // namespace quire::cli
