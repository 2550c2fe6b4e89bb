#include <algorithm>

#include "text/jinja_interpreter.h"
#include "text/jinja_objects.h"

namespace quire::text::jinja {

Interpreter::Flow Interpreter::Execute(const Body& body, const ScopePtr& scope) {
  Nesting nesting(budget_);
  for (const Statement& statement : body) {
    const Flow flow = Execute(statement, scope);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::Execute(const Statement& statement, const ScopePtr& scope) {
  budget_.Step();
  line_ = statement.line;
  switch (statement.kind) {
    case StatementKind::kText:
      Emit(statement.text);
      return Flow::kNext;
    case StatementKind::kOutput:
      EmitValue(Evaluate(*statement.value, scope));
      return Flow::kNext;
    case StatementKind::kIf: {
      const bool holds = IsTruthy(Evaluate(*statement.value, scope));
      return Execute(holds ? statement.body : statement.otherwise, scope);
    }
    case StatementKind::kFor:
      return ExecuteFor(statement, Evaluate(*statement.value, scope), scope, 0);
    case StatementKind::kSet:
      Assign(statement.target, Evaluate(*statement.value, scope), scope);
      return Flow::kNext;
    case StatementKind::kSetBlock:
      ExecuteSetBlock(statement, scope);
      return Flow::kNext;
    case StatementKind::kFilterBlock:
      return ExecuteFilterBlock(statement, scope);
    case StatementKind::kWith:
      return ExecuteWith(statement, scope);
    case StatementKind::kScope:
      return Execute(statement.body, NewScope(scope));
    case StatementKind::kMacro:
      ExecuteMacro(statement, scope);
      return Flow::kNext;
    case StatementKind::kCallBlock:
      ExecuteCallBlock(statement, scope);
      return Flow::kNext;
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::ExecuteFor(const Statement& loop, const Value& iterable,
                                          const ScopePtr& scope, int depth) {
  Nesting nesting(budget_);
  auto state = std::make_shared<LoopObject>(*this, loop, iterable, scope, depth);
  const Value loop_variable = Value::Callable(state);
  ScopePtr inner;
  while (std::optional<Value> item = state->Advance(*this)) {
    // A scope nobody kept serves the next round too.
    if (inner != nullptr && inner.use_count() == 1) {
      inner->Clear();
    } else {
      inner = NewScope(scope);
    }
    inner->Set("loop", loop_variable);
    Assign(loop.target, *item, inner);
    if (Execute(loop.body, inner) == Flow::kBreak) return Flow::kNext;
  }
  if (inner == nullptr) return Execute(loop.otherwise, NewScope(scope));
  return Flow::kNext;
}

void Interpreter::ExecuteSetBlock(const Statement& statement, const ScopePtr& scope) {
  Value text;
  {
    Capture capture(*this);
    Execute(statement.body, NewScope(scope));
    text = capture.ToValue();
  }
  if (statement.value != nullptr) text = EvaluateFilter(*statement.value, text, scope);
  Assign(statement.target, text, scope);
}

Interpreter::Flow Interpreter::ExecuteFilterBlock(const Statement& statement,
                                                  const ScopePtr& scope) {
  Value text;
  const ScopePtr inner = NewScope(scope);
  {
    Capture capture(*this);
    const Flow flow = Execute(statement.body, inner);
    if (flow != Flow::kNext) return flow;
    text = capture.ToValue();
  }
  const Value filtered = EvaluateFilter(*statement.value, text, inner);
  if (!filtered.is(Kind::kString)) {
    Fail("the filters of a block must give a string, not {}", filtered.TypeName());
  }
  Emit(filtered.text());
  return Flow::kNext;
}

Interpreter::Flow Interpreter::ExecuteWith(const Statement& statement, const ScopePtr& scope) {
  const ScopePtr inner = NewScope(scope);
  for (const auto& [target, value] : statement.bindings) {
    Assign(target, Evaluate(*value, scope), inner);
  }
  return Execute(statement.body, inner);
}

void Interpreter::ExecuteMacro(const Statement& statement, const ScopePtr& scope) {
  auto macro = std::make_shared<MacroObject>(&budget_, *statement.macro, scope);
  Note(scope);  // the scope holds the macro, the macro its scope
  scope->Set(statement.macro->name, Value::Callable(std::move(macro)));
}

void Interpreter::ExecuteCallBlock(const Statement& statement, const ScopePtr& scope) {
  const Expr& call = *statement.value;
  const Value callee = Evaluate(*call.parts[0], scope);
  Arguments arguments = EvaluateArguments(call, scope);
  for (const auto& [name, value] : arguments.named) {
    if (name == "caller") Fail("a call block cannot also be given the argument 'caller'");
  }
  arguments.named.emplace_back(
      "caller", Value::Callable(std::make_shared<MacroObject>(&budget_, *statement.macro, scope)));
  EmitValue(Call(callee, std::move(arguments)));
}

void Interpreter::Assign(const Target& target, const Value& value, const ScopePtr& scope) {
  if (target.kind == TargetKind::kName) {
    scope->Set(target.name, value);
    return;
  }
  if (target.kind == TargetKind::kAttribute) {
    const Value object = Lookup(target.name, *scope);
    if (object.is(Kind::kUndefined)) Fail("{}", object.undefined_hint());
    if (!object.is(Kind::kNamespace)) {
      Fail("'{}' is not a namespace, its attribute '{}' cannot be set", target.name,
           target.attribute);
    }
    object.dict().Set(MakeString(target.attribute), value);
    NoteMutation(object, value);
    return;
  }
  if (value.is(Kind::kUndefined)) Fail("{}", value.undefined_hint());
  const std::vector<Value> items = ToVector(budget_, value);
  if (items.size() != target.parts.size()) {
    Fail("{} values cannot be assigned to {} names", items.size(), target.parts.size());
  }
  for (size_t i = 0; i < items.size(); ++i) Assign(target.parts[i], items[i], scope);
}

void Interpreter::Emit(std::string_view text) {
  const auto bytes = static_cast<int64_t>(text.size());
  budget_.StepBytes(bytes);
  if (out_ == rendered_) {
    if (bytes > budget_.limits().max_output_bytes - static_cast<int64_t>(out_->size())) {
      Raise(
          {ErrorKind::kExhausted,
           fmt::format("the template writes more than {} bytes", budget_.limits().max_output_bytes),
           0});
    }
  } else {
    budget_.Take(bytes);
  }
  *out_ += text;
}

void Interpreter::EmitValue(const Value& value) {
  if (value.is(Kind::kString)) {
    Emit(value.text());
  } else {
    Emit(ToStr(budget_, value));
  }
}

Value Interpreter::CallMacro(const Macro& macro, const ScopePtr& closure, Arguments arguments) {
  Nesting nesting(budget_);
  const int line = line_;
  const ScopePtr scope = NewScope(closure);
  BindParameters(macro, scope, arguments);
  Capture capture(*this);
  Execute(macro.body, scope);
  line_ = line;
  return capture.ToValue();
}

void Interpreter::BindParameters(const Macro& macro, const ScopePtr& scope, Arguments& arguments) {
  const size_t count = macro.parameters.size();
  const size_t first_default = count - macro.defaults.size();
  bool names_caller = false;
  auto take_named = [&](std::string_view name) -> std::optional<Value> {
    const auto found = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [&](const auto& named) { return named.first == name; });
    if (found == arguments.named.end()) return std::nullopt;
    Value value = std::move(found->second);
    arguments.named.erase(found);
    return value;
  };
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = macro.parameters[i];
    names_caller = names_caller || name == "caller";
    std::optional<Value> value;
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    } else {
      value = take_named(name);
    }
    if (!value && i >= first_default) value = Evaluate(*macro.defaults[i - first_default], scope);
    if (!value) value = MakeUndefined(fmt::format("the parameter '{}' was not given", name));
    scope->Set(name, std::move(*value));
  }
  if (macro.uses_caller && !names_caller) {
    scope->Set("caller", take_named("caller").value_or(MakeUndefined("there is no caller")));
  }
  if (macro.uses_kwargs) {
    Value kwargs = Value::Dict(&budget_);
    for (auto& [name, value] : arguments.named) {
      kwargs.dict().Set(MakeString(name), std::move(value));
    }
    scope->Set("kwargs", std::move(kwargs));
  } else if (!arguments.named.empty()) {
    Fail("the macro '{}' has no parameter '{}'", macro.name, arguments.named.front().first);
  }
  std::vector<Value> rest;
  for (size_t i = count; i < arguments.positional.size(); ++i) {
    rest.push_back(std::move(arguments.positional[i]));
  }
  if (macro.uses_varargs) {
    scope->Set("varargs", MakeTuple(std::move(rest)));
  } else if (!rest.empty()) {
    Fail("the macro '{}' takes at most {} arguments", macro.name, count);
  }
}

}  // namespace quire::text::jinja
