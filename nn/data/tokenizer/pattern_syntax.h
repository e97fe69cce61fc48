// Oniguruma's regular expressions, in Ruby's syntax, written for PCRE2.
#pragma once

#include <string>
#include <string_view>

namespace sotto {

// The expression with the same meaning in PCRE2 with UTF, UCP and MULTILINE. Throws
// std::invalid_argument, which names the construct, for one without: sets within sets and their
// intersections, repeated {n,m}+, negated words within a set.
std::string pcre2_syntax(std::string_view expression);

}  // namespace sotto
