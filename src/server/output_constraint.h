// What an answer must look like, as clients ask for it: OpenAI's response_format, vLLM's guided_*
// and structured_outputs. A pure function; any thread may call it.
#pragma once

#include <optional>

#include "sched/request.h"
#include "server/field_reader.h"

namespace quire::server {

// Leaves `constraint` alone where nothing is asked. Two wishes at once are an error, as is a
// response_format of another type than text, json_object and json_schema.
void ReadConstraint(FieldReader& reader, std::optional<sched::OutputConstraint>& constraint);

}  // namespace quire::server
