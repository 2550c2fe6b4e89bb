#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "cli/cli.h"

// Nothing of ours throws; the standard library does where the system has no more memory or threads
// to give. That ends a command with a sentence, too.
int main(int argc, char** argv) {
  try {
    std::vector<std::string> args(argv + 1, argv + argc);
    return quire::cli::RunCli(args);
  } catch (const std::bad_alloc&) {
    std::fputs("quire: the system has no memory left for this; free some or ask for less.\n",
               stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "quire: the system refused: %s.\n", error.what());
  }
  return 6;
}
