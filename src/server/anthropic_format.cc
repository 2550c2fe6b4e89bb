#include "server/anthropic_format.h"

#include <utility>
#include <vector>

#include "server/anthropic_response.h"
#include "server/chat_deltas.h"
#include "server/openai_format.h"

namespace quire::server {
namespace json = boost::json;
namespace {

std::string Sse(const std::vector<AnthropicEvent>& events) {
  std::string text;
  for (const AnthropicEvent& event : events) text += NamedSseEvent(event.name, event.data);
  return text;
}

class AnthropicFormat : public AnswerFormat {
 public:
  AnthropicFormat(ResponseHeader header, const ApiRequest& request)
      : header_{std::move(header.id), std::move(header.model)},
        prompt_tokens_(header.prompt_tokens),
        deltas_(request, 0),
        stream_(header_) {}

  json::object Whole(std::span<const engine::Completion> completions) override {
    const engine::Completion& completion = completions.front();
    const engine::Choice& choice = completion.choices.front();
    return FormatAnthropicMessage(header_, deltas_.Add(choice.text, choice.finish),
                                  {choice.finish, choice.stop_reason, completion.usage});
  }
  std::string Begin() override { return Sse(stream_.Start({.prompt_tokens = prompt_tokens_})); }
  std::string Update(int, const engine::SequenceUpdate& update) override {
    if (update.finish) end_ = {*update.finish, update.stop_reason, update.usage};
    return Sse(stream_.Add(deltas_.Add(update.text, update.finish)));
  }
  std::string End() override { return Sse(stream_.Finish(end_)); }
  std::string Failure(const Error& error) override {
    return Sse({AnthropicStream::Failure(HttpStatus(error.kind), error.message)});
  }

 private:
  AnthropicHeader header_;
  int prompt_tokens_;
  ChatDeltas deltas_;
  AnthropicStream stream_;
  AnthropicEnd end_;
};

}  // namespace

std::unique_ptr<AnswerFormat> MakeAnthropicFormat(ResponseHeader header,
                                                  const ApiRequest& request) {
  return std::make_unique<AnthropicFormat>(std::move(header), request);
}

}  // namespace quire::server
