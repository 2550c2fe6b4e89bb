// quire info: the machine as quire sees it.
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <sched.h>
#include <unistd.h>

#include "base/thread_team.h"
#include "bench/memory_bandwidth.h"
#include "cli/commands.h"
#include "kernels/kernel_table.h"

namespace quire::cli {
namespace {

// The value of the first line "key : value" of a file of such lines.
std::string FieldOfFile(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    size_t colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

std::string CpuName() {
  std::string name = FieldOfFile("/proc/cpuinfo", "model name");
  return name.empty() ? "unknown" : name;
}

// Cores that this process may use: a container may grant fewer than the machine has.
int UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

class InfoCommand : public Command {
 public:
  std::string_view name() const override { return "info"; }
  std::string_view summary() const override {
    return "Shows the processor, the kernels chosen for it and the memory bandwidth measured.";
  }

  void Declare(base::FlagSet& flags) override {
    flags.Add("threads", &threads_, "Threads that read memory; 0: one per core.")
        .Short('t')
        .Range(0, 1024);
    flags.Add("bandwidth", &bandwidth_, "Measure the memory bandwidth (half a second).");
    flags.Add("bandwidth-memory", &bandwidth_memory_, "Memory to read, several times the caches.")
        .Metavar("SIZE")
        .AtLeast(1 << 20);
    flags.Example("quire info", "What quire makes of this machine");
    flags.Example("quire info --json", "The same for a program");
  }

  Status Run(const CommandContext& context) override {
    int cores = UsableCores();
    double bytes_per_second = 0.0;
    base::ThreadTeam team(threads_ > 0 ? threads_ : cores);
    if (bandwidth_) {
      bench::BandwidthOptions options;
      options.bytes = bandwidth_memory_.bytes;
      QUIRE_ASSIGN_OR_RETURN(bytes_per_second, bench::MeasureReadBandwidth(team, options));
    }
    const auto memory =
        static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGESIZE));
    boost::json::object info = {
        {"version", QUIRE_VERSION}, {"cpu", CpuName()},
        {"cores", cores},           {"threads", team.size()},
        {"memory_bytes", memory},   {"kernels", std::string(kernels::DefaultKernels().name)}};
    if (bandwidth_) info["memory_read_bytes_per_second"] = bytes_per_second;
    boost::json::array& available = info["kernels_available"].emplace_array();
    for (const kernels::KernelTable& table : kernels::AvailableKernels()) {
      available.push_back({{"name", std::string(table.name)}, {"tested", table.tested}});
    }
    if (context.json) return WriteJson(info);
    return WriteOut(AsText(info, context.terminal));
  }

 private:
  static std::string AsText(const boost::json::object& info, const Terminal& terminal) {
    std::string text;
    auto line = [&](std::string_view label, std::string_view value) {
      text += terminal.Out(Style::kBold, fmt::format("{:<18}", label)) + std::string(value) + "\n";
    };
    auto string_of = [&](const char* key) { return std::string(info.at(key).as_string()); };
    line("quire", string_of("version"));
    line("processor", string_of("cpu"));
    line("cores", fmt::format("{} usable, {} threads", info.at("cores").as_int64(),
                              info.at("threads").as_int64()));
    line("memory", base::FormatBytes(info.at("memory_bytes").as_int64()));
    line("kernels", string_of("kernels") + " (QUIRE_ISA overrides)");
    for (const boost::json::value& kernel : info.at("kernels_available").as_array()) {
      line("", fmt::format("{}{}", std::string(kernel.at("name").as_string()),
                           kernel.at("tested").as_bool() ? "" : " (compiled, not tested)"));
    }
    if (const auto* read = info.if_contains("memory_read_bytes_per_second")) {
      line("memory read", fmt::format("{:.1f} GB/s with all threads", read->as_double() / 1e9));
    }
    return text;
  }

  int threads_ = 0;
  bool bandwidth_ = true;
  base::ByteSize bandwidth_memory_{int64_t{512} << 20};
};

}  // namespace

std::unique_ptr<Command> MakeInfoCommand() {
  return std::make_unique<InfoCommand>();
}

}  // namespace quire::cli
