// JsonSchemaCompiler: a JSON schema as rules of a GrammarBuilder. CompileJsonSchema (grammar.h) is
// this and Build; docs/STRUCTURED_OUTPUTS.md says what each keyword means here.
//
// Every subschema becomes a rule, the same text the same rule: so recursion by $ref ends, and the
// size of the grammar is about that of the schema. Errors name the keyword and the JSON pointer of
// the schema it stands in.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "text/grammar_builder.h"
#include "text/grammar_json.h"

namespace quire::text {

class JsonSchemaCompiler {
 public:
  // `root` must outlive the compiler.
  JsonSchemaCompiler(const boost::json::value& root, GrammarBuilder& builder)
      : root_(root), builder_(builder), json_(builder) {}

  // Defines rule 0.
  Status Compile();

 private:
  using Expr = GrammarBuilder::Expr;
  using Object = boost::json::object;

  // Where a schema stands: its JSON pointer, and how many it lies within.
  struct Place {
    std::string pointer;
    int nesting = 0;
    Place At(std::string_view key) const;
  };

  Result<Expr> Schema(const boost::json::value& schema, const Place& place);
  Result<Expr> Body(const Object& schema, const Place& place);
  Result<Expr> Alternatives(const Object& schema, std::string_view keyword, const Place& place);
  Result<Expr> Values(const Object& schema, const Place& place);
  Result<Expr> OfType(std::string_view type, const Object& schema, const Place& place);
  Result<Expr> Number(const Object& schema, NumberKind kind, const Place& place);
  Result<Expr> String(const Object& schema, const Place& place);
  Result<Expr> Array(const Object& schema, const Place& place);

  // json_schema_object.cc
  struct Property {
    std::string name;
    Expr member = 0;  // with its name
    bool required = false;
  };
  Result<Expr> ObjectOf(const Object& schema, const Place& place);
  Result<std::vector<Property>> Properties(const Object& schema, const Place& place);
  Result<std::set<std::string>> Required(const Object& schema, const Place& place) const;
  Expr Members(const std::vector<Property>& properties, std::optional<Expr> additional);

  Status CheckKeywords(const Object& schema, const Place& place) const;
  Result<std::vector<std::string>> Types(const Object& schema, const Place& place) const;
  // `schema` with $ref and allOf replaced by what they stand for.
  Result<Object> Resolved(const boost::json::value& schema, const Place& place);
  Result<const boost::json::value*> Target(const boost::json::value& reference,
                                           const Place& place) const;
  // A count like minLength; `otherwise` where absent.
  Result<uint32_t> Count(const Object& schema, std::string_view keyword, uint32_t otherwise,
                         const Place& place) const;
  Error Wrong(const Place& place, std::string_view problem) const;
  Error Unsupported(const Place& place, std::string_view feature) const;
  Error InPlace(Error error, const Place& place) const;

  const boost::json::value& root_;
  GrammarBuilder& builder_;
  JsonExpressions json_;
  std::map<std::string, GrammarBuilder::RuleId, std::less<>> rules_;  // by the schema's text
  size_t work_ = 0;
};

}  // namespace quire::text
