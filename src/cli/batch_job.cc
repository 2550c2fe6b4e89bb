#include "cli/batch_job.h"

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <sstream>
#include <utility>

#include <boost/json.hpp>
#include <sys/file.h>

#include "base/rng.h"
#include "cli/command.h"
#include "server/openai_format.h"
#include "server/openai_prompts.h"

namespace quire::cli {
namespace json = boost::json;
namespace {

// Enough requests under way that a step is always full, few enough that memory stays flat however
// long the input is.
constexpr size_t kQueuedPerSequence = 4;

bool IsBlank(const std::string& line) {
  return line.find_first_not_of(" \t\r\n") == std::string::npos;
}

std::string StringField(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : "";
}

}  // namespace

Result<std::unique_ptr<BatchJob>> BatchJob::Open(const std::string& input_path,
                                                 const std::string& output_path) {
  std::error_code code;
  if (std::filesystem::exists(output_path, code) &&
      !std::filesystem::is_regular_file(output_path, code)) {
    return MakeError(ErrorKind::kUsage,
                     "'{}' is no file; answers are kept in one, so that the job can resume",
                     output_path);
  }
  auto job = std::make_unique<BatchJob>(output_path);
  QUIRE_RETURN_IF_ERROR(job->OpenInput(input_path));
  QUIRE_RETURN_IF_ERROR(job->LockOutput());
  QUIRE_RETURN_IF_ERROR(job->ReadEarlierOutput());
  QUIRE_RETURN_IF_ERROR(job->CheckSameRequests());
  job->output_.open(output_path, std::ios::app);
  if (!job->output_) {
    return MakeError(ErrorKind::kIo, "cannot write '{}': {}", output_path, std::strerror(errno));
  }
  return job;
}

// A file is read line by line; what cannot be read twice (a pipe, -) is read whole.
Status BatchJob::OpenInput(const std::string& path) {
  std::error_code code;
  if (std::filesystem::is_regular_file(path, code)) {
    input_ = std::make_unique<std::ifstream>(path);
    if (!*input_) {
      return MakeError(ErrorKind::kIo, "cannot read '{}': {}", path, std::strerror(errno));
    }
  } else {
    QUIRE_ASSIGN_OR_RETURN(std::string text, ReadText(path));
    input_ = std::make_unique<std::istringstream>(std::move(text));
  }
  for (std::string line; std::getline(*input_, line);) {
    if (!IsBlank(line)) ++totals_.lines;
  }
  input_->clear();
  input_->seekg(0);
  return Ok{};
}

// Two jobs that write one file would both answer everything. Held until the process ends.
Status BatchJob::LockOutput() {
  lock_.reset(std::fopen(output_path_.c_str(), "a"));
  if (lock_ == nullptr) {
    return MakeError(ErrorKind::kIo, "cannot write '{}': {}", output_path_, std::strerror(errno));
  }
  if (::flock(::fileno(lock_.get()), LOCK_EX | LOCK_NB) != 0) {
    return MakeError(ErrorKind::kUsage, "another job is writing '{}'", output_path_);
  }
  return Ok{};
}

Status BatchJob::ReadEarlierOutput() {
  std::ifstream earlier(output_path_, std::ios::binary);
  if (!earlier) return Ok{};
  std::uintmax_t whole_bytes = 0;
  for (std::string line; std::getline(earlier, line);) {
    if (earlier.eof()) break;  // no newline: the earlier run was cut off while writing it
    boost::system::error_code code;
    const json::value value = json::parse(line, code);
    if (code || !value.is_object() || StringField(value.get_object(), "id").empty()) {
      return MakeError(
          ErrorKind::kInvalid,
          "'{}' exists and is not the output of a batch; name another file or remove it",
          output_path_);
    }
    answered_[StringField(value.get_object(), "id")] = StringField(value.get_object(), "custom_id");
    whole_bytes += line.size() + 1;
  }
  earlier.close();
  std::error_code code;
  std::filesystem::resize_file(output_path_, whole_bytes, code);
  if (code) {
    return MakeError(ErrorKind::kIo, "cannot resume '{}': {}", output_path_, code.message());
  }
  return Ok{};
}

// Lines are known by their number: an input that was changed since must not pass for the same.
Status BatchJob::CheckSameRequests() {
  if (answered_.empty()) return Ok{};
  int number = 0;
  for (std::string text; std::getline(*input_, text);) {
    const auto answer = answered_.find(fmt::format("batch-line-{}", ++number));
    if (answer == answered_.end() || answer->second.empty()) continue;
    boost::system::error_code code;
    const json::value line = json::parse(text, code);
    const std::string now =
        !code && line.is_object() ? StringField(line.get_object(), "custom_id") : std::string();
    if (now == answer->second) continue;
    return MakeError(ErrorKind::kUsage,
                     "'{}' answers another input: its line {} was '{:.80}' and is now '{:.80}'; "
                     "name another output",
                     output_path_, number, answer->second, now);
  }
  input_->clear();
  input_->seekg(0);
  return Ok{};
}

Status BatchJob::Run(engine::Engine& engine,
                     const std::function<void(const BatchTotals&)>& progress) {
  const size_t window =
      kQueuedPerSequence * static_cast<size_t>(engine.scheduler().options().max_num_seqs);
  const engine::UpdateSink sink = [&](const engine::SequenceUpdate& update) {
    Receive(update, engine);
  };
  bool more = true;
  while (more || !routes_.empty()) {
    while (more && routes_.size() < window) more = SubmitNextLine(engine);
    if (!engine.Step(sink)) QUIRE_CHECK(routes_.empty());  // every request ends with an update
    const sched::SchedulerStats stats = engine.scheduler().stats();
    totals_.tokens_computed = stats.decode_tokens + stats.prefill_tokens;
    progress(totals_);
    if (!output_) {
      return MakeError(ErrorKind::kIo, "cannot write '{}': {}", output_path_, std::strerror(errno));
    }
  }
  return Ok{};
}

// False at the input's end.
bool BatchJob::SubmitNextLine(engine::Engine& engine) {
  std::string text;
  do {
    if (!std::getline(*input_, text)) return false;
    ++line_number_;
  } while (IsBlank(text));
  auto line = std::make_shared<OpenLine>();
  line->id = fmt::format("batch-line-{}", line_number_);
  if (answered_.contains(line->id)) {
    ++totals_.resumed;
    return true;
  }
  Result<std::vector<sched::Request>> requests = ParseLine(text, *line, engine);
  if (!requests.ok()) {
    WriteError(*line, requests.error());
    return true;
  }
  std::vector<RequestId> submitted;
  for (sched::Request& request : *requests) {
    line->builders.emplace_back(request);
    Result<RequestId> id = engine.Submit(std::move(request));
    if (!id.ok()) {
      for (const RequestId earlier : submitted) {
        engine.Cancel(earlier);
        routes_.erase(earlier.value);
      }
      WriteError(*line, id.error());
      return true;
    }
    routes_[id->value] = {line, static_cast<int>(submitted.size())};
    submitted.push_back(*id);
  }
  return true;
}

Result<std::vector<sched::Request>> BatchJob::ParseLine(const std::string& text, OpenLine& line,
                                                        const engine::Engine& engine) const {
  boost::system::error_code code;
  const json::value value = json::parse(text, code);
  if (code || !value.is_object()) {
    return MakeError(ErrorKind::kUsage, "line {} is not a JSON object{}", line_number_,
                     code ? ": " + code.message() : "");
  }
  const json::object& object = value.get_object();
  line.custom_id = StringField(object, "custom_id");
  const std::string url = StringField(object, "url");
  const std::optional<server::Endpoint> endpoint = server::EndpointFromUrl(url);
  if (!endpoint) {
    return Error{ErrorKind::kUsage,
                 fmt::format("line {} has the url '{}'; supported are /v1/completions and "
                             "/v1/chat/completions",
                             line_number_, url),
                 "url"};
  }
  const json::value* body = object.if_contains("body");
  if (body == nullptr) {
    return Error{ErrorKind::kUsage, fmt::format("line {} has no body", line_number_), "body"};
  }
  const engine::LoadedModel& model = engine.model();
  QUIRE_ASSIGN_OR_RETURN(line.api,
                         server::ParseApiRequest(*endpoint, *body, model.sampling_defaults()));
  if (line.api.stream) {
    return Error{ErrorKind::kUsage, "answers of a batch cannot be streamed", "stream"};
  }
  return server::BuildRequests(line.api, model,
                               {.max_model_len = engine.max_model_len(),
                                .seed = base::CounterRng(engine.seed(), line_number_, 0).NextU64(),
                                .eviction = engine.eviction()});
}

// Lets go of what is still computed for the line.
void BatchJob::Abandon(const std::shared_ptr<OpenLine>& line, engine::Engine& engine) {
  for (auto route = routes_.begin(); route != routes_.end();) {
    if (route->second.line != line) {
      ++route;
      continue;
    }
    engine.Cancel(RequestId{route->first});
    route = routes_.erase(route);
  }
}

void BatchJob::Receive(const engine::SequenceUpdate& update, engine::Engine& engine) {
  const auto route = routes_.find(update.request.value);
  if (route == routes_.end()) return;
  const std::shared_ptr<OpenLine> line = route->second.line;
  if (update.finish == sched::FinishReason::kError) {
    Abandon(line, engine);
    return WriteError(*line, *update.error);
  }
  engine::CompletionBuilder& builder = line->builders[route->second.prompt];
  builder.Add(update);
  if (!builder.done()) return;
  routes_.erase(route);
  for (const engine::CompletionBuilder& other : line->builders) {
    if (!other.done()) return;
  }
  WriteResponse(*line, engine);
}

void BatchJob::WriteResponse(OpenLine& line, const engine::Engine& engine) {
  std::vector<engine::Completion> completions;
  for (engine::CompletionBuilder& builder : line.builders) completions.push_back(builder.Take());
  for (const engine::Completion& completion : completions) {
    totals_.prompt_tokens += completion.usage.prompt_tokens;
    totals_.completion_tokens += completion.usage.completion_tokens;
  }
  ++totals_.succeeded;
  const bool chat = line.api.endpoint == server::Endpoint::kChatCompletions;
  const server::ResponseHeader header{(chat ? "chatcmpl-" : "cmpl-") + line.id,
                                      engine.model().name(), std::time(nullptr)};
  WriteLine({{"id", line.id},
             {"custom_id", line.custom_id},
             {"response",
              {{"status_code", 200},
               {"request_id", line.id},
               {"body", server::MakeOpenAiFormat(header, line.api, engine.model().tokenizer())
                            ->Whole(completions)}}},
             {"error", nullptr}});
}

void BatchJob::WriteError(const OpenLine& line, const Error& error) {
  ++totals_.failed;
  const int status = server::HttpStatus(error.kind);
  const json::value custom_id =
      line.custom_id.empty() ? json::value(nullptr) : json::value(line.custom_id);
  WriteLine(
      {{"id", line.id},
       {"custom_id", custom_id},
       {"response",
        {{"status_code", status}, {"request_id", line.id}, {"body", server::FormatError(error)}}},
       {"error", {{"code", std::to_string(status)}, {"message", error.message}}}});
}

void BatchJob::WriteLine(const json::object& line) {
  output_ << json::serialize(line) << '\n' << std::flush;
}

}  // namespace quire::cli
