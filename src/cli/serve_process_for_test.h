// Starts `quire serve` on a free port, for tests; ends it at the end of the object's life.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <boost/json.hpp>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/http_test_client.h"

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
    if (process_ <= 0) return;
    // A sanitizer's findings are told at the end, by the exit code; a second signal would end the
    // process while it looks for leaks.
    Signal(SIGTERM);
    std::optional<int> code = Await(std::chrono::seconds(5));
    if (!code) code = Stop(SIGTERM);
    EXPECT_EQ(*code, 0);
  }
  ServeProcess(const ServeProcess&) = delete;
  ServeProcess& operator=(const ServeProcess&) = delete;

  pid_t process() const { return process_; }
  const std::string& url() const { return url_; }
  uint16_t port() const { return port_; }

  void Signal(int signal) const { ::kill(process_, signal); }

  // The exit code, or minus the signal that ended it; nullopt: it still runs after so long.
  std::optional<int> Await(std::chrono::milliseconds patience) {
    int status = 0;
    for (auto waited = std::chrono::milliseconds(0); ::waitpid(process_, &status, WNOHANG) == 0;
         waited += std::chrono::milliseconds(10)) {
      if (waited >= patience) return std::nullopt;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    process_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  // The same after `signal`; SIGKILL if nothing else ends it in half a minute.
  int Stop(int signal) {
    Signal(signal);
    if (const auto code = Await(std::chrono::seconds(30))) return *code;
    Signal(SIGKILL);
    return Await(std::chrono::seconds(30)).value_or(-SIGKILL);
  }

 private:
  pid_t process_ = 0;
  std::string url_;
  uint16_t port_ = 0;
};

// A template in the style of ChatML that knows tools.
inline constexpr const char* kTemplate =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if tools %}<tool_call>{{ tools|tojson }}{% endif %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

inline boost::json::object Body(const server::TestResponse& response) {
  return boost::json::parse(response.body).as_object();
}

// The data of a stream's events, [DONE] left out.
inline std::vector<boost::json::object> Events(const std::string& body) {
  std::vector<boost::json::object> events;
  size_t at = 0;
  while ((at = body.find("data: ", at)) != std::string::npos) {
    at += 6;
    const std::string data = body.substr(at, body.find("\n\n", at) - at);
    if (data != "[DONE]") events.push_back(boost::json::parse(data).as_object());
  }
  return events;
}

// The value of a metric of one series.
inline double Metric(const ServeProcess& server, const std::string& name) {
  const std::string text = server::TestClient(server.port()).Ask(server::Get("/metrics")).body;
  const size_t at = text.find("\n" + name + "{");
  EXPECT_NE(at, std::string::npos) << name;
  return std::stod(text.substr(text.find("} ", at) + 2));
}

// Until a metric is at least `value`; fails after ten seconds.
inline void AwaitMetric(const ServeProcess& server, const std::string& name, double value) {
  for (int i = 0; i < 1000 && Metric(server, name) < value; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_GE(Metric(server, name), value) << name;
}

}  // namespace quire::cli
