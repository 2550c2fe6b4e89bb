// AnswerFormat: a request's answer in the words of one API, whole or as server-sent events.
//
// Made for one request; the tokenizer must outlive it. Choices are numbered over all prompts of the
// body: prompt p's sequence i of n is choice p * n + i.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "base/result.h"
#include "engine/output.h"
#include "server/openai_request.h"
#include "text/tokenizer.h"

namespace quire::server {

// What every response of a request carries.
struct ResponseHeader {
  std::string id;
  std::string model;
  int64_t created = 0;    // seconds since 1970
  int prompt_tokens = 0;  // of all prompts
};

class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  // The completions of all of the body's prompts, in order, as one body.
  virtual boost::json::object Whole(std::span<const engine::Completion> completions) = 0;

  // Server-sent events ("data: ...\n\n"), any number of them, maybe none: at the start, for news of
  // a choice, at the end, and for a failure in between.
  virtual std::string Begin() = 0;
  virtual std::string Update(int choice, const engine::SequenceUpdate& update) = 0;
  virtual std::string End() = 0;
  virtual std::string Failure(const Error& error) = 0;
};

// One server-sent event; with a name where the API's clients tell events apart by it.
std::string SseEvent(const boost::json::object& data);
std::string NamedSseEvent(std::string_view name, const boost::json::object& data);

}  // namespace quire::server
