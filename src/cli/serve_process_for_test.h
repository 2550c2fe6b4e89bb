// Starts `quire serve` on a free port, for tests; ends it at the end of the object's life.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <boost/json.hpp>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace quire::cli {

class ServeProcess {
 public:
  explicit ServeProcess(std::vector<std::string> flags) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    process_ = ::fork();
    if (process_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::close(ends[0]);
      ::close(ends[1]);
      std::vector<std::string> args = {QUIRE_BINARY, "serve", "--port", "0", "--json"};
      args.insert(args.end(), flags.begin(), flags.end());
      std::vector<char*> argv;
      for (std::string& arg : args) argv.push_back(arg.data());
      argv.push_back(nullptr);
      ::execv(QUIRE_BINARY, argv.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    // The announcement is the whole of what it writes.
    std::string text;
    char byte = 0;
    boost::json::value announced;
    while (announced.is_null() && ::read(ends[0], &byte, 1) == 1) {
      text += byte;
      boost::json::error_code code;
      if (byte == '}') announced = boost::json::parse(text, code);
    }
    ::close(ends[0]);
    if (!announced.is_object()) {
      ADD_FAILURE() << "the server said: " << text;
      return;
    }
    url_ = announced.at("url").as_string();
    port_ = static_cast<uint16_t>(std::stoi(url_.substr(url_.rfind(':') + 1)));
  }
  ~ServeProcess() {
    if (process_ > 0) Stop(SIGKILL);
  }
  ServeProcess(const ServeProcess&) = delete;
  ServeProcess& operator=(const ServeProcess&) = delete;

  const std::string& url() const { return url_; }
  uint16_t port() const { return port_; }

  void Signal(int signal) const { ::kill(process_, signal); }

  // The exit code, or minus the signal that ended it: SIGKILL if nothing else did in half a minute.
  int Stop(int signal) {
    ::kill(process_, signal);
    int status = 0;
    for (int i = 0; ::waitpid(process_, &status, WNOHANG) == 0; ++i) {
      if (i == 3000) ::kill(process_, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    process_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t process_ = 0;
  std::string url_;
  uint16_t port_ = 0;
};

}  // namespace quire::cli
