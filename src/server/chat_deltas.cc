#include "server/chat_deltas.h"

#include <iterator>
#include <string>

namespace quire::server {

ChatDeltas::ChatDeltas(const ApiRequest& request, int choice) : request_(request) {
  if (request.tools.MayCall()) parser_.emplace(request.tool_format, request.call_id_seed + choice);
}

std::vector<ToolDelta> ChatDeltas::Add(std::string_view text,
                                       std::optional<sched::FinishReason> finish) {
  if (!parser_) {
    if (text.empty()) return {};
    return {ContentDelta{std::string(text)}};
  }
  std::string whole;
  if (request_.forced_call && !begun_) whole = request_.forced_call->prefix;
  begun_ = true;
  whole += text;
  if (request_.forced_call && finish == sched::FinishReason::kStop) {
    whole += request_.forced_call->suffix;
  }
  std::vector<ToolDelta> deltas = parser_->Feed(whole);
  if (finish) std::ranges::move(parser_->Finish(), std::back_inserter(deltas));
  return deltas;
}

}  // namespace quire::server
