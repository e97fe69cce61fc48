#include "nn/data/tokenizer/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/error.h"
#include "core/io/utf8.h"
#include "nn/data/tokenizer/pattern_syntax.h"

namespace sotto {

struct Pattern::Code {
  std::string expression;
  std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> compiled{nullptr, &pcre2_code_free};
};

namespace {

using MatchData = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;
using Context = std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)>;
using Stack = std::unique_ptr<pcre2_jit_stack, decltype(&pcre2_jit_stack_free)>;

std::string error_text(int error) {
  std::string text(128, '\0');
  const int size =
      pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(text.data()), text.size());
  text.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
  return text;
}

// Patterns that a file holds fit; a longer one would take long to compile.
constexpr std::size_t max_expression = 100'000;

// One text and the places to search in it.
class Search {
 public:
  Search(const pcre2_code* code, const std::string& expression, std::string_view text)
      : code_(code),
        expression_(expression),
        text_(text),
        found_(pcre2_match_data_create_from_pattern(code, nullptr), &pcre2_match_data_free) {
    if (!found_) throw std::bad_alloc();
  }

  // The first match from `at` on; `options` are PCRE2's.
  bool next(std::size_t at, std::uint32_t options, TextRange& range) {
    int status = match(at, options, nullptr);
    if (status == PCRE2_ERROR_JIT_STACKLIMIT) status = with_large_stack(at, options);
    if (status == PCRE2_ERROR_NOMATCH) return false;
    if (status < 0) {
      throw SystemFailure(fmt::format("pattern {}: {} in a text of {} bytes", excerpt(expression_),
                                      error_text(status), text_.size()));
    }
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(found_.get());
    range = {ends[0], ends[1]};
    return true;
  }

 private:
  int match(std::size_t at, std::uint32_t options, pcre2_match_context* context) {
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), at,
                       options | PCRE2_NO_UTF_CHECK, found_.get(), context);
  }
  int with_large_stack(std::size_t at, std::uint32_t options) {
    constexpr std::size_t start = std::size_t{1} << 20, max = std::size_t{1} << 26;  // bytes
    const Context context(pcre2_match_context_create(nullptr), &pcre2_match_context_free);
    const Stack stack(pcre2_jit_stack_create(start, max, nullptr), &pcre2_jit_stack_free);
    if (!context || !stack) throw std::bad_alloc();
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
    return match(at, options, context.get());
  }

  const pcre2_code* code_;
  const std::string& expression_;
  std::string_view text_;
  MatchData found_;
};

std::size_t next_character(std::string_view text, std::size_t at) {
  return at + (at < text.size() ? character_bytes(text.substr(at)) : 1);
}

}  // namespace

Pattern Pattern::of_pcre2(const std::string& expression) {
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE at = 0;
  auto code = std::make_shared<Code>();
  code->expression = expression;
  code->compiled.reset(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &at,
                    context.get()));
  check(code->compiled != nullptr, "pattern {}: {} at {}", excerpt(expression), error_text(error),
        at);
  // Without a just-in-time compiler, as on some processors, the pattern is interpreted.
  pcre2_jit_compile(code->compiled.get(), PCRE2_JIT_COMPLETE);
  return Pattern(std::move(code));
}

Pattern::Pattern(std::string_view expression, const std::string& where) {
  check(expression.size() <= max_expression, "{}: a pattern of {} bytes, above {}", where,
        expression.size(), max_expression);
  try {
    code_ = of_pcre2(pcre2_syntax(expression)).code_;
  } catch (const std::invalid_argument& error) {
    fail(fmt::format("{}: {}", where, error.what()));
  }
}

std::vector<TextRange> Pattern::matches(std::string_view text) const {
  std::vector<TextRange> y;
  Search search(code_->compiled.get(), code_->expression, text);
  TextRange found;
  for (std::size_t at = 0; at <= text.size() && search.next(at, 0, found);) {
    if (found.begin == found.end && !y.empty() && y.back().end == found.end) {
      at = next_character(text, at);  // an empty match just behind another
    } else {
      y.push_back(found);
      at = found.end;
    }
  }
  return y;
}

bool Pattern::begins(std::string_view text) const {
  TextRange found;
  return Search(code_->compiled.get(), code_->expression, text).next(0, PCRE2_ANCHORED, found);
}

bool Pattern::fits(std::string_view text) const {
  TextRange found;
  return Search(code_->compiled.get(), code_->expression, text)
      .next(0, PCRE2_ANCHORED | PCRE2_ENDANCHORED, found);
}

}  // namespace sotto
