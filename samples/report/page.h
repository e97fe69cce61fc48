// The parts that all pages share: head and foot, sections, lists, and the banners on top.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "samples/report/provenance.h"

namespace sotto {

struct Page {
  std::string title;
  std::string body;   // HTML, below the title
  std::string style;  // besides report_style
  Provenance origin;  // shown at the end
};

// A whole page: UTF-8, well-formed as XML, and needs no other file.
std::string to_html(const Page& page);

// HTML below a heading, which is escaped; without a heading if it is empty.
std::string section(const std::string& heading, const std::string& body);

// Names and values, which are escaped, in a list of the style sheet's class "facts" or "settings".
using NamedTexts = std::vector<std::pair<std::string, std::string>>;
std::string definitions(const char* style, const NamedTexts& rows);

// The texts, which are escaped, in a list.
std::string bullets(const std::vector<std::string>& texts);

// A box that stands out: the words in bold, and HTML.
std::string banner(const std::string& bold, const std::string& html);
// That of a page that no guarantee covers; `why` is HTML.
std::string secret_banner(const std::string& why);

}  // namespace sotto
