// ToolCallScanner: follows one call of a tool byte by byte and says what it knows of it so far.
//
// Used by ToolCallParser alone. It checks the JSON as it goes and keeps the name, never the
// arguments: which bytes belong to them is told by arguments() before and after each byte.
#pragma once

#include <memory>
#include <string>

namespace quire::server {

class ToolCallScanner {
 public:
  enum class Shape {
    kCall,       // {"name": .., "arguments": {..}} after a marker; other members are passed over
    kBareCall,   // the same without a marker: other members than "id" and "type" make it no call
    kArguments,  // {..}: the arguments alone
  };

  enum class Arguments {
    kNone,
    kOpen,    // their first brace was written, the last one was not
    kClosed,  // an object, complete
    kText,    // a string that holds an object; see text_arguments()
    kNull,
  };

  explicit ToolCallScanner(Shape shape);
  ~ToolCallScanner();
  ToolCallScanner(ToolCallScanner&&) noexcept;
  ToolCallScanner& operator=(ToolCallScanner&&) noexcept;

  // The next byte, from the opening brace on. False: with it the text is no call; nothing may be
  // written after that.
  bool Write(char byte);

  bool done() const;                // the closing brace was written
  const std::string& name() const;  // empty until complete
  Arguments arguments() const;
  const std::string& text_arguments() const;  // the object in the string, unescaped

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What stands between the marker and the arguments in Mistral's newer format: a name, perhaps an id
// after [CALL_ID], perhaps [ARGS].
class NamedCallHead {
 public:
  enum class Step { kMore, kArguments, kBroken };

  // kArguments: `byte` is the arguments' first brace.
  Step Write(char byte);

  const std::string& name() const { return name_; }

 private:
  enum class Part { kName, kTag, kId, kGap };

  Step WriteTag(char byte);

  Part part_ = Part::kName;
  std::string name_;
  std::string tag_;
};

}  // namespace quire::server
