// BatchJob: a file of requests in, a file of responses out, as OpenAI's batch files have them.
//
//   in   {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {...}}
//   out  {"id": "batch-line-1", "custom_id": "a", "response": {"status_code", "request_id",
//   "body"},
//         "error": null}
//
// Responses are written as they finish, a line each; `id` names the line of the input they answer.
// A line that cannot be served becomes an error line and the rest goes on. A job that was
// interrupted resumes: lines whose answer lies whole in the output are not asked again. One job at
// a time writes an output.
#pragma once

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "engine/completion.h"
#include "engine/engine.h"
#include "server/openai_request.h"

namespace quire::cli {

struct BatchTotals {
  int lines = 0;    // of the input that hold a request
  int resumed = 0;  // answered by an earlier run
  int succeeded = 0;
  int failed = 0;  // error lines
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t tokens_computed = 0;  // by this run, of unfinished requests too

  int done() const { return resumed + succeeded + failed; }
};

class BatchJob {
 public:
  // Counts the input's lines and reads what the output already holds; a line cut off in the middle
  // at its end is removed.
  static Result<std::unique_ptr<BatchJob>> Open(const std::string& input_path,
                                                const std::string& output_path);

  // For Open, which reads what is there.
  explicit BatchJob(std::string output_path) : output_path_(std::move(output_path)) {}

  const BatchTotals& totals() const { return totals_; }

  // Answers every line. `progress` is called after each step. Responses carry the model's name.
  Status Run(engine::Engine& engine, const std::function<void(const BatchTotals&)>& progress);

 private:
  // A line being answered.
  struct OpenLine {
    std::string id;
    std::string custom_id;
    server::ApiRequest api;
    std::vector<engine::CompletionBuilder> builders;  // [prompts]
  };
  struct Route {
    std::shared_ptr<OpenLine> line;
    int prompt = 0;
  };

  Status OpenInput(const std::string& path);
  Status LockOutput();
  Status ReadEarlierOutput();
  Status CheckSameRequests();
  bool SubmitNextLine(engine::Engine& engine);
  Result<std::vector<sched::Request>> ParseLine(const std::string& text, OpenLine& line,
                                                const engine::Engine& engine) const;
  void Receive(const engine::SequenceUpdate& update, engine::Engine& engine);
  void Abandon(const std::shared_ptr<OpenLine>& line, engine::Engine& engine);
  void WriteResponse(OpenLine& line, const engine::Engine& engine);
  void WriteError(const OpenLine& line, const Error& error);
  void WriteLine(const boost::json::object& line);

  std::string output_path_;
  std::unique_ptr<std::istream> input_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> lock_{nullptr, std::fclose};
  std::ofstream output_;
  std::unordered_map<std::string, std::string> answered_;  // custom_id by id
  int line_number_ = 0;
  std::unordered_map<int, Route> routes_;  // by RequestId of what is under way
  BatchTotals totals_;
};

}  // namespace quire::cli
