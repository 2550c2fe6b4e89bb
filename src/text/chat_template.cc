#include "text/chat_template.h"

#include <utility>

namespace quire::text {

Result<ChatTemplate> ChatTemplate::Create(std::string source, std::string bos_token,
                                          std::string eos_token) {
  QUIRE_ASSIGN_OR_RETURN(jinja::Template parsed, jinja::Template::Parse(source));
  return ChatTemplate(std::move(source), std::move(parsed), std::move(bos_token),
                      std::move(eos_token));
}

Result<std::string> ChatTemplate::Render(const boost::json::array& messages,
                                         const boost::json::object& extra,
                                         const jinja::RenderOptions& options) const {
  boost::json::object args;
  args["bos_token"] = bos_token_;
  args["eos_token"] = eos_token_;
  args["messages"] = messages;
  for (const auto& [name, value] : extra) args[name] = value;
  return template_.Render(args, options);
}

}  // namespace quire::text
