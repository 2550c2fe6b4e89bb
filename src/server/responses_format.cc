#include "server/responses_format.h"

#include <utility>

#include "server/chat_deltas.h"
#include "server/http_error.h"
#include "server/openai_format.h"

namespace quire::server {
namespace json = boost::json;
namespace {

json::object UsageBody(const engine::Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"output_tokens", usage.completion_tokens},
          {"output_tokens_details", {{"reasoning_tokens", 0}}},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

json::object TextPart(std::string_view text) {
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", json::array()},
          {"logprobs", json::array()}};
}

// An answer is a list of items: messages and calls. Whole answers are made of the same events as
// streamed ones; only the items are kept.
class ResponsesFormat : public AnswerFormat {
 public:
  ResponsesFormat(ResponseHeader header, const ApiRequest& request, json::object settings)
      : header_(std::move(header)), settings_(std::move(settings)), deltas_(request, 0) {}

  json::object Whole(std::span<const engine::Completion> completions) override {
    const engine::Choice& choice = completions.front().choices.front();
    Take(deltas_.Add(choice.text, choice.finish));
    Close(choice.finish);
    return Body(StatusOf(choice.finish), &completions.front().usage);
  }

  std::string Begin() override {
    Event("response.created", {{"response", Body("in_progress", nullptr)}});
    Event("response.in_progress", {{"response", Body("in_progress", nullptr)}});
    return std::exchange(events_, {});
  }
  std::string Update(int, const engine::SequenceUpdate& update) override {
    Take(deltas_.Add(update.text, update.finish));
    if (update.finish) {
      Close(*update.finish);
      const std::string status = StatusOf(*update.finish);
      Event("response." + status, {{"response", Body(status, &update.usage)}});
    }
    return std::exchange(events_, {});
  }
  std::string End() override { return ""; }
  std::string Failure(const Error& error) override {
    json::object body = Body("failed", nullptr);
    body["error"] = {{"code", "server_error"}, {"message", error.message}};
    Event("response.failed", {{"response", std::move(body)}});
    return std::exchange(events_, {});
  }

 private:
  static std::string StatusOf(sched::FinishReason reason) {
    return reason == sched::FinishReason::kLength ? "incomplete" : "completed";
  }

  json::object Body(std::string_view status, const engine::Usage* usage) const {
    json::object body = settings_;
    body["id"] = header_.id;
    body["object"] = "response";
    body["created_at"] = header_.created;
    body["status"] = status;
    body["error"] = nullptr;
    body["incomplete_details"] = nullptr;
    if (status == "incomplete") body["incomplete_details"] = {{"reason", "max_output_tokens"}};
    body["model"] = header_.model;
    body["output"] = items_;
    body["previous_response_id"] = nullptr;
    body["reasoning"] = {{"effort", nullptr}, {"summary", nullptr}};
    body["store"] = false;
    body["truncation"] = "disabled";
    body["usage"] = usage == nullptr ? json::value(nullptr) : json::value(UsageBody(*usage));
    return body;
  }

  void Event(std::string_view type, json::object fields) {
    json::object data{{"type", type}, {"sequence_number", sequence_number_++}};
    for (json::key_value_pair& field : fields) data.emplace(field.key(), std::move(field.value()));
    events_ += NamedSseEvent(type, data);
  }
  // Of the item under way.
  json::object Place() const { return {{"item_id", item_id_}, {"output_index", items_.size()}}; }
  json::object PartPlace() const {
    json::object place = Place();
    place["content_index"] = 0;
    return place;
  }

  void Take(const std::vector<ToolDelta>& deltas) {
    for (const ToolDelta& delta : deltas) std::visit([&](const auto& one) { Take(one); }, delta);
  }
  void Take(const ContentDelta& delta) {
    if (delta.text.empty()) return;
    if (open_ != Open::kMessage) OpenMessage();
    text_ += delta.text;
    json::object event = PartPlace();
    event["delta"] = delta.text;
    event["logprobs"] = json::array();
    Event("response.output_text.delta", std::move(event));
  }
  void Take(const CallStartDelta& delta) {
    Close(sched::FinishReason::kStop);
    open_ = Open::kCall;
    item_id_ = "fc_" + delta.id;
    item_ = {{"id", item_id_},      {"type", "function_call"}, {"status", "in_progress"},
             {"call_id", delta.id}, {"name", delta.name},      {"arguments", ""}};
    Event("response.output_item.added", {{"output_index", items_.size()}, {"item", item_}});
  }
  void Take(const ArgumentsDelta& delta) {
    text_ += delta.text;
    json::object event = Place();
    event["delta"] = delta.text;
    Event("response.function_call_arguments.delta", std::move(event));
  }

  void OpenMessage() {
    Close(sched::FinishReason::kStop);
    open_ = Open::kMessage;
    item_id_ = fmt::format("msg_{}_{}", header_.id, items_.size());
    item_ = {{"id", item_id_},
             {"type", "message"},
             {"status", "in_progress"},
             {"role", "assistant"},
             {"content", json::array()}};
    Event("response.output_item.added", {{"output_index", items_.size()}, {"item", item_}});
    json::object event = PartPlace();
    event["part"] = TextPart("");
    Event("response.content_part.added", std::move(event));
  }

  // Ends the item under way.
  void Close(sched::FinishReason reason) {
    if (open_ == Open::kNone) return;
    if (open_ == Open::kMessage) {
      json::object done = PartPlace();
      done["text"] = text_;
      done["logprobs"] = json::array();
      Event("response.output_text.done", std::move(done));
      json::object part = PartPlace();
      part["part"] = TextPart(text_);
      Event("response.content_part.done", std::move(part));
      item_["content"] = json::array{TextPart(text_)};
    } else {
      json::object done = Place();
      done["name"] = item_["name"];
      done["arguments"] = text_;
      Event("response.function_call_arguments.done", std::move(done));
      item_["arguments"] = text_;
    }
    item_["status"] = StatusOf(reason);
    Event("response.output_item.done", {{"output_index", items_.size()}, {"item", item_}});
    items_.push_back(std::move(item_));
    text_.clear();
    open_ = Open::kNone;
  }

  enum class Open { kNone, kMessage, kCall };

  ResponseHeader header_;
  json::object settings_;
  ChatDeltas deltas_;
  json::array items_;  // complete ones
  Open open_ = Open::kNone;
  json::object item_;  // under way
  std::string item_id_;
  std::string text_;  // of the item under way: its text or its arguments
  int64_t sequence_number_ = 0;
  std::string events_;  // not yet given out
};

}  // namespace

std::unique_ptr<AnswerFormat> MakeResponsesFormat(ResponseHeader header, const ApiRequest& request,
                                                  json::object settings) {
  return std::make_unique<ResponsesFormat>(std::move(header), request, std::move(settings));
}

}  // namespace quire::server
