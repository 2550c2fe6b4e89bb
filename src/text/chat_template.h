// A model's chat template: a conversation in, the prompt's text out.
//
// Immutable; any number of threads may render it at once. The engine behind it is jinja.h.
#pragma once

#include <string>

#include <boost/json.hpp>

#include "base/result.h"
#include "text/jinja.h"

namespace quire::text {

class ChatTemplate {
 public:
  // `source`: the Jinja template of tokenizer_config.json, chat_template.jinja or GGUF metadata.
  // The tokens are what the template's variables bos_token and eos_token hold; empty where the
  // model has none.
  static Result<ChatTemplate> Create(std::string source, std::string bos_token,
                                     std::string eos_token);

  const std::string& source() const { return source_; }

  // `messages`: objects with role and content as in the OpenAI API. `extra`: what else the template
  // sees: tools, documents, add_generation_prompt and the like; it wins over bos_token and
  // eos_token. What the template refuses (raise_exception) is an error with its words.
  Result<std::string> Render(const boost::json::array& messages, const boost::json::object& extra,
                             const jinja::RenderOptions& options = {}) const;

 private:
  ChatTemplate(std::string source, jinja::Template parsed, std::string bos_token,
               std::string eos_token)
      : source_(std::move(source)),
        template_(std::move(parsed)),
        bos_token_(std::move(bos_token)),
        eos_token_(std::move(eos_token)) {}

  std::string source_;
  jinja::Template template_;
  std::string bos_token_;
  std::string eos_token_;
};

}  // namespace quire::text
