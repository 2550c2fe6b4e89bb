#include "cli/trace_file.h"

#include <algorithm>

#include <boost/json.hpp>

#include "server/field_reader.h"

namespace quire::cli {
namespace {

namespace json = boost::json;
using sched::TraceRequest;

constexpr double kMaxTokens = 1 << 24;
constexpr double kMaxStream = 1 << 30;
constexpr int64_t kOwnContents = int64_t{1} << 32;  // of requests that name none

Result<TraceRequest> ParseRequest(const json::object& object) {
  TraceRequest request;
  server::FieldReader fields(object);
  fields.Double("arrival_s", request.arrival_s, {0, 1e12});
  int prefix = 0;
  fields.Int("prefix", prefix, {0, kMaxStream});
  fields.Int("prefix_tokens", request.prefix_tokens, {0, kMaxTokens});
  int content = 0;
  fields.Int("content", content, {0, kMaxStream});
  fields.Int("prompt_tokens", request.prompt_tokens, {0, kMaxTokens});
  fields.TokenIds("prompt", request.prompt_ids);
  fields.Int("output_tokens", request.output_tokens, {1, kMaxTokens});
  fields.Int("priority", request.priority, {-1e9, 1e9});
  fields.Int("n", request.n, {1, 128});
  fields.String("cache_salt", request.cache_salt);
  QUIRE_RETURN_IF_ERROR(fields.status());
  if (fields.Find("prefix") != nullptr) request.prefix = prefix;
  request.content = content;
  if (fields.Find("prompt") != nullptr) {
    if (request.prefix_tokens > 0 || request.prompt_tokens > 0) {
      return Error{ErrorKind::kInvalid,
                   "give either 'prompt' or 'prefix_tokens' and 'prompt_tokens', not both"};
    }
    request.prompt_tokens = static_cast<int>(request.prompt_ids.size());
  }
  if (request.prefix_tokens > 0 && !request.prefix) {
    return Error{ErrorKind::kInvalid, "'prefix_tokens' needs 'prefix', the number of the prefix"};
  }
  if (request.prefix_tokens + request.prompt_tokens == 0) {
    return Error{ErrorKind::kInvalid, "the prompt is empty; give 'prompt' or 'prompt_tokens'"};
  }
  if (request.output_tokens == 0) {
    return Error{ErrorKind::kInvalid, "'output_tokens' is missing"};
  }
  return request;
}

Result<TraceRequest> ParseLine(std::string_view line) {
  json::error_code code;
  const json::value value = json::parse(line, code);
  if (code) return MakeError(ErrorKind::kInvalid, "it is no JSON ({})", code.message());
  if (!value.is_object()) return Error{ErrorKind::kInvalid, "it is no JSON object"};
  QUIRE_ASSIGN_OR_RETURN(TraceRequest request, ParseRequest(value.get_object()));
  if (!value.get_object().contains("content")) request.content = -1;
  return request;
}

}  // namespace

Result<std::vector<TraceRequest>> ParseTrace(std::string_view text, std::string_view path) {
  std::vector<TraceRequest> trace;
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Result<TraceRequest> request = ParseLine(line);
    if (!request.ok()) {
      return MakeError(ErrorKind::kInvalid, "line {} of '{}' is no request: {}", number, path,
                       request.error().message);
    }
    if (request->content < 0) request->content = kOwnContents + number;
    trace.push_back(*std::move(request));
  }
  std::ranges::stable_sort(trace, {}, &TraceRequest::arrival_s);
  return trace;
}

std::string FormatTrace(const std::vector<TraceRequest>& trace) {
  std::string text;
  for (const TraceRequest& request : trace) {
    json::object line;
    line["arrival_s"] = request.arrival_s;
    if (!request.prompt_ids.empty()) {
      line["prompt"] = json::value_from(request.prompt_ids);
    } else {
      if (request.prefix) line["prefix"] = *request.prefix;
      if (request.prefix) line["prefix_tokens"] = request.prefix_tokens;
      line["content"] = request.content;
      line["prompt_tokens"] = request.prompt_tokens;
    }
    line["output_tokens"] = request.output_tokens;
    if (request.priority != 0) line["priority"] = request.priority;
    if (request.n != 1) line["n"] = request.n;
    if (!request.cache_salt.empty()) line["cache_salt"] = request.cache_salt;
    text += json::serialize(line) + "\n";
  }
  return text;
}

}  // namespace quire::cli
